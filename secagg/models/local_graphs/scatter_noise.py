"""A site's graph with noise once at the site: the noise's size, and repetitions with fresh noise.

The site knows the variances of the noise in its moments. So it raises its penalty and threshold to
the size of the noise (NOTEARS: `secagg.models.graphs.noise_size`), or allows for the noise in each
test and insertion (PC and GES: `secagg.models.graphs.pc_ges`, as on pooled moments). PC's `alpha`
is then the level of the vote: each site tests at the level p at which more than half of the sites
reject a true hypothesis with the probability alpha. With p = alpha, such tests miss many edges,
because a majority of sites has to find an edge although each has its own noise.

Stability. How much of the result is due to this one draw of the noise? The site takes its repaired
moments for exact, adds fresh noise of the same variances, repairs them as before, and learns a
graph again, B times. Every repetition is combined over the sites like the graphs themselves. The
stability of an edge is the share of repetitions whose combined graph has it: the parametric
bootstrap of Friedman, Goldszmidt and Wyner (UAI 1999), applied to the noise. All of this is
computed from the noisy moments, so it costs nothing.

The share is not the probability that the edge is true, nor that it is in the graph without noise:
an edge that the one draw caused can be in most repetitions. The share says how often noise of this
size alone would remove the edge or turn it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import NoisyMatrix
from secagg.core.arrays import Array
from secagg.models.common.noisy_moments import NoisyMoments, repaired
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.noise_size import NoiseSize, scatter_noise


@dataclass(frozen=True, eq=False)
class SiteNoise:
    """The noise in the moments of a site's records.

    noisy: those before the repair, in scaled units; half: shape (p,), half widths of the bounds: a
        record of the graph is half u
    level: two-sided level of the test that decides about one pair of columns at this site
    """

    noisy: NoisyMatrix
    half: Array
    level: float

    def select(self, kept: NDArray[np.bool_]) -> SiteNoise:
        """Return that of some of the columns."""
        return SiteNoise(self.noisy.select(np.flatnonzero(kept)), self.half[kept], self.level)

    @property
    def variance(self) -> Array:
        """The noise's variances in the scatter matrix, (p, p), in the units of the records."""
        return scatter_noise(self.noisy) * np.outer(self.half, self.half) ** 2

    def in_moments(self, moments: Moments) -> Moments:
        """Return a site's moments with their noise."""
        nothing = np.zeros(len(self.half))
        scale = np.array([1 / self.noisy.constant, *(nothing + 1)])
        noisy = NoisyMoments(
            moments.names, nothing, self.half, self.noisy.matrix, self.noisy.variance, scale
        )
        return replace(moments, noisy=noisy)

    def size(self, moments: Moments, *, standardise: bool) -> NoiseSize:
        """Return the noise in the units analysed; moments: of these columns, none constant."""
        noise = np.sqrt(self.variance) / moments.n
        variances = moments.standard_deviation**2
        if standardise:
            deviation = moments.standard_deviation
            noise = noise / deviation[:, None] / deviation
            variances = np.ones_like(deviation)
        return NoiseSize(noise, variances, moments.n)


def redrawn(values: Array, noisy: NoisyMatrix, rng: np.random.Generator) -> Moments:
    """Return moments of all variables with fresh noise, in scaled units.

    values: the site's table, which has the repaired moments; noisy: those before the repair
    """
    names = tuple(map(str, range(values.shape[1])))
    z = np.column_stack([np.ones(len(values)), values])
    added = np.triu(rng.normal(size=noisy.variance.shape) * np.sqrt(noisy.variance))
    matrix = z.T @ z + added + np.triu(added, 1).T
    scale = np.array([1 / noisy.constant, *np.ones(len(names))])
    nothing = np.zeros(len(names))
    M = repaired(NoisyMoments(names, nothing, nothing + 1, matrix, noisy.variance, scale)).matrix
    mean = M[0, 1:] / M[0, 0]
    return Moments(names, int(M[0, 0]), mean, M[1:, 1:] - M[0, 0] * np.outer(mean, mean))
