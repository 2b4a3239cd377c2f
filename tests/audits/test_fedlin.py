"""Attacks on FedLin's HM1 and HM2: messages in clear, sums of honest runs, and chosen messages.

The coordinator that chooses runs the method's own code, on sums that it makes up: whatever it
sends, an honest one could have sent, over other sites. So no check at a site could refuse it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fedlin.written_out import Tables, Written, bounds, fedlin_job, linear_tables

import secagg
from secagg.audits.attacks.fedlin import hm2_solved_sums
from secagg.audits.attacks.fedlin.fedlin_view import regression_of, stage_rounds
from secagg.audits.attacks.fedlin.hm2_solved_sums import SOLVED, recover_moments, sums_at_points
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.audited_run import AuditedRun
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Finding, Verdict
from secagg.audits.folder_audit import audit_folder
from secagg.audits.site_errors import order_of, relative_errors
from secagg.jobs.job import parse_job
from secagg.models.fedlin.hm2 import POINTS_STAGE
from secagg.models.numerics.natural_gaussian import Natural, symmetric

HM1, HM2 = {"name": "fedlin_hm1"}, {"name": "fedlin_hm2"}


def tables(K: int, d: int, seed: int = 0, **more: Any) -> Tables:
    sizes = tuple(np.random.default_rng(seed).integers(12, 70, K).tolist())
    return linear_tables(sizes, d, seed, **more)


def attacked(
    name: str, method: dict[str, Any], data: Tables, protocol: str = "masked", seed: int = 0
) -> Attacked:
    job = fedlin_job(method, bounds(data), protocol={"name": protocol})
    (found,) = audit_job(job, data, attacks=[name], seed=seed).attacked
    return found


def leak(found: Attacked) -> Finding:
    """Return the finding of an attack that found a leak."""
    assert found.verdict is Verdict.LEAK and found.finding is not None, found.why
    assert found.finding.value < 0.1 < found.finding.baseline
    return found.finding


def worst(finding: Finding, name: str) -> float:
    """Return the largest error of a site."""
    return float(max(finding.details[name].values()))


@pytest.mark.parametrize(
    ("intercept", "scale", "variance"),
    [("site", "pooled", "site"), ("modelled", "pooled", "pooled"), ("none", "own", "site")],
)
def test_the_truth_is_the_regression_written_out(
    intercept: str, scale: str, variance: str, tmp_path: Path
) -> None:
    data, settings = tables(3, 2), {"intercept": intercept, "scale": scale, "variance": variance}
    job = parse_job(fedlin_job({**HM1, "rounds": 3, **settings}, bounds(data)))
    run = AuditedRun.of(job, data, data, 0, tmp_path)
    written = Written.of(data, intercept, scale)
    pooled, own = written.noise(intercept == "site")
    for k, site in enumerate(run.view.sites):
        found = regression_of(run.view, run.truth.sites[site])
        X, y = written.X[k], written.y[k]
        assert found.gram == pytest.approx(X.T @ X, rel=1e-9, abs=1e-9)
        assert found.cross == pytest.approx(X.T @ y, rel=1e-9, abs=1e-9)
        assert found.least == pytest.approx(written.least(k), rel=1e-9)
        assert found.noise == pytest.approx(own[k] if variance == "site" else pooled, rel=1e-6)


# --- messages in clear ----------------------------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize(
    "settings",
    [{"steps": 1}, {"step": 0.05}, {"steps": 1, "variance": "site"}, {"weight": "steps"}],
)
def test_messages_of_hm1_in_clear_are_the_sites_regressions(settings: dict[str, Any]) -> None:
    found = leak(attacked("hm1_messages", HM1 | settings, tables(4, 3), "plain"))
    assert worst(found, "least_errors") < 1e-9
    if "weight" not in settings:  # its 20 steps of size 0.5 converge
        assert worst(found, "gram_errors") < 1e-9 and worst(found, "cross_errors") < 1e-9


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "method"),
    [("hm1_messages", HM1 | {"rounds": 6}), ("ep_messages", HM2 | {"points": 64})],
)
def test_masked_messages_are_no_regression(name: str, method: dict[str, Any]) -> None:
    masked = attacked(name, method, tables(3, 2))
    assert masked.verdict is Verdict.NO_LEAK_FOUND and masked.finding is not None
    assert masked.finding.value > 1 and masked.control is not None
    assert masked.control.value < 1e-9
    hidden = attacked(name, method, tables(3, 2), "additive")
    assert hidden.verdict is Verdict.NOT_APPLICABLE and "frame" in hidden.why


@pytest.mark.attack
@pytest.mark.parametrize("settings", [{}, {"variance": "site"}])
def test_a_message_at_points_of_hm2_is_a_cross_product(settings: dict[str, Any]) -> None:
    found = leak(attacked("ep_messages", HM2 | {"points": 64} | settings, tables(3, 3), "plain"))
    for name in ("least_errors", "gram_errors", "cross_errors"):
        assert worst(found, name) < 1e-9


@pytest.mark.attack
def test_the_first_message_of_hm2_gives_least_squares_up_to_the_sites_integration_error() -> None:
    """X'X only where tau X'X / sigma^2 is not large: the likelihood bends with X'X there."""
    hidden = leak(attacked("ep_messages", HM2, tables(3, 2), "plain"))
    assert worst(hidden, "least_errors") < 1e-2
    noisy = HM2 | {"log_tau_mean": -6.0}
    shown = leak(attacked("ep_messages", noisy, tables(3, 2, noise=1.5), "plain"))
    assert worst(shown, "gram_errors") < 0.2 < worst(hidden, "gram_errors")


