"""Many jobs with noise on the same records: only a budget for all of them limits what they tell.

The attack on the heart records: the job declares age with bounds just below that of the two oldest
patients, so that its variable singles them out. Each job is noisy; the mean of many is not.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.checkout import ROOT

import secagg
from secagg.errors import PolicyRefusal
from secagg.jobs.job import parse_job
from secagg.models.moments.method import PooledMoments
from secagg.privacy.policy.site_policy import PROFILES
from secagg.runs import budgets
from secagg.runs.plan import plan_run
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.attack

HOSPITALS = ("cleveland", "hungary", "switzerland", "va_long_beach")
OLDEST = 77
"""The age of the two oldest patients, in Cleveland and at Long Beach."""


def records(place: Path, policy: str) -> Path:
    data = place / "data"
    data.mkdir()
    for name in HOSPITALS:
        shutil.copy(ROOT / f"examples/heart-disease/data/{name}.csv", data)
        if policy:
            (data / f"{name}.policy.toml").write_text(policy)
    return data


def job(data: Path, number: int, epsilon: float, **privacy: Any) -> dict[str, Any]:
    return {
        "title": f"job {number}",
        "sites": {"folder": str(data), "max_rows": 512},
        "columns": {
            "age": {"type": "continuous", "low": OLDEST - 0.001, "high": OLDEST},
            "max_heart_rate": {"type": "continuous", "low": 40, "high": 230},
            "exercise_angina": {"type": "binary"},
        },
        "method": {"name": "moments", "analyses": [{"kind": "describe"}]},
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
        "privacy": {
            "placement": "sum", "epsilon": epsilon, "delta": 1e-5, "record_norm": 1.4, **privacy,
        },
    }  # fmt: skip


def attack(
    data: Path, epsilon: float, jobs: int, monkeypatch: pytest.MonkeyPatch, **privacy: Any
) -> tuple[list[float], str]:
    """Return what each job says about the number of oldest patients, and why it was refused."""
    sums: list[Any] = []
    aggregate = PooledMoments.aggregate

    def kept(self: Any, state: Any, total: Any, sites: Any) -> Any:
        sums.append(np.array(total["moments"]))
        return aggregate(self, state, total, sites)

    monkeypatch.setattr(PooledMoments, "aggregate", kept)
    refusal = ""
    for number in range(jobs):
        try:
            secagg.run(job(data, number, epsilon, **privacy))
        except PolicyRefusal as error:
            refusal = error.line()
            break
    # The first two sums are over records: of 1/4, and of age / 2 with age scaled to [-1, 1].
    return [2 * each[0] + each[1] for each in sums], refusal


def test_without_a_policy_the_attack_reads_the_oldest_patients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: this many jobs would read the count to within a fraction of a patient."""
    found, refusal = attack(records(tmp_path, ""), 20.0, 20, monkeypatch)
    assert not refusal and abs(np.mean(found) - 2) < 1.0, found


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_a_profile_refuses_a_job_that_asks_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: int, adjacency: str
) -> None:
    data = records(tmp_path, f"profile = {profile}\n")
    most = PROFILES[profile]["budget"]["epsilon"]
    for epsilon, delta in ((20.0, 1e-5), (most * 1.01, 1e-5), (most / 2, 1e-4)):
        found, refusal = attack(data, epsilon, 1, monkeypatch, delta=delta, adjacency=adjacency)
        assert not found and "release rule budget:" in refusal


@pytest.mark.parametrize(("profile", "epsilon"), [(5, 3.9), (10, 1.0), (3, 2.0)])
def test_a_profile_ends_many_small_jobs_before_they_read_a_patient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: int, epsilon: float
) -> None:
    data = records(tmp_path, f"profile = {profile}\n")
    found, refusal = attack(data, epsilon, 60, monkeypatch)
    assert 1 <= len(found) < 60 and "the total with this job would be" in refusal
    cap = PROFILES[profile]["budget"]["period_epsilon"]
    spent = [row["epsilon_replace"] for row in budgets.show(data, 1e-5)]
    assert max(spent[:-1]) <= cap
    (line, *_) = plan_run(plan_job(parse_job(job(data, 60, epsilon))))["refusals"]
    assert "by its budget" in line


def test_a_policy_without_a_budget_refuses_each_job_with_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = records(tmp_path, 'min_sites = 3\nmin_records = 10\nprotocols = ["any"]\n')
    found, refusal = attack(data, 0.1, 1, monkeypatch)
    assert not found and "release rule budget.set" in refusal and "[budget]" in refusal
    refusals = plan_run(plan_job(parse_job(job(data, 0, 0.1))))["refusals"]
    assert [line.split(": ")[1] for line in refusals] == ["budget.set"] * 4


def exact(data: Path) -> dict[str, Any]:
    raw = job(data, 0, 1.0)
    age = {"type": "continuous", "low": 20, "high": 90}
    return {**raw, "columns": {**raw["columns"], "age": age}, "privacy": {}}


def test_exact_jobs_stay_with_the_rules_on_records_and_do_not_spend_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = records(tmp_path, "profile = 10\n")
    before = plan_run(plan_job(parse_job(exact(data))))
    assert before["refusals"] == []
    secagg.run(exact(data))
    found, refusal = attack(data, 1.0, 1, monkeypatch)
    assert len(found) == 1 and not refusal
    for name in HOSPITALS:
        (data / f"{name}.policy.toml").write_text("profile = 10\n[budget]\nepsilon = 1\n")
    with pytest.raises(PolicyRefusal, match="release rule budget"):
        secagg.run(exact(data))
    found, refusal = attack(data, 0.5, 1, monkeypatch)  # this budget counts the exact job
    assert not found and "exact sums were released" in refusal
