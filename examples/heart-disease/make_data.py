"""Write the records of four hospitals, one CSV file each, from UCI's heart-disease data.

    python examples/heart-disease/make_data.py [FOLDER]

FOLDER (by default the folder of this script) gets `data/cleveland.csv`, `data/hungary.csv`,
`data/switzerland.csv`, `data/va_long_beach.csv` and `SHA256SUMS`. What is changed, and what each
column means, is in README.md. Numbers are copied as text, so the files have the same bytes on every
machine.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for packaged.py, shared by examples
from packaged import packaged_file

from reproductions.data.heart_disease import RELABELLED, SOURCE, SOURCE_SHA256

HOSPITALS = {
    "Cleveland": "cleveland.csv",
    "Hungary": "hungary.csv",
    "Switzerland": "switzerland.csv",
    "VA Long Beach": "va_long_beach.csv",
}

BINARY = {"TRUE": "1", "FALSE": "0", "": ""}

Row = Mapping[str, str]


def hospital(source: Row) -> str:
    """Return the hospital that the record comes from, with its label corrected."""
    return RELABELLED.get(source["id"], source["dataset"])


def positive(measurement: str) -> str:
    """Return a measurement that cannot be zero in a living person; "0" means a missing value."""
    return "" if measurement == "0" else measurement


def record(source: Row) -> dict[str, str]:
    """Return one record under the new column names; an empty text is a missing value."""
    return {
        "age": source["age"],
        "sex": source["sex"].lower(),
        "chest_pain": source["cp"],
        "rest_bp": positive(source["trestbps"]),
        "cholesterol": positive(source["chol"]),
        "fasting_sugar_high": BINARY[source["fbs"]],
        "rest_ecg": source["restecg"],
        "max_heart_rate": source["thalch"],
        "exercise_angina": BINARY[source["exang"]],
        "st_depression": source["oldpeak"],
        "disease": "0" if source["num"] == "0" else "1",
    }


def make(folder: Path) -> None:
    """Write the four files and their checksums below `folder`."""
    with packaged_file(*SOURCE, SOURCE_SHA256).open(newline="", encoding="utf-8") as stream:
        source = list(csv.DictReader(stream))
    (folder / "data").mkdir(parents=True, exist_ok=True)
    checksums = []
    for name, file_name in HOSPITALS.items():
        records = [record(row) for row in source if hospital(row) == name]
        path = folder / "data" / file_name
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)
        checksums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  data/{file_name}\n")
        print(f"{path}: {len(records)} records")
    (folder / "SHA256SUMS").write_text("".join(checksums), encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
