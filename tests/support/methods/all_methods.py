"""Every method over three small sites, by plain sums of encoded contributions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from support.methods.regressions import REGRESSIONS, columns_of, with_outcomes

from secagg.contracts import (
    Method,
    PublicFacts,
    RecordCount,
    Result,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.core import ring
from secagg.core.randomness import replayable_random, seeded_random
from secagg.jobs.job import parse_job
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

SHORT_SAMPLER = {"rounds": 12, "chains": 2, "warmup": 4}
CASES: dict[str, dict[str, Any]] = {
    "moments": {
        "analyses": [{"kind": "ols", "outcome": "z", "predictors": ["x"]}, {"kind": "describe"}]
    },
    **{name: each.settings for name, each in REGRESSIONS.items()},
    "one_step": {"outcome": "z", "predictors": ["x", "case"]},
    "tables": {"columns": [["case"]]},
    "gradient": {"outcome": "case", "predictors": ["x"], "family": "binomial", "rounds": 4},
    "notears_admm": {"variables": ["x", "y", "z"], "rounds": 6},
    "notears_mlp_admm": {"variables": ["x", "y"], "hidden": 2, "rounds": 3, "seed": 3},
    "local_graphs": {"learner": "notears", "variables": ["x", "y"]},
    "sparse_regression": {"outcome": "z", "predictors": ["x", "y"], **SHORT_SAMPLER},
    "sparse_markov": {"variables": ["x", "y", "z"], **SHORT_SAMPLER},
    "sparse_directed": {"variables": ["x", "y"], "temperatures": 2, **SHORT_SAMPLER},
    "fedavg": {"outcome": "z", "predictors": ["x", "y"], "rounds": 5},
    "fedlin_hm1": {"outcome": "z", "predictors": ["x", "y"], "rounds": 5},
    "fedlin_hm2": {"outcome": "z", "predictors": ["x", "y"], "rounds": 5},
    "fedlin_full": {"outcome": "z", "predictors": ["x", "y"], "draws": 100},
    "torch_module": {"outcome": "case", "module_settings": {"hidden": [3]}, "rounds": 4},
    "fedngm": {"hidden": [2], "rounds": 4},
    "fedngr": {"hidden": [3], "rounds": 4, "refit_rounds": 4},
}
"""Settings of every registered method, small, over the columns of `records`."""
SITES = ("north", "south", "west")


def records(site: int, count: int) -> pd.DataFrame:
    """Return a site's table: x -> y -> z, a binary column that x drives, and other outcomes."""
    rng = np.random.default_rng([7, site])
    x = rng.normal(size=count)
    y = 0.8 * x + rng.normal(scale=0.5, size=count)
    z = -0.7 * y + rng.normal(scale=0.5, size=count)
    case = (rng.random(count) < 1 / (1 + np.exp(-x))).astype(int)
    return with_outcomes(pd.DataFrame({"x": x, "y": y, "z": z, "case": case}), site)


def job(name: str, protocol: str = "plain", **settings: Any) -> dict[str, Any]:
    reals = {c: {"type": "continuous", "low": -6, "high": 6} for c in ("x", "y", "z")}
    method = {"name": name, **CASES.get(name, {}), **settings}
    return {
        "title": "The contract of methods",
        "sites": {"max_rows": 100},
        "columns": {**reals, "case": {"type": "binary"}, **columns_of(method)},
        "method": method,
        "protocol": {"name": protocol},
        "release": {"min_sites": 3, "min_records": 2},
    }


@cache
def planned_of(name: str) -> Planned:
    return plan_job(
        parse_job(job(name)), {site: records(i, 40 + i) for i, site in enumerate(SITES)}
    )


@dataclass(frozen=True)
class Asked:
    """One round as it was asked: what `contribute` takes at each site, and what it returned."""

    stage: Stage
    message: State
    memories: list[State]
    updates: list[Update]


@dataclass(frozen=True)
class Played:
    """All rounds of a method over the three sites, by plain sums of encoded contributions."""

    method: Method
    public: PublicFacts
    rows: list[SiteRecords]
    rounds: list[Asked]
    states: list[State]
    memories: list[State]
    result: Result


@cache
def played(name: str) -> Played:
    planned = planned_of(name)
    return play(planned, [read_records(planned, planned.sources[site]) for site in SITES])


def play(planned: Planned, rows: Sequence[SiteRecords]) -> Played:
    """Run the method over the sites' records, which must not depend on chance."""
    method, public = planned.method, planned.public
    random = replayable_random(5)
    own = [seeded_random(random(32)) for _ in SITES]
    memories: list[State] = [{} for _ in SITES]
    states, rounds = [method.initial_state(public)], list[Asked]()
    while (request := method.next_request(states[-1])) is not None:
        stage, message = request
        found = [
            method.contribute(stage, *each, public, draw)
            for *each, draw in zip(rows, [message] * 3, memories, own, strict=True)
        ]
        updates = [update for update, _ in found]
        rounds.append(Asked(planned.plans.stages[stage], message, memories, updates))
        memories = [memory for _, memory in found]
        plan = planned.plans.of(stage)
        vectors = [encode(plan, update) for update in updates]
        total = decode(plan, ring.total(vectors, plan.length, plan.ring_bits))[0]
        states.append(method.aggregate(states[-1], total, len(SITES)))
    count = RecordCount(float(sum(len(each.values) for each in rows)), 0.0)
    result = method.result(states[-1], public, count)
    return Played(method, public, list(rows), rounds, states, memories, result)
