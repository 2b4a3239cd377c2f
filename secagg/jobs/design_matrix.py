"""From declared columns to the variables of the design matrix, and from a table to scaled records.

A site scales its own records. It uses only the declared levels and bounds and nothing learned from
the records, so all sites scale in the same way.

* A column of numbers with bounds a and b (after its transform) becomes one variable. A value x is
  scaled to u = (x - (a + b) / 2) / ((b - a) / 2), which is between -1 and 1. Values outside the
  bounds are replaced by the nearer bound and counted. If there are many, the site gets a remark,
  because the bounds or the site's units may be wrong.
* A binary or categorical column becomes one variable `column=level` for every level except the
  first. The variable is 1 if the record has this level, and 0 otherwise. It is scaled to -1 and 1,
  or under differential privacy to -1/2 and 1/2 (see `secagg.contracts.Variable`).

Under differential privacy each record is then clipped to a norm (`secagg.privacy.clipping`), and
only the clipped records are used. `secagg.jobs.cells` reads the single cells.

Under differential privacy no content of a table is an error. The coordinator writes the job, so it
could otherwise ask for an error: with levels that leave one out, or with a smaller and smaller
`max_rows`. Each answer would be exact and cost no budget. So unreadable cells count as missing, and
a site may have any number of rows: `MIN_ROWS_UNDER_NOISE`, and `SiteSteps` for more rows than that.
A record that cannot be read is incomplete (`secagg.jobs.records_under_noise`). What remains depends
on no record: a file that is not there, or whose header lacks a declared column.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import TypeAdapter

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.contracts.noise import Placement
from secagg.errors import DataError, JobError
from secagg.jobs.cells import read_column, record_number
from secagg.jobs.columns import Binary, Column, Count, Number, header_faults
from secagg.jobs.job import Job
from secagg.jobs.person_ids import NOBODY, person_numbers, persons_of
from secagg.jobs.typical_ranges import limit, reach, relative
from secagg.models.common.clipped_moments import LEAST_WEIGHT
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.privacy.clipping import (
    cap_per_person,
    choose_clip,
    choose_whole_clip,
    clip_persons,
    clip_rows,
    clip_whole,
)
from secagg.privacy.policy.questions import Question

_MANY_CLIPPED_SHARE = 0.1
"""If more than this share of a column's values is outside its bounds, the site gets a remark."""

MIN_ROWS_UNDER_NOISE = 2**20
"""Under differential privacy, `PublicFacts.max_rows` is at least this number. A site with more rows
than `max_rows` then contributes sums that are cut at their bounds, which is private but biased. So
a small `sites.max_rows` must not cause this. The number keeps the finest grid of records
(`secagg.privacy.clipping`) and costs at most 20 bits for each number that is sent."""

TYPICAL_SPREAD = 0.2
"""The standard deviation of a scaled column of numbers, if the job has no guess."""

_LEAST_SPREAD = 1e-4
"""Relative to a narrower range, values would have few digits."""


