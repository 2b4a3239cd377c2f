"""A dishonest coordinator that gives one patient all weight among the patients of a group.

One coefficient moves the border of a group (patients with exercise angina) apart from that of all
others. Outside the group the border lies in the middle, so many patients have weight. Inside, only
the patient with the most extreme values has. Then the group's row of the Hessian is this patient's
row, times the weight. A rule that counts the records of the whole sum sees hundreds of them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.hospitals import folder, moments_job

from secagg.core.randomness import system_random
from secagg.errors import PeerError
from secagg.jobs.job import parse_job
from secagg.models.glm.logistic import Logistic
from secagg.privacy.policy.answered_weights import AnsweredWeights
from secagg.privacy.policy.site_policy import SitePolicy
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

SITES = ("cleveland", "hungary", "va_long_beach")
COLUMNS: dict[str, Any] = {
    "max_heart_rate": {"type": "continuous", "low": 40, "high": 230},
    "age": {"type": "continuous", "low": 18, "high": 100},
    "rest_bp": {"type": "continuous", "low": 60, "high": 260},
    "st_depression": {"type": "continuous", "low": -5, "high": 10},
    "exercise_angina": {"type": "binary"},
    "disease": {"type": "binary"},
}
PREDICTORS = list(COLUMNS)[:5]
REALS = 4


def patients_read(place: Path, policy: SitePolicy, messages: int) -> tuple[int, int]:
    """Return the number of patients that are read, and of sums that all sites answered."""
    job = moments_job(folder(place), COLUMNS, method={
        "name": "logistic", "outcome": "disease", "predictors": PREDICTORS,
    })  # fmt: skip
    planned = plan_job(parse_job(job))
    method, public = planned.method, planned.public
    assert isinstance(method, Logistic)
    columns_of = method.facts.weighted_columns
    assert columns_of is not None
    rows = {h: read_records(planned, planned.sources[h]) for h in SITES}
    answered = {h: AnsweredWeights() for h in SITES}
    truth = np.concatenate([each.values[:, :5] for each in rows.values()])
    rng, read, sums, p = np.random.default_rng(1), set[int](), 0, 6
    for _ in range(messages):
        slopes = rng.normal(size=REALS)
        slopes *= 90 / np.ptp(truth[:, :REALS] @ slopes)
        group = rng.choice([-1, 1])
        inside, along = truth[:, REALS] == group, truth[:, :REALS] @ slopes
        # A sweep finds both borders too; here they are known roughly.
        edge = along[inside].max() + rng.uniform(-2, 2)
        middle = np.median(along[~inside]) + rng.uniform(-10, 10)
        beta = np.array([-(edge + middle) / 2, *slopes, group * (middle - edge) / 2])
        total, judged = np.zeros(p * (p + 1) // 2), dict[str, Any]()
        for h, each in rows.items():
            try:
                sent = method.contribute(
                    "newton", each, {"trial": beta}, {}, public, system_random
                )[0]
            except PeerError:
                break
            weights = method.record_weights(each, {"trial": beta}, public)
            decisions = answered[h].judge(policy, weights, columns_of(each, public))
            if not all(decision.allowed for decision in decisions):
                break
            judged[h], total = weights, total + sent["hessian"]
        if len(judged) < len(rows):
            continue
        sums += 1
        for h, weights in judged.items():
            answered[h].add(weights)
        hessian = np.zeros((p, p))
        hessian[np.triu_indices(p)] = total
        hessian = hessian + np.triu(hessian, 1).T
        of_group = (hessian[0] + group * hessian[-1]) / 2
        error = np.abs(truth[:, :REALS] - of_group[1:-1] / of_group[0]).max(axis=1)
        if error.min() < 5e-3 and truth[error.argmin(), REALS] == group:
            read.add(int(error.argmin()))
    return len(read), sums


@pytest.mark.attack
def test_no_sum_shows_one_patient_of_a_group(tmp_path: Path) -> None:
    before, sums = patients_read(
        tmp_path / "before", SitePolicy(profile=10, max_leverage=1.0), messages=300
    )
    assert before >= 5  # the control: only the records of the whole sum are counted
    now, answered = patients_read(tmp_path / "now", SitePolicy(profile=10), messages=300)
    assert now == 0 and answered > 0
    print(f"patients read: {before} from {sums} sums before; now {now} from {answered}")
