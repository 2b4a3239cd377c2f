"""The verdict before data against errors that are measured, in records and noise that are drawn."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import brentq
from scipy.special import expit, ndtri
from support.methods.gradients import fit

from secagg.contracts import PublicFacts, Variable
from secagg.contracts.noise import Clip, Noise, Placement
from secagg.models.common.clipped_moments import CONSTANT
from secagg.models.glm.gradient_descent import STAGE, Gradient
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.moments.method import PooledMoments
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.privacy.expected_error import (
    LINEAR,
    USABLE_ERROR,
    Assumptions,
    PlannedNoise,
    Verdict,
    feasibility,
)

DELTA = 1e-6
SITES, COLLUDING = 5, 1


def population(assumed: Assumptions, rng: np.random.Generator) -> np.ndarray:
    """Return records as assumed, clipped to norm R, the outcome last.

    Indicators, and a 0/1 outcome, are 1 for a fifth of the records. The indicators' latent normals
    have the correlation assumed, they themselves a somewhat lower one.
    """
    n, rho = assumed.records, assumed.correlation
    p = assumed.continuous + assumed.indicators - 1
    x = math.sqrt(1 - rho) * rng.normal(size=(n, p)) + math.sqrt(rho) * rng.normal(size=(n, 1))
    indicators = assumed.indicators - assumed.law.indicator
    x[:, :indicators] = np.where(x[:, :indicators] > ndtri(0.8), 2.0, -0.5)  # mean 0, variance 1
    middle, spread = np.reshape(assumed.columns, (-1, 2)).T
    slopes = rng.normal(size=p)
    signal = (x - x.mean(axis=0)) @ slopes
    signal /= signal.std()
    share = assumed.explained
    if assumed.law.indicator:
        log_odds = math.sqrt(share / (1 - share) * math.pi**2 / 3) * signal
        log_odds += brentq(lambda m: expit(m + log_odds).mean() - 0.2, -20.0, 20.0)
        y = np.where(rng.random(n) < expit(log_odds), 1.0, -1.0) * assumed.indicator_size
    else:
        y = math.sqrt(share) * signal + math.sqrt(1 - share) * rng.normal(size=n)
        y *= spread[-1]
    x[:, indicators:] *= spread[: p - indicators]
    x[:, :indicators] = assumed.indicator_size * np.sign(x[:, :indicators])
    u = np.column_stack([x, y])
    u[:, indicators : indicators + assumed.continuous] += middle
    u = u.clip(-1, 1)
    return u * np.minimum(1, math.sqrt(assumed.squared_norm) / np.linalg.norm(u, axis=1))[:, None]


def relative(found: np.ndarray, exact: np.ndarray, u: np.ndarray) -> float:
    """Return the error of slopes per standard deviation."""
    spread = u[:, :-1].std(axis=0)
    return float(np.linalg.norm(spread * (found - exact)) / np.linalg.norm(spread * exact))


def moments_error(u: np.ndarray, noised: PlannedNoise, rng: np.random.Generator) -> float:
    """Least squares from noised moments, eigenvalues below half the noise's norm raised to it."""
    n, p = u.shape
    variance = noised.sites if noised.placement is Placement.SITE else 1 / (1 - COLLUDING / SITES)
    sd = noised.sensitivity / gaussian_mu(noised.epsilon, DELTA) * math.sqrt(variance)
    z = np.column_stack([np.full(n, CONSTANT), u])
    upper = np.triu(rng.normal(0, sd, (p + 1, p + 1))) * np.sqrt(1 + np.eye(p + 1))
    noise = upper + np.triu(upper, 1).T

    def slopes(moments: np.ndarray, floor: float) -> np.ndarray:
        sums = moments[0, 1:]
        values, basis = np.linalg.eigh(moments[1:, 1:] - np.outer(sums, sums) / moments[0, 0])
        scatter = (basis * np.maximum(values, floor)) @ basis.T
        return np.linalg.solve(scatter[:-1, :-1], scatter[:-1, -1])

    return relative(slopes(z.T @ z + noise, sd * math.sqrt(p)), slopes(z.T @ z, 0.0), u)


def method_for(assumed: Assumptions, rounds: int) -> tuple[Gradient, PublicFacts]:
    names = tuple(f"x{j}" for j in range(assumed.continuous + assumed.indicators - 1))
    variables = (
        *(Variable(n, n, 0.0, 1.0) for n in names),
        Variable("y", "y", 0.5, 0.5, indicator=True),
    )
    sites = tuple(f"s{k}" for k in range(SITES))
    public = PublicFacts(variables, (*names, "y"), 10**6, sites, Clip(assumed.squared_norm, 16))
    family = "binomial" if assumed.law.indicator else "gaussian"
    return Gradient("y", names, family, rounds), public


def moments_noise(assumed: Assumptions, epsilon: float, placement: Placement) -> PlannedNoise:
    _, public = method_for(assumed, 1)
    (stage,) = PooledMoments().stages(public)
    assert stage.sensitivity is not None
    return PlannedNoise(stage.sensitivity.add, epsilon, DELTA, placement, SITES, COLLUDING)


