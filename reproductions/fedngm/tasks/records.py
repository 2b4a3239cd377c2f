"""The records of FedNGM's tables, and which column stands for which of the paper's targets.

Chajewska and Shrivastava (2023), section 3.2, predict gestational age (weeks), birthweight (grams),
survival (binary) and the cause of death (twelve levels). Stand-ins, where a table lacks a column:

    records    gestational age           survival   cause of death
    births14   weeks                     smoking    marital status (2 levels)
    bwght2     one-minute Apgar score    smoking    race (3 levels)
    birthwt    earlier preterm labours   smoking    race (3 levels)
    cdc        combgest                  cause is not "alive"   cause

Smoking in bwght2 is any cigarette a day. A quarter of each table is public (in the paper, half).
Some births are left over: if the sites had all others, the last one could not be skewed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproductions.data import births, cdc_births
from reproductions.data.births import Births
from reproductions.fedngm.tasks.measures import (
    area_under_roc,
    average_precision,
    errors,
    precision_and_recall,
)
from secagg.contracts import Array
from secagg.experiments.runner.types import Settings

GRAMS_IN_POUND = 453.59237
SIZES = {  # records of a site, public records, samples of each site's network
    "births14": (180, 224, 2000),
    "bwght2": (300, 410, 2000),
    "birthwt": (36, 48, 2000),
    "cdc": (20_000, 20_000, 20_000),
}

Predicted = dict[str, Array]
"""Column -> means, shape (records,), or probabilities of levels, shape (records, levels)."""


@dataclass(frozen=True)
class Study:
    """Records, their division, and the targets.

    site_records, public_records: numbers of records of a site, and of the public part
    samples: of each site's network, to train a global one
    age, weight, several: columns of gestational age, birthweight and cause of death
    grams: in a unit of `weight`
    event: the column that stands for survival, and its levels that stand for death
    """

    births: Births
    site_records: int
    public_records: int
    samples: int
    age: str
    weight: str
    grams: float
    event: tuple[str, tuple[str, ...]]
    several: str

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict, once each."""
        return tuple(dict.fromkeys((self.age, self.weight, self.event[0], self.several)))

    def levels(self, column: str) -> list[str]:
        """Return the levels of a column; none of a number."""
        declared = self.births.columns[column]
        if declared["type"] == "continuous":
            return []
        levels = declared.get("levels", ("0", "1"))
        assert isinstance(levels, list | tuple)
        return [str(level) for level in levels]

    def codes(self, table: pd.DataFrame, column: str) -> NDArray[np.intp]:
        """Return the numbers of the levels of a column."""
        return pd.Categorical(table[column].astype(str), self.levels(column)).codes.astype(np.intp)

    @property
    def _event_levels(self) -> list[int]:
        column, names = self.event
        return [self.levels(column).index(name) for name in names]

    def events(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which records have the event."""
        return np.isin(self.codes(table, self.event[0]), self._event_levels)

    def scores(self, table: pd.DataFrame, predicted: Predicted) -> dict[str, float]:
        """Return the measures of predictions for a table, by name; undefined ones are left out."""
        found: dict[str, float] = {}
        for name, column, unit in (("age", self.age, 1.0), ("weight", self.weight, self.grams)):
            truth = table[column].to_numpy(dtype=np.float64)
            mae, rmse = errors(truth * unit, predicted[column] * unit)
            found |= {f"{name}_mae": mae, f"{name}_rmse": rmse}
        positive = self.events(table)
        score = predicted[self.event[0]][:, self._event_levels].sum(axis=1)
        areas = {"auc": area_under_roc(positive, score), "aupr": average_precision(positive, score)}
        found |= {name: area for name, area in areas.items() if area is not None}
        chosen = predicted[self.several].argmax(axis=1)
        truth_of = self.codes(table, self.several)
        return found | precision_and_recall(truth_of, chosen, len(self.levels(self.several)))


def study(settings: Settings) -> Study:
    """Return the records of a cell's settings: data, and for "cdc" the file.

    Raises `UsageError` without them.
    """
    data = str(settings["data"])
    sizes = SIZES[data]
    match data:
        case "births14":
            found, event = births.births14(), ("habit", ("smoker",))
            return Study(found, *sizes, "weeks", "weight", GRAMS_IN_POUND, event, "marital")
        case "bwght2":
            found, event = _with_smoker(births.bwght2()), ("smoker", ("yes",))
            return Study(found, *sizes, "omaps", "bwght", 1.0, event, "race")
        case "birthwt":
            found, event = births.birthwt(), ("smoke", ("1",))
            return Study(found, *sizes, "preterm", "bwt", 1.0, event, "race")
        case _:
            found = cdc_births.cdc_births(Path(str(settings["file"])))
            deaths = (*cdc_births.CAUSES, cdc_births.OTHER_CAUSE)
            return Study(found, *sizes, "combgest", "brthwgt", 1.0, ("cause", deaths), "cause")


def _with_smoker(records: Births) -> Births:
    smoker = np.where(records.table["cigs"] > 0, "yes", "no")
    table = records.table.drop(columns="cigs").assign(smoker=smoker)
    columns = {name: column for name, column in records.columns.items() if name != "cigs"}
    return replace(
        records, table=table,
        columns={**columns, "smoker": {"type": "binary", "levels": ["no", "yes"]}},
    )  # fmt: skip
