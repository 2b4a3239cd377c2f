"""All births of the United States in 2015, linked with infant deaths: the records of FedNGM.

Chajewska and Shrivastava (2023), section 3.1. No package contains them. The CDC's National Center
for Health Statistics publishes the cohort linked birth and infant death file of 2015 on its page
"Vital Statistics Online"; the National Bureau of Economic Research has it as CSV. One of these
files is read from the user's folder:

    VS15LKBC.PublicUse.DUSDENOM    the denominator-plus file: a line of fixed width for each birth
    linkco2015usden.csv            the same, with a line of names

`POSITIONS` follows "Public Use Data File Documentation, 2015 Cohort Linked Birth/Infant Death Data
Set" (NCHS); it was checked against four published programs that read this file. A survivor has
blanks for the age at death and its cause.

The paper has some 500 variables, of which it names few. We read those that it names, and others of
its list that nearly all births have. Births with an unknown value are left out. Survival and cause
of death are one column, `cause`, with the paper's twelve levels: alive, ten causes, and all others.
The paper does not say which causes are the ten. Here they are the ten leading causes of 2015 in the
ranking of the NCHS, by the codes of ICD-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproductions.data.births import Births
from secagg.errors import UsageError

FIXED_WIDTH: Final = "VS15LKBC.PublicUse.DUSDENOM"
CSV: Final = ("linkco2015usden.csv", "linkco2015us_den.csv")
FILES: Final = (FIXED_WIDTH, *CSV)

POSITIONS: Final = {  # first and last, from 1
    "mager": (75, 76), "mracehisp": (117, 117), "dmar": (120, 120), "meduc": (124, 124),
    "priorlive": (171, 172), "previs": (238, 239), "cig_rec": (269, 269), "bmi": (283, 286),
    "wtgain": (304, 305), "me_rout": (402, 402), "pay": (435, 435), "apgar5": (444, 445),
    "dplural": (454, 454), "sex": (475, 475), "combgest": (490, 491), "brthwgt": (512, 515),
    "aged": (1356, 1358), "ucod": (1368, 1371),
}  # fmt: skip
_OTHER_NAMES: Final = {"uc0d": "ucod", "dbwt": "brthwgt"}  # that files have

NUMBERS: Final = {  # smallest and largest value that is known; public bounds
    "mager": (12, 50), "meduc": (1, 8), "priorlive": (0, 50), "previs": (0, 98), "bmi": (13, 69.9),
    "wtgain": (0, 98), "apgar5": (0, 10), "combgest": (17, 47), "brthwgt": (227, 8165),
}  # fmt: skip
LEVELS: Final[dict[str, dict[str, str]]] = {  # code -> level; any other code is unknown
    "mracehisp": {"1": "white", "2": "black", "7": "hispanic",
                  **dict.fromkeys("3456", "other")},
    "dmar": {"1": "married", "2": "unmarried"},
    "cig_rec": {"N": "no", "Y": "yes"},
    "me_rout": {"1": "spontaneous", "2": "assisted", "3": "assisted", "4": "caesarean"},
    "pay": {"1": "medicaid", "2": "private", "3": "none", **dict.fromkeys("4568", "other")},
    "dplural": {"1": "single", **dict.fromkeys("2345", "multiple")},
    "sex": {"F": "female", "M": "male"},
}  # fmt: skip
ALIVE, OTHER_CAUSE = "alive", "other cause"
CAUSES: Final = {  # first and last code of ICD-10, to three characters
    "congenital malformations": (("Q00", "Q99"),),
    "short gestation": (("P07", "P07"),),
    "sudden infant death": (("R95", "R95"),),
    "maternal complications": (("P01", "P01"),),
    "unintentional injuries": (("V01", "X59"),),
    "cord and placenta": (("P02", "P02"),),
    "bacterial sepsis": (("P36", "P36"),),
    "respiratory distress": (("P22", "P22"),),
    "circulatory diseases": (("I00", "I99"),),
    "neonatal haemorrhage": (("P50", "P52"), ("P54", "P54")),
}
_CHUNK = 200_000

Fields = Mapping[str, "pd.Series[str]"]


def cdc_file(folder: Path) -> Path:
    """Return the first file of FILES in `folder`. Raises `UsageError` if there is none."""
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise UsageError(str(folder), f"contains none of the files {', '.join(FILES)}")
    return path


@lru_cache(maxsize=1)
def cdc_births(path: Path) -> Births:
    """Return the births without unknown values. Raises `UsageError` if the format is another."""
    fields = _fixed_width(path) if path.name == FIXED_WIDTH else _csv(path)
    parts = [_coded(each) for each in fields]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if table.empty:
        raise UsageError(str(path), "contains no birth without unknown values")
    columns: dict[str, dict[str, object]] = {
        name: {"type": "continuous", "low": low, "high": high}
        for name, (low, high) in NUMBERS.items()
    }
    levels = {name: list(dict.fromkeys(codes.values())) for name, codes in LEVELS.items()}
    for name, listed in {**levels, "cause": [ALIVE, *CAUSES, OTHER_CAUSE]}.items():
        kind = "categorical" if len(listed) > 2 else "binary"
        columns[name] = {"type": kind, "levels": listed}
    kinds: dict[str, tuple[str, Callable[[pd.DataFrame], pd.Series[bool]]]] = {
        "site1": ("Medicaid or no insurance", lambda t: t["pay"].isin(["medicaid", "none"])),
        "site2": ("caesarean", lambda t: t["me_rout"] == "caesarean"),
        "site3": ("associate degree or more", lambda t: t["meduc"] >= 5),
    }
    return Births(table[list(columns)], columns, kinds)


def cause_of(codes: pd.Series[str]) -> NDArray[np.str_]:
    """Return the cause of each ICD-10 code, such as "P072"."""
    short = codes.str.slice(0, 3).to_numpy(dtype=np.str_)
    found = np.full(len(short), OTHER_CAUSE, dtype="<U32")
    for cause, ranges in CAUSES.items():
        for first, last in ranges:
            found[(short >= first) & (short <= last)] = cause
    return found


def _coded(fields: Fields) -> pd.DataFrame:
    """Return the columns of the births without unknown values. fields: texts without blanks."""
    table = pd.DataFrame(index=fields["mager"].index)
    for name, (low, high) in NUMBERS.items():
        numbers = pd.to_numeric(fields[name], errors="coerce")
        table[name] = numbers.where(numbers.between(low, high)).astype(np.float64)
    for name, codes in LEVELS.items():
        levels = list(dict.fromkeys(codes.values()))
        table[name] = pd.Categorical(fields[name].map(codes), levels)
    died = (fields["aged"] != "").to_numpy()
    cause = np.full(len(table), ALIVE, dtype="<U32")
    cause[died] = cause_of(fields["ucod"][died])
    table["cause"] = pd.Categorical(cause, [ALIVE, *CAUSES, OTHER_CAUSE])
    return table.dropna()


def _fixed_width(path: Path) -> Iterator[Fields]:
    """Yield the fields of the births; lines must have the same length."""
    with path.open("rb") as file:
        length = len(file.readline())
    size, needed = path.stat().st_size, max(last for _, last in POSITIONS.values())
    if length <= needed or size % length:
        what = f"must have lines of one length, of at least {needed} characters"
        raise UsageError(str(path), what)
    lines = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, length)
    for begin in range(0, len(lines), _CHUNK):
        part = np.asarray(lines[begin : begin + _CHUNK])
        yield {
            name: pd.Series(_texts(part[:, first - 1 : last]))
            for name, (first, last) in POSITIONS.items()
        }


def _texts(characters: NDArray[np.uint8]) -> NDArray[np.object_]:
    width = characters.shape[1]
    joined = np.ascontiguousarray(characters).view(f"S{width}").ravel()
    different, which = np.unique(joined, return_inverse=True)
    texts = np.char.strip(np.char.decode(different, "latin-1")).astype(object)
    return np.asarray(texts[which])


def _csv(path: Path) -> Iterator[Fields]:
    names = pd.read_csv(path, nrows=0).columns
    of = {name: _OTHER_NAMES.get(name.lower(), name.lower()) for name in names}
    if missing := POSITIONS.keys() - of.values():
        raise UsageError(str(path), f"has no column {min(missing)!r}")
    used = [name for name in names if of[name] in POSITIONS]
    reader = pd.read_csv(
        path, usecols=used, dtype=str, keep_default_na=False, chunksize=_CHUNK, encoding="latin-1"
    )
    for chunk in reader:
        yield {of[name]: chunk[name].str.strip() for name in used}
