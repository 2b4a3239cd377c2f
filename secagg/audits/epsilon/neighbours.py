"""Neighbouring data sets that move a private job's sums as far as one unit can.

A guarantee of differential privacy holds for all neighbours, so an audit takes the worst that it
can construct. It knows the job: columns, bounds, clip, method. Each record that may be added or
exchanged is a corner of the box of bounds, a point on its edges, or a corner with one or two
coordinates changed. A record beyond the clip is scaled down to the clip if the code is correct. The
product's own code reads each candidate among shared records and computes the site's contribution,
for each message that the coordinator may send. The pair and the message with the largest change
are taken, in the norm of `secagg.contracts.noise.Sensitivity`.

Because the product's own code is asked, a clip that does not clip makes a larger change here, too.

The shared records lie close to the middle of the bounds, so that nothing else hides the change, and
a site that scales by its own records would be seen.

Not covered: a worse pair than these. `reached` says what share of the promised sensitivity is
reached; below 1, a bound on epsilon is lower for that reason. (An example is logistic regression in
gradient rounds with `record_norm` and adjacency `replace`: the messages do not separate two records
that are scaled down.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from secagg.audits.epsilon.repeated_runs import method_stage
from secagg.contracts import Body, SiteRecords
from secagg.contracts.noise import Adjacency
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.errors import SecaggError
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import Column, Count, Number
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT

Cell = float | str
Record = tuple[Cell, ...]
"""One cell for each declared column."""

Extra = Mapping[str, Sequence[Record]]
"""The unit's records, by site."""

_ROWS = 120  # shared records of a site
_NOISE_SDS = 10  # of the count of records, which must not fall below what a sum requires
_SPREAD = 0.01  # of the shared records, as a share of half the range
_AMONG = 40  # shared records in the search
_MANY = 12  # columns of which single coordinates are changed
_FEW = 5  # columns of which pairs of coordinates are changed
_CORNERS = 16
_FAR = 1000.0
"""A coefficient that saturates every residual, and that a site still accepts."""
_STEEP = 500.0


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one record each (or in none), and the message that shows it.

    first, second: the record that only this data set has; None: none
    moves: by message of `messages_of`, what changes in a contribution, in units of the noise
    message: the number of the message with the largest change
    reached: this change, as a share of the promised sensitivity
    """

    first: Record | None
    second: Record
    moves: Array
    message: int
    reached: float

    @property
    def other_message(self) -> int:
        """The message whose change differs most from the largest one."""
        away = np.linalg.norm(self.moves - self.moves[self.message], axis=1)
        return int(np.argmax(away))


def worst_neighbours(planned: Planned, messages: Sequence[Body], seed: int) -> Neighbours:
    """Return the neighbours of the job's adjacency that are furthest apart.

    Raises `SecaggError` if no candidate has a contribution.
    """
    private, stage = planned.private, planned.plans.stages[method_stage(planned)]
    assert private is not None and stage.sensitivity is not None
    rng = np.random.default_rng(seed)
    records = _candidates(tuple(planned.job.columns.values()), rng)
    moves = _moves(planned, records, messages, shared_records(planned, _AMONG, rng))
    lengths = np.linalg.norm(moves, axis=2)  # by message and record
    if private.terms.adjacency is Adjacency.ADD_REMOVE:
        message, j = np.unravel_index(np.argmax(lengths), lengths.shape)
        reached = float(lengths[message, j]) / stage.sensitivity.add
        return Neighbours(None, records[j], moves[:, j], int(message), reached)
    squares = lengths**2
    inner = np.einsum("mid,mjd->mij", moves, moves)
    apart = squares[:, :, None] + squares[:, None, :] - 2 * inner
    message, i, j = np.unravel_index(np.argmax(apart), apart.shape)
    reached = math.sqrt(max(float(apart[message, i, j]), 0.0)) / stage.sensitivity.replace
    return Neighbours(records[i], records[j], moves[:, j] - moves[:, i], int(message), reached)


def messages_of(planned: Planned) -> list[Body]:
    """Return messages that the coordinator may send; the first is the method's own first message.

    Others make every residual large and positive, or negative; or positive for a record and
    negative for another that differs in one coordinate.
    """
    method = planned.method
    first = method.next_request(method.initial_state(planned.public))
    assert first is not None
    found = [first[1]]
    beta = first[1].get("beta")
    if isinstance(beta, np.ndarray):
        p = len(beta)
        far = _FAR * np.eye(p)[0]
        steep = [0.95 * _STEEP * np.eye(p)[0] - _STEEP * np.eye(p)[j] for j in range(1, min(p, 4))]
        found += [{"beta": each} for each in (-far, far, *steep)]
    return found


def shared_records(planned: Planned, rows: int, rng: np.random.Generator) -> list[Record]:
    """Return records near the middle of the bounds; levels are drawn at random."""
    columns = tuple(planned.job.columns.values())
    t = rng.uniform(-_SPREAD, _SPREAD, (rows, len(columns)))
    return [_record(columns, each) for each in t]


def table_of(planned: Planned, records: Sequence[Record], persons: Sequence[str]) -> pd.DataFrame:
    """Return a site's table. persons: of each record, if the job has a column that names them"""
    table = pd.DataFrame(records, columns=list(planned.job.columns))
    person = planned.job.privacy.person
    return table if person is None else table.assign(**{person: persons})


