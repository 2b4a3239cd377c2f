"""A site under differential privacy with more rows than the bounds of its sums allow."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.runs.jobs import raw_job, table

from secagg.contracts import SiteRecords
from secagg.core import ring
from secagg.core.randomness import system_random
from secagg.jobs import design_matrix
from secagg.jobs.job import parse_job
from secagg.sessions.party_state import PartyState
from secagg.sessions.planned_job import plan_job
from secagg.sessions.rounds import COHORT
from secagg.sessions.session import Session, open_session

SITES = ("a", "b", "c")
MOMENTS = {"method": {"name": "moments"}, "placement": "sum"}
GRADIENT: dict[str, Any] = {
    "method": {
        "name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial",
        "rounds": 2,
    },
    "placement": "round",
}  # fmt: skip


def session_with(method: dict[str, Any], placement: str) -> Session:
    privacy = {"placement": placement, "epsilon": 2.0, "delta": 1e-6, "record_norm": 1.0}
    raw = raw_job(method=method, privacy=privacy, protocol={"name": "additive"})
    raw["sites"] = {"max_rows": 2}
    return open_session(plan_job(parse_job(raw), dict.fromkeys(SITES, table(1, 4))), system_random)


def contribution(session: Session, stage: str, values: np.ndarray, message: Any) -> np.ndarray:
    """Return the integers that site a would send, without noise, in steps of the grid."""
    party = session.engine.parties["a"]  # type: ignore[union-attr]
    records = None if stage == COHORT else 9
    body = {"stage": stage, "cohort": list(SITES), "records": records, "message": message}
    steps, request = party._site_steps(1, body, PartyState())
    rows = SiteRecords(values, 0, np.zeros(3))
    steps = replace(steps, context=replace(steps.context, load=lambda: rows))
    vector, _ = steps._compute(request, {})
    return np.array(ring.to_integers(vector)[: session.planned.plans.of(stage).noised], dtype=float)


@pytest.mark.parametrize("which", [MOMENTS, GRADIENT], ids=["moments", "gradient"])
def test_one_record_moves_a_cut_sum_by_the_sensitivity_at_most(
    which: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All data sets of up to five records of four kinds, and one record more, or another one.

    `max_rows` is 2, so most of these sums are cut at their bounds.
    """
    monkeypatch.setattr(design_matrix, "MIN_ROWS_UNDER_NOISE", 2)
    session = session_with(**which)
    assert session.planned.public.max_rows == 2
    name = which["method"]["name"]
    p = len(session.planned.public.variables)
    kinds = np.vstack([np.eye(p)[0], -np.eye(p)[0], np.full(p, 0.5), np.full(p, -0.5)])
    message = {"beta": np.array([0.5, -0.5])} if name == "gradient" else {}
    for stage, sent in ((COHORT, {}), (name, message)):
        declared = session.planned.plans.stages[stage]
        sensitivity = declared.sensitivity
        assert sensitivity is not None
        weights = np.array(sensitivity.weights or [1.0])
        step = 2.0 ** -declared.spec[0].fraction_bits
        sums = {
            chosen: contribution(session, stage, kinds[list(chosen)].reshape(-1, p), sent) * step
            for size in range(6)
            for chosen in itertools.combinations_with_replacement(range(len(kinds)), size)
        }
        largest = max(field.bound for field in declared.spec)
        assert max(np.abs(values).max() for values in sums.values()) <= largest + step
        assert np.any(np.abs(sums[0, 0, 0, 0, 0]) >= largest - step) or name == "gradient"  # cut
        added = replaced = 0.0
        for chosen, values in sums.items():
            for more in range(len(kinds)):
                other = sums.get(tuple(sorted((*chosen, more))))
                if other is not None:
                    added = max(added, float(np.sqrt(((values - other) ** 2 / weights).sum())))
                for i in range(len(chosen)):
                    swapped = tuple(sorted((*chosen[:i], *chosen[i + 1 :], more)))
                    difference = values - sums[swapped]
                    replaced = max(replaced, float(np.sqrt((difference**2 / weights).sum())))
        assert 0 < added <= sensitivity.add
        assert replaced <= sensitivity.replace
    session.close()


def test_a_small_max_rows_does_not_cut_under_privacy() -> None:
    """The result is that of all records, and the site is not asked for its number of rows."""
    session = session_with(**MOMENTS)
    values = np.zeros((50, len(session.planned.public.variables)))
    assert contribution(session, COHORT, values, {})[0] == 50 * 2**32
    session.close()
