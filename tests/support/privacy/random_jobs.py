"""Random exact jobs of many rounds over heart records, and of how many records differences are."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from support.runs.hospitals import EXAMPLE, HOSPITALS

from secagg.audits.record_changes import Difference, contributions_of_each, differences
from secagg.audits.views import SeenRound
from secagg.contracts import Update
from secagg.errors import DataError
from secagg.jobs.job import parse_job
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

REALS = {"age": (18, 100), "rest_bp": (60, 260), "st_depression": (-5, 10),
         "max_heart_rate": (40, 230)}  # fmt: skip
BINARY = ("exercise_angina", "disease")
COLUMNS: dict[str, dict[str, Any]] = {
    **{
        name: {"type": "continuous", "low": low, "high": high}
        for name, (low, high) in REALS.items()
    },
    **{name: {"type": "binary"} for name in BINARY},
}
STRICTEST = 11
"""The smallest number of records of the strictest profile."""


@dataclass(frozen=True)
class Examined:
    """A job with what two of its sums differ by. records: of all sites; fewest: None if none do"""

    method: dict[str, Any]
    records: int
    rounds: int
    fewest: Difference | None


@cache
def complete() -> dict[str, pd.DataFrame]:
    """Return the complete records of each hospital."""
    found = {}
    for name in HOSPITALS:
        table = pd.read_csv(EXAMPLE / "data" / f"{name}.csv")
        found[name] = table[list(COLUMNS)].dropna().reset_index(drop=True)
    return found


def random_method(rng: np.random.Generator, *, torch: bool = True) -> dict[str, Any]:
    """Return a method with random settings. torch: whether it may need torch"""
    kinds = ["gradient", "logistic"] + (["torch_module"] * 5 + ["fedngr", "fedngm"]) * torch
    name = str(rng.choice(kinds))
    rounds = int(rng.integers(2, 13))
    outcome = str(rng.choice(BINARY if name == "logistic" else list(COLUMNS)))
    others = [column for column in COLUMNS if column != outcome]
    some = [str(c) for c in rng.choice(others, int(rng.integers(1, len(others))), replace=False)]
    rate = float(10 ** rng.uniform(-7, 2))
    match name:
        case "logistic":
            return {"name": name, "outcome": outcome, "predictors": some}
        case "gradient":
            family = "binomial" if outcome in BINARY else "gaussian"
            given = {"outcome": outcome, "predictors": some, "family": family}
            return {"name": name, "rounds": rounds, **given}
        case "fedngr" | "fedngm":
            more: dict[str, Any] = {"refit_rounds": min(rounds, 6)}
            if name == "fedngm":
                more = {"edges": "all", "count_fit": False}
            network = str(rng.choice(["masked", "paper"])) if name == "fedngm" else None
            more |= {"network": network} if network else {}
            settings = {"hidden": [int(rng.integers(1, 5))], "standardise": bool(rng.integers(2))}
            return {
                "name": name,
                "rounds": min(rounds, 6),
                "learning_rate": rate,
                **settings,
                **more,
            }
    losses = ["cross_entropy"] if outcome in BINARY else ["squared_error", "pseudo_huber"]
    hidden = [int(rng.integers(1, 6)) for _ in range(int(rng.integers(0, 3)))]
    activation = str(rng.choice(["tanh", "gelu", "silu", "softplus"]))
    optimiser = str(rng.choice(["sgd", "adam", "lbfgs"]))
    return {
        "name": name, "outcome": outcome, "predictors": some, "rounds": rounds,
        "loss": str(rng.choice(losses)), "optimiser": optimiser, "learning_rate": rate,
        "module_settings": {"hidden": hidden, "activation": activation},
        "seed": int(rng.integers(1000)),
    }  # fmt: skip


def examine(method: dict[str, Any], rng: np.random.Generator) -> Examined:
    """Run a method over random records of the hospitals, and look at any two sums of a stage."""
    tables = _drawn(rng)
    while not _cells_are_large(tables):
        tables = _drawn(rng)
    raw = {
        "title": "Random", "sites": {"max_rows": 512}, "columns": COLUMNS, "method": method,
        "protocol": {"name": "plain"}, "release": {"min_sites": 3, "min_records": 10},
    }  # fmt: skip
    planned = plan_job(parse_job(raw), tables)
    return examine_plan(planned, method)


def _drawn(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    return {
        name: table.sample(int(rng.integers(15, 60)), random_state=int(rng.integers(2**31)))
        for name, table in complete().items()
    }


def _cells_are_large(tables: dict[str, pd.DataFrame]) -> bool:
    """Whether `min_cell_records` accepts the pairs of levels; otherwise the job is refused."""
    counts = pd.concat(tables.values()).groupby(list(BINARY)).size()
    return len(counts) == 4 and int(counts.min()) >= STRICTEST


def examine_plan(planned: Planned, method: dict[str, Any]) -> Examined:
    """Run a planned job, and look at any two sums of a stage."""
    sites = {name: read_records(planned, source) for name, source in planned.sources.items()}
    seen, each = dict[str, list[SeenRound]](), dict[str, list[Any]]()
    state = planned.method.initial_state(planned.public)
    n = sum(len(rows.values) for rows in sites.values())
    while (request := planned.method.next_request(state)) is not None:
        stage, message = request
        asked = SeenRound(stage, message, _zeros(planned, stage), {})
        try:
            own = contributions_of_each(planned, asked, sites)
        except DataError:  # a loss out of range: the sites send nothing
            break
        total = _split(own.sum(axis=0), asked.total)
        seen.setdefault(stage, []).append(SeenRound(stage, message, total, {}))
        each.setdefault(stage, []).append(own)
        try:
            state = planned.method.aggregate(state, total, len(sites))
        except DataError:  # it diverges, after sums that were released
            break
    found = [one for stage in seen for one in differences(seen[stage], each[stage], planned)]
    fewest = min(found, key=lambda one: one.effective, default=None)
    return Examined(method, n, max(map(len, seen.values())), fewest)


def _zeros(planned: Planned, stage: str) -> Update:
    return {field.name: np.zeros(field.shape) for field in planned.plans.stages[stage].spec}


def _split(numbers: np.ndarray, like: Update) -> Update:
    """Return numbers in the order of `secagg.audits.record_changes.flat`, by field."""
    found, start = dict[str, np.ndarray](), 0
    for name in sorted(like):
        found[name] = numbers[start : start + like[name].size].reshape(like[name].shape)
        start += like[name].size
    return {name: found[name] for name in like}
