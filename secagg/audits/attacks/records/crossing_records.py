"""Differences of the sums of two rounds that are a single record.

If the gradient of a record's loss jumps, for example that of an absolute error where the residual
changes its sign, the difference of two sums is made of the records that crossed the jump between
the two rounds. If one crossed, the difference is a multiple of (x, 1), so that its last number
gives the multiple, and the others give the record's predictors.

`score` knows the records, and counts of how many records each difference of any two sums is made
(`secagg.audits.record_changes`). That works for every method whose contributions are sums over
records. Without the truth, the attacker reads differences of a linear layer as (x, 1): a reading
can be a record only if all values are within the columns' bounds. It *is* one, but for accidents,
if a column with two levels has exactly one of its two values. Of a column that has the same value
in all readings, nothing is concluded, because it may not vary at all.

Control: sums over invented records of the gradient of an absolute error of a linear model, in small
steps. What it does not show: combinations of more than two sums, and functions that are
steep without a jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, ClassVar, cast

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.record_changes import (
    adds_up,
    chosen_rounds,
    contributions_of_each,
    differences,
    most_rounds,
)
from secagg.audits.views import SeenRound, View
from secagg.contracts import Body, Method, SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.models.neural.torch_module import TorchModule

_FEWEST = 5  # records of a difference, if the job allows fewer
_EXACT, _CLOSE = 1e-6, 1e-4
_INVENTED, _STEPS, _RATE = 100, 40, 0.02  # the planted records and descent
_SMALLEST = 1e-9  # difference of a bias that is read
_MOST_UNITS, _ALL_PAIRS = 100, 60
_PLANTED = "planted"


class CrossingRecords(Attack):
    """Look for differences of two sums that are made of few records."""

    name: ClassVar[str] = "crossing_records"
    title: ClassVar[str] = "Differences of the sums of two rounds that are made of few records"
    source: ClassVar[str] = "secagg.audits.record_changes"
    knows: ClassVar[str] = "the columns' bounds"
    metric: ClassVar[str] = "records_in_difference"
    meaning: ClassVar[str] = "smallest effective number of records in the difference of two sums"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if view.planned.public.clip is not None:
            return "for exact sums"
        if len(most_rounds(view)) < 2:
            return "for methods with several rounds of one kind"
        return ""

    def limit(self, view: View) -> Limit:
        """Return the smallest number of records of the job, or 5."""
        return Limit(max(_FEWEST, view.planned.job.release.min_records or 0), errors=True)

    def run(self, view: View, rng: np.random.Generator) -> list[Array]:
        """Return the values that differences of a linear layer read as, if one record changed."""
        readings = [
            weight / bias
            for weights, biases in _layers(view)
            for weight, bias in zip(weights, biases, strict=True)
            if abs(bias) > _SMALLEST
        ]
        return _confirmed(view, readings)

    def without_truth(self, guess: list[Array], view: View) -> Finding | None:
        """Return that a difference is one record, if a reading says so."""
        if not guess:
            return None
        return Finding.exact(1.0, float("nan"), rows=len(guess))

    def score(self, guess: list[Array], view: View, truth: Truth) -> Finding:
        """Count the records of each difference."""
        rounds, method = most_rounds(view), view.planned.method
        sites = {site: truth.sites[site] for site in view.sites}
        if isinstance(method, _AbsoluteError):
            sites = {"invented": method.rows}
        n = sum(len(rows.values) for rows in sites.values())
        chosen = [rounds[i] for i in chosen_rounds(rounds, n)]
        each = [contributions_of_each(view.planned, seen, sites) for seen in chosen]
        if not all(adds_up(*pair, view.planned) for pair in zip(each, chosen, strict=True)):
            return Finding.impossible("contributions are not sums over records")
        found = list(differences(chosen, each, view.planned))
        if not found:
            return Finding.impossible("no two sums differ")
        fewest = min(found, key=lambda one: one.effective)
        return Finding.exact(
            fewest.effective, float(n), rows=len(guess), right=_right(guess, view, sites),
            rounds=len(chosen),
            differences=len(found), singles=sum(one.effective < 1.5 for one in found),
        )  # fmt: skip

    def control(self, plain: View) -> View:
        """Return sums of an absolute error over invented records."""
        variables = len(plain.planned.public.variables)
        method = _AbsoluteError(_invented(variables))
        stage, rounds = most_rounds(plain)[0].stage, list[SeenRound]()
        message: Body = {"theta": np.zeros(variables)}
        while len(rounds) < _STEPS:
            total, _ = method.contribute(stage, method.rows, message)
            rounds.append(SeenRound(stage, message, total, {}))
            step = _RATE * total[_PLANTED] / len(method.rows.values)
            message = {"theta": message["theta"] - step}
        planned = replace(plain.planned, method=cast("Method", method))
        return replace(plain, planned=planned, rounds=tuple(rounds))


@dataclass(frozen=True)
class _AbsoluteError:
    """The planted method: sums of sign(z'theta - y) z, with z = (x, 1) and y the last variable."""

    rows: SiteRecords

    def contribute(
        self, stage: str, rows: SiteRecords, message: Body, *unused: Any
    ) -> tuple[Update, State]:
        """Return a site's contribution."""
        x, y = rows.values[:, :-1], rows.values[:, -1]
        z = np.column_stack([x, np.ones(len(x))])
        return {_PLANTED: np.sign(z @ message["theta"] - y) @ z}, {}


def _invented(variables: int) -> SiteRecords:
    """Return records whose last variable is linear in the others, with noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (_INVENTED, variables))
    x[:, -1] = 0.5 * x[:, :-1].mean(axis=1) + 0.3 * x[:, -1]
    return SiteRecords(x, 0, np.zeros(variables))


def _layers(view: View) -> Iterator[tuple[Array, Array]]:
    """Yield what two rounds change in the weights (units, inputs) and biases of a linear layer."""
    rounds, method, public = most_rounds(view), view.planned.method, view.planned.public
    pairs = combinations(rounds, 2) if len(rounds) <= _ALL_PAIRS else pairwise(rounds)
    if isinstance(method, _AbsoluteError):
        for before, after in pairs:
            change = after.total[_PLANTED] - before.total[_PLANTED]
            yield change[None, :-1], change[-1:]
    elif isinstance(method, TorchModule) and method.algorithm == "fedsgd":
        blocks = method.learner(public).blocks
        names = [block.name for block in blocks.blocks[:2]]
        shapes = [block.shape for block in blocks.blocks[:2]]
        if len(names) < 2 or len(shapes[0]) != 2 or shapes[1] != shapes[0][:1]:
            return
        for before, after in pairs:
            parts = blocks.split(after.total["change"] - before.total["change"])
            yield parts[names[0]][:_MOST_UNITS], parts[names[1]][:_MOST_UNITS]


def _confirmed(view: View, readings: list[Array]) -> list[Array]:
    """Return the readings that are one record, but for accidents; each once.

    A few records with equal levels may read as one, but seldom the same in two differences.
    """
    if not readings:
        return []
    found, binary = np.array(readings), _two_levels(view)
    binary = [j for j in binary if len(set(np.round(found[:, j], 6))) > 1]
    exact = np.abs(np.abs(found[:, binary]) - 1) < _EXACT
    inside = np.all(np.abs(found) <= 1 + _EXACT, axis=1)
    kept = found[inside & exact.all(axis=1)] if binary else found[:0]
    distinct, times = np.unique(np.round(kept, 6), axis=0, return_counts=True)
    return list(distinct[times > 1])


def _right(guess: list[Array], view: View, sites: Mapping[str, SiteRecords]) -> int:
    """Return how many of the readings are records."""
    records = np.vstack([rows.values for rows in sites.values()])[:, list(_inputs(view))]
    return sum(bool(np.any(np.all(np.abs(records - row) < _CLOSE, axis=1))) for row in guess)


def _inputs(view: View) -> Sequence[int]:
    """Return the positions of the variables that the layer reads."""
    method, public = view.planned.method, view.planned.public
    if isinstance(method, TorchModule):
        return method.learner(public).predictors
    return range(len(public.variables) - 1)


def _two_levels(view: View) -> list[int]:
    """Return the positions of indicators among the inputs of the layer."""
    variables = view.planned.public.variables
    return [j for j, position in enumerate(_inputs(view)) if variables[position].indicator]
