"""Attacks of the catalogue against others that were written from the papers alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import four_attacks
from support.runs.audited import job, tables

from secagg.audits.attacks.fedlin import hm1_messages
from secagg.audits.attacks.fedlin.fedlin_view import regression_of
from secagg.audits.attacks.records.tracing import Released, traces
from secagg.audits.attacks.statistics.admm_messages import AdmmMessages
from secagg.audits.attacks.statistics.admm_view import admm_rounds, covariance_of
from secagg.audits.audited_run import AuditedRun, in_memory, split
from secagg.audits.epsilon.lower_bound import bound_epsilon
from secagg.audits.membership import area_under_roc
from secagg.jobs.job import read_job
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon

RNG = np.random.default_rng(0)


def audited(method: dict[str, Any], d: int, folder: Path) -> AuditedRun:
    data = tables(3, d)
    kept, aside = split(data, 0.2, np.random.default_rng(0))
    return AuditedRun.of(in_memory(read_job(job(method, d, "plain"))), kept, aside, 0, folder)


def test_a_first_message_of_admm_gives_the_same_covariance(tmp_path: Path) -> None:
    """Both have the error of the encoding, 2^-40 over the first rho2, and so the same."""
    run = audited({"name": "notears_admm", "rounds": 1}, 3, tmp_path)
    guess = AdmmMessages().run(run.view, RNG)
    for site in run.view.sites:
        first = admm_rounds(run.view.alone(site))[0]
        other = four_attacks.covariance(first.W, first.rho2, first.total)
        true = covariance_of(run.view, run.truth.sites[site])
        size = np.max(np.abs(true))
        np.testing.assert_allclose(guess[site], (other + other.T) / 2, rtol=0, atol=1e-9 * size)
        np.testing.assert_allclose(other, true, rtol=0, atol=1e-5 * size)


def test_messages_of_hm1_give_the_same_regression(tmp_path: Path) -> None:
    method = {"name": "fedlin_hm1", "outcome": "x2", "predictors": ["x0", "x1"], "steps": 1,
              "rounds": 10}  # fmt: skip
    run = audited(method, 3, tmp_path)
    guess = hm1_messages.Hm1Messages().run(run.view, RNG)
    for site in run.view.sites:
        alone = run.view.alone(site)
        u, theta, _ = hm1_messages.path(alone, alone.planned.method)
        least, shape = four_attacks.least_squares(u, theta)
        np.testing.assert_allclose(guess[site].least, least, rtol=1e-9)
        gram = guess[site].gram
        np.testing.assert_allclose(gram / np.trace(gram), shape, atol=1e-9)
        true = regression_of(run.view, run.truth.sites[site])
        np.testing.assert_allclose(least, true.least, rtol=1e-8)


@pytest.mark.parametrize("n", [100, 500])
def test_records_are_traced_alike(n: int) -> None:
    """Our weights are those of the released moments, the others' are of the reference."""
    rng = np.random.default_rng(1)
    members, others, reference = (rng.normal(size=(m, 50)) for m in (n, n, 2000))
    z = np.column_stack([np.ones(n), members])
    found = [traces(Released(z.T @ z, float(n)), x, reference)[0] for x in (members, others)]
    check = [four_attacks.traces(z.T @ z, n, reference, x) for x in (members, others)]
    ours, theirs = area_under_roc(*found), area_under_roc(*check)
    assert ours.low <= theirs.high and theirs.low <= ours.high
    assert ours.value > theirs.value - 0.02


@pytest.mark.parametrize(("spread", "refuted"), [(1.0, False), (0.8, True)])
def test_epsilon_is_bounded_alike(spread: float, refuted: bool) -> None:
    rng, error = np.random.default_rng(2), 1e-5
    before, after = (rng.normal(scale=spread, size=(60_000, 3)) for _ in range(2))
    after[:, 0] += 1.0
    ours = bound_epsilon(before, after, gaussian_epsilon(1.0, 1e-6), 1e-6, error)
    theirs = four_attacks.mu_lower(before, after, error)
    assert ours.refuted == refuted == (theirs > 1.0)
    assert theirs <= ours.mu_high and ours.mu_low == pytest.approx(theirs, rel=0.06)
