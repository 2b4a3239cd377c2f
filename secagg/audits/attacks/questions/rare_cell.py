"""Counts of few records with a level, or a combination of levels, in the opened sums.

If a contribution is a sum of a function f of each record, with a known message, then numbers w with

    w' f(x) = 1 if record x is in the cell, and 0 if not,   for all x,                           (1)

give the number of records in the cell: w'T, with T the opened sum. The attacker knows the method.
So it computes f for made-up records and solves (1) for them by least squares. Other made-up records
show whether w holds for them too. Cells are the levels of the binary and categorical columns, the
pairs of levels of two columns, and for a method that counts cells (`Stage.counts_cells`) the
combinations of three (Hundepool and others 2012, *Statistical Disclosure Control*, chapter 4). In
the sums of `moments`, w picks entries of X'X; in those of `logistic`, the first Hessian is X'X / 4.

The attacker needs no records. With noise, w'T has an error; a cell counts only if its standard
deviation is below 1/4, so that rounding to a whole number is right with 95 % probability. A count
also has to be right. The number is the smallest count above 0, or the number of all records, if
the sums give none.

The limit is the job's `min_cell_records`, and 5 if that is smaller or not set: a job must not pass
because its own rule is lax. 5 is our default. Many data access policies use 5 or 10; `--limits`
sets another number.

What the result does not show: counts in sums that are no sums over records (medians, averages of
fits, ADMM); cells of four columns or more; counts of one site (`last_site`); the first count of
records, in which a coordinator that departs from its program finds all of these counts, before it
should end the run (`secagg.privacy.policy.cell_counts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, islice, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.site_statistics import flat, replayed, resolutions
from secagg.audits.views import SeenRound, View
from secagg.contracts import Kind, SiteRecords
from secagg.core.arrays import Array
from secagg.errors import SecaggError
from secagg.jobs.data_sources import as_policy
from secagg.privacy.clipping import clip_whole

_NUMBERS = 300  # of the sums that are used: rounds after these are left out
_MOST = 3000  # numbers of the first sum, above which (1) takes long
_SPARE = 60  # made-up records that only test
_HOLDS = 1e-6
_SURE = 0.25
_FEWEST = 5  # records of a cell, below which an audit calls its count a leak
_PLANTED = 40  # records of the control
_BLOCK = 1000
"""Cells for which (1) is solved at a time. There is one for each pair of levels: 122,500 in 50
columns of 10 levels, which together would need gigabytes."""

Cell = tuple[str, ...]
ALL: Cell = ()
"""Stands for all records."""


class RareCell(Attack):
    """Solve (1)."""

    name: ClassVar[str] = "rare_cell"
    title: ClassVar[str] = "Counts of few records with a level or a combination of levels"
    source: ClassVar[str] = "Hundepool and others (2012), chapter 4; equation (1) of the module"
    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "smallest_count"
    meaning: ClassVar[str] = "records in the smallest cell that the sums count; all if they do not"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not any(v.indicator for v in view.planned.public.variables):
            return "no binary or categorical column"
        if not view.rounds:
            return "the run opened no sum of the method"
        size = len(flat(view.rounds[0].total))
        return "" if size <= _MOST else f"its first sum has more than {_MOST} numbers"

    def limit(self, view: View) -> Limit:
        """Return the job's min_cell_records, and at least 5."""
        rules = as_policy(view.planned.job.release)
        return Limit(max(rules.min_cell_records or 0, _FEWEST), errors=True)

    def run(self, view: View, rng: np.random.Generator) -> dict[Cell, int] | None:
        """Return the counts that the sums give; None if they are no sums over records."""
        used = _first_rounds(view)
        numbers = sum(len(flat(seen.total)) for seen in used.rounds)
        # so that no cell is without a made-up record
        size = _SPARE + (12 if _counts_cells(view) and numbers <= _NUMBERS else 2) * numbers
        made = made_up(view, size, rng)
        singles = [_contribution(used, made, slice(i, i + 1)) for i in range(size)]
        together = _contribution(used, made, slice(0, _SPARE))
        if together is None or any(each is None for each in singles):
            return None
        F = np.array(singles)
        scale = np.abs(F).max(axis=0)
        scale[scale == 0] = 1.0
        if np.abs((F[:_SPARE].sum(axis=0) - together) / scale).max() > _HOLDS * _SPARE:
            return None
        F, total = F / scale, np.concatenate([flat(seen.total) for seen in used.rounds]) / scale
        unsure = np.concatenate([_unsure(view, seen) for seen in used.rounds]) / scale
        inverse = np.linalg.pinv(F[_SPARE:], rcond=1e-9)
        found = dict[Cell, int]()
        left = chain(cells(view, made), [(ALL, np.ones(size, dtype=np.bool_))])
        while block := list(islice(left, _BLOCK)):
            B = np.array([members for _, members in block], dtype=np.float64).T
            W = inverse @ B[_SPARE:]
            holds = np.abs(F @ W - B).max(axis=0) <= _HOLDS
            sure = np.sqrt((W**2).T @ unsure**2) <= _SURE
            counts = np.rint(total @ W)
            found |= {block[i][0]: int(counts[i]) for i in np.flatnonzero(holds & sure)}
        return found

    def score(self, guess: Mapping[Cell, int] | None, view: View, truth: Truth) -> Finding:
        """Return the smallest count above 0 that is right.

        details: the cell, and the job's own rule if it is laxer than the limit
        """
        if guess is None:
            return Finding.impossible("the contributions are no sums over records")
        true, n = dict[Cell, int](), 0
        for site in view.sites:
            rows = view.own.get(site) or truth.sites[site]
            n += len(rows.values)
            for cell, members in cells(view, rows):
                true[cell] = true.get(cell, 0) + int(members.sum())
        claimed = {cell: m for cell, m in guess.items() if cell != ALL}
        right = {cell: m for cell, m in claimed.items() if m == true[cell]}
        found = {"cells": len(true), "claimed": len(claimed), "counted": len(right)}
        allowed = as_policy(view.planned.job.release).min_cell_records or 0
        if 0 < allowed < _FEWEST:
            found["allowed"] = allowed
        return _smallest(right, n, **found)

    def without_truth(self, guess: Mapping[Cell, int] | None, view: View) -> Finding | None:
        """Return the smallest count above 0 of which the attacker is sure."""
        if not guess or ALL not in guess:
            return None
        claimed = {cell: m for cell, m in guess.items() if cell != ALL}
        return _smallest(claimed, guess[ALL], claimed=len(claimed))

    def control(self, plain: View) -> View:
        """Return the sums of one site with made-up records, of which one has a level alone."""
        rows = made_up(plain, _PLANTED, np.random.default_rng(0))
        public, values = plain.planned.public, rows.values.copy()
        name = next(v.column for v in public.variables if v.indicator)
        of_column = [j for j, v in enumerate(public.variables) if v.column == name]
        values[:, of_column] = values[:, of_column].min()
        values[0, of_column[0]] *= -1
        rows, used = replace(rows, values=values, site="planted"), _first_rounds(plain)
        updates = replayed(used, rows)
        rounds = tuple(
            SeenRound(seen.stage, seen.message, update, {})
            for seen, update in zip(used.rounds, updates, strict=True)
        )
        return replace(plain, sites=("planted",), rounds=rounds, own={"planted": rows})


