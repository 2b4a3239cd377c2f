"""A run of a method in one place: normal noise of the planned variance, and no protocol.

Sums are those of a real run up to the rounding of numbers and the noise, which is normal here and
discrete there. Only simulated records and records of public studies are run like this: it protects
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from secagg.contracts import (
    FirstOrder,
    PublicFacts,
    RecordCount,
    Result,
    SiteRecords,
    State,
    Update,
)
from secagg.contracts.noise import Noise
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT


def run_on(
    planned: Planned, public: PublicFacts, sites: list[SiteRecords], rng: np.random.Generator,
    result: FirstOrder | None = None, copies: float = 1.0,
) -> Result:  # fmt: skip
    """Run the method on these sites' records with normal noise in place of the discrete.

    public: the plan's, or with another noise. Sites of which only one is given count as all.
    result: in place of the method's; copies: of each record that are in the sums
    """
    method, count = planned.method, len(public.sites)
    stages = {stage.name: stage for stage in method.stages(public)}
    memories: list[State] = [{} for _ in sites]
    state = method.initial_state(public)
    while (asked := method.next_request(state)) is not None:
        name, message = asked
        noise, updates = public.noise.get(name), list[Update]()
        alone = stages[name].training is not None and noise is not None
        for i, rows in enumerate(sites):
            ask = method.contribute if not alone or noise is None else _train(planned, noise, rng)
            update, memories[i] = ask(name, rows, message, memories[i], public, rng.bytes)
            updates.append(update)
        bounds = {field.name: field.bound for field in stages[name].spec}
        total = {
            field: np.sum([u[field] for u in updates], axis=0)
            * (copies if bounds[field] > 1 else 1.0)  # up to 1: it counts sites
            for field in updates[0]
        }
        if noise is not None and not alone:
            total = _noised(total, noise, count, rng)
        state = method.aggregate(state, total, count)
    records = {"records": np.array([copies * sum(len(rows.values) for rows in sites)])}
    counting, variance = public.noise.get(COHORT), 0.0
    if counting is not None:
        records = _noised(records, counting, count, rng)
        variance = counting.sum_variance(count, counting.site_variance(count))
    counted = RecordCount(float(records["records"][0]), variance)
    return (result or method.result)(state, public, counted)


def _train(
    planned: Planned, noise: Noise, rng: np.random.Generator
) -> Callable[..., tuple[Update, State]]:
    """Return the training of a site, with noise that is rounded to its grid."""
    train, sd = planned.facts.train, math.sqrt(noise.variance)
    assert train is not None
    return partial(
        train, noise=lambda numbers: np.rint(sd * rng.normal(size=numbers)).astype(np.int64)
    )


def _noised(total: Update, noise: Noise, sites: int, rng: np.random.Generator) -> Update:
    sd = math.sqrt(noise.sum_variance(sites, noise.site_variance(sites)))
    size = sum(value.size for value in total.values())
    draws = sd * np.sqrt(noise.weights or np.ones(size)) * rng.normal(size=size)
    ends = np.cumsum([value.size for value in total.values()])
    parts = np.split(draws, ends[:-1])
    return {field: value + part for (field, value), part in zip(total.items(), parts, strict=True)}
