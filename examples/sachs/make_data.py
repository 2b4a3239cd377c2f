"""Write Sachs's protein-signalling measurements as the tables of eight sites.

    python examples/sachs/make_data.py FOLDER

FOLDER gets `site_1.csv` to `site_8.csv`: the 853 cells of the observational condition
(anti-CD3/CD28, the first 853 rows of the source), split by row order into eight runs of 107 or 106
cells. The text of each cell is copied; the job takes the logarithms. The data are not part of this
repository; README.md says why, and where they and `truth.csv` come from.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for reproductions
from reproductions.data.sachs import CELLS, observational_cells
from secagg.errors import UsageError

SITES = 8


def make(folder: Path) -> None:
    """Write the eight sites' tables into `folder`, which is created if necessary."""
    try:
        cells = observational_cells()
    except UsageError as error:
        sys.exit(error.line())
    folder.mkdir(parents=True, exist_ok=True)
    for site in range(SITES):
        # Cuts at i * 853 / 8, rounded up, leave runs that differ by one cell at most.
        first, end = (-(-(site + i) * CELLS // SITES) for i in (0, 1))
        path = folder / f"site_{site + 1}.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(cells[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(cells[first:end])
        print(f"{path}: {end - first} cells")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Use: python examples/sachs/make_data.py FOLDER")
    make(Path(sys.argv[1]))