def rounds_noise(assumed: Assumptions, epsilon: float, rounds: int) -> PlannedNoise:
    method, public = method_for(assumed, rounds)
    (stage,) = method.stages(public)
    assert stage.sensitivity is not None
    return PlannedNoise(
        stage.sensitivity.add, epsilon, DELTA, Placement.ROUND, SITES, COLLUDING, rounds=rounds
    )


def rounds_error(
    u: np.ndarray, assumed: Assumptions, noised: PlannedNoise, rng: np.random.Generator
) -> float:
    """Run the gradient method itself, noise drawn on its sums."""
    method, public = method_for(assumed, noised.rounds)
    bits = method.stages(public)[0].spec[0].fraction_bits
    sd = noised.sensitivity * math.sqrt(noised.rounds) / gaussian_mu(noised.epsilon, DELTA)
    variance = math.ceil((Fraction(sd) * 2**bits) ** 2)
    noise = Noise(Placement.ROUND, variance, bits, COLLUDING, SITES)
    public = dataclasses.replace(public, noise={STAGE: noise})
    in_sum = math.sqrt(noise.sum_variance(SITES, noise.site_variance(SITES)))
    on_grid = np.trunc(u * 2.0**16) * 2.0**-16
    result = fit(method, public, [on_grid], lambda shape: rng.normal(0, in_sum, shape))
    z = np.column_stack([np.ones(len(u)), u[:, :-1]])
    if assumed.law.indicator:
        exact = sm.Logit((u[:, -1] > 0).astype(float), z).fit(disp=0).params
    else:
        exact = np.linalg.lstsq(z, u[:, -1], rcond=None)[0]
    return relative(result.arrays["scaled_coefficients"][1:], exact[1:], u)


def measured(assumed: Assumptions, repeats: int, once: Callable[..., float]) -> float:
    """Return the root mean square error over fresh records and fresh noise."""
    squares = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        squares.append(once(population(assumed, rng), rng) ** 2)
    return math.sqrt(np.mean(squares))


def near(claimed: float, error: float, factor: float) -> bool:
    """Return whether a measured error is the claimed one up to a factor; in the red, only red."""
    if claimed > 0.4:
        return error > USABLE_ERROR / factor
    return claimed / factor < error < claimed * factor


Case = tuple[int, int, int, float, float]

MOMENTS: list[Case] = [  # records, continuous, indicators, R^2, spread
    (500, 3, 0, 3.0, 0.3),
    (5000, 3, 0, 3.0, 0.3),
    (2000, 6, 0, 1.0, 0.3),
    (10_000, 11, 0, 11.0, 0.3),
    (5000, 3, 2, 2.5, 0.2),
    (20_000, 4, 4, 2.0, 0.2),
]


def of_moments(case: Case, logistic: bool = False) -> Assumptions:
    records, continuous, indicators, square, spread = case
    law = BINOMIAL.fisher if logistic else LINEAR
    return Assumptions(records, continuous, indicators, square, law, spread=spread)


@pytest.mark.statistical
@pytest.mark.parametrize("placement", [Placement.SUM, Placement.SITE])
@pytest.mark.parametrize("case", MOMENTS, ids=str)
def test_the_verdict_on_moments_agrees_with_the_measured_error(case, placement):
    """24 repeats of p - 1 slopes: 10 % of Monte Carlo error at 1 sd where p = 3, less elsewhere.

    Beyond that the model is of first order; 40 % covers both.
    """
    assumed = of_moments(case)
    for epsilon in (1.0, 4.0):
        noised = moments_noise(assumed, epsilon, placement)
        found = feasibility(assumed, noised)
        error = measured(assumed, 24, lambda u, rng, n=noised: moments_error(u, n, rng))
        assert near(found.error, error / math.hypot(1, error), 1.4)


STATED = [  # mean and spread of each continuous variable, the outcome last
    ((5000, 3, 0, 3.0, 0.2), ((0.0, 0.2), (0.0, 0.2), (0.0, 0.05))),  # wide bounds of the outcome
    ((5000, 3, 0, 3.0, 0.2), ((-0.4, 0.2), (-0.4, 0.2), (-0.5, 0.2))),  # far from the middle
    ((20_000, 3, 2, 2.0, 0.2), ((0.3, 0.1), (-0.5, 0.3), (-0.6, 0.1))),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("case", "stated"), STATED, ids=str)
def test_stated_means_and_spreads_make_the_verdict_right_where_the_usual_ones_are_wrong(
    case, stated
):
    """As above. Without them the same jobs are expected to have less than 0.7 times the error."""
    usual = of_moments(case)
    assumed = dataclasses.replace(usual, stated=stated)
    noised = moments_noise(assumed, 4.0, Placement.SITE)
    found = feasibility(assumed, noised)
    error = measured(assumed, 24, lambda u, rng: moments_error(u, noised, rng))
    assert near(found.error, error / math.hypot(1, error), 1.4)
    assert feasibility(usual, noised).error < 0.7 * found.error
    assert found.error_if_narrow is None


