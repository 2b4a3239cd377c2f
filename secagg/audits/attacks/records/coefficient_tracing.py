"""A9 for regressions: whether a known person is among the records of released coefficients.

As in Dwork, Smith, Steinke, Ullman and Vadhan (FOCS 2015), with the person's score in place of the
person's moments. A maximum likelihood estimate b of n records is, to first order,

    b = b0 + (n I)^-1 sum_i s_i,    s_i = (y_i - mu(x_i'b0)) x_i / phi,

with b0 of the population, I the information of one record, s_i the score of record i and phi the
dispersion (van der Vaart 1998, theorem 5.39). So b is about normal with the variance (n I)^-1. Its
mean is b0 + (n I)^-1 s if a person with score s is among the records, and otherwise b0. The
logarithm of the ratio of both densities is

    T = s'(b - b0) - s'(n I)^-1 s / 2 = r (x'b - x'b0) - r^2 h / 2,                              (1)

with r = (y - mu(x'b0)) / phi and h = phi x'(X'WX)^-1 x for n records. b0 is estimated from m
reference records. All others are the reference; for one of them, the fit is that of the rest. It is
computed by one Newton step, exact for least squares (Pregibon, Annals of Statistics 1981): x'b0
becomes x'b0 - k e / (1 - w k), with k = x'(X'WX)^-1 x, the weight w = mu' and the residual e; and k
becomes k / (1 - w k). So T has the same mean for all if b does not depend on who took part, but for
terms of order 1/m. This needs at least 5 reference records for each coefficient: for 21
coefficients and 105 to 500 reference records, the mean area is then .495 to .498 in simulations.
All T share the error of b0, so the interval is that of `membership_finding`. It covers 1/2 in 95 to
97 % of them.

Members and others are apart by about root(p / n) root(m / (n + m)) standard deviations: little,
unless a regression has many predictors for its records. T of several regressions of a result is
added up. Where the result has no intercept, that of the reference is used; posterior means and
means over sites are used as if they were estimates.

The attacker knows the person's outcome and predictors, and has reference records of the same
population. It reads the result only, so an outsider finds as much as the coordinator. The
coefficients are the same under every protocol; only noise lowers the number. The
control is the same regression without noise. If that shows no leak, nothing is known about the
noise: the regression is too small to trace anybody by this attack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from secagg.audits.attacks.records.membership_finding import (
    FEW,
    RATES,
    compared,
    membership_finding,
    width_by_permutation,
)
from secagg.audits.attacks.records.released_regression import (
    Regression,
    fitted,
    released_regressions,
    weights,
    why_no_regression,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.membership import area_under_roc
from secagg.audits.views import View, Who
from secagg.core.arrays import Array

_REFERENCE = 5  # records for each coefficient


class Guess(NamedTuple):
    """The regressions of a result, and the seed of the draws for the interval."""

    regressions: list[Regression]
    seed: int


class CoefficientTracing(Attack):
    """Score (1)."""

    name: ClassVar[str] = "coefficient_tracing"
    title: ClassVar[str] = "Whether a known person is among the records of released coefficients"
    source: ClassVar[str] = "Dwork and others (2015), with scores; equation (1) of the module"
    knows: ClassVar[str] = "the person's outcome and predictors, and reference records"
    views: ClassVar[tuple[Who, ...]] = (Who.OUTSIDER,)
    metric: ClassVar[str] = "coefficient_tracing_auc"
    meaning: ClassVar[str] = "area under the ROC curve; 0.5 is a guess"
    rates: ClassVar[Mapping[str, float]] = RATES

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return why_no_regression(view)

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.6)

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        """Return the regressions of the result."""
        return Guess(released_regressions(view), int(rng.integers(2**63)))

    def score(self, guess: Guess, view: View, truth: Truth) -> Finding:
        """Return the AUC of (1), summed over regressions; details: of each."""
        coefficients = 1 + max(len(each.predictors) for each in guess.regressions)
        least = max(FEW, _REFERENCE * coefficients)
        members, others, sites = compared(view, truth)
        if len(others) < least:
            why = f"fewer than {least} records did not take part, for {coefficients} coefficients"
            return Finding.impossible(why)
        n = max(float(view.result.summary["records"]), 1.0)

        def scores(own: Array, others: Array) -> list[tuple[Array, Array]]:
            """Return those of each regression, and their sums."""
            found = [gains(each, own, others, n) for each in guess.regressions]
            first, second = (np.sum(each, axis=0) for each in zip(*found, strict=True))
            return [*found, (first, second)]

        def areas(own: Array, others: Array) -> Array:
            found = [area_under_roc(*each, sites).value for each in scores(own, others)]
            return np.array(found)

        rng = np.random.default_rng(guess.seed)
        widths = width_by_permutation(areas, members, others, rng, sites).tolist()
        *traced, total = scores(members, others)
        of_each = {}
        for i, each in enumerate(guess.regressions):
            found = membership_finding(*traced[i], widths[i], sites)
            of_each[f"{i + 1}_{each.name}"] = [found.value, found.low, found.high]
        return membership_finding(*total, widths[-1], sites, of_each=of_each)


def gains(released: Regression, members: Array, reference: Array, n: float) -> tuple[Array, Array]:
    """Return (1) of the members, and of the reference records without themselves.

    n: the number of records of the released regression
    """
    X, y = released.design(reference), released.outcomes(reference)
    family, offset = released.family, released.offset(reference)
    b0, root = fitted(X, y, family, offset)
    eta = X @ b0 + offset
    score, weight = family.score(y, eta), weights(family, eta)
    phi = released.dispersion(score)
    k = np.sum((X @ root) ** 2, axis=1)
    left = np.maximum(1 - weight * k, 1e-9)  # 1 - w k: of a fit without the record
    gap = y - released.linear(reference)
    m, level = len(reference), released.intercept

    def gain(records: Array, start: Array, k: Array, fitted_to: int, b_1: Array | float) -> Array:
        r = family.score(released.outcomes(records), start) / phi
        h = phi * k * fitted_to / n
        return np.asarray(r * (released.linear(records) + b_1 - start) - r * r * h / 2)

    own = released.design(members)
    own_k = np.sum((own @ root) ** 2, axis=1)
    in_all = float(np.mean(gap)) if level is None else level
    in_rest = (np.sum(gap) - gap) / (m - 1) if level is None else level
    return (
        gain(members, own @ b0 + released.offset(members), own_k, m, in_all),
        gain(reference, eta - k * score / left, k / left, m - 1, in_rest),
    )