def public_facts(job: Job, sites: tuple[str, ...]) -> PublicFacts:
    """Return what the job declares about the data of these sites.

    Raises `JobError` if the bounds of a column are too close for floating point, if two variables
    have the same name, if a variable has the name that results give to the intercept, or if, under
    differential privacy, `max_rows` is too large for exact sums.
    """
    noised = job.privacy.placement is not Placement.NONE
    half = 1.0 if noised else 0.5  # the half range of an indicator: see `Variable`
    variables = tuple(v for n, column in job.columns.items() for v in _variables(n, column, half))
    named = Counter(v.name for v in variables)
    for v in variables:
        if named[v.name] > 1 or (v.name != v.column and v.name in job.columns):
            raise JobError("columns", f"two variables named {v.name!r}", "Rename the column.")
        if INTERCEPT in (v.name, v.column):
            raise JobError("columns", f"{INTERCEPT!r} is reserved", "Rename the column.")
    clip, max_rows = None, job.sites.max_rows
    if noised:
        max_rows = max(max_rows, MIN_ROWS_UNDER_NOISE)
        of_persons = job.privacy.person_norm, job.privacy.records_per_person
        if (k := reach(job)) is None:
            implied = sum(v.max_abs**2 for v in variables)
            clip = choose_clip(job.privacy.record_norm, implied, max_rows, *of_persons)
        else:
            clip = choose_whole_clip(*limit(k, len(variables)), max_rows, *of_persons)
            variables = tuple(map(relative, variables))
        if clip is None:
            raise JobError(
                "sites.max_rows", "is too large for exact sums under [privacy]", "Lower it."
            )
    privacy = job.privacy
    repeated = privacy.person is not None and privacy.records_per_person > 1
    columns = tuple(job.columns)
    public = PublicFacts(
        variables, columns, max_rows, sites, clip, repeated_persons=repeated,
        min_sites=job.release.min_sites or 1,
        chosen_persons=noised and privacy.person is not None and not privacy.person_pinned,
        counted_persons=not noised and privacy.person is not None,
        partial={n: tuple(site for site in each.sites if site in sites)
                 for n, each in job.partial.items() if n in job.columns},
        levels={n: c.levels for n, c in job.columns.items() if not isinstance(c, Number)},
    )  # fmt: skip
    return public if job.public is None else replace(public, public_records=_public(job, public))


def unshortened(public: PublicFacts) -> PublicFacts:
    """Return the public facts by which records are read that stay here: whole ones as they are."""
    if public.clip is None or not public.clip.whole:
        return public
    return replace(public, clip=None)


def _public(job: Job, public: PublicFacts) -> NDArray[np.float64]:
    """Return the job's public records, scaled as a site's. Raises `JobError`."""
    if job.public is None or job.public.records is None:
        raise JobError("public", "its file has not been read", "Load the job from its file.")
    table = pd.DataFrame(job.public.records, dtype=object)
    try:
        alone = replace(public, clip=None, max_rows=len(table))
        rows = read_rows(job.columns, table, alone, "public records")
    except DataError as error:
        raise JobError("public", error.what, error.advice) from None
    if not len(rows.values):
        raise JobError("public", "no record is complete", "Leave out the table [public].")
    return rows.values


def declarations(columns: Mapping[str, Column]) -> dict[str, dict[str, Any]]:
    """Return how the columns are declared, as plain data, without units and guesses."""
    return {n: c.model_dump(mode="json", exclude={"unit", "typical"}) for n, c in columns.items()}


def reread_rows(
    question: Question, table: pd.DataFrame, who: str, person: str | None
) -> SiteRecords:
    """Return a site's records as a job without noise reads them that asks this question.

    person: the column by which the present job counts persons; None for records. Records of that
        time that it does not name are those of one person: nobody knows of more
    Raises `DataError`, whose text stays at the site.
    """
    declared = question.columns
    columns = TypeAdapter(dict[str, Column]).validate_python(declared)
    variables = tuple(v for name, column in columns.items() for v in _variables(name, column, 0.5))
    public = PublicFacts(variables, tuple(columns), len(table), ())
    rows = read_rows(columns, table, public, who, question.person, None)
    numbers = person_numbers(table[person]) if person is not None else np.zeros(0, dtype=np.int64)
    return replace(rows, persons=numbers[rows.complete] if person is not None else numbers)


def _variables(name: str, column: Column, half_of_indicator: float) -> list[Variable]:
    if isinstance(column, Number):
        low, high = _bounds(column)
        midpoint, half = (low + high) / 2, (high - low) / 2
        if not (math.isfinite(midpoint) and math.isfinite(half) and _has_resolution(low, high)):
            raise JobError(
                f"columns.{name}",
                "its bounds are too close together or too far apart for double precision",
            )
        whole, log = isinstance(column, Count), column.transform == "log"
        centre, spread = 0.0, TYPICAL_SPREAD
        if column.typical is not None:
            ends = [math.log(x) if log else x for x in column.typical]
            centre = (sum(ends) / 2 - midpoint) / half
            spread = (ends[1] - ends[0]) / 2 / half
            if spread < _LEAST_SPREAD:
                what = "is narrower than a ten thousandth of the bounds"
                raise JobError(f"columns.{name}.typical", what, "Narrow the bounds.")
        return [Variable(name, name, midpoint, half, False, whole, log, centre, spread)]
    if isinstance(column, Binary):
        default = column.levels == ("0", "1")
        names = [name if default else f"{name}={column.levels[1]}"]
    else:
        names = [f"{name}={level}" for level in column.levels[1:]]
    share = 1 / len(column.levels)
    if isinstance(column, Binary) and column.typical is not None:
        share = column.typical
    centre = (share - 0.5) / half_of_indicator
    spread = math.sqrt(share * (1 - share)) / half_of_indicator
    return [
        Variable(indicator, name, 0.5, half_of_indicator, True, False, False, centre, spread)
        for indicator in names
    ]


