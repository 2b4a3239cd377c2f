"""From declared columns to the variables of the design matrix, and from a table to scaled records.

A site scales its own records. It uses only the declared levels and bounds and nothing learned from
the records, so all sites scale in the same way.

* A continuous column with bounds a and b (after its transform) becomes one variable. A value x is
  scaled to u = (x - (a + b) / 2) / ((b - a) / 2), which is between -1 and 1. Values outside the
  bounds are replaced by the nearer bound and counted. If there are many, the site gets a remark,
  because the bounds or the site's units may be wrong.
* A binary or categorical column becomes one variable `column=level` for every level except the
  first. The variable is 1 if the record has this level, and 0 otherwise. It is scaled to -1 and 1,
  or under differential privacy to -1/2 and 1/2 (see `secagg.contracts.Variable`).

Under differential privacy each record is then clipped to a norm (`secagg.privacy.clipping`), and
only the clipped records are used. `secagg.jobs.cells` reads the single cells.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.contracts.noise import Placement
from secagg.errors import DataError, JobError
from secagg.jobs.cells import cell_text, read_column
from secagg.jobs.job import Binary, Column, Continuous, Job
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.privacy.clipping import cap_per_person, choose_clip, clip_rows

_MANY_CLIPPED_SHARE = 0.05
"""If more than this share of a column's values is outside its bounds, the site gets a remark."""


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
    clip = None
    if noised:
        implied = sum(v.max_abs**2 for v in variables)
        clip = choose_clip(job.privacy.record_norm, implied, job.sites.max_rows)
        if clip is None:
            raise JobError(
                "sites.max_rows", "is too large for exact sums under [privacy]", "Lower it."
            )
    privacy = job.privacy
    repeated = privacy.person is not None and privacy.records_per_person > 1
    columns, max_rows = tuple(job.columns), job.sites.max_rows
    return PublicFacts(variables, columns, max_rows, sites, clip, repeated_persons=repeated)


def _variables(name: str, column: Column, half_of_indicator: float) -> list[Variable]:
    if isinstance(column, Continuous):
        low, high = _bounds(column)
        midpoint, half = (low + high) / 2, (high - low) / 2
        if not (math.isfinite(midpoint) and math.isfinite(half) and _has_resolution(low, high)):
            raise JobError(
                f"columns.{name}",
                "its bounds are too close together or too far apart for double precision",
            )
        return [Variable(name, name, midpoint, half)]
    if isinstance(column, Binary):
        default = column.levels == ("0", "1")
        names = [name if default else f"{name}={column.levels[1]}"]
    else:
        names = [f"{name}={level}" for level in column.levels[1:]]
    return [
        Variable(indicator, name, 0.5, half_of_indicator, indicator=True) for indicator in names
    ]


def _has_resolution(low: float, high: float) -> bool:
    """Return whether a million steps between the bounds are different floats of full precision."""
    spacing = math.ulp(max(abs(low), abs(high)))
    return high - low >= 1e6 * max(spacing, sys.float_info.min)


def _bounds(column: Continuous) -> tuple[float, float]:
    if column.transform == "log":
        return math.log(column.low), math.log(column.high)
    return column.low, column.high


def read_rows(
    columns: Mapping[str, Column],
    table: pd.DataFrame,
    public: PublicFacts,
    who: str,
    person: str | None = None,
    records_per_person: int = 1,
) -> SiteRecords:
    """Return a site's complete records, scaled.

    columns: the declared columns, by name
    table: the site's table
    who: name of the site, for the text of an error
    person: the column that names the person of each record; only the first `records_per_person`
        records of a person are used. Records without a name count as records of one person
    Raises `DataError`, whose text stays at the site.
    """
    names = Counter(table.columns)
    for name in (*columns, *([] if person is None else [person])):
        if names[name] == 0:
            advice = f"It has {', '.join(map(str, table.columns))}."
            if who in public.sites:  # not a new site of `secagg adapt`
                advice += " (Every CSV or Parquet file in sites.folder is a site.)"
            raise DataError(who, f"column {name!r} is missing", advice)
        if names[name] > 1:
            what = f"{names[name]} columns are named {name!r}"
            raise DataError(who, what, "Rename all but the right one.")
    if len(table) > public.max_rows:
        raise DataError(
            who, f"has more than sites.max_rows = {public.max_rows} rows", "Increase max_rows."
        )
    parts: list[NDArray[np.float64]] = []
    outside: list[int] = []
    remarks: list[str] = []
    for name, column in columns.items():
        values, clipped = read_column(column, table[name], f"{who}, column {name!r}")
        parts.append(values)
        outside.append(clipped)
        if clipped > _MANY_CLIPPED_SHARE * np.count_nonzero(~np.isnan(values[:, 0])):
            remarks.append(
                f"{who}, column {name!r}: more than {_MANY_CLIPPED_SHARE:.0%} of the values lie "
                "outside the public bounds and were clipped. Check the bounds and the unit."
            )
    design = np.hstack(parts)
    complete = np.asarray(~np.isnan(design).any(axis=1))
    midpoints = np.array([v.midpoint for v in public.variables])
    half = np.array([v.half_range for v in public.variables])
    if person is not None:
        rows = np.flatnonzero(complete)
        persons = [cell_text(table[person].iloc[row]) for row in rows]
        complete[rows] = cap_per_person(persons, records_per_person)
    # Rounding may give slightly more than 1 at a bound; the clip corrects this.
    scaled = np.clip((design[complete] - midpoints) / half, -1.0, 1.0)
    if public.clip is not None:
        scaled = clip_rows(scaled, public.clip)
    incomplete = int(len(table) - complete.sum())
    return SiteRecords(scaled, incomplete, np.array(outside, dtype=np.float64), tuple(remarks))