# --- sums of a run that follows the protocol ------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize(("K", "d", "most"), [(4, 6, 1e-8), (8, 5, 1e-4)])
def test_masked_sums_of_hm1_reveal_every_sites_coefficients(K: int, d: int, most: float) -> None:
    """At default settings. With eight sites, the error depends on the processor's rounding."""
    found = leak(attacked("hm1_sums", HM1, tables(K, d)))
    assert worst(found, "errors") < most
    assert found.details["misfit"] < most


@pytest.mark.attack
def test_many_sites_with_few_coefficients_are_not_separated() -> None:
    found = attacked("hm1_sums", HM1 | {"rounds": 10}, tables(12, 2))
    assert found.verdict is Verdict.INCONCLUSIVE and "separate" in found.why
    assert found.control is not None and found.control.value < 1e-6


@pytest.mark.attack
def test_importance_points_of_an_honest_hm2_run_reveal_single_sites() -> None:
    """Points of tau reach the size of (X'X)^-1 sigma^2 where sites are alike."""
    data = tables(3, 2, noise=1.0, spread=0.2)
    found = leak(attacked("hm2_points", HM2 | {"points": 512}, data))
    assert worst(found, "errors") < 1e-8 and worst(found, "cross_errors") < 1e-8
    none = attacked("hm2_points", HM2, data)
    assert none.verdict is Verdict.NOT_APPLICABLE and "points" in none.why


@pytest.mark.attack
def test_a_search_that_does_not_reach_the_sums_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hm2_solved_sums, "_STEPS", 2)
    found = attacked("hm2_points", HM2 | {"points": 64}, tables(3, 2))
    assert found.verdict is Verdict.INCONCLUSIVE and "search" in found.why


def in_folder(name: str, method: dict[str, Any], data: Tables, out: Path) -> Attacked:
    """Return what an attack finds in the folder of a run, without the records."""
    secagg.run(fedlin_job(method, bounds(data), protocol={"name": "masked"}), data, out=out)
    (found,) = audit_folder(out, attacks=[name]).attacked
    return found


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "method", "data"),
    [
        ("hm1_sums", HM1, tables(4, 6)),
        ("hm2_points", HM2 | {"points": 64}, tables(3, 2, noise=1.0, spread=0.2)),
    ],
)
def test_solved_sums_are_confirmed_without_the_records(
    name: str, method: dict[str, Any], data: Tables, tmp_path: Path
) -> None:
    found = in_folder(name, method, data, tmp_path / "run")
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value < 1e-3 and np.isnan(found.finding.baseline)
    assert found.finding.details["misfit"] < 1e-9
    assert "number" in found.finding.details["confirmed_by"]


@pytest.mark.attack
def test_what_is_not_confirmed_is_no_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = in_folder("hm1_sums", HM1 | {"rounds": 10}, tables(12, 2), tmp_path / "hm1")
    assert many.verdict is Verdict.INCONCLUSIVE and "separate" in many.why
    monkeypatch.setattr(hm2_solved_sums, "_STEPS", 2)
    short = in_folder("hm2_points", HM2 | {"points": 64}, tables(3, 2), tmp_path / "hm2")
    assert short.verdict is Verdict.INCONCLUSIVE and "search" in short.why


