"""Write Sachs's protein-signalling measurements as the tables of eight sites.

    python examples/sachs/make_data.py FOLDER

FOLDER gets `site_1.csv` to `site_8.csv`: the 853 cells of the observational condition
(anti-CD3/CD28, the first 853 rows of the source), split by row order into eight runs of 107 or 106
cells. Only text is moved; taking logarithms is the job's business. The data are not part of this
repository; README.md says why, and where they and `truth.csv` come from.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for packaged.py, shared by examples
from packaged import packaged_file

SOURCE = ("cdt", "data/resources/cyto_full_data.csv")
SOURCE_SHA256 = "fc331dcd0bc1d8765986b88cd1d23dd5a3f52e4ffc299fdf96de9d522ddf01aa"

CELLS = 853  # later rows were measured under interventions
SITES = 8

PROTEINS = {  # name in the source -> name in the consensus graph (truth.csv)
    "praf": "Raf",
    "pmek": "Mek",
    "plcg": "Plcg",
    "PIP2": "PIP2",
    "PIP3": "PIP3",
    "p44/42": "Erk",
    "pakts473": "Akt",
    "PKA": "PKA",
    "PKC": "PKC",
    "P38": "P38",
    "pjnk": "Jnk",
}


def make(folder: Path) -> None:
    """Write the eight sites' tables into `folder`, which is made where it does not exist."""
    with packaged_file(*SOURCE, SOURCE_SHA256).open(newline="", encoding="utf-8") as stream:
        cells = list(csv.DictReader(stream))[:CELLS]
    folder.mkdir(parents=True, exist_ok=True)
    for site in range(SITES):
        # Cuts at i * 853 / 8, rounded up, leave runs that differ by one cell at most.
        first, end = (-(-(site + i) * CELLS // SITES) for i in (0, 1))
        path = folder / f"site_{site + 1}.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(PROTEINS.values())
            for cell in cells[first:end]:
                writer.writerow([cell[column] for column in PROTEINS])
        print(f"{path}: {end - first} cells")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Use: python examples/sachs/make_data.py FOLDER")
    make(Path(sys.argv[1]))
