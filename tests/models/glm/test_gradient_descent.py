"""Gradient rounds: where they lead, without and with noise, and which settings are refused."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import expit
from support.methods.gradients import (
    FAMILIES,
    GRID,
    contribution,
    fit,
    method_of,
    public_of,
    stage_of,
)

from secagg.contracts import PublicFacts, Variable
from secagg.contracts.noise import Noise, Placement
from secagg.errors import JobError, PeerError
from secagg.models.common.site_confounding import POOLED_NOISED_NOTE, POOLED_ROUNDS_NOTE
from secagg.models.glm.gradient_descent import Gradient


def records(n: int, p: int, family: str, seed: int) -> np.ndarray:
    """Correlated scaled predictors off centre, and an outcome in [-1, 1]."""
    rng = np.random.default_rng(seed)
    x = 0.3 * rng.normal(size=(n, p)) + 0.15 * rng.normal(size=(n, 1)) + 0.1
    x = x.clip(-1, 1)
    slopes = rng.normal(size=p)
    if family == "gaussian":
        y = (0.1 + 0.4 * x @ slopes / np.sqrt(p) + 0.2 * rng.normal(size=n)).clip(-1, 1)
    else:
        y = 2.0 * (rng.random(n) < expit(2 * x @ slopes)) - 1
    return np.column_stack([x, y])


def in_units(public: PublicFacts, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (design with ones, outcome) in the columns' own units."""
    own = values * [v.half_range for v in public.variables] + [v.midpoint for v in public.variables]
    return sm.add_constant(own[:, :-1], has_constant="add"), own[:, -1]


# --- without privacy: the fit of the pooled records ---------------------------------------------


def tolerance(values: np.ndarray, family: str) -> float:
    """Return how far scaled coefficients may be from the optimum where the search stopped.

    It stops at a gradient of at most 1e-10 trace in every entry. The objective is curved by at
    least the Hessian's smallest eigenvalue (taken at the optimum; doubled, since it varies).
    """
    z = sm.add_constant(values[:, :-1], has_constant="add")
    weight = np.ones(len(z))
    if family == "binomial":
        mu = sm.Logit((values[:, -1] + 1) / 2, z).fit(disp=0, tol=1e-13).predict()
        weight = mu * (1 - mu)
    least = np.linalg.eigvalsh((z.T * weight) @ z)[0]
    return 2 * 1e-10 * math.sqrt(z.shape[1]) * float(np.sum(z**2)) / least


@pytest.mark.parametrize("family", FAMILIES)
def test_converges_to_the_pooled_fit(family):
    public, method = public_of(4), method_of(4, family, rounds=3000)
    parts = [records(n, 4, family, seed) for seed, n in enumerate((50, 120, 30))]
    result = fit(method, public, parts)
    pooled = np.vstack(parts)
    design, outcome = in_units(public, pooled)
    model = sm.OLS(outcome, design) if family == "gaussian" else sm.Logit(outcome, design)
    oracle = model.fit() if family == "gaussian" else model.fit(disp=0, tol=1e-13)
    # In own units the intercept is off by up to sum |middle / half| times a scaled coefficient.
    scale = 1 + sum(abs(v.midpoint / v.half_range) for v in public.variables)
    allowed = scale * tolerance(pooled, family)
    assert allowed < 1e-5  # or the test would show little
    np.testing.assert_allclose(result.arrays["coefficients"], oracle.params, atol=allowed)
    summary = result.summary
    assert summary["converged"] and summary["status"] == "converged"
    assert summary["rounds"] < 3000
    assert [t["term"] for t in summary["terms"]] == ["(intercept)", "x0", "x1", "x2", "x3"]
    assert [t["estimate"] for t in summary["terms"]] == list(result.arrays["coefficients"])
    assert all(t["std_error"] is None for t in summary["terms"])
    assert any("No standard errors" in note for note in summary["notes"])
    assert POOLED_ROUNDS_NOTE in summary["notes"]
    assert POOLED_ROUNDS_NOTE not in fit(method, public, parts[:1]).summary["notes"]
    if family == "gaussian":
        assert "odds_ratio" not in summary["terms"][0]
    else:
        odds = [(t["odds_ratio"], t["odds_low"], t["odds_high"]) for t in summary["terms"]]
        assert odds == [(math.exp(b), None, None) for b in result.arrays["coefficients"]]


