"""Lower bounds on epsilon of noise once at the site: of the draw, and of what ADMM's rounds tell.

The pair of data sets attains the bound of `secagg.models.common.clipped_moments`: the added record
has the largest norm. Both data sets have the same noise in each pair of runs, which the bound
allows (`secagg.audits.epsilon.lower_bound`).
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.privacy.ledger_runs import FIVE, noised
from support.runs.jobs import raw_job, table

from secagg.audits.epsilon.lower_bound import EpsilonBound, bound_epsilon
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.jobs.job import parse_job
from secagg.sessions import site_moments
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.site_moments import SiteMoments, draw_site_moments

pytestmark = pytest.mark.statistical
ADMM = {"name": "notears_admm", "standardise": False, "rounds": 3}
ERROR = 0.01
RECORDS, ROUNDS, RUNS = 40, 3, 18_000


def planned(epsilon: float) -> Planned:
    tables = {name: table(i, RECORDS) for i, name in enumerate(FIVE)}
    privacy = noised(epsilon, placement="site")
    return plan_job(parse_job(raw_job(privacy=privacy, method=ADMM)), tables)


def neighbours(job: Planned) -> tuple[SiteRecords, SiteRecords]:
    """Return records in the middle of the bounds, and the same with one of the largest norm."""
    rows, clip = read_records(job, job.sources["a"]), job.public.clip
    assert clip is not None
    p = len(job.public.variables)
    largest = np.full(p, clip.norm / math.sqrt(p))
    largest = np.trunc(largest * 2.0**clip.grid_bits) / 2.0**clip.grid_bits
    nothing = np.zeros((RECORDS, p))
    return replace(rows, values=nothing), replace(rows, values=np.vstack([nothing, largest]))


def draws(job: Planned, rows: SiteRecords, runs: int) -> list[SiteMoments]:
    return [
        draw_site_moments([rows], job.public, seeded_random(i.to_bytes(32, "little")))
        for i in range(runs)
    ]


def bound(job: Planned, before: Array, after: Array) -> EpsilonBound:
    assert job.private is not None
    terms = job.private.terms
    return bound_epsilon(before, after, terms.epsilon, terms.delta, ERROR)


def released(drawn: SiteMoments) -> Array:
    matrix = drawn.noisy.matrix
    found: Array = matrix[np.triu_indices(len(matrix))]
    return found


def test_the_draw_tells_nearly_as_much_as_is_charged_and_not_more() -> None:
    """Between .9 and 1 of the claim. (n and M's first entry are one number; see there.)"""
    job = planned(1.0)
    before, after = (
        np.array([released(one) for one in draws(job, rows, RUNS)]) for rows in neighbours(job)
    )
    found = bound(job, before, after)
    print(f"epsilon 1: at least {found.epsilon_low:.3f}, at most {found.epsilon_high:.3f}")
    assert 0.9 < found.epsilon_low <= 1.0


def test_the_bound_finds_a_draw_with_half_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    job, sample = planned(1.0), site_moments.sample_weighted
    monkeypatch.setattr(
        site_moments,
        "sample_weighted",
        lambda variance, *others: sample(Fraction(variance) / 4, *others),
    )
    before, after = (
        np.array([released(one) for one in draws(job, rows, 3000)]) for rows in neighbours(job)
    )
    assert bound(job, before, after).refuted


def rounds(job: Planned, drawn: SiteMoments) -> Array:
    """Return all that a site's rounds of ADMM tell a coordinator that knows all other sites."""
    method, public = job.method, job.public
    state: Any = method.initial_state(public)
    memory: Any = {}
    seen = [np.ravel(value) for value in drawn.counts.values()]
    for _ in range(ROUNDS):
        request = method.next_request(state)
        assert request is not None
        stage, message = request
        update, memory = method.contribute(
            stage, drawn.repaired, message, memory, public, seeded_random(bytes(32))
        )
        state = method.aggregate(state, update, 1)
        seen += [values.ravel() for values in update.values()]
    return np.concatenate(seen)


def test_rounds_of_admm_tell_less_than_is_charged() -> None:
    job = planned(4.0)
    before, after = (
        np.array([rounds(job, one) for one in draws(job, rows, 1000)]) for rows in neighbours(job)
    )
    found = bound(job, before, after)
    print(f"rounds, epsilon 4: at least {found.epsilon_low:.3f}")
    assert 0.5 < found.epsilon_low <= 4.0
