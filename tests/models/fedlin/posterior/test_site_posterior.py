"""HM2's results in words and own units: components of phi, and a site's own posterior."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from secagg.contracts import PublicFacts, Variable
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.hierarchies.base import PosteriorDraws
from secagg.models.fedlin.hierarchies.elastic_net import ElasticNet
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.fedlin.posterior.site_posterior import site_posterior
from secagg.models.fedlin.round import Round
from secagg.models.fedlin.shared_result import in_words, shared_rows
from secagg.models.fedlin.site import Site

NAMES = ("x[kg]", "w]", "log tau[x", "y")
LEVEL = 0.9
CENTRE, SCALE = np.array([0.3, -0.2, 0.1, 0.4]), np.array([2.0, 5.0, 0.5, 1.5])
"""Of the outcome, y, then of the predictors."""
UNITS = {"x[kg]": 5.0 / 2 * 5 / 10, "w]": 5.0 / 2 * 0.5 / 20, "log tau[x": 5.0 / 2 * 1.5 / 30}
"""(half of y / its scale) times (a column's scale / its half)."""
OUTCOME, START = 5.0 / 2, -1 + 5 * 0.3


def layout(intercept: Any = "modelled") -> Layout:
    """Columns with brackets in their names; halves 10, 20, 30, and 5 of y, about 7 and -1."""
    halves = (10.0, 20.0, 30.0)
    columns = [Variable(n, n, 7.0, h) for n, h in zip(NAMES[:3], halves, strict=True)]
    public = PublicFacts((*columns, Variable("y", "y", -1.0, 5.0)), NAMES, 100, ("a", "b"))
    return Layout.of(public, "y", None, intercept, 1)


def words(components: tuple[str, ...], intercept: str = "modelled") -> dict[str, dict[str, Any]]:
    """Components with means 0.1, 0.2 ... and sds 1.1, 1.2 ..., as results have them."""
    steps = 0.1 * np.arange(1, len(components) + 1)
    rows = shared_rows(components, steps, 1 + steps, LEVEL)
    return {row["name"]: row for row in in_words(rows, layout(intercept), CENTRE, SCALE)}


def ends(place: int) -> np.ndarray:
    """Estimate, low and high of a component on the scale on which it is normal."""
    step = 0.1 * (place + 1)
    return step + norm.ppf((1 + LEVEL) / 2) * (1 + step) * np.array([0.0, -1.0, 1.0])


def told(row: dict[str, Any]) -> list[float]:
    return [row["estimate"], row["low"], row["high"]]


def test_means_and_deviations_are_in_own_units_for_any_column_names() -> None:
    regression = layout()
    found = words(NormalHierarchy().components(regression.terms))
    first = "mean intercept, at the predictors' origin"
    assert told(found[first]) == pytest.approx((START + OUTCOME * ends(0)).tolist())
    for j, term in enumerate(NAMES[:3], 1):
        row = found[f"mean of {term} over sites"]
        assert told(row) == pytest.approx((UNITS[term] * ends(j)).tolist())
        assert row["component"] == f"mu[{term}]"
        row = found[f"sd of {term} between sites"]
        assert told(row) == pytest.approx((UNITS[term] * np.exp(ends(4 + j) / 2)).tolist())
        assert row["component"] == f"log tau[{term}]"
        assert (row["mean"], row["sd"]) == pytest.approx((0.1 * (5 + j), 1 + 0.1 * (5 + j)))
    spread = told(found["sd of intercept between sites"])
    assert spread == pytest.approx((OUTCOME * np.exp(ends(4) / 2)).tolist())
    assert len(found) == 8


def test_noise_is_reported_as_a_standard_deviation_and_penalties_directly() -> None:
    found = words(Ridge().components(("x[kg]",)))
    assert told(found["lambda"]) == pytest.approx(np.exp(ends(0)).tolist())
    assert told(found["sd of the noise"]) == pytest.approx((OUTCOME * np.exp(ends(1) / 2)).tolist())
    found = words(ElasticNet().components(("x[kg]",)))
    assert told(found["lambda2"]) == pytest.approx(np.exp(ends(1)).tolist())
    assert found["lambda1"]["component"] == "log lambda1"


MANY, HERE, NOISE = 4000, 9, 0.6


def posterior(theta: np.ndarray, intercept: str, rope: float = 0.0) -> tuple[Site, dict[str, Any]]:
    regression = layout(intercept)
    values = np.random.default_rng(0).uniform(-1, 1, (HERE, 4))
    site = Site.of(regression, values, CENTRE, SCALE)
    rng = np.random.default_rng(1)
    now = Round(regression, "finish", {}, CENTRE, SCALE, NOISE, values, HERE, rng)
    return site, site_posterior(
        PosteriorDraws(theta, theta), np.full(len(theta), NOISE), site, now, LEVEL, rope
    )


def test_a_sites_own_intercept_agrees_with_the_closed_form() -> None:
    """With slopes known it is N(mean of y - theta' mean of x, variance / n), in the outcome's unit.

    Where it is modelled, it is a draw as others are, and here without uncertainty.
    """
    theta = np.array([0.5, -0.3, 0.2])
    site, found = posterior(np.tile(theta, (MANY, 1)), "site")
    sd = OUTCOME * np.sqrt(NOISE / HERE)
    mean = layout("site").in_own_units(theta, CENTRE, SCALE, site.level)[0]
    assert abs(found["mean"][0] - mean) < 4.5 * sd / np.sqrt(MANY)
    assert abs(found["sd"][0] / sd - 1) < 4.5 / np.sqrt(2 * MANY)
    np.testing.assert_allclose(found["sd"][1:], 0, atol=1e-12)
    _, fixed = posterior(np.tile([0.1, *theta], (MANY, 1)), "modelled")
    np.testing.assert_allclose(fixed["sd"], 0, atol=1e-12)


@pytest.mark.parametrize("intercept", ["site", "modelled"])
def test_the_negligible_range_is_in_the_units_analysed(intercept: str) -> None:
    """Of a grid of [-1, 1] a quarter is within 0.25; a site's own intercept has no such range."""
    d = 4 if intercept == "modelled" else 3
    grid = np.random.default_rng(2).permutation(np.linspace(-1, 1, MANY))
    _, found = posterior(np.tile(grid[:, None], (1, d)), intercept, rope=0.25)
    np.testing.assert_allclose(found["null"][-d:], 0.25, atol=1 / MANY)
    assert np.isnan(found["null"][:-d]).all()
    assert len(found["null"]) == 4


def test_interval_ends_have_errors_and_ends_near_zero_are_marked() -> None:
    """Of draws N(0, 1) + 1.645 the interval ends at 0; the error is sqrt(.05 .95 / n) / density."""
    means = np.array([norm.ppf(0.95), 5.0, 0.0])
    draws = means + np.random.default_rng(3).standard_normal((MANY, 3))
    _, found = posterior(draws, "site")
    error = np.sqrt(0.0475 / MANY) / norm.pdf(norm.ppf(0.95))
    for name in ("mcse_low", "mcse_high"):  # by twenty batches: off by 1 / sqrt(38)
        expected = error * np.array([UNITS[term] for term in NAMES[:3]])
        np.testing.assert_allclose(found[name][1:], expected, rtol=4.5 / np.sqrt(38))
    assert found["doubtful"][1:].tolist() == [1.0, 0.0, 0.0]
    assert found["included"][2:].tolist() == [1.0, 0.0]