def made_tables(
    planned: Planned, extra: Extra, seed: int, *, one_person: bool = True
) -> dict[str, pd.DataFrame]:
    """Return each site's table: the extra records first, then the shared ones.

    one_person: whether all extra records are one person's
    """
    noise, sites = planned.public.noise[COHORT], planned.public.sites
    sd = noise.sum_variance(len(sites), noise.site_variance(noise.min_sites)) ** 0.5
    rows = _ROWS + round(_NOISE_SDS * sd)
    rng, found = np.random.default_rng(seed), {}
    for site in sites:
        own, shared = list(extra.get(site, ())), shared_records(planned, rows, rng)
        names = ["unit" if one_person else f"{site} extra {i}" for i in range(len(own))]
        persons = names + [f"{site} {i}" for i in range(rows)]
        found[site] = table_of(planned, [*own, *shared], persons)
    return found


def corners(planned: Planned, count: int, rng: np.random.Generator) -> list[Record]:
    """Return records at random corners of the bounds."""
    columns = tuple(planned.job.columns.values())
    return [_record(columns, t) for t in rng.choice([-1.0, 1.0], (count, len(columns)))]


# --- candidates -----------------------------------------------------------------------------------


def _candidates(columns: Sequence[Column], rng: np.random.Generator) -> list[Record]:
    """Return the records to try, without repetition."""
    p = len(columns)
    ones, axes = np.ones(p), np.eye(p)
    found = [ones, -ones, np.where(np.arange(p) % 2, -1.0, 1.0)]
    found += list(rng.choice([-1.0, 1.0], (_CORNERS, p)))
    for k in range(1, p // 2 + 1):  # of k coordinates, and of k others
        found += [np.arange(p) < k, (np.arange(p) >= k) & (np.arange(p) < 2 * k)]
    for j in range(min(p, _MANY)):
        found += [axes[j], -axes[j], ones - axes[j], ones - 2 * axes[j]]
    for i, j in itertools.permutations(range(min(p, _FEW)), 2):
        found.append(ones - 2 * axes[i] - 0.1 * axes[j])
    return list(dict.fromkeys(_record(columns, each) for each in found))


def _record(columns: Sequence[Column], t: Array) -> Record:
    """Return the record at a position in the box: each coordinate is from -1 to 1."""
    return tuple(_cell(column, float(at)) for column, at in zip(columns, t, strict=True))


def _cell(column: Column, t: float) -> Cell:
    if isinstance(column, Number):
        if column.transform == "log":
            low, high = math.log(column.low), math.log(column.high)
            value = math.exp((low + high) / 2 + (high - low) / 2 * t)
        else:
            value = (column.low + column.high) / 2 + (column.high - column.low) / 2 * t
        value = round(value) if isinstance(column, Count) else value
        return min(max(value, column.low), column.high)
    levels = column.levels
    return levels[min(int((t + 1) / 2 * len(levels)), len(levels) - 1)]


def _moves(
    planned: Planned, records: Sequence[Record], messages: Sequence[Body], shared: list[Record]
) -> Array:
    """Return how each record changes a contribution, divided by the roots of the weights.

    Shape (messages, records, numbers). Where the code refuses, the change is 0. With a limit for a
    person's records together: one m-th of how m such records of a person change it.
    """
    name = method_stage(planned)
    stage = planned.plans.stages[name]
    assert stage.sensitivity is not None
    size = sum(field.size for field in stage.spec)
    root = np.sqrt(np.array(stage.sensitivity.weights or (1,) * size, dtype=np.float64))

    privacy, site = planned.job.privacy, planned.public.sites[0]
    copies = 1 if privacy.person_norm is None else privacy.records_per_person

    def read(own: list[Record], of_unit: int) -> SiteRecords:
        persons = [f"p{max(i, of_unit)}" for i in range(len(own))]
        table = table_of(planned, own, persons)
        return read_rows(
            planned.job.columns, table, planned.public, site, privacy.person,
            privacy.records_per_person,
        )  # fmt: skip

    def contribution(rows: SiteRecords, message: Body) -> Array:
        public, random = planned.public, replayable_random(0)
        update, _ = planned.method.contribute(name, rows, message, {}, public, random)
        return np.concatenate([update[field.name].ravel() for field in stage.spec]) / root

    found = np.zeros((len(messages), len(records), size))
    base = read(shared, 0)
    without = [contribution(base, message) for message in messages]
    for i, record in enumerate(records):
        rows = read([record] * copies + shared, copies - 1)
        for m, message in enumerate(messages):
            try:
                move = (contribution(rows, message) - without[m]) / copies
            except SecaggError:
                continue
            found[m, i] = np.where(np.isfinite(move), move, 0.0)
    return found
