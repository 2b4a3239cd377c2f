"""Gibbs sampler for a site's regression with a lasso or elastic net prior on its coefficients.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022, section 4.3); the model and its densities
are in `secagg.models.fedlin.hierarchies.penalised_density`. One sweep draws

    z = (phi, log |theta|), given theta's direction             w integrated out                 (1)
    1 / w_j ~ inverse Gaussian(mean l1 / |v_j|, shape l1^2),  v = theta / sigma                  (2)
    (log l1, log s), given w                                    theta integrated out             (3)
    v ~ N(A^-1 X'y / sigma, A^-1),  A = X'X + diag(1 / w + l2)                                   (4)

(1) and (3) are random-walk Metropolis steps, computed for all chains at once. Their proposal
covariances are fixed before the draws that are kept. With many coefficients, l1 and the size of
theta are strongly dependent, so (1) moves l1 and this size together. With few records, s and theta
are strongly dependent, so (3) draws s with theta integrated out.

w has no unit, so the scales of the columns and of y do not matter. (4) is solved as in
`secagg.models.sparse_bayes.horseshoe`. The two roots for the inverse Gaussian are computed without
a subtraction, which would lose digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.initial_draws import starts
from secagg.models.fedlin.hierarchies.penalised_density import (
    SAMPLED_COMPONENTS,
    Density,
    Mixing,
    Penalty,
    Sizes,
)
from secagg.models.numerics.gaussian_draws import SMALLEST, clip_variance, factor
from secagg.models.numerics.natural_gaussian import Natural

_WALK_STEPS = 4  # random-walk steps in each of (1) and (3)
_LEARNING_WEIGHT = 0.3  # weight of the latest sweep in the proposal covariances
_DIAGONAL_JITTER = 1e-3  # added to a diagonal, relative to it


@dataclass(frozen=True)
class ChainState:
    """One state of all chains: phi (chains, p), theta (chains, d), and the inputs of densities."""

    phi: Array
    theta: Array
    sizes: Sizes
    mixing: Mixing


class RandomWalk:
    """Random-walk Metropolis steps, with proposal covariances learnt from the chains.

    Steps use two proposal covariances in turn. The first is the inverse of the mean of
    slope slope', where slope is the gradient of the log density. This mean equals the expected
    curvature. The first covariance suits many records. The second is the covariance of the draws
    across the chains. It suits few records, where phi is about as uncertain as in the cavity.
    """

    def __init__(self) -> None:
        self._precision: Array | None = None
        self._cov: Array | None = None

    def learn(self, slopes: Array, places: Array) -> None:
        """Update the proposal covariances from the gradients and positions, both (chains, p)."""
        self._precision = _averaged(self._precision, slopes.T @ slopes / len(slopes))
        self._cov = _averaged(self._cov, np.cov(places.T))

    def steps(
        self, density: Callable[[Array], Array], start: Array, rng: np.random.Generator
    ) -> Array:
        """Return the chains' positions after `_WALK_STEPS` steps from `start` (chains, p)."""
        assert self._precision is not None
        assert self._cov is not None
        pace = 2.38 / np.sqrt(start.shape[1])  # best for a normal density (Roberts et al. 1997)
        roots = np.linalg.inv(np.linalg.cholesky(self._precision)), np.linalg.cholesky(self._cov).T
        at, log_density = start, density(start)
        for step in range(_WALK_STEPS):
            trial = at + pace * rng.standard_normal(at.shape) @ roots[step % 2]
            log_trial = density(trial)
            accepted = -rng.standard_exponential(len(at)) < log_trial - log_density
            at = np.where(accepted[:, None], trial, at)
            log_density = np.where(accepted, log_trial, log_density)
        return at


def _averaged(old: Array | None, new: Array) -> Array:
    new = new + _DIAGONAL_JITTER * np.diag(np.diagonal(new))
    return new if old is None else old + _LEARNING_WEIGHT * (new - old)


