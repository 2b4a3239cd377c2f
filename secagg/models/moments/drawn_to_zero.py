"""How far the weights of whole records draw slopes and standard deviations towards 0.

A record has the weight w = min(1, R^2 / |z|^2), z with its outcome (`secagg.jobs.typical_ranges`).
The slopes of y = x'b + e move by (E w x x')^-1 E w x e. For normal e of variance s, by Stein's
lemma, E w x e = s E x dw/de, and dw/de = -2 w^2 y / R^2 where w < 1. So slopes lose about the share

    a s,   a = (2 / R^2) E[w^2 |u|^2; w < 1] / E[w |u|^2],                                   (1)

and a standard deviation, by the same law for a column alone, about a v / 2 with its variance v.
Of s and v, the weighted ones are known; a follows from the mean weight: |z|^2 is taken to be
c^2 + g chi^2 with p degrees of freedom, and g to give this mean. With normal records and mean
weights of .48, .82, .94 and .97, (1) was .33, .18, .08 and .05 where slopes lost .28, .19, .11 and
.07 (400,000 records, measured once). If tails are heavier, more is lost: up to three times (1) at
weights of .95 and more, with t laws of 5 degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from secagg.contracts import PublicFacts
from secagg.contracts.noise import Clip

WEIGHTS_NOTE = (
    "Records far from the middle of the typical ranges count less: on average, a record counts as "
    "{:.2f} of one, and n is the sum of these weights. A caution says if slopes of `ols` lose "
    "more than .75 of their standard errors by this."
)
_SHARES = (np.arange(400) + 0.5) / 400
_OF_ERRORS = 0.75
"""Of the standard errors of slopes, root mean square: a larger bias gives a caution."""


def rate(clip: Clip, variables: int, weight: float) -> float:
    """Return a of (1). weight: the mean weight of a record; with noise it may be 1 or more."""
    beside, lengths = clip.constant**2 / clip.squared_norm, chi2.ppf(_SHARES, variables)

    def weights(log_scale: float) -> Any:
        return np.minimum(1.0, 1 / (beside + np.exp(log_scale) * lengths))

    low, high = -12.0, 12.0
    if not weights(high).mean() < weight < weights(low).mean():
        return 0.0
    w = weights(brentq(lambda x: weights(x).mean() - weight, low, high))
    of_cut = np.sum(w**2 * lengths * (w < 1)) / np.sum(w * lengths)
    return float(2 / clip.squared_norm * of_cut)


def with_slopes_caution(
    quality: Mapping[str, Any], public: PublicFacts, analyses: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return `quality`, with a caution if slopes are biased too far for their errors."""
    if "weights" not in quality:
        return dict(quality)
    cautions = [quality.get("caution"), _slopes_caution(public, quality["weights"], analyses)]
    told = "; ".join(filter(None, cautions))
    return {**quality, "caution": told} if told else dict(quality)


def _slopes_caution(
    public: PublicFacts, weight: float, analyses: Sequence[Mapping[str, Any]]
) -> str:
    assert public.clip is not None
    a, lost = rate(public.clip, len(public.variables), weight), dict[str, float]()
    units = {v.name: v.half_range for v in public.variables}
    for fit in analyses:
        residual = fit.get("residual_std_error")
        if fit.get("method") != "ols" or residual is None:
            continue
        share = min(a * (residual / units[fit["outcome"]]) ** 2, 0.9)
        terms = [term for term in fit["terms"] if term["term"] in units]
        slopes, errors = (np.array([t[k] for t in terms]) for k in ("estimate", "std_error"))
        scale = np.array([units[t["term"]] for t in terms])
        bias = share / (1 - share) * slopes * scale
        if np.sum(bias**2) > _OF_ERRORS**2 * np.sum((errors * scale) ** 2):
            lost[fit["outcome"]] = share
    if not lost:
        return ""
    about = ", ".join(f"{name} by about {share:.0%}" for name, share in lost.items())
    return (
        f"weights of records draw slopes towards 0 ({about}), and intervals do not cover this: "
        "widen `typical`, above all of the outcome, or use one_step"
    )


def weights_notes(public: PublicFacts, weight: float, summary: Mapping[str, Any]) -> list[str]:
    """Return notes on the weights, and on standard deviations that are too small by 1 % or more."""
    note, columns = WEIGHTS_NOTE.format(weight), summary.get("columns", ())
    if summary["method"] != "describe":
        return [note]
    assert public.clip is not None
    a = rate(public.clip, len(public.variables), weight)
    units = {v.name: v.half_range for v in public.variables}
    lost = {c["column"]: a * (c["sd"] / units[c["column"]]) ** 2 / 2 for c in columns if c["sd"]}
    told = ", ".join(f"{name} {share:.0%}" for name, share in lost.items() if share >= 0.01)
    if not told:
        return [note]
    what = "This makes standard deviations too small, by about this or more, beside their ±"
    return [note, f"{what}: {told}."]
