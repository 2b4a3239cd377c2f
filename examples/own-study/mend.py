"""Mend the files of docs/own-study.md: read `raw/`, write `data/`.

    python examples/own-study/mend.py

Each hospital does this for its own file, with its own software.
"""

from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent

(HERE / "data").mkdir(exist_ok=True)
for path in sorted((HERE / "raw").glob("*.csv")):
    table = pd.read_csv(path, keep_default_na=False)
    table["smoker"] = table["smoker"].replace(-9, pd.NA)  # unknown: an empty cell
    table["crp"] = table["crp"].replace(999, pd.NA)  # not measured
    table["sex"] = table["sex"].replace({"F": "female", "M": "male"})
    table["ward"] = table["ward"].replace("burns", "surgical")  # too few patients
    if path.stem == "sligo":
        table["crp"] = pd.to_numeric(table["crp"]) * 10  # mg/dl in this file
    table.to_csv(HERE / "data" / path.name, index=False, lineterminator="\n")
