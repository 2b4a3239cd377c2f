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

Control: sums over the same records of the gradient of an absolute error of a linear model, in as
many small steps. What it does not show: combinations of more than two sums, and functions that are
steep without a jump.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from secagg.runtime.parties import read_records

_FEWEST = 5  # records of a difference, if the job allows fewer
_EXACT = 1e-6
_STEPS, _RATE = 40, 0.02  # of the planted descent
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
        rounds, sites = most_rounds(view), {site: truth.sites[site] for site in view.sites}
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
            fewest.effective, float(n), rows=len(guess), rounds=len(chosen),
            differences=len(found), singles=sum(one.effective < 1.5 for one in found),
        )  # fmt: skip

    def control(self, plain: View) -> View:
        """Return sums of an absolute error of the last variable, given the others."""
        planned = replace(plain.planned, method=cast("Method", _AbsoluteError()))
        stage = most_rounds(plain)[0].stage
        rows = [read_records(plain.planned, plain.planned.sources[site]) for site in plain.sites]
        message = {"theta": np.zeros(len(planned.public.variables))}
        rounds = list[SeenRound]()
        while len(rounds) < _STEPS:
            parts = [planned.method.contribute(stage, each, message, *[None] * 3) for each in rows]
            total = {_PLANTED: np.sum([update[_PLANTED] for update, _ in parts], axis=0)}
            rounds.append(SeenRound(stage, message, total, {}))
            n = sum(len(each.values) for each in rows)
            message = {"theta": message["theta"] - _RATE * total[_PLANTED] / n}
        return replace(plain, planned=planned, rounds=tuple(rounds))


class _AbsoluteError:
    """The planted method: sums of sign(z'theta - y) z, with z = (x, 1) and y the last variable."""

    def contribute(
        self, stage: str, rows: SiteRecords, message: Body, *unused: Any
    ) -> tuple[Update, State]:
        """Return a site's contribution."""
        x, y = rows.values[:, :-1], rows.values[:, -1]
        z = np.column_stack([x, np.ones(len(x))])
        return {_PLANTED: np.sign(z @ message["theta"] - y) @ z}, {}


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
    """Return the readings that are one record, but for accidents; each once."""
    if not readings:
        return []
    found, binary = np.array(readings), _two_levels(view)
    binary = [j for j in binary if len(set(np.round(found[:, j], 6))) > 1]
    exact = np.abs(np.abs(found[:, binary]) - 1) < _EXACT
    inside = np.all(np.abs(found) <= 1 + _EXACT, axis=1)
    kept = found[inside & exact.all(axis=1)] if binary else found[:0]
    return list(np.unique(np.round(kept, 6), axis=0))


def _two_levels(view: View) -> list[int]:
    """Return the positions of indicators among the inputs of the layer."""
    variables, method = view.planned.public.variables, view.planned.method
    positions = range(len(variables) - 1)
    if isinstance(method, TorchModule):
        positions = method.learner(view.planned.public).predictors
    return [j for j, position in enumerate(positions) if variables[position].indicator]
