"""Notes on regressions of pooled records: differences between sites can look like effects.

Suppose that the outcome and a predictor are both higher at one hospital than at another, for any
reason: patients, staff, calibration. Then the slope of the pooled records contains this difference
(confounding by site). `secagg.models.moments.within_sites` shows how subtracting each site's means
removes it from the least-squares slope. With noise, sites subtract noisy means
(`secagg.models.moments.within_noise`, `secagg.models.one_step.site`). A site whose means are hidden
by the noise leaves out its records, and the result says how many sites did.
"""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "hidden"
"""The field with the number of sites that leave out their records."""
MEANS_SEEN: Final = 6.0
"""Standard deviations of the noise, below which it hides a site's number of records, and so its
means. At this limit, a mean is off by about a quarter of the column's standard deviation, and by a
sixth of how far the site is from the guess."""

_POOLED = (
    "All records are pooled. If sites differ in the outcome and in a predictor, this difference "
    "between sites can look like an effect of the predictor."
)
POOLED_LINEAR_NOTE: Final = (
    f'{_POOLED} method.centre = "site" removes the difference: it compares records within sites '
    "only."
)
"""For a linear regression of pooled moments."""
POOLED_FIT_NOTE: Final = (
    f"{_POOLED} This method cannot remove the difference. Method moments can, with method.centre = "
    '"site" and analysis ols.'
)
"""For a regression in rounds."""
POOLED_ROUNDS_NOTE: Final = (
    f"{POOLED_FIT_NOTE} Its slopes of a 0/1 outcome are differences in probability."
)
"""For a regression in rounds whose outcome may be binary."""
POOLED_NOISED_NOTE: Final = (
    f'{_POOLED} With typical ranges of all columns, method.centre = "site" of moments or one_step '
    "removes it."
)
"""For a regression of pooled moments or in rounds, with differential privacy."""
POOLED_COUNTS_NOTE: Final = f"{_POOLED} No method for counts under noise removes it."
"""For a Poisson regression, with differential privacy."""


def without_hidden(hidden: int, sites: int) -> str:
    """Return what to say of sites whose means the noise hides; "" if there are none."""
    if not hidden:
        return ""
    left = "every site" if hidden == sites else f"{hidden} of {sites} sites"
    return (
        f"the noise hides the means of {left}, so their records are left out: it takes larger "
        "sites, or a larger epsilon"
    )
