"""Moments through the whole session: the integers that were summed are the exact integers.

The oracle does not use the codec: each site's float64 moments become integers by exact rational
rounding, and numpy adds those, as int64 or as Python integers.
"""

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from secagg.contracts import PublicFacts, SiteRecords
from secagg.core import ring
from secagg.core.randomness import replayable_random, system_random
from secagg.jobs.job import parse_job
from secagg.models.moments.method import STAGE
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.session import open_session

TINY = 5e-324
ADVERSARIAL = {
    "x": [-1.0, 1.0, 0.0, -0.0, TINY, -TINY, 0.1, -0.9999999999999999, 1.5, -7e300],
    "y": [1e6, -3.0, 1e6, -3.0, 0.0, 1e-300, 499998.5, -2.999999, 1e6 + 1, -1e9],
    "b": [0, 1, 1, 0, 1, 0, 0, 1, 1, 0],
}
COLUMNS = {
    "x": {"type": "continuous", "low": -1, "high": 1},
    "y": {"type": "continuous", "low": -3, "high": 1e6},
    "b": {"type": "binary"},
}


def records(sites: int) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(sites)
    tables = {}
    for i in range(sites):
        size = int(rng.integers(0, 30))
        drawn = {"x": rng.normal(0, 0.6, size), "y": rng.normal(5e5, 4e5, size),
                 "b": rng.integers(0, 2, size)}  # fmt: skip
        tables[f"site_{i:02}"] = {
            name: np.concatenate([ADVERSARIAL[name][i % 4 :], drawn[name]]) for name in COLUMNS
        }
    return tables


def plan(protocol: str, sites: int, max_rows: int, bits: int) -> Planned:
    job = {
        "title": "exact",
        "sites": {"max_rows": max_rows},
        "columns": COLUMNS,
        "method": {"name": "moments", "fraction_bits": bits},
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 1, "min_level_sites": 1},
    }
    return plan_job(parse_job(job), records(sites))


def securely_summed(planned: Planned) -> tuple[list[int], list[int]]:
    """Run the session; return the opened integers of the moments, and numpy's sum of the oracle's.

    The clip counts that follow the moments in the ring are left out.
    """
    session = open_session(planned, replayable_random(5))
    step = session.coordinator.start()
    opened: list[int] = []
    while not step.done:
        if step.state.total is not None and step.state.stage == STAGE:
            opened = ring.to_integers(step.state.total)
        step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    (field,) = planned.plans.stages[STAGE].spec
    contributions = []
    for side in session.sites.values():
        update, _ = planned.method.contribute(
            STAGE, side.rows, {}, {}, planned.public, system_random
        )
        scale = Fraction(2) ** field.fraction_bits
        contributions.append([round(Fraction(v) * scale) for v in update["moments"].tolist()])
    return opened[: field.size], numpy_sum(contributions, planned.plans.of(STAGE).ring_bits)


def numpy_sum(contributions: list[list[int]], bits: int) -> list[int]:
    kind: Any = np.int64 if bits == 64 else object
    return [int(total) for total in np.array(contributions, dtype=kind).sum(axis=0)]


@pytest.mark.parametrize(
    ("protocol", "sites", "bits", "ring_bits"),
    [
        ("plain", 4, 48, 128),
        ("additive", 12, 32, 64),
        ("masked", 4, 32, 64),
        ("masked", 12, 48, 128),
    ],
)
def test_sums_of_moments_are_exact(protocol: str, sites: int, bits: int, ring_bits: int) -> None:
    planned = plan(protocol, sites, max_rows=100_000, bits=bits)
    assert planned.plans.of(STAGE).ring_bits == ring_bits
    opened, expected = securely_summed(planned)
    assert opened == expected
    assert opened[0] > sites * 2**bits  # the count, in steps: there is something to sum


def corners(public: PublicFacts, *, value: float, size: int) -> SiteRecords:
    values = np.full((size, len(public.variables)), value)
    return SiteRecords(values, 0, np.zeros(len(public.columns)))


@pytest.mark.parametrize(
    ("protocol", "signs"),
    [("plain", (-1, -1)), ("plain", (1, -1)), ("additive", (1, 1)), ("masked", (-1, -1))],
)
def test_sums_are_exact_with_every_record_at_its_bounds(
    protocol: str, signs: tuple[int, int]
) -> None:
    """As many rows as declared, each at a corner of the box: the worst case of the plan."""
    rows = 1000
    planned = plan(protocol, 2, max_rows=rows, bits=52)
    stand_ins: Mapping[str, float] = dict(zip(planned.sources, map(float, signs), strict=True))
    session = open_session(planned, replayable_random(1))
    for name, value in stand_ins.items():
        side = session.engine.parties[name].site
        assert side is not None
        load = functools.partial(corners, planned.public, value=value, size=rows)
        object.__setattr__(side, "load", load)
    step = session.coordinator.start()
    while not step.done:
        step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    upper = step.state.method["upper"]
    n, u = 2 * rows, rows * sum(signs)
    assert upper.tolist() == [n, u, u, u, n, n, n, n, n, n]
    assert not step.state.clipped[STAGE].any()
