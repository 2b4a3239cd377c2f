"""What the numbers of a FedLin result mean under noise once at the site, in words.

A site then computes from its repaired moments (`secagg.models.common.noisy_moments`), so squared
errors of predictions are quadratic forms in these, and not sums over records. The repair raises all
eigenvalues to at least f, formula (2) of that module. A residual has the coefficient 1 for the
outcome, so its sum of squares at each site is at least f in squared half widths h of the outcome's
bounds. With n records at K sites, no root mean squared error can be below

    e = h root(K f / n),                                                                     (1)

whatever the records are. In simulations of least squares at four sites (2 to 10 predictors, 100 to
1500 records at each, epsilon 0.5 to 16), errors below 1.1 e were 1.5 to 6 times those of the
records, and errors between 1.3 e and 1.5 e up to 1.5 times. Errors above 1.5 e differed from them
by up to 16 %, and above 2 e by up to 4 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from secagg.contracts import PublicFacts, RecordCount, State
from secagg.contracts.noise import SITE_MOMENTS
from secagg.models.common.clipped_moments import counted_moments_variances
from secagg.models.common.noisy_moments import noisy_moments
from secagg.models.fedlin.base import FedLinModel

UNRELIABLE = 1.5
"""Errors below so many e depend mainly on the repair."""

_OF_KNOWN_NOISE = (
    "The sites' estimates account for the noise of differential privacy, but each still moves with "
    "its own site's noise, and all are shrunk towards each other. So their standard deviation is "
    "not that of the true coefficients; the table of what sites share estimates that one."
)
_OF_IGNORED_NOISE = (
    "The sites' estimates are computed from moments with the noise of differential privacy, as if "
    "these were exact. The noise makes sites differ that are alike, and strong noise pulls all "
    "estimates towards 0. So mean and standard deviation are not those of the true coefficients."
)
_OF_COMMON = (
    "The common coefficients are computed from moments with the noise of differential privacy, as "
    "if these were exact. Strong noise pulls them towards 0."
)


def noise_facts(
    method: FedLinModel, state: State, public: PublicFacts, errors: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the result's entry "noise", if sites have noisy moments; else nothing.

    across_sites, errors: what the numbers with these names mean, in words
    least_error: e of (1), in the outcome's unit; unreliable: models with an error below 1.5 e
    """
    if not public.site_moments:
        return {}
    least = least_error(state, public)
    limit = UNRELIABLE * least
    low = [row["model"] for row in errors if row["training_rmse"] < limit]
    words = (
        "These errors are those of the moments with the noise of differential privacy, not of the "
        "records. The noise makes them too small or too large, and the repair of the moments alone "
        f"makes each at least {least:.2g}. An error below {limit:.2g} says little about the records"
    )
    if low:
        which = "all" if len(low) == len(errors) else f"{len(low)} of {len(errors)}"
        words += f", which is true of {which} here"
    means = _OF_KNOWN_NOISE if method.knows_noise else _OF_IGNORED_NOISE
    told = {
        "across_sites": means if method.own_at_sites else _OF_COMMON,
        "errors": f"{words}.",
        "least_error": least,
        "unreliable": low,
    }
    return {"noise": told}


def least_error(state: State, public: PublicFacts) -> float:
    """Return e of (1)."""
    of_count, of_moments = counted_moments_variances(public.noise[SITE_MOMENTS])
    p = len(public.variables)
    nothing = np.zeros((p + 1) * (p + 2) // 2)
    counted = RecordCount(0.0, of_count)
    assert public.clip is not None
    noisy = noisy_moments(nothing, public, of_moments, counted, public.clip.constant)
    floor = noisy.eigenvalue_noise
    sites = float(state["finished"]["with_records"][0])
    return float(state["half"]) * math.sqrt(sites * floor / state["records"])
