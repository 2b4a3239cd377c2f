"""The number of parameters that a policy's ratio counts, for methods that read moments only."""

from typing import Any

import pytest
from support.methods.all_methods import SITES, job, records

from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job
from secagg.sessions.rounds import COHORT
from secagg.sessions.session_ledgers import contribution_request


def counted(name: str, **settings: Any) -> int:
    plan = plan_job(
        parse_job(job(name, **settings)), {site: records(i, 40) for i, site in enumerate(SITES)}
    )
    stages = [stage for key, stage in plan.plans.stages.items() if key != COHORT]
    source = plan.sources[SITES[0]]
    request = contribution_request(plan.job, plan.facts, stages, source, bytes(32), None)
    return request.parameters


@pytest.mark.parametrize(
    "name", ["moments", "fedlin_hm2", "sparse_regression", "notears_admm", "fedlin_hm1"]
)
def test_functions_of_moments_count_as_the_moments(name: str) -> None:
    """Four columns: a regression of one on all others has five parameters."""
    assert counted(name) <= counted("moments") == 5


def test_other_methods_count_all_numbers_of_a_sum() -> None:
    assert counted("notears_mlp_admm") > 5
    assert counted("fedlin_hm2", holdout=0.2) > 5
