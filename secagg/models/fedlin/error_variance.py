"""The variance of the regression's errors: each site's, and pooled over sites.

Each site sums the squared residuals of its own least squares, and their degrees of freedom. Under
noise once at the site, these residuals are of moments with noise. A method that knows the noise
then uses an estimate that subtracts it: (2) of `secagg.models.fedlin.hierarchies.noisy_likelihood`.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.hierarchies.noisy_likelihood import NoisyRegression
from secagg.models.fedlin.site import Site

_MIN_VARIANCE = 1e-12  # in squared half widths of the outcome, for an exact fit


def residual_sums(
    site: Site,
    noisy: NoisyRegression | None,
    layout: Layout,
    training: Array,
    centre: Array,
    scale: Array,
) -> Update:
    """Return a site's squared residuals, in squared half widths, and degrees of freedom."""
    if noisy is not None:
        residual = site.left * noisy.error_variance()[0]
    else:
        wrong = site.errors(site.separate, layout, training, centre, scale) / scale[0]
        residual = float(wrong @ wrong) * (site.left > 0)
    return {"residual": np.array([residual]), "freedom": np.array([float(site.left)])}


def pooled_error_variance(total: Update) -> float:
    """Return the pooled variance, in squared half widths of the outcome."""
    freedom = float(total["freedom"][0])
    if freedom < 1:  # two sites with more records than coefficients have residuals
        what = "sites that announced residual degrees of freedom have none"
        raise PeerError("the sites", what)
    return max(float(total["residual"][0]) / freedom, _MIN_VARIANCE)


def own_error_variance(
    pooled: float,
    site: Site,
    noisy: NoisyRegression | None,
    layout: Layout,
    training: Array,
    centre: Array,
    scale: Array,
) -> float:
    """Return the site's own variance, shrunk to the pooled one; both in the units analysed."""
    if not site.left:
        return pooled
    if noisy is not None:
        return noisy.own_error_variance(pooled, site.left)
    return site.noise(pooled, layout, training, centre, scale)