def _has_resolution(low: float, high: float) -> bool:
    """Return whether a million steps between the bounds are different floats of full precision."""
    spacing = math.ulp(max(abs(low), abs(high)))
    return high - low >= 1e6 * max(spacing, sys.float_info.min)


def _bounds(column: Number) -> tuple[float, float]:
    if column.transform == "log":
        return math.log(column.low), math.log(column.high)
    return column.low, column.high


def read_rows(
    columns: Mapping[str, Column],
    table: pd.DataFrame,
    public: PublicFacts,
    who: str,
    person: str | None = None,
    records_per_person: int | None = 1,
    place: Callable[[int], str] = record_number,
) -> SiteRecords:
    """Return a site's complete records, scaled.

    columns: the declared columns, by name
    table: the site's table
    who: name of the site, for the text of an error
    person: the column that names the person of each record; only the first `records_per_person`
        records of a person are used; all of them, if it is None. A record without a name is
        incomplete: if such records counted as one person's, the removal of one patient could bring
        in the record of another
    place: where a row of the table is, for the text of an error
    Raises `DataError`, whose text stays at the site.
    """
    names, lacking = Counter(table.columns), public.lacked_by(who)
    for name in lacking:
        if names[name]:
            what = f"the job says that this site lacks column {name!r}, but its table has it"
            raise DataError(who, what, f"Add the site to partial.{name}.sites in the job.")
        stand_in = getattr(columns[name], "low", 0.0)  # a value that is not clipped; not used
        table = table.assign(**{name: stand_in})
    needed = dict.fromkeys((*columns, *([] if person is None else [person])))
    if faults := header_faults([*map(str, table.columns)], needed):
        shown = f"It has {', '.join(map(str, table.columns))}."
        advice = dict.fromkeys(hint or shown for hint in faults.values())
        raise DataError(who, "; ".join(faults), " ".join(advice))
    noised = public.clip is not None
    remarks: list[str] = []
    if len(table) > public.max_rows:
        more = "Increase max_rows."
        if not noised:
            raise DataError(who, f"has more than sites.max_rows = {public.max_rows} rows", more)
        remarks.append(f"{who}: has more than {public.max_rows} rows; sums may be cut. {more}")
    read = _read_columns(columns, table, who, place, unreadable_is_missing=noised)
    remarks += read.remarks
    design = np.hstack(read.parts)
    complete = np.asarray(~np.isnan(design).any(axis=1))
    midpoints = np.array([v.midpoint for v in public.variables])
    half = np.array([v.half_range for v in public.variables])
    used, numbers, persons = complete, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if person is not None:
        numbers = person_numbers(table[person])
        complete = complete & (numbers != NOBODY)
        used = _first_ones(complete, numbers, records_per_person)
        persons = numbers[used]
    scaled, constants = (design[used] - midpoints) / half, np.zeros(0)
    if not any(v.relative for v in public.variables):  # rounding may give more than 1 at a bound
        scaled = np.clip(scaled, -1.0, 1.0)
    scaled[:, [v.column in lacking for v in public.variables]] = 0.0
    if public.clip is not None and public.clip.whole:
        whole = clip_persons(clip_whole(scaled, public.clip), persons.tolist(), public.clip)
        remarks += _far_away(whole[:, 0] / public.clip.constant, who)
        constants, scaled = whole[:, 0], whole[:, 1:]
    elif public.clip is not None:
        remarks += _shrunk(scaled, public.clip.norm, who)
        scaled = clip_persons(clip_rows(scaled, public.clip), persons.tolist(), public.clip)
    incomplete, surplus = int(len(table) - complete.sum()), int(complete.sum() - used.sum())
    counts = np.array(read.outside, dtype=np.float64)
    few = (~complete, *read.rows_outside) if person is not None else ()
    concerned = tuple(persons_of(numbers, rows) for rows in few)
    return SiteRecords(
        scaled, incomplete, counts, tuple(remarks), np.array(read.shares), used, who,
        surplus=surplus, persons=persons, concerned=concerned, lacking=lacking,
        constants=constants,
    )  # fmt: skip


