"""The joint density of federated sparse regression, from the model as stated, and probability
integral transforms along any of its full conditionals.

Nothing of `secagg` is used: densities are scipy's, integrals are quadratures, records are rows. A
full conditional is the joint density as a function of one unknown, normalised; its formula is never
written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import simpson
from scipy.linalg import helmert
from scipy.special import expit, logit
from scipy.stats import bernoulli, beta, gamma, invgamma, multivariate_normal, norm

Array = NDArray[np.float64]
Values = Mapping[str, Array]
LogDensity = Callable[[Values], Array]

_REACH, _POINTS, _CUT = 40.0, 201, 40.0


@dataclass(frozen=True)
class Rows:
    """A site's records with an intercept of their own integrated out (its prior is flat).

    What is left of n rows is n - 1 contrasts, which no intercept enters: `helmert` has orthonormal
    rows that sum to 0. X: (n - 1, q); y: (..., n - 1)
    """

    X: Array
    y: Array

    @classmethod
    def of(cls, X: Array, y: Array) -> Rows:
        """X: (n, q) and y: (..., n), with an intercept."""
        n = len(X)
        contrasts = helmert(n) if n > 1 else np.zeros((0, n))
        return cls(contrasts @ X, y @ contrasts.T)


@dataclass(frozen=True)
class Model:
    """The prior's constants, and which auxiliary variables a half-Cauchy is written with.

    form: "collapsed", with w the sites' variances; "paper", with l = w / t in its place
    wrong: 1; or a factor, to be found out, of the variances of normal densities (2 is a forgotten
        1/2), of what half-Cauchy variables are scaled by, and of the first shapes of s and rho
    """

    form: str
    own: bool = False
    ratio: float = 0.04
    eta: tuple[float, float] = (1.5, 0.7)
    rho: tuple[float, float] = (1.2, 2.5)
    noise: tuple[float, float] = (2.5, 1.4)
    wrong: float = 1.0

    def log_joint(self, z: Values, sites: Sequence[Rows]) -> Array:
        """Return the log density of everything, shape (...).

        z: theta, t, x, g of shape (..., q); eta (..., q) if own, else (...); rho (...); and of
            each site k: b{k} (its theta_k), w{k} or l{k}, v{k} of shape (..., q), s{k} (...)
        """
        found = self.log_common(z)
        for k, rows in enumerate(sites):
            b, s, v = z[f"b{k}"], z[f"s{k}"], z[f"v{k}"]
            w = z[f"w{k}"] if self.form == "collapsed" else z[f"l{k}"] * z["t"]
            means = np.einsum("nq,...q->...n", rows.X, b)
            found = found + self._normal(rows.y, means, s[..., None]).sum(axis=-1)
            found = found + invgamma.logpdf(s, self.noise[0] * self.wrong, scale=self.noise[1])
            found = found + self._normal(b, z["theta"], w).sum(axis=-1)
            if self.form == "collapsed":
                half_cauchy = invgamma.logpdf(w, 0.5, scale=self.wrong * z["t"] / v)
            else:
                half_cauchy = invgamma.logpdf(z[f"l{k}"], 0.5, scale=self.wrong / v)
            found = found + np.sum(half_cauchy + invgamma.logpdf(v, 0.5), axis=-1)
        return found

    def log_common(self, z: Values) -> Array:
        """Return the log density of what all sites have in common."""
        eta = z["eta"] if self.own else z["eta"][..., None]
        spread = eta * np.where(z["g"] > 0, 1.0, self.ratio)
        found = self._normal(z["theta"], 0.0, spread).sum(axis=-1)
        found = found + np.sum(bernoulli.logpmf(z["g"], z["rho"][..., None]), axis=-1)
        found = found + beta.logpdf(z["rho"], self.rho[0] * self.wrong, self.rho[1])
        found = found + np.sum(invgamma.logpdf(eta, self.eta[0], scale=self.eta[1]), axis=-1)
        t, x = z["t"], z["x"]
        if self.form == "collapsed":
            half_cauchy = gamma.logpdf(t, 0.5, scale=self.wrong / x) + gamma.logpdf(x, 0.5)
        else:
            half_cauchy = invgamma.logpdf(t, 0.5, scale=self.wrong / x) + invgamma.logpdf(x, 0.5)
        return found + half_cauchy.sum(axis=-1)

    def log_marginal(self, z: Values, sites: Sequence[Rows]) -> Array:
        """Return the log density of theta, its prior and the rows, theta_k integrated out.

        z: as in `log_joint`, with one leading axis, or two: points on a line, and replicates
        """
        found = self.log_common(z)
        for k, rows in enumerate(sites):
            if not len(rows.X):
                continue
            left = rows.y - np.einsum("nq,...q->...n", rows.X, z["theta"])
            for i in range(found.shape[-1]):
                own = rows.X * (self.wrong * z[f"w{k}"][i]) @ rows.X.T
                V = own + self.wrong * z[f"s{k}"][i] * np.eye(len(rows.X))
                found[..., i] += multivariate_normal.logpdf(left[..., i, :], None, V)
        return found

    def _normal(self, value: Array, mean: Array | float, variance: Array) -> Array:
        return np.asarray(norm.logpdf(value, mean, np.sqrt(self.wrong * variance)))


def pit_on_line(log: LogDensity, z: Values, name: str, direction: Array) -> Array:
    """Return the probability before z[name] along a direction (..., q), of shape (...).

    Uniform, whatever the direction, if z[name] was drawn from its conditional given all else.
    """
    return _mass_before(
        lambda u: log({**z, name: z[name] + u[..., None] * direction}), len(direction)
    )


def pit_of_positive(log: LogDensity, z: Values, name: str, j: int | None) -> Array:
    """Return the probability below z[name], or below its entry j."""

    def along(u: Array) -> Array:
        factor = np.exp(u)
        if j is not None:
            factor = np.where(np.arange(z[name].shape[-1]) == j, factor[..., None], 1.0)
        return log({**z, name: z[name] * factor}) + u  # d exp(u) = exp(u) du

    return _mass_before(along, len(z[name]))


def pit_of_share(log: LogDensity, z: Values, name: str) -> Array:
    """Return the probability below z[name], a number between 0 and 1."""

    def along(u: Array) -> Array:
        share = np.minimum(expit(logit(z[name]) + u), 1 - np.finfo(float).epsneg)
        return log({**z, name: share}) + np.log(share) + np.log1p(-share)

    return _mass_before(along, len(z[name]))


def chance_of_one(log: LogDensity, z: Values, name: str, j: int) -> Array:
    """Return the probability that entry j of z[name] is 1, not 0."""
    which = np.arange(z[name].shape[-1]) == j
    zero, one = (log({**z, name: np.where(which, value, z[name])}) for value in (0.0, 1.0))
    return np.asarray(expit(one - zero))


def _mass_before(log_density: Callable[[Array], Array], replicates: int) -> Array:
    """Return the share of the integral of exp(log_density) that is left of 0.

    log_density: of (points, replicates), elementwise along a path whose point 0 was drawn
    """
    everywhere = np.linspace(-_REACH, _REACH, _POINTS)[:, None] + np.zeros(replicates)
    values = log_density(everywhere)
    top = values.max(axis=0)
    inside = values > top - _CUT  # beyond, exp(-40) of the height at the mode
    step = everywhere[1, 0] - everywhere[0, 0]
    first = everywhere[inside.argmax(axis=0), 0] - step
    last = everywhere[_POINTS - 1 - inside[::-1].argmax(axis=0), 0] + step
    share = np.linspace(0, 1, _POINTS)[:, None]
    masses = []
    for end in (np.minimum(first, -step), np.maximum(last, step)):
        density = np.exp(log_density(share * end) - top)
        masses.append(np.abs(end) * simpson(density, dx=1 / (_POINTS - 1), axis=0))
    before: Array = masses[0] / (masses[0] + masses[1])
    return before
