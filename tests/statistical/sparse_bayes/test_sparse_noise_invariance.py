"""Under noise once at the site, a round of the sparse sampler leaves its joint density unchanged.

Parameters, exact moments and noisy moments are drawn from the model. After a few rounds their
distribution must be the same (the test of Geweke 2004, "Getting it right"): means of functions of
them are compared before and after, in pairs. Replicates are stacked as regressions of one call,
with outcome and predictors of their own. The prior of Sigma is kept away from columns that no table
has, which sites make smaller, and the noise of products is small against them, so that theta, every
site's coefficients and X'y have to move together.
"""

from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.numerics import site_covariances
from secagg.models.numerics.gaussian_draws import inverse_gamma
from secagg.models.numerics.line_move import draw_direction
from secagg.models.numerics.noise_posterior import starts
from secagg.models.numerics.site_covariances import SHARES, SharedCovariance
from secagg.models.sparse_bayes.base import Round
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.models.sparse_bayes.site_posterior import begin_sums
from secagg.models.sparse_bayes.spike_slab import Common
from secagg.models.sparse_bayes.sums import Design

Q, SITES, STEP = 2, 2, 0.35
PRIOR_VARIANCE = 1e-6  # of Sigma
NOISE = {"slab_shape": 3.0, "slab_scale": 3.0, "noise_shape": 3.0, "noise_scale": 1e-3}
SD = np.array([[1e-6, 1e-6, 1e-6, 1e-6], [0, 1e-4, 1e-4, 2e-3], [0, 0, 1e-4, 2e-3], [0, 0, 0, 0.5]])


@dataclass(frozen=True, kw_only=True)
class Stacked(SparseLinear):
    """Many regressions of the same columns, each with moments of its own."""

    replicates: int
    model_name: ClassVar[str] = "stacked"

    def design(self, public: Any) -> Design:
        outcomes = np.full(self.replicates, Q)
        return Design(outcomes, np.tile(np.arange(Q), (self.replicates, 1)))

    def columns(self, public: Any) -> Any:
        return np.arange(Q + 1)

    def result(self, *_: Any) -> Any:
        raise NotImplementedError

    def tables(self, public: Any) -> Any:
        raise NotImplementedError

    def _largest_square(self, public: Any) -> float:
        return 1e40


@dataclass
class World:
    """All that the model draws; replicates along the second axis."""

    common: Common
    shared: SharedCovariance
    sites: list[State]


def wishart(freedom: Array, root: Array, rng: np.random.Generator) -> Array:
    """Return the Cholesky factor of a draw, by Bartlett's decomposition."""
    T = np.tril(rng.normal(size=root.shape), -1)
    i = np.arange(Q)
    T[..., i, i] = np.sqrt(rng.chisquare(freedom[..., None] - i))
    half = root @ T
    return np.linalg.cholesky(half @ np.swapaxes(half, -1, -2))


def draw_world(model: Stacked, n: int, rng: np.random.Generator) -> World:
    shape = (1, model.replicates, Q)
    rho = rng.beta(1, 1, shape[:-1])
    eta = inverse_gamma(3.0, np.full((*shape[:-1], 1), 3.0), rng).repeat(Q, axis=-1)
    g = (rng.random(shape) < rho[..., None]).astype(np.float64)
    theta = rng.normal(size=shape) * np.sqrt(np.where(g > 0, eta, model.spike_ratio * eta))
    t = rng.standard_cauchy(shape) ** 2
    x = rng.gamma(1.0, size=shape) / (1 + t) if model.step == "collapsed" else np.ones(shape)
    common = Common(theta, t, x, eta, g, rho, np.full(shape, 0.5))
    root = np.broadcast_to(np.eye(Q) / np.sqrt(PRIOR_VARIANCE), (*shape, Q))
    L = wishart(np.full(shape[:-1], Q + 1.0), root, rng)
    precision = L @ np.swapaxes(L, -1, -2)
    precision = (precision + np.swapaxes(precision, -1, -2)) / 2
    shared = SharedCovariance(precision, rng.choice(SHARES, size=shape[:-1]))
    sites = [draw_site(model, common, shared, n, rng) for _ in range(SITES)]
    return World(common, shared, sites)