@dataclass(frozen=True)
class _Columns:
    """The columns of a table as they were read, in the job's order.

    parts: the variables of each column
    outside, shares, rows_outside: the number of values outside the bounds, their share, and which
    """

    parts: list[NDArray[np.float64]] = field(default_factory=list)
    outside: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    rows_outside: list[NDArray[np.bool_]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def _read_columns(
    columns: Mapping[str, Column],
    table: pd.DataFrame,
    who: str,
    place: Callable[[int], str],
    *,
    unreadable_is_missing: bool,
) -> _Columns:
    found = _Columns()
    for name, column in columns.items():
        where = f"{who}, column {name!r}"
        read = read_column(
            column, table[name], where, unreadable_is_missing=unreadable_is_missing, place=place
        )
        found.parts.append(read.variables)
        found.outside.append(read.outside)
        found.rows_outside.append(read.rows_outside)
        if read.unreadable:
            found.remarks.append(
                f"{where}: {read.unreadable} cells are not numbers or declared levels, or are in "
                "a line that cannot be read. Under [privacy] they count as missing. Correct the "
                "file or the job; `secagg site check` names the lines."
            )
        values = int(np.count_nonzero(~np.isnan(read.variables[:, 0])))
        found.shares.append(read.outside / max(values, 1))
        if found.shares[-1] > _MANY_CLIPPED_SHARE:
            found.remarks.append(
                f"{where}: more than {_MANY_CLIPPED_SHARE:.0%} of the values lie "
                "outside the public bounds and were clipped. Check the bounds and the unit."
            )
    clipped = [
        f"{name} {number} ({share:.1%})"
        for name, number, share in zip(columns, found.outside, found.shares, strict=True)
        if number
    ]
    if clipped:
        text = f"{who}: values outside the bounds, set to the bound: {', '.join(clipped)}"
        found.remarks.append(text)
    return found


def _first_ones(
    complete: NDArray[np.bool_], persons: NDArray[np.int64], records_per_person: int | None
) -> NDArray[np.bool_]:
    """Return which rows to use: the first complete ones of each person; all, if it is None.

    complete: whether a row has all values; persons: of each row
    """
    if records_per_person is None:
        return complete
    used = complete.copy()
    used[complete] = cap_per_person(persons[complete].tolist(), records_per_person)
    return used


def _far_away(factors: NDArray[np.float64], who: str) -> list[str]:
    """Return a remark if records are shortened far more than with right typical ranges."""
    mean = float(np.mean(factors**2)) if len(factors) else 1.0
    if mean >= LEAST_WEIGHT:
        return []
    return [
        f"{who}: the records lie far outside the typical ranges of the columns, and count as "
        f"{mean:.0%} of a record on average. Results may be wrong. The guarantee holds either way"
    ]


def _shrunk(scaled: NDArray[np.float64], norm: float, who: str) -> list[str]:
    """Return a remark if many records are longer than `privacy.record_norm`."""
    share = float(np.mean(np.linalg.norm(scaled, axis=1) > norm)) if len(scaled) else 0.0
    if share <= _MANY_CLIPPED_SHARE:
        return []
    return [
        f"{who}: {share:.0%} of the records are longer than privacy.record_norm = {norm:.3g} and "
        "are shrunk to it, which draws results towards the middle of the bounds. A larger norm "
        "needs more noise. The guarantee holds either way"
    ]
