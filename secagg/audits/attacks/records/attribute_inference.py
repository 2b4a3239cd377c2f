"""A12: a sensitive column of a person, guessed from a released regression and the other columns.

Yeom, Giacomelli, Fredrikson and Jha (CSF 2018), section 4, and Diana and others (2024), who attack
federated regressions so. The attacker knows a person's outcome y and all predictors but those of
one column. With b the released coefficients and s a possible value of the column,

    p(s | y) ~ p(s) p(y | x, s; b),                                                              (1)

where p(s) is the column's distribution in the population, given by reference records, and the
residual variance of a linear regression is that of b over the same records. The guess is the most
probable level of a binary or categorical column, and the posterior mean of a continuous one. Each
predictor column is attacked in turn.

The number is the share of the error that (1) avoids, compared with the same guess without the model
(the most frequent level; the mean): 1 - sum a / sum b, with a and b the errors of both guesses, 0
or 1 for levels and squares for numbers. It is that of the column that is guessed best. The interval
is that of a ratio of means (linearised), at a level that holds for all columns together
(Bonferroni).

What the number does not show: that the guess is better because the person took part. What a model
says about the population holds for everybody; `others` in the details is the same number for
persons who did not take part. Differential privacy bounds the difference only. If even the least
squares of the true records avoid less than the limit, the attack does not apply: such a model says
little about any column, with noise or without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import log_expit
from scipy.stats import norm

from secagg.audits.attacks.records.membership_finding import FEW
from secagg.audits.attacks.records.released_regression import (
    Regression,
    fitted,
    released_regressions,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.membership import Rate
from secagg.audits.views import View, Who
from secagg.contracts import PublicFacts
from secagg.core.arrays import Array

_LEVEL = 0.95
_VALUES = 200  # of a column, at most: a sample of the reference


class AttributeInference(Attack):
    """Guess by (1)."""

    name: ClassVar[str] = "attribute_inference"
    title: ClassVar[str] = "A person's column, guessed from coefficients and the other columns"
    source: ClassVar[str] = "Yeom and others (2018); Diana and others (2024)"
    knows: ClassVar[str] = "the person's outcome and other predictors, and reference records"
    views: ClassVar[tuple[Who, ...]] = (Who.OUTSIDER,)
    metric: ClassVar[str] = "attribute_gain"
    meaning: ClassVar[str] = "share of the error of a guess without the model that is avoided"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return "" if released_regressions(view) else "the result has no coefficients of one model"

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1)

    def run(self, view: View, rng: np.random.Generator) -> list[Regression]:
        """Return the regressions of the result."""
        return released_regressions(view)

    def score(self, guess: list[Regression], view: View, truth: Truth) -> Finding:
        """Return the gain for the column that is guessed best."""
        if len(truth.others) < FEW:
            return Finding.impossible(f"fewer than {FEW} records did not take part")
        public, limit = view.planned.public, self.limit(view).number
        members = np.concatenate([truth.sites[site].values for site in view.sites])
        exact = _best(_gains([_refitted(each, members) for each in guess], public, members, truth))
        if exact.value <= limit:
            return Finding.impossible(
                f"even the exact coefficients avoid {max(exact.value, 0):.0%} of the error only"
            )
        gains = _gains(guess, public, members, truth)
        others = _gains(guess, public, truth.others, truth)
        details = {key: {"members": list(gains[key]), "others": list(others[key])} for key in gains}
        column = max(gains, key=lambda key: gains[key].value)
        return Finding(*gains[column], 0.0, {"column": column, "gains": details})


def _gains(
    guess: list[Regression], public: PublicFacts, records: Array, truth: Truth
) -> dict[str, Rate]:
    """Return the gain of every predictor column of every regression."""
    columns = [(i, column) for i, each in enumerate(guess) for column in _columns(each, public)]
    return {
        f"{i + 1}_{guess[i].name}.{column}": gain(
            *errors(guess[i], public, column, records, truth.others), len(columns)
        )
        for i, column in columns
    }


def _best(gains: Mapping[str, Rate]) -> Rate:
    return max(gains.values(), key=lambda each: each.value)


def _refitted(released: Regression, records: Array) -> Regression:
    """Return the same regression, fitted to these records."""
    b, _ = fitted(released.design(records), released.outcomes(records), logistic=released.logistic)
    return replace(released, slopes=b[1:], intercept=float(b[0]))


def errors(
    released: Regression, public: PublicFacts, column: str, records: Array, reference: Array
) -> tuple[Array, Array]:
    """Return each record's error of the guess (1), and of the guess without the model."""
    positions = [p for p in public.positions[column] if p in released.predictors]
    slopes = dict(zip(released.predictors, released.slopes, strict=True))
    effect = np.array([slopes[p] for p in positions])
    level = released.intercept or 0.0
    rest = released.linear(records) - records[:, positions] @ effect
    residual = released.outcomes(reference) - released.linear(reference)
    if released.intercept is None:
        level = float(np.mean(residual))
    variance = max(float(np.mean((residual - level) ** 2)), 1e-12)
    variables = [public.variables[p] for p in positions]
    if variables[0].indicator:
        levels, counts = np.unique(reference[:, positions] > 0, axis=0, return_counts=True)
        values = np.array(
            [
                [(on - v.midpoint) / v.half_range for on, v in zip(row, variables, strict=True)]
                for row in levels
            ]
        )
        prior = np.log(counts / len(reference))
    else:
        values = reference[:_VALUES][:, positions]
        prior = np.zeros(len(values))
    eta = level + rest[:, None] + values @ effect
    y = released.outcomes(records)[:, None]
    if released.logistic:
        likelihood = np.where(y > 0, log_expit(eta), log_expit(-eta))
    else:
        likelihood = -((y - eta) ** 2) / (2 * variance)
    posterior = prior + likelihood
    if variables[0].indicator:
        true = records[:, positions] > 0
        guessed, usual = levels[np.argmax(posterior, axis=1)], levels[np.argmax(prior)]
        return (
            np.any(guessed != true, axis=1).astype(np.float64),
            np.any(usual != true, axis=1).astype(np.float64),
        )
    weights = np.exp(posterior - posterior.max(axis=1, keepdims=True))
    mean = weights @ values[:, 0] / weights.sum(axis=1)
    true_values, usual_value = records[:, positions[0]], float(np.mean(reference[:, positions[0]]))
    return (mean - true_values) ** 2, (usual_value - true_values) ** 2


def gain(with_model: Array, without: Array, columns: int) -> Rate:
    """Return 1 - sum(with_model) / sum(without), with an interval that holds for all columns."""
    total = float(np.sum(without))
    if total <= 0:
        return Rate(0.0, 0.0, 0.0)  # the guess without the model has no error
    ratio = float(np.sum(with_model)) / total
    spread = float(np.sqrt(np.sum((with_model - ratio * without) ** 2))) / total
    width = float(norm.ppf(1 - (1 - _LEVEL) / (2 * columns))) * spread
    return Rate(1 - ratio, 1 - ratio - width, min(1.0, 1 - ratio + width))


def _columns(released: Regression, public: PublicFacts) -> list[str]:
    names: Mapping[str, None] = dict.fromkeys(
        public.variables[p].column for p in released.predictors
    )
    return list(names)
