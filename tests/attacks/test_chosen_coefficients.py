"""A dishonest coordinator that steps over patients with coefficients of its choice.

With huge coefficients, the residual of a logistic regression is 0 or 1 for all patients but those
at the border. Between two such plateaus that one patient lies, the difference of the sums is this
patient's row. Each single sum depends on hundreds of patients. Sites that judged single sums only
answered 5025 of them, and nine patients' rows were read.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.hospitals import HOSPITALS, folder, moments_job

from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import system_random
from secagg.errors import PeerError
from secagg.jobs.job import parse_job
from secagg.models.glm import newton
from secagg.models.glm.gradient_descent import Gradient
from secagg.privacy.policy.answered_weights import (
    AnsweredWeights,
    effective_records,
    rounding_of,
    weighted_leverage,
)
from secagg.privacy.policy.site_policy import SitePolicy
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

COLUMNS: dict[str, Any] = {
    "age": {"type": "continuous", "low": 18, "high": 100},
    "max_heart_rate": {"type": "continuous", "low": 40, "high": 230},
    "st_depression": {"type": "continuous", "low": -5, "high": 10},
    "disease": {"type": "binary"},
}
PREDICTORS = ["age", "max_heart_rate", "st_depression"]
POLICY = SitePolicy(profile=10)


@dataclass
class Attack:
    """What the coordinator sends and learns. A site that refused a sum answers no more of them.

    answered, refused: numbers of sums; rows: scaled rows that differences of sums seem to show
    """

    planned: Planned
    rows_of: dict[str, SiteRecords]
    weights: dict[str, AnsweredWeights] = field(default_factory=dict)
    answered: int = 0
    refused: int = 0
    rows: set[tuple[float, ...]] = field(default_factory=set)

    def ask(self, beta: Array) -> Array | None:
        """Return the sum at these coefficients; None if a site refuses."""
        method, public = self.planned.method, self.planned.public
        columns_of = self.planned.facts.weighted_columns
        assert isinstance(method, Gradient) and columns_of is not None
        message, total = {"beta": beta}, np.zeros(len(beta))
        judged: list[tuple[AnsweredWeights, Any]] = []
        for name, rows in self.rows_of.items():
            answered = self.weights.setdefault(name, AnsweredWeights())
            try:
                sent, _ = method.contribute("gradient", rows, message, {}, public, system_random)
            except PeerError:
                self.refused += 1
                return None
            found = method.record_weights(rows, message, public)
            columns = columns_of(rows, public)
            if not all(decision.allowed for decision in answered.judge(POLICY, found, columns)):
                self.refused += 1
                return None
            judged.append((answered, found))
            total += sent["gradient"]
        for answered, found in judged:
            answered.add(found)
        self.answered += 1
        return total

    def sweep(self, direction: Array, steps: Array) -> None:
        """Move the border over the patients, along a direction, and read the differences."""
        plateau = before = None
        for step in steps:
            now = self.ask(np.concatenate([[step], direction]))
            if now is None:
                before = plateau = None
                continue
            if before is not None and np.abs(now - before).max() < 1e-2:
                if plateau is not None and abs(abs((now - plateau)[0]) - 1) < 2e-2:
                    row = (now - plateau)[1:] / (now - plateau)[0]
                    self.rows.add(tuple(np.round(row, 2)))
                plateau = now
            before = now


def attack(place: Path, largest: float) -> Attack:
    job = moments_job(folder(place), COLUMNS, method={
        "name": "gradient", "family": "binomial", "outcome": "disease", "predictors": PREDICTORS,
        "rounds": 10_000,
    })  # fmt: skip
    planned = plan_job(parse_job(job))
    found = Attack(planned, {h: read_records(planned, planned.sources[h]) for h in HOSPITALS})
    rng = np.random.default_rng(5)
    for _ in range(6):
        direction = rng.normal(size=3)
        direction *= largest / 2 / np.abs(direction).sum()
        found.sweep(direction, np.arange(-largest / 2, largest / 2, largest / 200))
    return found


def patients(found: Attack) -> int:
    """Return how many of the rows are patients' rows."""
    whole = np.concatenate([rows.values[:, :3] for rows in found.rows_of.values()])
    truth = {tuple(np.round(row, 2)) for row in whole}
    return len(found.rows & truth)


@pytest.mark.attack
def test_no_difference_of_two_sums_is_one_patient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = attack(tmp_path / "now", newton.MAX_PREDICTOR)
    assert now.answered > 100 and patients(now) == 0
    # Without the limit on coefficients, the rule on differences alone.
    monkeypatch.setattr(newton, "MAX_PREDICTOR", 1000.0)
    unlimited = attack(tmp_path / "unlimited", 1000.0)
    assert unlimited.refused > 0 and patients(unlimited) == 0
    # The control: single sums are judged, as they were.
    monkeypatch.setattr(AnsweredWeights, "add", lambda self, weights: None)
    control = attack(tmp_path / "control", 1000.0)
    assert patients(control) >= 3
    print(
        f"patients' rows read: {patients(control)} from {control.answered} sums judged singly; now "
        f"{patients(now)} from {now.answered}, {now.refused} refused"
    )


@pytest.mark.attack
def test_an_ordinary_fit_has_no_difference_that_few_records_decide(tmp_path: Path) -> None:
    """The honest coordinator's own messages, at four hospitals."""
    job = moments_job(folder(tmp_path), COLUMNS, method={
        "name": "logistic", "outcome": "disease", "predictors": PREDICTORS,
    })  # fmt: skip
    planned = plan_job(parse_job(job))
    rows = {h: read_records(planned, planned.sources[h]) for h in HOSPITALS}
    method, public = planned.method, planned.public
    state, smallest, largest = method.initial_state(public), np.inf, 0.0
    columns_of = planned.facts.weighted_columns
    assert columns_of is not None
    z = {h: columns_of(each, public) for h, each in rows.items()}
    answered: dict[str, list[Any]] = {h: [] for h in HOSPITALS}
    weights_of = planned.facts.weights
    assert callable(weights_of)
    while (asked := method.next_request(state)) is not None:
        stage, message = asked
        sent = [method.contribute(stage, each, message, {}, public, system_random)[0]
                for each in rows.values()]  # fmt: skip
        total = {k: np.sum([update[k] for update in sent], axis=0) for k in sent[0]}
        state = method.aggregate(state, total, len(rows))
        for h, each in rows.items():
            now = weights_of(each, message, public)
            for before in answered[h]:
                for one, other in zip(before, now, strict=True):
                    rounding, difference = rounding_of(one, other), other - one
                    if np.abs(difference).max() > rounding:
                        smallest = min(smallest, effective_records(difference))
                        largest = max(largest, weighted_leverage(z[h], difference, rounding))
            answered[h].append(now)
    assert state["status"] == "converged" and smallest > 3 * POLICY.smallest_cell
    assert 0.1 < largest < 0.5  # far below the limit of 0.9
