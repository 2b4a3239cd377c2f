"""Records of few patients, from two jobs that differ slightly.

Differencing of tables (Hundepool and others 2012, *Statistical Disclosure Control*, section 3.4).
The coordinator writes two jobs of the method `moments` over the audited job's columns. Let u be the
records, scaled to [-1, 1] by the bounds of the audited job, and M the sum of (1, u) (1, u)'.

*Bounds.* The second job has another bound b of column c, inside the first ones, so values beyond b
are clipped to b. With e_i = u_ic - b for the records that are clipped, and 0 for the others,

    M_c - M'_c    = sum_i e_i (1, u_i)             (all entries of row c but that of c),        (1)
    M_cc - M'_cc  = sum_i (2 b e_i + e_i^2).                                                    (2)

If one record is clipped, (1) divided by its first entry is this record. The attacker can tell:
(sum e_i)^2 / sum e_i^2 is then 1, and larger for several records. So it searches for b by
bisection, at both ends of each continuous column.

*Missing values.* The second job has one column less. It covers also the records in which only this
column is missing, and M' - M is the sum over these.

The attacker needs no records. A pair of jobs counts only if what was computed is right: (1) up to
its rounding, and the second kind if the numbers of records are whole and such records exist. With
noise they are not. Attacks with three jobs or more, and combinations of columns within one job, are
not covered (`tests/attacks/test_jobs_that_combine.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.deployment import changed_job
from secagg.audits.views import View, Who
from secagg.core.arrays import Array
from secagg.errors import RecordsRefusal
from secagg.jobs.columns import Continuous
from secagg.jobs.data_sources import as_policy
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job
from secagg.models.moments.method import STAGE
from secagg.models.numerics.natural_gaussian import symmetric

_STEPS = 14  # of a bisection: after them, the interval is 1e-4 of half the range
_JOBS = 40
_NOBODY = 1e-10
"""The sum of all e_i, divided by the number of records, below which it is rounding of float64."""
_ONE = 1e-3
_ROUNDING = 1e-12
"""Relative error of (1) by the rounding of M and M' in float64: 2^-53 for each of them, times the
bounds of b and its scale, which are at most 2 and 1, and the number of additions in a row."""

Columns = dict[str, dict[str, Any]]


class Pair(NamedTuple):
    """A second job that was answered, and what the difference shows.

    column: that with another bound, or that was left out; variable: its position
    bound: scaled; None if the column was left out
    records: the number of records of the difference, as the attacker computes it
    difference: (1) without the entry of the column; empty if the column was left out
    """

    column: str
    variable: int
    bound: float | None
    upper: bool
    records: float
    difference: Array


class Guess(NamedTuple):
    """answered: whether the sites answer the first job; refused: number of refused second jobs."""

    answered: bool
    pairs: tuple[Pair, ...]
    refused: int


class JobDifferencing(Attack):
    """Compute (1) and (2)."""

    name: ClassVar[str] = "job_differencing"
    title: ClassVar[str] = "Records of few patients, from two jobs that differ slightly"
    source: ClassVar[str] = "Hundepool and others (2012), section 3.4; equation (1) of the module"
    knows: ClassVar[str] = "the job"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    metric: ClassVar[str] = "isolated_records"
    meaning: ClassVar[str] = "fewest records that a difference of two sums covers; all if none does"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if view.ask is None:
            return "the sites cannot be asked"
        columns = view.planned.job.columns
        if len(columns) == 1 and not any(isinstance(c, Continuous) for c in columns.values()):
            return "one column without bounds: no second job differs slightly"
        return ""

    def limit(self, view: View) -> Limit:
        """Return the job's min_records, and at least 2: one record alone is always a leak."""
        return Limit(max(as_policy(view.planned.job.release).min_records or 0, 2), errors=True)

    def run(self, view: View, rng: np.random.Generator) -> Guess:
        """Ask until one record is isolated, or all jobs are asked."""
        first = _moments(view, {})
        if isinstance(first, str):
            return Guess(False, (), 0)
        pairs, refused = list[Pair](), 0
        for found in _second_jobs(view, first):
            if found is None:
                refused += 1
                continue
            pairs.append(found)
            if abs(found.records - 1) < _ONE:
                break
            if len(pairs) + refused >= _JOBS:
                break
        return Guess(True, tuple(pairs), refused)

    def score(self, guess: Guess, view: View, truth: Truth) -> Finding:
        """Return the smallest number of isolated records; details: of which pair."""
        values = np.concatenate([truth.sites[site].values for site in view.sites])
        incomplete = sum(truth.sites[site].incomplete for site in view.sites)
        n, found = float(len(values)), dict[float, Pair]()
        for pair in guess.pairs:
            if pair.bound is None:
                m = round(pair.records)
                right = 0 < m <= incomplete and abs(pair.records - m) < _NOBODY * n
            else:
                m, right = _clipped(values, pair)
            if right:
                found[float(m)] = pair
        fewest = min(found, default=n)
        details: dict[str, Any] = {
            "answered": len(guess.pairs), "refused": guess.refused, "pairs_that_isolate": len(found)
        }  # fmt: skip
        if fewest in found:
            pair = found[fewest]
            details["by"] = f"{pair.column}: " + ("left out" if pair.bound is None else "a bound")
        failed = "" if guess.answered else "the sites do not answer the job itself"
        return Finding.failure(failed, fewest, n, **details)


