"""Reads a new site's records, and records to predict, for a finished regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import PublicFacts, SiteRecords
from secagg.core.arrays import Array
from secagg.jobs.columns import Continuous
from secagg.jobs.design_matrix import public_facts, read_rows, unshortened
from secagg.jobs.job import Job
from secagg.jobs.records_to_predict import SITES, in_own_units
from secagg.models.fedlin.design import Layout


def site_records(
    job: Job, table: pd.DataFrame | Mapping[str, Any], public: PublicFacts | None = None
) -> SiteRecords:
    """Return the complete records of a new site, scaled; it may have more rows than max_rows.

    public: as they are scaled; None for the job's
    """
    table = pd.DataFrame(table)
    public = unshortened(public_facts(job, SITES) if public is None else public)
    public = replace(public, max_rows=max(public.max_rows, len(table)))
    return read_rows(job.columns, table, public, "the new site")


def predictors_of(job: Job, layout: Layout, table: pd.DataFrame) -> Array:
    """Return an array of shape (records, slopes): columns in their own units.

    For a polynomial, the powers of the scaled column.

    Raises `DataError` for records that lack a predictor, or a table that does not fit.
    """
    variables = public_facts(job, SITES).variables
    raw = in_own_units(job, [variables[i] for i in layout.columns[1:]], table, "a predictor")
    if layout.degree == 1:
        return raw
    return layout.powers((raw[:, 0] - layout.midpoint[1]) / layout.half_range[1])


def outcomes_of(job: Job, layout: Layout, table: pd.DataFrame) -> Array:
    """Return the outcome of each record, passed through `as_recorded`; two levels become 0 and 1.

    Raises `DataError` for records that lack it, or a table that does not fit.
    """
    outcome = public_facts(job, SITES).variables[layout.columns[0]]
    return as_recorded(job, layout, in_own_units(job, [outcome], table, "the outcome")[:, 0])


def as_recorded(job: Job, layout: Layout, y: Array) -> Array:
    """Return values of the outcome as in the records: the logarithm, if any, is undone.

    y: not scaled, but still on the log scale if there is one
    """
    outcome = public_facts(job, SITES).variables[layout.columns[0]]
    column = job.columns[outcome.column]
    return np.exp(y) if isinstance(column, Continuous) and column.transform == "log" else y
