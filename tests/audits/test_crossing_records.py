"""Differences of two sums: they are rows where losses have kinks, and not elsewhere."""

from pathlib import Path
from typing import Any

import pytest
from support.methods import networks

from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Verdict
from secagg.audits.folder_audit import audit_folder
from secagg.models.neural.module_learner import ModuleLearner
from secagg.runs.run import run

RELEASE = {"min_sites": 2, "min_records": 10, "min_cell_records": 1, "min_level_sites": 1}
REGRESSION: dict[str, Any] = {
    "name": "torch_module", "outcome": "y", "predictors": ["x", "w", "case"], "optimiser": "sgd",
    "learning_rate": 0.05, "rounds": 20,
}  # fmt: skip
SMOOTH: dict[str, dict[str, Any]] = {
    "pseudo_huber": {**REGRESSION, "loss": "pseudo_huber", "module_settings": {"hidden": []}},
    "network": {**REGRESSION, "module_settings": {"hidden": [3]}},
    "levels": {**REGRESSION, "outcome": "kind", "module_settings": {"hidden": []}},
    "revealer": {
        "name": "fedngr",
        "hidden": [4],
        "rounds": 6,
        "refit_rounds": 6,
        "variables": ["x", "w", "y"],
    },
}
KINKS: dict[str, dict[str, Any]] = {
    "absolute_error": {"loss": "absolute_error", "module_settings": {"hidden": []}},
    "relu": {"module_settings": {"hidden": [4], "activation": "relu"}},
}


def crossed(method: dict[str, Any], **more: Any) -> Attacked:
    raw = networks.job(method, "masked", release=RELEASE) | more
    (found,) = audit_job(raw, networks.tables(3), attacks=["crossing_records"]).attacked
    return found


@pytest.fixture
def kinks_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModuleLearner, "check_smooth", lambda *_: None)


@pytest.mark.neural
@pytest.mark.attack
@pytest.mark.usefixtures("kinks_accepted")
@pytest.mark.parametrize("changes", KINKS.values(), ids=KINKS.keys())
def test_kinks_show_records_of_a_masked_job(changes: dict[str, Any]) -> None:
    """What the refusal of kinks is for: the same jobs, if they were accepted."""
    found = crossed(REGRESSION | changes)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value < 10 and found.finding.details["right"] > 0


@pytest.mark.neural
@pytest.mark.attack
@pytest.mark.usefixtures("kinks_accepted")
def test_a_finished_run_shows_rows_without_the_truth(tmp_path: Path) -> None:
    raw = networks.job(REGRESSION | KINKS["absolute_error"], "masked", release=RELEASE)
    raw["method"]["rounds"] = 40
    run(raw, networks.tables(3), out=tmp_path / "run")
    (found, *_) = audit_folder(tmp_path / "run", attacks=["crossing_records"]).attacked
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.details["rows"] > 0


@pytest.mark.neural
@pytest.mark.parametrize("method", SMOOTH.values(), ids=SMOOTH.keys())
def test_differences_of_smooth_sums_are_made_of_many_records(method: dict[str, Any]) -> None:
    found = crossed(method)
    assert found.verdict is Verdict.NO_LEAK_FOUND, found.why
    assert found.finding is not None and found.control is not None
    assert found.finding.value > 20 and found.control.value < 1.5
    assert found.finding.details["rows"] == found.finding.details["right"] == 0


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_gradients_of_regressions_are_made_of_many_records(family: str) -> None:
    outcome = "case" if family == "binomial" else "y"
    settings = {"outcome": outcome, "predictors": ["x", "w"], "family": family, "rounds": 8}
    found = crossed({"name": "gradient", **settings})
    assert found.verdict is Verdict.NO_LEAK_FOUND, found.why


@pytest.mark.system
def test_methods_whose_sums_are_not_over_records_are_named() -> None:
    found = crossed({"name": "notears_admm", "variables": ["x", "w"]})
    assert found.verdict is Verdict.NOT_APPLICABLE and "sums over records" in found.why


def test_one_round_has_no_difference() -> None:
    analyses = [{"kind": "ols", "outcome": "y", "predictors": ["x"]}]
    found = crossed({"name": "moments", "analyses": analyses})
    assert found.verdict is Verdict.NOT_APPLICABLE and "several rounds" in found.why
