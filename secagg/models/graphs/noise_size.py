"""How large the noise of differential privacy makes the weights of a linear graph.

With noise once at the site (`secagg.sessions.site_moments`), sites learn from moments M + E, E of
known variance; with noise in the pooled moments (`secagg.models.moments`), the coordinator does.
The scatter matrix about the means, M_ij - s_i s_j / n, moves to first order by

    E_ij - m_j E_0i - m_i E_0j + m_i m_j E_00,        m = s / n,                                (1)

whose terms are independent (for i = j the middle terms are equal, and add up to -2 m_i E_0i). Let
S be the scatter divided by n, in the units analysed, and G_ij the standard deviation of (1) in
these units. For standardised columns, S is a correlation matrix. Take unrelated columns. There the
slope of the least squares loss at W = 0 is -S_ij, and its lasso has the weight

    W_ij = soft(S_ij, lambda_ij) / S_ii,     soft(s, l) = sign(s) max(|s| - l, 0).              (2)

The noise moves W_ij by G_ij / S_ii. It raises two settings; the job's own value is the
smallest possible one:

    penalty    lambda_ij >= root(2 log d) G_ij, the universal threshold (Donoho and Johnstone,
               Biometrika 81, 1994): the largest of d - 1 normal errors in the column of a variable
               is hardly ever beyond it. The slope's error has to be below the penalty in the theory
               of the lasso, too (Bickel, Ritov and Tsybakov, Annals of Statistics 37, 2009).
    threshold  of |W_ij|: T_ij >= (z root(G_ij^2 + S_ii S_jj / n) - lambda_ij) / S_ii.          (3)

So a graph of unrelated columns has an edge in at most 5 % of runs: z has the two-sided level of
0.05 / pairs. In a vote, z is that at which more than half of the sites find one as seldom.

Pooled moments have one more step (`PooledNoise`). (3) is for columns that are related to no other.
An edge of NOTEARS or GOLEM remains only if the slope of its effect on all its causes is beyond z
standard deviations of noise and chance (`secagg.models.common.noisy_partials`); else the weakest
one is removed, and the others are tested again. Without it, graphs of closely related columns have
edges that only the noise caused: it is amplified where columns explain one another.

Not covered. (1) is of first order. The repair of the moments (`secagg.models.common.noisy_moments`)
shrinks correlations if the noise is about as large as S's eigenvalues, and moves them towards
m m' if means are far from the middle of the bounds. Records that clipping shortens are no longer
unrelated. Edges between columns that are indirectly related are not errors of this kind. Measured:
docs/math/graphs-under-noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from secagg.contracts import NoisyMatrix
from secagg.core.arrays import Array
from secagg.models.common.noisy_partials import NoisyPartials, noisy_partials
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import eliminate

OWN_UNITS = "columns keep their own units, in which weights have no expected size"
"""Why the plan does not judge a graph."""
FALSE_GRAPHS = 0.05
"""The largest probability of an edge in a graph of unrelated columns."""


def scatter_noise(noisy: NoisyMatrix) -> Array:
    """Return the variances of (1), shape (variables, variables), in scaled units."""
    means = np.clip(noisy.matrix[0, 1:] / max(noisy.matrix[0, 0], 1.0), -1, 1) ** 2
    of_sums = noisy.variance[0, 1:]
    by_means = np.outer(means, of_sums)
    by_means = by_means + by_means.T
    by_means[np.diag_indices_from(by_means)] *= 2
    found: Array = noisy.variance[1:, 1:] + by_means + noisy.variance[0, 0] * np.outer(means, means)
    return found


def single_level(d: int, lagged: int = 0) -> float:
    """Return the two-sided level of one pair's test; lagged: the number of lagged copies."""
    return FALSE_GRAPHS / (d * (d - 1) / 2 + d * lagged)


