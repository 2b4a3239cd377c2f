"""What sums determine about sites: its noise and steps, and solutions that are confirmed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import attacked, job, tables

import secagg
from secagg.audits.audit import audit_job
from secagg.audits.audited_run import AuditedRun
from secagg.audits.contract import Verdict
from secagg.audits.folder_audit import audit_folder
from secagg.audits.site_statistics import (
    error_bounds,
    flat,
    reads_moments_only,
    reads_pooled_only,
    resolutions,
)
from secagg.audits.views import Who
from secagg.contracts import SiteRecords, Update
from secagg.errors import PolicyRefusal
from secagg.jobs.job import parse_job

# --- identified share -----------------------------------------------------------------------------


def test_in_clear_a_contribution_has_the_noise_of_one_site() -> None:
    """With the noise of three sites, nothing beyond one sum would be identified."""
    privacy = {"placement": "site", "epsilon": 1.0, "delta": 1e-5}
    data, method = tables(3, 2, 200), {"name": "moments"}
    found = attacked(data, "identified_share", method, protocol="plain", privacy=privacy)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert 0.05 < found.finding.value < 0.5


@pytest.mark.parametrize(("protocol", "value"), [("plain", 1.0), ("masked", 0.0)])
def test_counts_that_differ_by_a_record_are_a_sites_own_in_clear(
    protocol: str, value: float
) -> None:
    """Small changes of records change no count, and exchanged records change none of the sums. In
    clear they do, here by one or two."""
    data = {f"s{k}": pd.DataFrame({"ill": [0, 1] * 20 + [k % 2] * 2}) for k in range(3)}
    method, columns = {"name": "tables", "columns": [["ill"]]}, {"ill": {"type": "binary"}}
    found = attacked(data, "identified_share", method, protocol=protocol, columns=columns)
    assert found.finding is not None and found.finding.value == value
    assert found.finding.details["pooled"] is (value == 0)


def test_sums_have_the_noise_of_the_sites_that_took_part(tmp_path: Path) -> None:
    """Four sites, one of which may collude: each adds a third of the variance.

    With the rule `min_sites = 2`, each site would add all of it in a sum over two sites.
    """
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
    run = run_of(job({"name": "moments"}, 2, privacy=privacy), 4, tmp_path)
    noise = run.view.planned.public.noise["moments"]
    assert noise.min_sites == 2 and noise.colluding == 1
    weights = np.array(noise.weights or (1.0,) * 6, dtype=np.float64)
    expected = weights * 4 * noise.variance / 3 * 4.0**-noise.fraction_bits
    assert resolutions(run.view, "moments", 4) ** 2 == pytest.approx(
        flat(as_update(run, expected)), rel=1e-6
    )


def test_a_column_that_varies_at_one_site_only_is_this_sites_own() -> None:
    data = tables(3, 1)
    data["s1"]["x0"] = data["s2"]["x0"] = 0.5
    with pytest.raises(PolicyRefusal):
        attacked(data, "identified_share", {"name": "moments"})
    release = {"min_sites": 2, "min_records": 5, "min_level_sites": 1}  # the rule is off
    found = attacked(data, "identified_share", {"name": "moments"}, release=release)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value == pytest.approx(1, abs=1e-6)
    assert set(found.finding.details["sites"]["s0"]) == {"means", "covariances"}


def test_small_numbers_are_compared_with_their_own_steps(tmp_path: Path) -> None:
    """Fourth powers are no moments, and not pooled, in whatever units a method sends them."""
    run = run_of(job({"name": "moments"}, 2), 3, tmp_path)
    names, rng = run.view.rounds[0].total, np.random.default_rng(0)

    class Powers:
        """A method whose contributions are in a tiny unit."""

        def contribute(
            self, _: str, rows: SiteRecords, *args: Any
        ) -> tuple[Update, dict[str, Any]]:
            value = 1e-11 * np.mean(rows.values**4) ** 2
            return {name: np.full(array.shape, value) for name, array in names.items()}, {}

    planned: Any = replace(run.view.planned, method=Powers())  # type: ignore[arg-type]
    view = replace(run.view, planned=planned)
    assert not reads_moments_only(view, run.truth.sites["s0"], rng)
    assert not reads_pooled_only(view, run.truth.sites, rng)


def run_of(raw: dict[str, Any], sites: int, scratch: Path) -> AuditedRun:
    data = tables(sites, 2)
    none = {name: table.head(0) for name, table in data.items()}
    return AuditedRun.of(parse_job(raw), data, none, 0, scratch)


def as_update(run: AuditedRun, numbers: Any) -> Update:
    """Return numbers in the order of the plan by field."""
    found, at = Update(), 0
    for plan in run.view.planned.plans.of("moments").fields[:-1]:
        found[plan.field.name] = numbers[at : at + plan.field.size]
        at += plan.field.size
    return found


# --- solved sums, without the records -------------------------------------------------------------


@pytest.mark.attack
def test_solved_sums_are_confirmed_without_the_records(tmp_path: Path) -> None:
    secagg.run(job({"name": "notears_admm"}, 2), tables(2, 2), out=tmp_path / "run")
    (found,) = audit_folder(tmp_path / "run", attacks=["admm_sums"]).attacked
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert 0 < found.finding.value < 1e-6 and np.isnan(found.finding.baseline)
    assert found.finding.details["misfit"] < 1e-20
    assert "misfit" in found.finding.details["confirmed_by"]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("rounds", "why"), [(1, "other matrices"), (2, "other matrices"), (3, "no search")]
)
def test_a_wrong_solution_that_explains_few_sums_is_not_confirmed(
    rounds: int, why: str, tmp_path: Path
) -> None:
    """The errors of these solutions are 30 % or more, and their misfits 1e-21 or less."""
    method = {"name": "notears_admm", "rounds": rounds}
    secagg.run(job(method, 2), tables(2, 2), out=tmp_path / "run")
    (found,) = audit_folder(tmp_path / "run", attacks=["admm_sums"]).attacked
    assert found.verdict is Verdict.INCONCLUSIVE and why in found.why
    assert found.finding is not None and found.finding.details["misfit"] < 1e-20


def test_bounds_of_a_solution_are_infinite_where_numbers_do_not_determine_it() -> None:
    J = np.array([[2.0, 0.0], [0.0, 0.1], [0.0, 0.0]])
    assert error_bounds(J, 1e-3) == pytest.approx([5e-4, 1e-2])
    assert error_bounds(J, 1e-3, np.array([[3.0], [4.0]])) == pytest.approx(1e-3 * 40.028, rel=1e-4)
    assert np.isinf(error_bounds(J[:1], 1e-3)).all()
    assert np.isinf(error_bounds(np.ones((3, 2)), 1e-3)).all()


@pytest.mark.parametrize(
    "method",
    [
        {"name": "notears_admm", "rounds": 4},
        {"name": "sparse_regression", "outcome": "x1", "rounds": 12, "chains": 2, "warmup": 4},
    ],
    ids=str,
)
def test_noise_once_at_the_site_is_not_taken_for_its_records(method: dict[str, Any]) -> None:
    """The sums may determine a site's noisy moments. They were released with noise."""
    privacy = {"placement": "site", "epsilon": 4.0, "delta": 1e-5}
    audit = audit_job(
        job(method, 3, privacy=privacy), tables(3, 3, rows=80),
        attacks=["identified_share", "gibbs_sums"], views=[Who.COORDINATOR],
    )  # fmt: skip
    assert {found.verdict for found in audit.attacked} == {Verdict.NOT_APPLICABLE}
    assert "noise" in audit.attacked[0].why