def test_restarting_momentum_saves_rounds():
    """Without it the same search takes 367 rounds: it glides past the optimum again and again."""
    summary = fit(method_of(4, rounds=3000), public_of(4), [records(200, 4, "gaussian", 0)]).summary
    assert summary["rounds"] < 200


def test_separated_outcomes_end_at_the_last_round():
    public, method = public_of(2), method_of(2, "binomial", rounds=60)
    values = records(100, 2, "binomial", 1)
    values[:, -1] = np.where(values[:, 0] > 0.1, 1.0, -1.0)
    result = fit(method, public, [values])
    summary = result.summary
    assert summary["rounds"] == 60
    assert not summary["converged"] and summary["status"] == "out of rounds"
    assert "did not converge" in summary["notes"][0]
    assert np.isfinite(result.arrays["coefficients"]).all()
    assert result.arrays["scaled_coefficients"][1] > 3  # it is on its way to infinity


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_steps_are_stable_for_any_number_of_records(family, n):
    public, method = public_of(3), method_of(3, family, rounds=50)
    result = fit(method, public, [records(9, 3, family, 5)[:n]] * 2)
    assert np.abs(result.arrays["scaled_coefficients"]).max() < 20


# --- under differential privacy: what comes out -------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_clipped_gradients_minimise_the_clipped_objective(family):
    """Oracle: equation (1) is the gradient of a convex loss, minimised by scipy."""
    p, most = 3, 0.25
    public, method = public_of(p, 4.0), method_of(p, family, clip=most, rounds=4000)
    values = np.trunc(records(300, p, family, 11) * 2.0**GRID) * 2.0**-GRID
    values[:, -1] = np.where(np.abs(values[:, -1]) == 1, np.sign(values[:, -1]), values[:, -1])
    z = np.column_stack([np.ones(300), values[:, :-1]])
    bound = most / np.linalg.norm(z, axis=1)
    y = values[:, -1] if family == "gaussian" else (values[:, -1] + 1) / 2

    def residual(beta):
        eta = z @ beta
        return np.clip(y - (eta if family == "gaussian" else expit(eta)), -bound, bound)

    def steepness(beta):
        return -z.T @ residual(beta)

    def loss(beta):  # the integral of the clipped residual over the linear predictor, from 0
        nodes, weights = np.polynomial.legendre.leggauss(200)
        along = [residual(beta * (t + 1) / 2) for t in nodes]
        return -np.sum((z @ beta) / 2 * (weights @ np.array(along)))

    unclipped = sm.OLS(y, z).fit().params if family == "gaussian" else None
    oracle = minimize(loss, np.zeros(p + 1), jac=steepness, method="BFGS", options={"gtol": 1e-5}).x
    found = fit(method, public, [values[:100], values[100:]]).arrays["scaled_coefficients"]
    # Truncation moves each of the 300 parts by less than 2^-32; the search stops at 1e-10 trace.
    assert np.abs(steepness(found)).max() <= 300 * 2**-32 + 1e-10 * np.sum(z**2) * 2
    np.testing.assert_allclose(found, oracle, atol=1e-3)
    if unclipped is not None:
        assert np.abs(found - unclipped).max() > 1e-2  # it did clip


