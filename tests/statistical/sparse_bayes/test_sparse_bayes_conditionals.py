"""Every full conditional of federated sparse regression's sampler, against the joint density.

Thousands of replicates, each at a state and with records of its own, draw once. If a draw is of its
full conditional at the state it was drawn at, the conditional's distribution function at the draw
is uniform (Rosenblatt 1952); that function is a quadrature of the joint density of
`oracles.sparse_density`, which knows the model but none of the sampler's formulas. A joint density
with a forgotten 1/2, or scale, must be told apart by every one of these tests.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles.sparse_density import (
    Model,
    Rows,
    Values,
    chance_of_one,
    pit_of_positive,
    pit_of_share,
    pit_on_line,
)
from scipy.integrate import quad, simpson
from scipy.stats import gamma, halfcauchy, invgamma, kstest, norm

from secagg.models.sparse_bayes import spike_slab
from secagg.models.sparse_bayes.horseshoe import (
    NoisePrior,
    Regression,
    SiteDraw,
    draw_noise,
    marginal,
    sweep,
)
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Array = NDArray[np.float64]

REPLICATES, Q = 1500, 2
RECORDS = (6, 2, 1)  # fewer than coefficients, too; an intercept takes one of each
SWEPT = tuple(f"{name}{k}" for k in (0, 1, 2) for name in "bswv")
COMMON = {
    "collapsed": ("theta", "t", "x", "eta", "g", "rho"),
    "paper": ("x", "t", "theta", "eta", "g", "rho"),
}
CASES = [
    *[("sweep", False, name) for name in SWEPT],
    *[(form, False, name) for form, names in COMMON.items() for name in names],
    ("collapsed", True, "eta"),
    ("paper", True, "eta"),
]


class World:
    """States, records and what was drawn from them; `draws` has the state of each draw."""

    def __init__(self, form: str, own: bool) -> None:
        rng = np.random.default_rng(1)
        self.model = Model("paper" if form == "paper" else "collapsed", own)
        self.prior = SpikeSlab(self.model.ratio, *self.model.eta, *self.model.rho, own)
        self.noise = NoisePrior(*self.model.noise)
        wide, one = (REPLICATES, Q), (REPLICATES,)
        z: dict[str, Array] = {
            "theta": rng.standard_normal(wide),
            "g": np.round(rng.random(wide)),
            "rho": rng.uniform(0.05, 0.95, one),
            "eta": rng.lognormal(0, 0.7, wide if own else one),
            **{name: rng.lognormal(0, 1, wide) for name in "tx"},
        }
        raw = []
        for k, n in enumerate(RECORDS):
            z[f"b{k}"] = z["theta"] + rng.standard_normal(wide)
            z[f"s{k}"] = rng.lognormal(0, 0.7, one)
            z[f"v{k}"] = rng.lognormal(0, 1, wide)
            z[f"w{k}"] = rng.lognormal(0, 1, wide)
            z[f"l{k}"] = z[f"w{k}"] / z["t"]
            X = rng.standard_normal((n, Q)) @ [[1, 0.8], [0, 0.6]] + 2  # correlated, off centre
            noise = np.sqrt(z[f"s{k}"])[:, None] * rng.standard_normal((REPLICATES, n))
            raw.append((X, z[f"b{k}"] @ X.T + noise - 3))
        self.rows = [Rows.of(X, y) for X, y in raw]
        self.data = [statistics(X, y) for X, y in raw]
        self.rng = np.random.default_rng(2)
        self.draws = self._swept(z) if form == "sweep" else self._common(z)

    def _swept(self, z: Values) -> dict[str, Values]:
        found: dict[str, Values] = {}
        for k, (n, data) in enumerate(zip(RECORDS, self.data, strict=True)):
            noise = draw_noise((REPLICATES, Q), n - 1, self.noise, self.rng)
            drawn = sweep(data, site_of(z, k), z["theta"], z["t"], self.noise, noise)
            for name, value in zip("bswv", (drawn.theta, drawn.s, drawn.w, drawn.v), strict=True):
                z = {**z, f"{name}{k}": value}
                found[f"{name}{k}"] = z
        return found

    def _common(self, z: Values) -> dict[str, Values]:
        eta = z["eta"] if self.model.own else np.repeat(z["eta"][:, None], Q, axis=1)
        now = Common(z["theta"], z["t"], z["x"], eta, z["g"], z["rho"], z["g"])
        sites = [site_of(z, k) for k in range(len(RECORDS))]
        if self.model.form == "collapsed":
            each = [marginal(d, s) for d, s in zip(self.data, sites, strict=True)]
            P, r = (np.sum(parts, axis=0) for parts in zip(*each, strict=True))
            c = np.sum([now.t / (s.v * s.w) for s in sites], axis=0)
            drawn = spike_slab.collapsed(now, P, r, c, len(sites), self.prior, self.rng)
        else:
            away = [(z[f"l{k}"], s.theta - now.theta) for k, s in enumerate(sites)]
            one, d, dd = (np.sum([d**i / share for share, d in away], axis=0) for i in range(3))
            drawn = spike_slab.paper(now, one, d, dd, len(sites), self.prior, self.rng)
        found: dict[str, Values] = {}
        self.inclusion = drawn.inclusion
        for name in COMMON[self.model.form]:
            value = getattr(drawn, name)
            z = {**z, name: value[:, 0] if name == "eta" and not self.model.own else value}
            found[name] = z
        return found


world = cache(World)


def statistics(X: Array, y: Array) -> Regression:
    """Return what a site keeps of rows X (n, q), y (..., n): of centred ones."""
    X, y = X - X.mean(axis=0), y - y.mean(axis=-1, keepdims=True)
    return Regression(X.T @ X, y @ X, np.sum(y * y, axis=-1))


def site_of(z: Values, k: int) -> SiteDraw:
    return SiteDraw(z[f"b{k}"], z[f"s{k}"], z[f"w{k}"], z[f"v{k}"])


def uniforms(form: str, own: bool, name: str, wrong: float = 1.0) -> Array:
    """Return what is uniform if `name` is drawn from its conditional in the (or a wrong) model."""
    made = world(form, own)
    model, z = replace(made.model, wrong=wrong), made.draws[name]
    integrated = form == "collapsed" and name == "theta"
    rng = np.random.default_rng(3)

    def log(values: Values) -> Array:
        density = model.log_marginal if integrated else model.log_joint
        return density(values, made.rows)

    if name == "theta" or name[0] == "b":
        return pit_on_line(log, z, name, rng.standard_normal(z[name].shape))
    if name == "rho":
        return pit_of_share(log, z, name)
    if name == "g":
        chance = np.array([chance_of_one(log, z, name, j) for j in range(Q)]).T
        below, mass = np.where(z[name] > 0, (1 - chance, chance), (0 * chance, 1 - chance))
        return (below + rng.random(mass.shape) * mass).ravel()
    entries = range(Q) if z[name].ndim > 1 else [None]
    return np.concatenate([pit_of_positive(log, z, name, j) for j in entries])


@pytest.mark.parametrize(("form", "own", "name"), CASES)
def test_draws_follow_their_conditional_distributions(form: str, own: bool, name: str) -> None:
    # By chance one of 10 000 such tests fails; the seeds are fixed.
    assert kstest(uniforms(form, own, name), "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("form", "name"),
    [("sweep", "b0"), ("sweep", "s0"), ("sweep", "w0"), ("sweep", "v0")]
    + [(form, name) for form, names in COMMON.items() for name in names],
)
def test_a_forgotten_factor_is_detected(form: str, name: str) -> None:
    assert kstest(uniforms(form, False, name, wrong=2.0), "uniform").pvalue < 1e-4


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("form", ["collapsed", "paper"])
def test_inclusion_is_the_probability_of_the_slab(form: str, own: bool) -> None:
    made = world(form, own)
    for j in range(Q):
        chance = chance_of_one(
            lambda z: made.model.log_joint(z, made.rows), made.draws["g"], "g", j
        )
        # log densities of up to some hundreds, rounded to 1e-16 of that, a score of terms
        np.testing.assert_allclose(made.inclusion[:, j], chance, atol=1e-11)


LOGS = np.linspace(-40, 40, 4001)  # of a variance: the integrands have vanished at both ends


@pytest.mark.parametrize("form", ["w", "collapsed", "paper"])
def test_two_gamma_draws_give_a_half_cauchy(form: str) -> None:
    """With the auxiliary variable integrated out, lambda and tau are C+(0, 1)."""
    auxiliary, t = np.exp(LOGS), 0.3
    for scale in (0.01, 0.7, 5.0, 400.0):
        value = scale**2 * (t if form == "w" else 1)
        if form == "collapsed":
            density = gamma.pdf(value, 0.5, scale=1 / auxiliary) * gamma.pdf(auxiliary, 0.5)
        else:
            variance = (t if form == "w" else 1) / auxiliary
            density = invgamma.pdf(value, 0.5, scale=variance) * invgamma.pdf(auxiliary, 0.5)
        found = simpson(density * auxiliary, x=LOGS)  # dx = x d(log x)
        # d(lambda^2 t) = 2 lambda t d(lambda)
        expected = halfcauchy.pdf(scale) * scale / (2 * value)
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_flat_intercept_prior_uses_up_one_record(n: int) -> None:
    """The density of rows, integrated over the intercept, is that of their contrasts."""
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, Q)) + 1, rng.standard_normal(n) - 4
    rows, apart = Rows.of(X, y), []
    for s in (0.2, 1.0, 6.0):
        b = rng.standard_normal(Q)

        def density(a: float, b: Array = b, s: float = s) -> float:
            return float(np.prod(norm.pdf(y, a + X @ b, np.sqrt(s))))

        middle = float(np.mean(y - X @ b))
        whole = quad(density, middle - 30, middle + 30, points=[middle], epsabs=0, epsrel=1e-11)[0]
        apart.append(np.log(whole) - np.sum(norm.logpdf(rows.y, rows.X @ b, np.sqrt(s))))
    assert np.ptp(apart) < 1e-9  # the quadrature's own tolerance, with room


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_the_marginal_site_likelihood_agrees_with_brute_force(n: int) -> None:
    """exp(r'theta - theta'P theta / 2): rows' density integrated over intercept and theta_k."""
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, Q)) + 1, rng.standard_normal(n) - 4
    s, w = np.array(0.8), np.array([0.3, 1.7])
    P, r = marginal(statistics(X, y), SiteDraw(np.zeros(Q), s, w, w))
    steps = np.linspace(-12, 12, 97)  # deviations; spacing 1/4: exact to rounding for Gaussians

    def log_integral(theta: Array) -> float:
        b = [theta[0] + np.sqrt(w[0]) * steps[:, None], theta[1] + np.sqrt(w[1]) * steps]
        middle = y.mean() - X[:, 0].mean() * b[0] - X[:, 1].mean() * b[1]
        a = middle + np.sqrt(s / n) * steps[:, None, None]
        prior = norm.logpdf(b[0], theta[0], np.sqrt(w[0]))
        log = prior + norm.logpdf(b[1], theta[1], np.sqrt(w[1]))
        for row, outcome in zip(X, y, strict=True):
            log = log + norm.logpdf(outcome, a + row[0] * b[0] + row[1] * b[1], np.sqrt(s))
        return float(np.log(np.sum(np.exp(log))))

    origin = log_integral(np.zeros(Q))
    for theta in rng.standard_normal((4, Q)):
        ours = r @ theta - theta @ P @ theta / 2
        assert log_integral(theta) - origin == pytest.approx(ours, abs=1e-7)