ROUNDS = [  # as above, epsilon, rounds; the first with a binary outcome
    ((1000, 6, 0, 1.0, 0.3), 1.0, 40, False),
    ((4000, 6, 0, 1.0, 0.3), 1.0, 40, False),
    ((4000, 11, 0, 11.0, 0.3), 4.0, 60, False),
    ((4000, 3, 2, 5.0, 0.2), 4.0, 20, False),
    ((2000, 5, 1, 1.5, 0.3), 2.0, 10, True),
    ((4000, 2, 4, 6.0, 0.2), 100.0, 20, False),  # hardly any noise: what the rounds leave
    ((4000, 3, 4, 7.0, 0.2), 100.0, 20, True),
    ((8000, 5, 1, 1.5, 0.3), 4.0, 100, True),  # 60 are just enough: 1.8 times the error by (2)
]


def of_rounds(case, epsilon, rounds, logistic) -> tuple[Assumptions, PlannedNoise]:
    assumed = of_moments(case, logistic)
    return assumed, rounds_noise(assumed, epsilon, rounds)


@pytest.mark.statistical
@pytest.mark.parametrize("case", ROUNDS, ids=str)
def test_the_verdict_on_rounds_agrees_with_the_measured_error(case):
    """As above; momentum, the clip and the curve of the logistic add to the model's error: 60 %."""
    assumed, noised = of_rounds(*case)
    found = feasibility(assumed, noised)
    error = measured(assumed, 8, lambda u, rng: rounds_error(u, assumed, noised, rng))
    assert near(found.error, error, 1.6)


@pytest.mark.statistical
@pytest.mark.parametrize("spread", [0.2, 0.1])
def test_the_verdict_on_a_usual_logistic_regression_agrees_with_the_measured_error(spread):
    """Seven predictors of 2000 patients at epsilon 8, with the spread assumed and with half of it.

    60 repeats measured 10.4 +- 0.4 % and 32.6 +- 1.2 %; in 16 the Monte Carlo error is twice that.
    The former assumptions (an outcome of half the records, explained by half) predicted 4.9 %.
    """
    assumed, noised = of_rounds((2000, 3, 4, 4.0, spread), 8.0, 100, True)
    usual = feasibility(dataclasses.replace(assumed, spread=0.2), noised)
    claimed = usual.error if spread == 0.2 else usual.error_if_narrow
    assert claimed is not None and usual.verdict is Verdict.AMBER
    assert claimed == pytest.approx(feasibility(assumed, noised).error)
    error = measured(assumed, 16, lambda u, rng: rounds_error(u, assumed, noised, rng))
    assert near(claimed, error, 1.6)


@pytest.mark.parametrize("rounds", [1, 2, 5, 10])
def test_the_predicted_convergence_error_agrees_with_the_method(rounds):
    """Two kinds of records on a line, no noise to speak of: one eigenvector, one number."""
    spread, slope = 0.25, 0.5
    assumed = Assumptions(1000, 2, 0, 1e3, spread=spread)
    method, public = method_for(assumed, rounds)
    method = dataclasses.replace(method, clip=2.0)
    noise = Noise(Placement.ROUND, 1, 24, COLLUDING, SITES)
    public = dataclasses.replace(public, noise={STAGE: noise})
    u = np.array([[spread, slope * spread], [-spread, -slope * spread]])
    result = fit(method, public, [np.repeat(u, 500, axis=0)])
    found = result.arrays["scaled_coefficients"][1]
    left = feasibility(
        assumed, PlannedNoise(1e-9, 1.0, DELTA, Placement.ROUND, SITES, rounds=rounds)
    )
    # truncation to 2^-24 and the margin for one step of noise in 1000 records
    assert left.error == pytest.approx(abs(slope - found) / slope, abs=1e-5)


@pytest.mark.parametrize("indicators", [0, 2])
@pytest.mark.parametrize("beyond", [-1.5, 0.2, 0.5, 1.0, 3.0])
def test_the_variance_after_clipping_agrees_with_simulation(beyond, indicators):
    """Against records that are drawn: the ratio is inverse to their variance."""
    square, n, k = beyond + indicators, 20_000, 6
    if square <= 0:
        return
    clipped, whole = (
        feasibility(
            Assumptions(n, k, indicators, s, LINEAR, 1.0, 0.3, 0.8),
            PlannedNoise(1.0, 1.0, DELTA, Placement.SUM, 3),
        ).ratio
        for s in (square, 100.0)
    )
    assert clipped is not None and whole is not None
    rng = np.random.default_rng(1)
    u = 0.3 * (math.sqrt(0.7) * rng.normal(size=(n, k)) + math.sqrt(0.3) * rng.normal(size=(n, 1)))
    u = np.column_stack([rng.choice([-1.0, 1.0], size=(n, indicators)), u])
    left = u * np.minimum(1, math.sqrt(square) / np.linalg.norm(u, axis=1))[:, None]
    # the gamma law is an approximation to a sum of squares; Monte Carlo error is below 1 %
    assert whole / clipped == pytest.approx(np.sum(left**2) / np.sum(u**2), rel=0.03)
