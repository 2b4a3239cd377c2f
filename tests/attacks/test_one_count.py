"""A dishonest coordinator that reads one patient's count from two log-likelihoods.

The patient is the only one with three traits. Coefficients give all other patients a mean above the
largest one that the sums allow, and this patient almost none. While larger means counted as the
largest one, the others' terms were equal in both sums, all weights but one too, and the difference
was the count times the change of eta. Every rule on weights allowed it.
"""

import numpy as np
import pandas as pd
import pytest
from support.methods.all_methods import SITES, job

from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import system_random
from secagg.errors import PeerError
from secagg.jobs.job import parse_job
from secagg.models.glm.newton_regression import NewtonRegression
from secagg.privacy.policy.answered_weights import AnsweredWeights
from secagg.privacy.policy.site_policy import SitePolicy
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

TRAITS = ["a", "b", "c"]
POLICY = SitePolicy(profile=10)


def tables(count: int) -> dict[str, pd.DataFrame]:
    """Return 200 patients of each site. Only one has all three traits, and this count."""
    found = {}
    for i, site in enumerate(SITES):
        rng = np.random.default_rng(i)
        table = pd.DataFrame({trait: rng.permutation(np.arange(200) % 2) for trait in TRAITS})
        table.loc[table.sum(axis=1) == 3, "c"] = 0
        found[site] = table.assign(count=rng.poisson(2, 200))
    found[SITES[0]].loc[7] = [1, 1, 1, count]
    return found


def read(planned: Planned, rows_of: dict[str, SiteRecords], trials: list[Array]) -> float:
    """Return the difference of the log-likelihoods at two trials, if all rules on weights hold."""
    method, columns_of = planned.method, planned.facts.weighted_columns
    assert isinstance(method, NewtonRegression) and columns_of is not None
    sums, answered = [], {site: AnsweredWeights() for site in rows_of}
    for trial in trials:
        message = {"trial": trial}
        total = 0.0
        for site, rows in rows_of.items():
            sent, _ = method.contribute("newton", rows, message, {}, planned.public, system_random)
            weights = method.record_weights(rows, message, planned.public)
            columns = columns_of(rows, planned.public)
            assert all(d.allowed for d in answered[site].judge(POLICY, weights, columns))
            answered[site].add(weights)
            total += sent["log_likelihood"][0]
        sums.append(total)
    return sums[0] - sums[1]


@pytest.mark.attack
@pytest.mark.parametrize("count", [0, 17])
def test_a_site_refuses_coefficients_that_single_out_one_count(count: int) -> None:
    asked = job("poisson")
    asked["columns"] = {trait: {"type": "binary"} for trait in TRAITS}
    asked["columns"]["count"] = {"type": "count", "high": 60}
    asked["method"] = {"name": "poisson", "outcome": "count", "predictors": TRAITS}
    asked["sites"]["max_rows"] = 1000
    planned = plan_job(parse_job(asked), tables(count))
    rows_of = {site: read_records(planned, planned.sources[site]) for site in SITES}
    method = planned.method
    assert isinstance(method, NewtonRegression)
    highest = method.bounds(planned.public).predictor + 0.1

    def trial(lowest: float) -> Array:  # eta: `highest` or more with up to two traits, else lowest
        step = highest - lowest
        return np.array([lowest + 1.5 * step, *[-step / 2] * 3])

    with pytest.raises(PeerError) as refused:
        read(planned, rows_of, [trial(-12.0), trial(-20.0)])
    assert refused.value.where == "coefficients"
