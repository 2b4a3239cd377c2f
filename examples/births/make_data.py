"""Write births in the United States as the tables of three sites that differ.

    python examples/births/make_data.py FOLDER

FOLDER gets `site1.csv`, `site2.csv` and `site3.csv`, with 270 births each. Births of one kind are
three times as likely at each site (README.md says which). The draw always has the same seed. The
records are not part of this repository; README.md says where they come from.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for reproductions
from reproductions.data.births import births14, skewed
from secagg.errors import UsageError

SITE_RECORDS = 270
SEED = 1


def make(folder: Path) -> None:
    """Write the three sites' tables into `folder`, which is created if necessary."""
    try:
        sites, _ = skewed(births14(), SEED, site_records=SITE_RECORDS, public_records=0)
    except UsageError as error:
        sys.exit(error.line())
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in sites.items():
        path = folder / f"{name}.csv"
        table.to_csv(path, index=False, lineterminator="\n")
        print(f"{path}: {len(table)} births")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Use: python examples/births/make_data.py FOLDER")
    make(Path(sys.argv[1]))