@pytest.mark.attack
def test_a_misfit_that_a_wrong_solution_may_have_confirms_nothing(tmp_path: Path) -> None:
    """Of 2^4 choices of signs, in many pairs of rounds, one may fit two numbers to 1e-3."""
    data = tables(4, 2, 1)
    job = parse_job(fedlin_job(HM1, bounds(data), protocol={"name": "masked"}))
    run = AuditedRun.of(job, data, data, 0, tmp_path / "hm1")
    (attack,) = make_attacks(["hm1_sums"])
    guess = attack.run(run.view, np.random.default_rng(0))
    failed = [
        attack.without_truth(guess._replace(misfit=misfit), run.view).failed
        for misfit in (1e-9, 9e-4, 2e-3)
    ]
    assert failed[0] == "" and "chance" in failed[1] and "last sum" in failed[2]


@pytest.mark.attack
def test_sums_that_hardly_depend_on_a_sites_cross_products_confirm_none(tmp_path: Path) -> None:
    data = tables(3, 2, noise=1.0, spread=0.2)
    method = HM2 | {"points": 64}
    job = parse_job(fedlin_job(method, bounds(data), protocol={"name": "masked"}))
    run = AuditedRun.of(job, data, data, 0, tmp_path / "hm2")
    (attack,) = make_attacks(["hm2_points"])
    guess = attack.run(run.view, np.random.default_rng(0))
    vague = attack.without_truth(guess._replace(errors=guess.errors + 0.01), run.view)
    assert vague is not None and "other X'X" in vague.failed and vague.value == np.inf


@pytest.mark.attack
def test_errors_of_the_sums_change_a_solution_by_no_more_than_its_bound(tmp_path: Path) -> None:
    data = tables(3, 2, noise=1.0, spread=0.2)
    method = HM2 | {"points": 64}
    job = parse_job(fedlin_job(method, bounds(data), protocol={"name": "masked"}))
    view = AuditedRun.of(job, data, data, 0, tmp_path / "hm2").view
    (seen,) = stage_rounds(view, POINTS_STAGE)
    q = Natural(seen.message["r"], symmetric(seen.message["Q"], 4))
    exact = sums_at_points(q, seen.total)
    diagonal = np.einsum("nii->ni", exact.precision)
    unit = np.sqrt(diagonal[:, :, None] * diagonal[:, None, :])
    error = np.random.default_rng(0).normal(size=(len(unit), 3))
    error *= np.sqrt(2 * SOLVED) / np.linalg.norm(error)
    moved = replace(
        exact, precision=exact.precision + unit * np.array([symmetric(e, 2) for e in error])
    )
    one, other = (recover_moments(sums, 3, 8) for sums in (exact, moved))
    order = order_of(relative_errors(other.A, one.A))
    changes = np.array([relative_errors(other.A, one.A)[i, j] for i, j in enumerate(order)])
    assert np.all(changes < one.errors) and np.all(one.errors < 1e3 * changes)


# --- messages of the coordinator's choice ---------------------------------------------------------


@pytest.mark.attack
def test_a_dishonest_coordinator_recovers_many_sites_from_hm1s_sums() -> None:
    """Twelve sites, four coefficients; X'X because steps do not come to an end."""
    found = leak(attacked("hm1_invented", HM1 | {"steps": 1}, tables(12, 4)))
    for name in ("errors", "gram_errors", "cross_errors"):
        assert worst(found, name) < 1e-5


@pytest.mark.attack
def test_a_dishonest_coordinator_recovers_single_sites_from_hm2s_sums() -> None:
    """X'X and X'y of three sites with two coefficients, within the rounds of the job."""
    found = leak(attacked("hm2_invented", HM2, tables(3, 2)))
    assert worst(found, "errors") < 1e-5 and worst(found, "cross_errors") < 1e-4


@pytest.mark.attack
def test_jobs_that_the_attacks_do_not_cover_are_named() -> None:
    data = tables(3, 2)
    for name in ("hm1_messages", "hm1_sums", "hm1_invented"):
        random = attacked(name, HM1 | {"rounds": 4, "participation": 0.5}, data, "plain")
        assert random.verdict is Verdict.NOT_APPLICABLE and "random" in random.why
    short = attacked("hm1_messages", HM1 | {"rounds": 2}, data, "plain")
    assert short.verdict is Verdict.NOT_APPLICABLE and "rounds" in short.why
    few = attacked("hm2_invented", HM2 | {"rounds": 12}, data)
    assert few.verdict is Verdict.NOT_APPLICABLE and "rounds" in few.why
    ridge = attacked("ep_messages", HM2 | {"prior": "ridge", "rounds": 2}, data, "plain")
    assert ridge.verdict is Verdict.NOT_APPLICABLE and "prior" in ridge.why