def draw_site(
    model: Stacked, common: Common, shared: SharedCovariance, n: int, rng: np.random.Generator
) -> State:
    shape, freedom = common.theta.shape, n - 1
    v = inverse_gamma(0.5, np.ones(shape), rng)
    w = inverse_gamma(0.5, common.t / v, rng)
    beta = common.theta + np.sqrt(w) * rng.normal(size=shape)
    s = inverse_gamma(model.noise_shape, np.full(shape[:-1], model.noise_scale), rng)
    nu = shared.degrees(np.float64(freedom))
    scale = np.linalg.inv(shared.precision) * (freedom / nu)[..., None, None]
    L_x = wishart(nu, np.linalg.cholesky((scale + np.swapaxes(scale, -1, -2)) / 2), rng)
    L = np.zeros((*shape[:-1], Q + 2, Q + 2))
    L[..., 0, 0], L[..., 1:-1, 1:-1] = np.sqrt(n), L_x
    L[..., -1, 1:-1] = np.einsum("...ij,...i->...j", L_x, beta)
    L[..., -1, 1:-1] += np.sqrt(s)[..., None] * rng.normal(size=shape)
    L[..., -1, -1] = np.sqrt(s * rng.chisquare(max(freedom - Q, 1), shape[:-1]))
    E = rng.normal(size=L.shape) * SD
    released = L @ np.swapaxes(L, -1, -2) + E + np.swapaxes(np.triu(E, 1), -1, -2)
    variance = (SD + np.triu(SD, 1).T) ** 2
    i = np.arange(Q + 2)
    X = L.copy()
    X[..., i, i] = np.log(L[..., i, i])
    latent = {
        "X": X,
        "scale": np.array([[starts(one[None], variance, rng)[1][0] for one in released[0]]]),
        "step": np.full(shape[:-1], STEP),
        "released": released[0],
        "variance": np.broadcast_to(variance, released[0].shape).copy(),
    }
    own = begin_sums({"theta": shape, "s": shape[:-1], "common": shape})
    columns = {"unit": np.ones(Q + 1), "gram": np.zeros((Q + 1, Q + 1))}
    return {**columns, "latent": latent, "theta": beta, "s": s, "w": w, "v": v, "t": common.t,
            "own": own}  # fmt: skip


def functions(world: World) -> dict[str, Array]:
    """Return bounded or light-tailed functions, one value for each replicate."""
    common, Sigma = world.common, np.linalg.inv(world.shared.precision)
    found = {
        "|theta|": np.tanh(np.abs(common.theta)).mean(axis=-1),
        "g": common.g.mean(axis=-1),
        "g theta": (common.g * np.tanh(common.theta**2)).mean(axis=-1),
        "eta": np.log(common.eta[..., 0]),
        "t": np.log(common.t).mean(axis=-1),
        "omega": np.log(world.shared.share),
        "Sigma": np.log(Sigma[..., 0, 0]),
        "correlation": Sigma[..., 0, 1] ** 2 / (Sigma[..., 0, 0] * Sigma[..., 1, 1]),
    }
    for k, site in enumerate(world.sites):
        X, i = site["latent"]["X"], np.arange(Q + 2)
        L = np.tril(X)
        L[..., i, i] = np.exp(X[..., i, i])
        excess = (site["latent"]["released"] - L @ np.swapaxes(L, -1, -2))[..., -1, :] / SD[:, -1]
        slope = L[..., -1, 1] / L[..., 1, 1]
        found |= {
            f"s {k}": np.log(site["s"]),
            f"w {k}": np.log(site["w"]).mean(axis=-1),
            f"A {k}": X[..., 1, 1],
            f"l_yy {k}": X[..., -1, -1],
            f"theta beta {k}": np.tanh(common.theta * site["theta"]).mean(axis=-1),
            f"theta l {k}": np.tanh(common.theta[..., 0] * slope),
            f"distance {k}": np.tanh(np.abs(slope - common.theta[..., 0])),
            f"noise in X'y {k}": np.minimum(excess[..., 1] ** 2, 20),
            f"noise in y'y {k}": np.minimum(excess[..., -1] ** 2, 20),
        }
    return {name: values.ravel() for name, values in found.items()}


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("step", "n", "replicates"),
    [("collapsed", 4000, 40_000), ("paper", 4000, 20_000), ("collapsed", 3, 8000)],
)
def test_rounds_leave_the_joint_density_unchanged(
    step: Any, n: int, replicates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mean moves by more than 4.5 standard errors; with n = 3 there are too few records."""
    monkeypatch.setattr(site_covariances, "PRIOR_VARIANCE", PRIOR_VARIANCE)
    rounds, rng = 10, np.random.default_rng(n)
    model = Stacked(step=step, chains=1, rounds=10**6, warmup=0, replicates=replicates, **NOISE)
    public: Any = SimpleNamespace(max_rows=10**9, sites=("a", "b"), site_moments=True)
    world = draw_world(model, n, rng)
    before, shape = functions(world), world.common.theta.shape
    line = {"shift": np.zeros(shape), "direction": draw_direction(shape, rng)}
    rngs = [np.random.default_rng([n, k]) for k in range(SITES)]
    moved = 0.0
    now, noise_state, sites = world.common, {**asdict(world.shared), **line}, world.sites
    for number in range(rounds):
        told = Round(now.theta, now.t, number, False, noise_state)
        answers = model.run_sweeps(sites, [n] * SITES, told, rngs, public)
        sites = [site for _, site in answers]
        total = {name: sum(sent[name] for sent, _ in answers) for name in answers[0][0]}
        shared = SharedCovariance(noise_state["precision"], noise_state["share"])
        # theta_k was integrated out of the draw of theta, so it counts only after the sites' draws
        after = functions(World(now, shared, sites))
        now, noise_state = model.draw_round(now, total, noise_state, number, SITES, SITES * n, rng)
        moved += float(np.mean(noise_state["shift"] != 0)) / rounds
    assert moved > 0.1  # so the test can fail
    for name, values in before.items():
        change = after[name] - values
        z = change.mean() / (change.std() / np.sqrt(len(change)))
        assert abs(z) < 4.5, (name, z)
