"""A few of the jobs of tests/statistical/test_differences_of_sums.py, and a method that fails."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from support.privacy.random_jobs import STRICTEST, complete, examine, examine_plan, random_method

from secagg.contracts import Body, Method, SiteRecords, State, Update
from secagg.jobs.job import parse_job
from secagg.models.glm.gradient_descent import Gradient
from secagg.sessions.planned_job import plan_job


@pytest.mark.parametrize("seed", range(8))
def test_differences_of_regressions_are_made_of_many_records(seed: int) -> None:
    rng = np.random.default_rng([39, seed])
    found = examine(random_method(rng, torch=False), rng)
    assert found.fewest is not None and found.fewest.effective >= STRICTEST, found


class Planted:
    """Least squares whose sites send the gradient of an absolute error or of a quantile loss."""

    def __init__(self, inner: Gradient, level: float) -> None:
        self.inner, self.level = inner, level

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def contribute(
        self, stage: str, rows: SiteRecords, message: Body, memory: State, *rest: Any
    ) -> tuple[Update, State]:
        update, _ = self.inner.contribute(stage, rows, message, memory, *rest)
        names = ["age", "rest_bp"]
        public = rest[0]
        at = [public.positions[name][0] for name in [*names, "max_heart_rate"]]
        z = np.column_stack([np.ones(len(rows.values)), rows.values[:, at[:2]]])
        residual = rows.values[:, at[2]] - z @ message["beta"]
        signs = np.where(residual > 0, self.level, self.level - 1)
        return {"gradient": signs @ z, "size": update["size"]}, memory


@pytest.mark.attack
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_planted_quantile_loss_is_found(level: float) -> None:
    """The control: the same examination, of sums whose differences are the records that crossed."""
    raw = {
        "title": "Planted", "sites": {"max_rows": 512},
        "columns": {
            "age": {"type": "continuous", "low": 18, "high": 100},
            "rest_bp": {"type": "continuous", "low": 60, "high": 260},
            "max_heart_rate": {"type": "continuous", "low": 40, "high": 230},
        },
        "method": {"name": "gradient", "outcome": "max_heart_rate", "family": "gaussian",
                   "predictors": ["age", "rest_bp"], "rounds": 12},
        "protocol": {"name": "plain"}, "release": {"min_sites": 3, "min_records": 10},
    }  # fmt: skip
    tables = {name: table.head(40) for name, table in complete().items()}
    planned = plan_job(parse_job(raw), tables)
    assert isinstance(planned.method, Gradient)
    planted = replace(planned, method=cast("Method", Planted(planned.method, level)))
    assert (honest := examine_plan(planned, raw["method"]).fewest) is not None
    assert (found := examine_plan(planted, raw["method"]).fewest) is not None
    assert found.effective < 3 < STRICTEST <= honest.effective