def _smallest(counts: Mapping[Cell, int], records: int, **details: Any) -> Finding:
    positive = {cell: m for cell, m in counts.items() if m > 0}
    if positive:
        smallest: Cell = min(positive, key=lambda cell: positive[cell])
        details["smallest"] = " and ".join(smallest)
    return Finding.exact(min(positive.values(), default=records), records, **details)


def cells(view: View, rows: SiteRecords) -> Iterator[tuple[Cell, NDArray[np.bool_]]]:
    """Yield each cell with its records: levels, and combinations of levels of columns."""
    variables = view.planned.public.variables
    levels: dict[str, dict[str, NDArray[np.bool_]]] = {}
    for j, v in enumerate(variables):
        if v.indicator:
            of_column = levels.setdefault(v.column, {})
            of_column[v.name] = rows.values[:, j] > 0
    for name, of_column in levels.items():
        of_column[f"{name}=(first level)"] = ~np.any(list(of_column.values()), axis=0)
        yield from (((level,), members) for level, members in of_column.items())
    for size in (2, 3) if _counts_cells(view) else (2,):
        for group in combinations(levels.values(), size):
            for cell in product(*group):
                has = [of[level] for of, level in zip(group, cell, strict=True)]
                yield cell, np.logical_and.reduce(has)


def _counts_cells(view: View) -> bool:
    stages = view.planned.plans.stages
    return any(stages[seen.stage].counts_cells for seen in view.rounds)


def made_up(view: View, size: int, rng: np.random.Generator) -> SiteRecords:
    """Return records with random values between the bounds, and random levels."""
    public = view.planned.public
    values = rng.uniform(-1, 1, (size, len(public.variables)))
    for name in public.columns:
        of_column = [j for j, v in enumerate(public.variables) if v.column == name and v.indicator]
        if of_column:
            level = rng.integers(0, len(of_column) + 1, size)
            has = level[:, None] == range(1, len(of_column) + 1)
            middle, half = (
                np.array([getattr(public.variables[j], of) for j in of_column])
                for of in ("midpoint", "half_range")
            )
            values[:, of_column] = (has - middle) / half
    if public.clip is not None and public.clip.whole:
        whole = clip_whole(values, public.clip)
        zeros = np.zeros(len(public.columns))
        return SiteRecords(whole[:, 1:], 0, zeros, constants=whole[:, 0])
    if public.clip is not None:
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        continuous = [j for j, v in enumerate(public.variables) if not v.indicator]
        values[:, continuous] *= np.minimum(1, public.clip.norm / norms) / 2
        values = np.trunc(values * 2.0**public.clip.grid_bits) / 2.0**public.clip.grid_bits
    return SiteRecords(values, 0, np.zeros(len(public.columns)))


def _unsure(view: View, seen: SeenRound) -> Array:
    """Return `resolutions` of a sum; a count is a whole number at each site, so none is rounded."""
    stage, found = (
        view.planned.plans.stages[seen.stage],
        resolutions(view, seen.stage, len(view.sites)),
    )
    if seen.stage in view.planned.public.noise:
        return found
    rounded = {f.name: np.full(f.size, float(f.kind is not Kind.COUNT)) for f in stage.spec}
    return found * flat(rounded)


def _first_rounds(view: View) -> View:
    """Return the view of the first rounds, with a limited number of numbers, and one at least."""
    sizes = np.cumsum([len(flat(seen.total)) for seen in view.rounds])
    return replace(view, rounds=view.rounds[: max(1, int((sizes <= _NUMBERS).sum()))])


def _contribution(view: View, made: SiteRecords, part: slice) -> Array | None:
    """Return the contribution of some records to all rounds; None if there is none."""
    start, end, _ = part.indices(len(made.values))
    rows = made.part(start, end)
    try:
        updates = replayed(view, rows)
    except SecaggError:
        return None
    return np.concatenate([flat(update) for update in updates])
