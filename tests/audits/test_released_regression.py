"""The regressions that attacks read from a result."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.methods.all_methods import SITES, job, records

from secagg.audits.attacks.records.released_regression import released_regressions
from secagg.jobs.job import parse_job
from secagg.runs.run import run
from secagg.sessions.planned_job import plan_job


@pytest.mark.parametrize("outcome", ["z", "case"])
def test_sites_regressions_with_a_modelled_intercept_are_read(outcome: str) -> None:
    """The intercept is in analysed units only; a binary outcome is named as its column."""
    binomial = {"family": "binomial"} if outcome == "case" else {}
    settings = {"outcome": outcome, "predictors": ["x"], "intercept": "modelled"}
    raw = job("fedlin_full", **settings, **binomial)
    tables = {site: records(i, 60 + i) for i, site in enumerate(SITES)}
    result = run(raw, tables).result
    view = SimpleNamespace(planned=plan_job(parse_job(raw), tables), result=result)
    (released,) = released_regressions(cast(Any, view))
    mean = result.summary["across_sites"][-1]["own_units"]["mean"]
    unit = 1.0 if outcome == "case" else 6.0  # half of the range of x, and of z
    assert released.intercept is None
    np.testing.assert_allclose(released.slopes, [mean * 6.0 / unit])
