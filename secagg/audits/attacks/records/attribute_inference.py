"""A12: a sensitive column of a person, guessed from a released regression and the other columns.

Yeom, Giacomelli, Fredrikson and Jha (CSF 2018), section 4, and Diana and others (2024), who attack
federated regressions so. The attacker knows a person's outcome y and all predictors but those of
one column. With b the released coefficients and s a possible value of the column,

    p(s | y) ~ p(s) p(y | x, s; b),                                                              (1)

where p(s) is the column's distribution in the population, given by reference records, and the
residual variance of a linear regression is that of b over the same records. The guess is the most
probable level of a binary or categorical column, and the posterior mean of a continuous one. Each
predictor column is attacked in turn.

(1) works for everybody of the population, whether the person took part or not: a model that says
how columns depend on each other is the purpose of a regression, and no leak. So the number is the
attribute advantage of Yeom and others (definition 5): how much better (1) works for persons who
took part. With a and b the errors of (1) and of the same guess without the model (the most frequent
level; the mean), 0 or 1 for levels and squares for numbers, the share of the error that is avoided
is 1 - sum a / sum b, and the number is this share for the records that took part minus that for
others, for the column where the difference is largest. Differential privacy bounds it.

The records that took no part are divided into two halves. One is the reference; the other is
compared with the records that took part. So if the coefficients do not depend on who took part, the
number is 0 up to chance. The interval is that of a difference of ratios of means (linearised), at a
level that holds for all columns together (Bonferroni). A column counts only if the guess without
the model has 10 errors or more in both groups: a ratio of fewer has no interval. If the interval
includes 0, the number may be chance and is no leak. `baseline` is the largest difference for
coefficients that are fitted to the reference alone. The details have the share for each column: of
the run for both groups, and of the reference's coefficients for persons who took part
(`population`).

If even maximum likelihood estimates of the true records show no difference above the limit, the
attack does not apply, and the reason gives both shares.

What the number does not show: how much an attacker without reference records learns from the model
about anybody. That is `others` in the details, and may be much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from secagg.audits.attacks.records.released_regression import (
    Regression,
    fitted,
    released_regressions,
    why_no_regression,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.membership import Rate
from secagg.audits.views import View, Who
from secagg.contracts import PublicFacts
from secagg.core.arrays import Array

_LEVEL = 0.95
_FEW = 20  # records of the reference, and of the others, below which there is no estimate
_FEWEST_ERRORS = 10  # of the guess without the model, in each group
_VALUES = 200  # of a column, at most: a sample of the reference


class AttributeInference(Attack):
    """Guess by (1)."""

    name: ClassVar[str] = "attribute_inference"
    title: ClassVar[str] = "A person's column, guessed from coefficients and the other columns"
    source: ClassVar[str] = "Yeom and others (2018); Diana and others (2024)"
    knows: ClassVar[str] = "the person's outcome and other predictors, and reference records"
    views: ClassVar[tuple[Who, ...]] = (Who.OUTSIDER,)
    metric: ClassVar[str] = "attribute_advantage"
    meaning: ClassVar[str] = "share of a guess's error avoided, minus that for others; 0: no leak"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return why_no_regression(view)

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.1)

    def run(self, view: View, rng: np.random.Generator) -> list[Regression]:
        """Return the regressions of the result."""
        return released_regressions(view)

    def score(self, guess: list[Regression], view: View, truth: Truth) -> Finding:
        """Return the advantage for the column where it is largest."""
        if len(truth.others) < 2 * _FEW:
            return Finding.impossible(f"fewer than {2 * _FEW} records did not take part")
        members = np.concatenate([truth.sites[site].values for site in view.sites])
        reference, others = truth.others[::2], truth.others[1::2]

        def attacked(models: list[Regression]) -> Columns:
            return Columns(models, view.planned.public, members, others, reference)

        found = attacked(guess)
        if not found.members:
            why = (
                f"a guess without the model has fewer than {_FEWEST_ERRORS} errors in every column"
            )
            return Finding.impossible(why)
        population = attacked([_refitted(r, reference) for r in guess])
        limit = self.limit(view)
        if not limit.exceeded_by(found.best.value):
            exact = attacked([_refitted(each, members) for each in guess])
            if not limit.exceeded_by(exact.best.value) or exact.best.low <= 0:
                return Finding.impossible(exact.in_words())
        details = {
            key: {
                "members": list(found.members[key]),
                "others": list(found.others[key]),
                "population": list(population.members[key]),
            }
            for key in found.members
        }
        return Finding(
            **found.best._asdict(),
            baseline=population.best.value,
            details={"column": found.column, "gains": details},
            bound="" if found.best.low > 0 else "the interval includes 0, so it may be chance",
        )


class Columns:
    """The gain by (1) for the predictor columns of some regressions: of members, and of others.

    A column of which either group has few errors without the model is left out.
    """

    def __init__(
        self,
        models: list[Regression],
        public: PublicFacts,
        members: Array,
        others: Array,
        reference: Array,
    ) -> None:
        of_both = dict[str, tuple[tuple[Array, Array], ...]]()
        for i, each in enumerate(models):
            for column in _columns(each, public):
                found = tuple(
                    errors(each, public, column, records, reference)
                    for records in (members, others)
                )
                if min(np.count_nonzero(without) for _, without in found) >= _FEWEST_ERRORS:
                    of_both[f"{i + 1}_{each.name}.{column}"] = found
        self.members, self.others = (
            {key: gain(*found[group], len(of_both)) for key, found in of_both.items()}
            for group in (0, 1)
        )
        if not of_both:
            return
        advantages = {key: difference(self.members[key], self.others[key]) for key in self.members}
        self.column = max(advantages, key=lambda key: advantages[key].value)
        self.best = advantages[self.column]

    def in_words(self) -> str:
        """Return why nothing is due to taking part."""
        column = max(self.members, key=lambda key: self.members[key].value)
        own, other = (max(each[column].value, 0) for each in (self.members, self.others))
        name = column.partition(".")[2]
        return (
            f"what exact coefficients say holds for persons who took no part as well: of the error "
            f"of a guess of {name!r}, they avoid {own:.0%} for those who took part and "
            f"{other:.0%} for others"
        )


def difference(members: Rate, others: Rate) -> Rate:
    """Return the difference with its interval, of independent numbers with symmetric ones."""
    value = members.value - others.value
    width = float(np.hypot(members.value - members.low, others.value - others.low))
    return Rate(value, value - width, value + width)


def _refitted(released: Regression, records: Array) -> Regression:
    """Return the same regression, fitted to these records."""
    X, y, offset = (of(records) for of in (released.design, released.outcomes, released.offset))
    b, _ = fitted(X, y, released.family, offset)
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
    reached = released.linear(reference) + level
    scores = released.family.score(released.outcomes(reference), reached)
    dispersion = max(released.dispersion(scores), 1e-12)
    variables = [public.variables[p] for p in positions]
    levels, counts = np.unique(reference[:, positions] > 0, axis=0, return_counts=True)
    if variables[0].indicator:
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
    posterior = prior + released.family.log_likelihood(y, eta) / dispersion
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
