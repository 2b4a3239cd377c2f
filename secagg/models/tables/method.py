"""Tables of counts that are asked together, exact or with the noise of a matrix mechanism.

A job lists tables, each a list of columns. One secure sum gives all of them.

Without noise the sum has the counts of the largest tables; all others are their margins. Before the
method sees them, the coordinator's program ends the run if a cell of a table has fewer than
release.min_cell_records records, and at least one (`secagg.privacy.policy.cell_counts`). Nothing is
suppressed: no table is released, or all are. So there is no pattern of suppressed cells from which
a small count could follow, and all margins of cells that are 0 or large enough are so, too.

With noise the sum has `secagg.models.tables.strategy`, in which all tables agree in their margins
and have the least total variance.

What the transcript determines: without noise, the counts of all records in every cell of the asked
tables, and of their margins, and nothing else about a site or a record. With noise, the same up to
the noise.

================================================  ==================================================
case                                              result
================================================  ==================================================
a cell without records                            0, and released
a cell with fewer than min_cell_records           without noise, the run is refused
an incomplete record                              in no table
a column of numbers                               with noise, at cut points of the job; without
                                                  noise `JobError`: two jobs whose cut points differ
                                                  a little count the records between them
a table that is a margin of another               allowed; costs nothing more without noise
================================================  ==================================================

Not protected without noise: cells of no record show that nobody has this combination. Tables of
several jobs over other records (of other columns' complete records) can be subtracted; the sites'
rules on questions judge levels, not cells. A coordinator that departs from its program sees small
cells before it should end the run, as it sees pairs of levels in the first sum. Its job chooses
which records a cell of three or more columns counts. So a site with a policy answers such a job
only if the policy names this method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from secagg.contracts import (
    ASKED_ONCE,
    NO_WINDOWS,
    Body,
    ChosenWeights,
    Disclosure,
    DisclosureKind,
    EqualWeights,
    Field,
    Kind,
    MethodFacts,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SingleRecords,
    SiteRecords,
    Stage,
    State,
    TableKind,
    Update,
)
from secagg.contracts.facts import CellError
from secagg.contracts.noise import Noise, Placement, Placements
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.models.common.checks import no_record_norm
from secagg.models.common.coefficient_table import critical_value
from secagg.models.tables.cells import Tables
from secagg.models.tables.strategy import Columns, Strategy, residuals

_STAGE = "cells"
_COUNTED_BEFORE = 2  # columns of the largest cells in the first sum of every run
_BITS = 32
"""Fraction bits of the noised numbers, which are whole: the noise of many numbers together has to
be so close to Gaussian noise (`secagg.privacy.accounting.discretisation`)."""


@dataclass(frozen=True)
class CountTables:
    """Tables of counts that are asked together."""

    columns: tuple[tuple[str, ...], ...]
    """One list of columns for each table, such as `[["sex", "ward"], ["ward"]]`: binary and
    categorical columns, and with `[privacy]` columns of numbers, which need cut points."""
    cut_points: Mapping[str, tuple[float, ...]] | None = None
    """For each column of numbers in a table, increasing cut points. A value at a cut point counts
    as above it."""
    least: Literal["cells", "tables"] = "cells"
    """With noise, what is as small as possible: the sum of the variances of all cells (`"cells"`),
    which is mostly about large tables, or that of one cell of each table (`"tables"`)."""
    level: float = 0.95
    """Level of the intervals, between 0 and 1."""

    name: ClassVar[str] = "tables"
    placements: ClassVar[Placements] = Placements(
        (Placement.SUM, Placement.SITE), "One sum with noise gives all tables."
    )
    title: ClassVar[str] = "Tables of counts"

    @property
    def disclosure(self) -> Disclosure:
        return Disclosure(
            DisclosureKind.POOLED,
            "The counts of all records in each cell of the asked tables and their margins. They do "
            "not show how records are split over sites.",
            ASKED_ONCE
            + " But it sees counts below release.min_cell_records, with which its program ends the "
            "run.",
            ASKED_ONCE,
            other_runs="Tables over the complete records of other columns can be subtracted. Sites "
            "judge levels in which two jobs differ, not combinations of levels.",
        )

    @property
    def facts(self) -> MethodFacts:
        return MethodFacts(
            derivation=type(self).__module__,
            weights=ChosenWeights(
                "A table of three or more columns counts any combination of levels, down to one "
                "record, and only the coordinator's program compares counts with a minimum."
            )
            if max(map(len, self.columns), default=0) > _COUNTED_BEFORE
            else EqualWeights("The first sum of every run counts levels and pairs of levels."),
            reads=SingleRecords(reason="counts combinations of levels", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=None,
            edge_rule=None,
            cell_errors=self._cell_errors,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.COUNTS),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        critical_value(self.level)
        asked, rows = self._asked(public), float(public.max_rows)
        strategy = asked.strategy
        if public.clip is None:
            size = asked.numbers(noised=False)
            spec = tuple(
                Field(what, (size,), rows, 0, Kind.COUNT)
                for what in ("counts", "persons")[: 1 + public.counted_persons]
            )
            sees = "the number of records in each cell of the tables"
            return (Stage(_STAGE, spec, 1, sees, ends_early=False, counts_cells=True),)
        no_record_norm(public, "a record counts once in each table, whatever its norm")
        bound = rows * max(map(strategy.rank, strategy.parts))  # r_A is the most that a record adds
        parts = Field("parts", (strategy.numbers,), bound, _BITS, Kind.BOUNDED)
        sees = "with noise: the total, main effects and interactions of the tables' columns"
        moved = strategy.sensitivity
        return (Stage(_STAGE, (parts,), 1, sees, moved, ends_early=False, counts_cells=True),)

    def initial_state(self, public: PublicFacts) -> State:
        return {"done": False}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        return None if state["done"] else (_STAGE, {})

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        asked = self._asked(public)
        counts = asked.counts(rows)
        if public.clip is None:
            found = {"counts": _joined(counts)}
            if public.counted_persons:
                found["persons"] = _joined(asked.persons(rows))
            return found, memory
        margins = asked.margins(counts, asked.strategy.parts)
        return {"parts": _joined(map(residuals, margins))}, memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return {"done": True, "sites": sites, "sums": dict(total)}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the asked tables, with the standard deviations of their noise."""
        asked, sums = self._asked(public), state["sums"]
        strategy, noise = asked.strategy, public.noise.get(_STAGE)
        if noise is None:
            found = asked.margins(_split(sums["counts"], strategy, asked.largest), strategy.asked)
        else:
            parts = _split(sums["parts"], strategy, strategy.parts)
            found = strategy.tables(dict(zip(strategy.parts, parts, strict=True)))
        unit = _unit(noise, state["sites"])
        shown, arrays = [], dict[str, Array]()
        for i, (B, order) in enumerate(zip(strategy.asked, asked.orders, strict=True)):
            table = found[i].transpose([B.index(column) for column in order])
            arrays[f"table_{i + 1}"] = table
            shown.append({
                "columns": [asked.columns[j].name for j in order],
                "levels": [list(asked.columns[j].levels) for j in order],
                "counts": table.tolist(),
                **({"std_error": unit * math.sqrt(strategy.variance_of_cell(B))} if noise else {}),
            })  # fmt: skip
        summary: dict[str, Any] = {
            "method": self.name,
            "level": self.level,
            "n": max(0, round(counted.records)),
            "tables": shown,
            "notes": self._notes(found, noise),
        }
        if noise is not None:
            summary["parts"] = [
                {"columns": [asked.columns[j].name for j in A],
                 "variance": unit**2 * strategy.variance_of_part(A)}
                for A in strategy.parts
            ]  # fmt: skip
        return Result(summary, arrays)

    def _notes(self, found: list[Array], noise: Noise | None) -> list[str]:
        if noise is None:
            return []
        notes = [
            "Counts are unbiased, and all tables agree in their margins. Standard errors are those "
            "of the noise; they do not include sampling."
        ]
        if any(np.any(table < 0) for table in found):
            notes.append(
                "Some counts are below 0: these cells have few records or none. Setting them to 0 "
                "would bias sums over cells."
            )
        return notes

    def _cell_errors(self, public: PublicFacts) -> tuple[CellError, ...]:
        asked = self._asked(public)
        unit = _unit(public.noise.get(_STAGE), len(public.sites))
        return tuple(
            CellError(
                asked.names(order),
                asked.strategy.cells(B),
                unit * math.sqrt(asked.strategy.variance_of_cell(B)),
            )
            for B, order in zip(asked.strategy.asked, asked.orders, strict=True)
        )

    def _asked(self, public: PublicFacts) -> Tables:
        return Tables.of(
            self.columns, self.cut_points or {}, public, by_table=self.least == "tables"
        )


def _joined(tables: Iterable[Array]) -> Array:
    return np.concatenate([table.ravel() for table in tables])


def _split(values: Array, strategy: Strategy, tables: Sequence[Columns]) -> list[Array]:
    """Return the numbers of these tables, each in its shape."""
    ends = np.cumsum([strategy.cells(A) for A in tables])
    parts = np.split(values, ends[:-1])
    return [part.reshape(strategy.shape(A)) for A, part in zip(tables, parts, strict=True)]


def _unit(noise: Noise | None, sites: int) -> float:
    """Return the standard deviation of a number of weight 1 in a sum over these sites."""
    if noise is None:
        return 0.0
    sites = max(sites, noise.colluding + 1)
    return math.sqrt(noise.sum_variance(sites, noise.site_variance(sites)))