def noise_of(sd: float, bits: int = 32) -> Noise:
    return Noise(Placement.ROUND, math.ceil((sd * 2.0**bits) ** 2), bits, 1, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_of_the_rounds_averages_out(family):
    """The error is about what (sum z z')^-1 makes of the mean noise of half the rounds."""
    p, rounds, sd = 3, 60, 10.0
    noise = noise_of(sd)
    public = public_of(p, 4.0, noise, max_rows=2000)
    # C large enough that nothing is clipped: then the noiseless optimum is the plain fit
    method = method_of(p, family, rounds=rounds, clip=2.0)
    values = records(2000, p, family, 2)
    z = np.column_stack([np.ones(2000), values[:, :-1]])
    y = values[:, -1] if family == "gaussian" else (values[:, -1] + 1) / 2
    fitted = sm.OLS(y, z).fit() if family == "gaussian" else sm.Logit(y, z).fit(disp=0, tol=1e-13)
    weight = np.ones(2000) if family == "gaussian" else fitted.predict() * (1 - fitted.predict())
    inverse = np.linalg.inv((z.T * weight) @ z)
    in_sum = math.sqrt(noise.sum_variance(2, noise.site_variance(2)))
    squares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        result = fit(
            method, public, [values[:1000], values[1000:]], lambda s, r=rng: r.normal(0, in_sum, s)
        )
        assert result.summary["status"] == "finished"
        assert "converged" not in result.summary  # which noised sums do not tell
        assert result.summary["rounds"] == rounds
        assert POOLED_NOISED_NOTE in result.summary["notes"]
        squares.append(np.sum((result.arrays["scaled_coefficients"] - fitted.params) ** 2))
    expected = in_sum * math.sqrt(np.trace(inverse @ inverse) * 2 / rounds)
    # 12 runs of 4 numbers: a root mean square within 30 % at 3 standard errors. The search itself
    # and its momentum may add as much again.
    assert 0.7 * expected < math.sqrt(np.mean(squares)) < 2 * expected


@pytest.mark.parametrize(("family", "times"), [("gaussian", 1.0), ("binomial", 4.0)])
def test_step_sizes_allow_for_the_noise_of_released_lengths(family, times):
    """Two standard deviations of the mean of the sizes so far, in units of squared length."""
    noise = noise_of(300.0)
    public, method = public_of(3, 4.0, noise), method_of(3, family, clip=1.0)
    sd = math.sqrt(noise.sum_variance(2, noise.site_variance(2)))
    state = method.initial_state(public)
    unit = 4 * (1 + 3) / 1.0
    gradient = np.array([1.0, 0.0, -2.0, 0.0])
    first = method.aggregate(state, {"gradient": gradient, "size": np.array([50.0])}, 2)
    np.testing.assert_allclose(first["beta"], times * gradient / (unit * (50 + 2 * sd)))
    second = method.aggregate(first, {"gradient": gradient, "size": np.array([-1e4])}, 2)
    step = second["beta"] - first["point"]  # a mean below zero counts as zero
    np.testing.assert_allclose(step, times * gradient / (unit * 2 * sd / math.sqrt(2)))


@pytest.mark.parametrize("family", FAMILIES)
def test_overwhelming_noise_gives_finite_coefficients(family):
    public = public_of(3, 4.0, noise_of(1e4))
    rng = np.random.default_rng(0)
    result = fit(
        method_of(3, family, rounds=300),
        public,
        [records(20, 3, family, 0)],
        lambda shape: rng.normal(0, 2e4, shape),
    )
    assert np.abs(result.arrays["scaled_coefficients"]).sum() <= 1001  # so sites went on answering


# --- messages and settings -----------------------------------------------------------------------


def test_coefficients_out_of_range_are_refused():
    """Sums of |beta| over 1000; what else is malformed is in the contract of methods."""
    for public in (public_of(2), public_of(2, 3.0)):
        with pytest.raises(PeerError):
            contribution(method_of(2), public, np.zeros((1, 3)), np.array([600.0, 600.0, 0.0]))


SEVERAL = {
    "variables": (
        Variable("x0", "x0", 0, 1),
        *(Variable(f"w={c}", "w", 0.5, 0.5, indicator=True) for c in "bc"),
    ),
    "columns": ("x0", "w"),
}


@pytest.mark.parametrize(
    ("settings", "facts", "where"),
    [
        ({"rounds": 0}, {}, "method.rounds"),
        ({"clip": 0.0}, {"clip": 3.0}, "method.clip"),
        ({"clip": math.inf}, {"clip": 3.0}, "method.clip"),
        ({"clip": 1.0}, {}, "method.clip"),
        ({"predictors": ()}, {}, "method.predictors"),
        ({"predictors": ("x0", "y")}, {}, "method.predictors"),
        ({"outcome": "z"}, {}, "method.outcome"),
        ({"outcome": "x1", "family": "binomial"}, {}, "method.outcome"),
        ({"outcome": "w"}, SEVERAL, "method.outcome"),
        ({}, {"clip": 3.0, "max_rows": 2**45}, "sites.max_rows"),
        *(
            ({}, {"clip": 3.0, "noise": Noise(at, 10**12, 32, 1, 2)},
             "privacy.placement")
            for at in (Placement.SUM, Placement.SITE)
        ),
    ],
)  # fmt: skip
def test_unsuitable_settings_are_refused(settings, facts, where):
    wanted = {"outcome": "y", "predictors": ("x0",), "family": "gaussian", **settings}
    with pytest.raises(JobError) as raised:
        Gradient(**wanted).stages(public_of(2, **facts))
    assert raised.value.where == where


def test_without_a_clip_any_number_of_rows_is_allowed():
    assert stage_of(method_of(2), public_of(2, max_rows=2**45)).sensitivity is None