class Chains:
    """Chains at one site, under one cavity."""

    def __init__(
        self,
        penalty: Penalty,
        site: SufficientStatistics,
        cavity: Natural,
        chains: int,
        rng: np.random.Generator,
    ) -> None:
        """Start the chains. Raises `LinAlgError` if a number exceeds the range of float64."""
        self._site, self._rng = site, rng
        self.density = Density(penalty, site, cavity)
        self._joint, self._given_w = RandomWalk(), RandomWalk()
        self._phi, variances = starts(self.density.rotated, cavity, chains, rng)
        centre, noise, _ = self._solve(np.repeat(variances[:, None], self.density.d, axis=1))
        self._theta = centre + np.exp(self._phi[:, -1:] / 2) * noise

    def visits(self, sweeps: int, *, learn: bool) -> Iterator[ChainState]:
        """Run sweeps, and yield the state after each.

        learn: whether proposal covariances are updated. Draws made meanwhile are slightly biased.
        """
        for _ in range(sweeps):
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow rejects the proposal
                visit = self._sweep(learn)
            if not np.all((visit.sizes.second > 0) & np.isfinite(visit.sizes.second)):
                raise np.linalg.LinAlgError("a chain has left the range of floating point")
            yield visit

    def _sweep(self, learn: bool) -> ChainState:
        density, rng = self.density, self._rng
        at = density.sizes(self._theta)
        if learn:
            places = np.column_stack([self._phi, np.log(at.second) / 2])
            self._joint.learn(density.joint_slope(self._phi, at), places)
        z = np.column_stack([self._phi, np.zeros(len(self._phi))])
        z = self._joint.steps(lambda z: density.joint(z[:, :-1], z[:, -1], at), z, rng)
        phi, theta = z[:, :-1], self._theta * np.exp(z[:, -1:])

        l1, l2 = density.penalty.rates(phi)
        w = clip_variance(mixture(np.abs(theta) * np.exp(-phi[:, -1:] / 2), l1[:, None], rng))
        centre, noise, q = self._solve(w / (1 + l2[:, None] * w))
        mixing = Mixing(np.sum(w, axis=-1), q)
        visit = ChainState(phi, theta, density.sizes(theta), mixing)

        if learn:
            self._given_w.learn(density.given_w_slope(phi, mixing), phi[:, SAMPLED_COMPONENTS])
        moving = phi.copy()

        def of_moving(values: Array) -> Array:
            moving[:, SAMPLED_COMPONENTS] = values
            return density.given_w(moving, mixing)

        values = self._given_w.steps(of_moving, phi[:, SAMPLED_COMPONENTS], rng)
        self._phi = phi.copy()
        self._phi[:, SAMPLED_COMPONENTS] = values
        self._theta = centre + np.exp(self._phi[:, -1:] / 2) * noise
        return visit

    def _solve(self, variances: Array) -> tuple[Array, Array, Array]:
        """Return theta's conditional mean, its random deviation if s = 1, and q.

        variances: of v, shape (chains, d)
        """
        root = np.sqrt(variances)
        K, L = factor(root, self._site.gram)
        noise = L @ self._rng.standard_normal((*root.shape, 1))
        right = np.concatenate([(root * self._site.cross)[..., None], noise], axis=-1)
        solved = np.asarray(np.linalg.solve(K, right), dtype=np.float64)
        inner = solved[..., 0]
        centre = root * inner
        q = self.density.sizes(centre).error + np.sum(inner**2, axis=-1)
        return centre, root * solved[..., 1], q


def mixture(size: Array, l1: Array, rng: np.random.Generator) -> Array:
    """Draw w_j of (2), given |v_j|.

    With t = l1 |v| and y ~ chi^2_1 / 2, the two roots for l1^2 w (Michael, Schucany and Haas 1976)
    are b = t + y + sqrt(y (y + 2 t)) and t^2 / b, chosen with probabilities in the ratio b : t. At
    t = 0, w has a Gamma(1/2) distribution.
    """
    t = l1 * size
    y = rng.standard_normal(t.shape) ** 2 / 2
    b = t + y + np.sqrt(y * (y + 2 * t))
    large = rng.random(t.shape) * (b + t) <= b
    return np.where(large, b, t * (t / np.maximum(b, SMALLEST))) / l1**2