def vote_level(d: int, sites: Iterable[int], level: float | None = None) -> float:
    """Return the two-sided level of one site's test if more than half of the sites decide.

    level: of the vote about one pair; None for `single_level`

    sites: possible numbers of sites; P(Bin(K, p) >= m) is the incomplete beta function I_p(m,
        K - m + 1)
    """
    needed = ((k // 2 + 1, k) for k in sites)
    level = single_level(d) if level is None else level
    return min(float(betaincinv(m, k - m + 1, level)) for m, k in needed)


def quantile(level: float) -> float:
    """Return z of a two-sided level."""
    return float(-ndtri(level / 2))


def universal(d: int) -> float:
    """Return root(2 log d)."""
    return math.sqrt(2 * math.log(d))


@dataclass(frozen=True, eq=False)
class NoiseSize:
    """The noise in the units analysed.

    noise: G, shape (q, q); variances: S_ii, shape (q,), positive; records: n, which may be noisy
    effects: d, the number of columns that can be effects, which are the first ones; None for all.
        The others are causes only, as lagged copies are

    `weight_error`, `penalty` and `threshold` have the shape (q, d), from causes to effects.
    """

    noise: Array
    variances: Array
    records: float
    effects: int | None = None

    @property
    def weight_error(self) -> Array:
        """The standard deviation of the noise in W_ij, for unrelated columns."""
        return self._of_effects(self.noise) / self.variances[:, None]

    @property
    def weight_variance(self) -> Array:
        """The variance of W_ij by noise and chance, for unrelated columns, shape (q, d)."""
        return self._slope_variance / self.variances[:, None] ** 2

    @property
    def penalty(self) -> Array:
        """The smallest penalty of each entry; 0 for an effect on itself."""
        raised = universal(len(self.noise)) * self._of_effects(self.noise)
        np.fill_diagonal(raised, 0)
        return raised

    def threshold(self, penalty: Array | float, level: float | None = None) -> Array:
        """Return (3), at least 0, if the job's penalty is `penalty` and `penalty` above raises it.

        penalty: one, or (q, d); level: two-sided level of one pair's test; None for `single_level`
        """
        q = len(self.noise)
        d = q if self.effects is None else self.effects
        z = quantile(single_level(d, q - d) if level is None else level)
        in_force = np.maximum(penalty, self.penalty)
        excess = z * np.sqrt(self._slope_variance) - in_force
        found: Array = np.maximum(excess, 0) / self.variances[:, None]
        np.fill_diagonal(found, 0)
        return found

    @property
    def effective_records(self) -> float:
        """The number of records with as much chance as these have with the noise, on average.

        A correlation of unrelated columns has the variance 1 / n by chance, and G_ij^2 / (S_ii
        S_jj) by noise.
        """
        pairs = np.triu_indices(len(self.noise), 1)
        of_noise = self.noise**2 / np.outer(self.variances, self.variances)
        return self.records / (1 + self.records * float(of_noise[pairs].mean()))

    @property
    def _slope_variance(self) -> Array:
        chance = np.outer(self.variances, self.variances) / max(self.records, 1.0)
        return self._of_effects(self.noise**2 + chance)

    def _of_effects(self, matrix: Array) -> Array:
        return matrix[:, : self.effects].copy()


@dataclass(frozen=True, eq=False)
class PooledNoise:
    """The noise in pooled moments: size: in the units analysed; partials: the moments with it."""

    size: NoiseSize
    partials: NoisyPartials

    @property
    def z(self) -> float:
        """The standard deviations that an edge has to be beyond."""
        return quantile(single_level(len(self.partials.means)))

    def beyond(self, directed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the edges whose slopes noise and chance hardly give; see the module."""

        def squares(y: int, causes: list[int]) -> Array:
            slopes, variances = self.partials.slopes(y, causes)
            found: Array = slopes**2 / variances
            return found

        return eliminate(directed, squares, self.z**2)

    def judged(
        self, directed: NDArray[np.bool_], penalty: float, in_force: Array
    ) -> tuple[NDArray[np.bool_], dict[str, Any], str]:
        """Return the edges that are `beyond`, and what the noise did, in numbers and in words.

        penalty: the job's; in_force: of each entry, (p, p)
        """
        kept = self.beyond(directed)
        pairs = ~np.eye(len(kept), dtype=np.bool_)
        facts = {
            "weight_error": _range(self.size.weight_error[pairs]),
            "penalty": {"job": penalty, "in_force": _range(in_force[pairs])},
            "removed": int(directed.sum() - kept.sum()),
        }
        note = (
            f"{raised_note(facts)} Edges removed, because noise and chance alone could give the "
            f"slope of the effect on all its causes: {facts['removed']}."
        )
        return kept, facts, note


def pooled_noise(moments: Moments, *, standardise: bool) -> PooledNoise | None:
    """Return the noise in pooled moments, or None if they have none.

    Raises `UsageError` for a constant column.
    """
    partials = noisy_partials(moments)
    if partials is None or moments.noisy is None:
        return None
    noisy = NoisyMatrix(moments.noisy.matrix, moments.noisy.variance)
    half, spread = moments.noisy.half_range, moments.standard_deviation
    unit = half / spread if standardise else half
    noise = np.sqrt(scatter_noise(noisy)) * np.outer(unit, unit) / moments.n
    variances = np.ones_like(spread) if standardise else spread**2
    return PooledNoise(NoiseSize(noise, variances, moments.n), partials)


def raised_facts(
    size: NoiseSize, penalty: float, threshold: float, *, lag_penalty: float = 0.0
) -> dict[str, Any]:
    """Return the settings in force, and what raised them, for a result.

    penalty, threshold, lag_penalty: the job's; the last one only for lagged copies
    """
    job = job_penalties(size, penalty, lag_penalty)
    d = job.shape[1]
    pairs = ~np.eye(len(job), d, dtype=np.bool_)
    in_force = np.maximum(job, size.penalty)
    facts = {
        "weight_error": _range(size.weight_error[pairs]),
        "penalty": {"job": penalty, "in_force": _range(in_force[:d][pairs[:d]])},
    }
    if len(job) > d:
        facts["lag_penalty"] = {"job": lag_penalty, "in_force": _range(in_force[d:])}
    thresholds = np.maximum(threshold, size.threshold(job))[pairs]
    return {**facts, "threshold": {"job": threshold, "in_force": _range(thresholds)}}


def job_penalties(size: NoiseSize, penalty: float, lag_penalty: float) -> Array:
    """Return the job's penalty of each entry, (q, d)."""
    found: Array = np.full_like(size.weight_error, lag_penalty)
    found[: found.shape[1]] = penalty
    return found


def raised_note(facts: Mapping[str, Any]) -> str:
    """Return `raised_facts`, or those of `PooledNoise.judged`, in two sentences."""
    low, high = facts["weight_error"]
    settings = [name for name in ("penalty", "lag_penalty", "threshold") if name in facts]
    parts = [
        f"{name} from {facts[name]['job']:g} to {_raised(facts[name])}"
        for name in settings
        if facts[name]["in_force"][1] > facts[name]["job"]
    ]
    raised = f"It raised {', and '.join(parts)}." if parts else "It raised no setting."
    return (
        f"The noise moves the weight of an edge between unrelated columns by {_span(low, high)} "
        f"(one standard deviation). {raised}"
    )


def _raised(setting: dict[str, Any]) -> str:
    low, high = (f"{value:.2g}" for value in setting["in_force"])
    return high if low == high else f"between {low} and {high}"


def _range(values: Array) -> list[float]:
    return [float(values.min()), float(values.max())]


def _span(low: float, high: float) -> str:
    return f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"
