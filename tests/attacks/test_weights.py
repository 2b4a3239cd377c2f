"""Logistic regression: when predictors separate the outcomes, late sums show a few patients.

The weights of Newton's rounds then concentrate on the patients nearest to the border. From the sums
of two late rounds, the rows of three patients were solved exactly. A coordinator that chooses the
coefficients can reach the same in one round.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.runs.hospitals import HOSPITALS, Seen, ask, folder, moments_job

from secagg.privacy.policy.answered_weights import AnsweredWeights, Weights, effective_records
from secagg.privacy.policy.site_policy import SitePolicy

SITES = ("a", "b", "c")
COLUMNS = {
    "diabetes": {"type": "binary"},
    "hba1c": {"type": "continuous", "low": 3, "high": 15},
    "age": {"type": "continuous", "low": 0, "high": 120},
}
METHOD = {"name": "logistic", "outcome": "diabetes", "predictors": ["hba1c", "age"]}
PROFILE = 'profile = 10\nprotocols = ["any"]\n'


def patients(rng: np.random.Generator, overlap: float) -> pd.DataFrame:
    """Return 100 patients; overlap: standard deviation of what else decides on the outcome."""
    hba1c = rng.normal(6, 1.2, 100).round(2)
    table = pd.DataFrame({"hba1c": hba1c, "age": rng.integers(30, 90, 100)})
    table["diabetes"] = (hba1c + rng.normal(0, overlap, 100) >= 6.5).astype(int)
    return table


def study(place: Path, overlap: float, policy: str) -> Path:
    place.mkdir()
    rng = np.random.default_rng(1)
    for name in SITES:
        patients(rng, overlap).to_csv(place / f"{name}.csv", index=False)
        (place / f"{name}.policy.toml").write_text(policy)
    return place


def numbers(
    place: Path, overlap: float, policy: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], Seen]:
    """Return the effective numbers of records of all answered sums, and what was seen."""
    found: list[float] = []
    add = AnsweredWeights.add

    def spy(answered: AnsweredWeights, weights: Sequence[Weights]) -> None:
        found.extend(map(effective_records, weights))
        add(answered, weights)

    monkeypatch.setattr(AnsweredWeights, "add", spy)
    job = moments_job(
        study(place, overlap, policy), COLUMNS, method=METHOD,
        release={"min_sites": 3, "min_records": 10},
    )  # fmt: skip
    return found, ask(job)


def test_separated_outcomes_end_before_few_patients_weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = PROFILE + "min_cell_records = 1\nmax_leverage = 1.0\n"
    control, _ = numbers(tmp_path / "control", 0.0, off, monkeypatch)
    assert min(control) < 5
    found, seen = numbers(tmp_path / "attack", 0.0, PROFILE, monkeypatch)
    assert "records" in seen.codes.values()
    assert min(found) >= 10 and len(found) < len(control) / 2


def test_an_ordinary_fit_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = numbers(tmp_path / "data", 1.0, PROFILE, monkeypatch)
    assert seen.codes == {} and "newton" in seen.sums
    assert min(found) > 20


def test_real_records_with_an_outcome_that_a_predictor_defines_are_refused(tmp_path: Path) -> None:
    """A maximum heart rate of 150 or more, explained by the maximum heart rate."""
    data = folder(tmp_path)
    for name in HOSPITALS:
        path = data / f"{name}.csv"
        table = pd.read_csv(path)
        rate = table["max_heart_rate"]
        table["fast"] = (rate >= 150).astype(float).where(rate.notna())
        table.to_csv(path, index=False)
        (data / f"{name}.policy.toml").write_text(PROFILE.replace("10", "5"))
    columns = {
        "fast": {"type": "binary", "levels": ["0.0", "1.0"]},
        "max_heart_rate": {"type": "continuous", "low": 40, "high": 230},
    }
    method = {"name": "logistic", "outcome": "fast", "predictors": ["max_heart_rate"]}
    rules = {"min_sites": 3, "min_records": 5}
    seen = ask(moments_job(data, columns, method=method, release=rules))
    assert "newton" in seen.sums and "records" in seen.codes.values()


@pytest.mark.parametrize(
    ("weights", "number"),
    [([1, 1, 1, 1], 4), ([1, 0, 0], 1), ([1e-200, 1e-200], 2), ([0, 0], 0), ([3, 1], 1.6), ([], 0)],
)
def test_equal_weights_count_each_record(weights: list[float], number: float) -> None:
    assert effective_records(np.array(weights, dtype=float)) == pytest.approx(number)


@pytest.mark.parametrize(
    ("rule", "number", "allowed"),
    [(10, 9, False), (10, 10, True), (100, 10, False), (100, 11, True)],
)
def test_weights_of_eleven_records_are_enough(rule: int, number: int, allowed: bool) -> None:
    """A site that requires a hundred records does not require a hundred of equal weight."""
    policy = SitePolicy(min_sites=3, min_records=rule)
    weights = np.where(np.arange(200) < number, 1.0, 0.0)
    decision, *_ = AnsweredWeights().judge(policy, [np.ones(200), weights], np.ones((200, 1)))
    assert decision.allowed is allowed