def _second_jobs(view: View, first: Array) -> Iterator[Pair | None]:
    """Ask one second job after the other; yield what they show, or None for a refusal."""
    columns: Columns = changed_job(view.planned.job, {})["columns"]
    names = [v.column for v in view.planned.public.variables]
    for name in columns if len(columns) > 1 else ():
        left = {other: column for other, column in columns.items() if other != name}
        second = _moments(view, {"columns": left})
        more = np.zeros(0)
        yield (
            None
            if isinstance(second, str)
            else Pair(name, names.index(name), None, False, float(second[0, 0] - first[0, 0]), more)
        )
    for name, column in view.planned.job.columns.items():
        if isinstance(column, Continuous):
            for upper in (True, False):
                yield from _bisected(view, first, columns, name, upper)


def _bisected(
    view: View, first: Array, columns: Columns, name: str, upper: bool
) -> Iterator[Pair | None]:
    """Move one bound of a column until a single record is beyond it."""
    job = view.planned.job
    position = [v.column for v in view.planned.public.variables].index(name)
    old = view.planned.public.variables[position]
    many, nobody = 0.0, 1.0  # scaled bounds, as distances from the middle
    for _ in range(_STEPS):
        b = (many + nobody) / 2 * (1 if upper else -1)
        value = old.midpoint + old.half_range * b
        if getattr(job.columns[name], "transform", "none") == "log":
            value = float(np.exp(value))
        moved = columns | {name: columns[name] | {"high" if upper else "low": value}}
        answer = _moments(view, {"columns": moved})
        if isinstance(answer, str):
            yield None
            if answer != RecordsRefusal.code:  # then another bound is refused too
                return
            many = abs(b)
            continue
        raw = changed_job(job, {"columns": moved})
        new = public_facts(parse_job(raw), view.sites).variables[position]
        back = np.eye(len(first))
        back[position + 1, 0] = (new.midpoint - old.midpoint) / old.half_range
        back[position + 1, position + 1] = new.half_range / old.half_range
        row = (first - back @ answer @ back.T)[position + 1]
        others = np.delete(row, position + 1)
        squares = row[position + 1] - 2 * b * others[0]
        clipped = abs(others[0]) > _NOBODY * first[0, 0] and squares > 0
        records = float(others[0] ** 2 / squares) if clipped else 0.0
        yield Pair(name, position, b, upper, records, others)
        if clipped:
            many = abs(b)
        else:
            nobody = abs(b)


def _moments(view: View, changes: Mapping[str, Any]) -> Array | str:
    """Return M of a job of moments, or the code of a refusal."""
    assert view.ask is not None
    answer = view.ask({"method": {"name": STAGE}} | dict(changes))
    for stage, total in answer.sums:
        if stage == STAGE:
            upper = np.asarray(total["moments"], dtype=np.float64)
            return symmetric(upper, (int(np.sqrt(8 * len(upper) + 1)) - 1) // 2)
    codes = set(answer.refused.values())
    return RecordsRefusal.code if RecordsRefusal.code in codes else min(codes)


def _clipped(values: Array, pair: Pair) -> tuple[int, bool]:
    """Return how many records a bound clips, and whether the difference is (1) of these."""
    u, b = values[:, pair.variable], pair.bound
    assert b is not None
    beyond = u > b if pair.upper else u < b
    z = np.column_stack([np.ones(len(values)), values])[beyond]
    true = np.delete((u[beyond] - b) @ z, pair.variable + 1)
    right = np.abs(true - pair.difference).max() <= _ROUNDING * len(values)
    return int(beyond.sum()), bool(beyond.any() and right)
