"""Neighbouring data sets that move a private job's sums as far as one unit can.

A guarantee of differential privacy holds for all neighbours, so an audit takes the worst that it
can construct. It knows the job: columns, bounds, clip, method. Each record that may be added or
exchanged is a corner of the box of bounds, a point on its edges, or a corner with one or two
coordinates changed. A record beyond the clip is scaled down to the clip if the code is correct. The
product's own code reads each candidate among shared records and computes the site's contribution,
in each round, for each message that the coordinator may send. The pair and the messages with the
largest change of all rounds together are taken, in units of the promised noise.

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
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from secagg.audits.epsilon.repeated_runs import Asked, Script
from secagg.contracts import Body, SiteRecords, State
from secagg.contracts.noise import Adjacency
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.errors import SecaggError
from secagg.jobs.columns import Column, Count, Number
from secagg.jobs.design_matrix import read_rows
from secagg.privacy.accounting.requirements import sensitivity_of
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
_SEED = 1
_FACTORS = (0.2, 0.5, 1.0, 2.0, 20.0)
_REACHES, _WIDEST, _FACTORS_OF_REACH = (3.0, 1.1), 20.0, 30
_FAR = 1000.0
"""A coefficient that saturates every residual, and that a site still accepts."""
_STEEP = 500.0


@dataclass(frozen=True)
class Choices:
    """Equal rounds of a run, and the messages that the coordinator may send in them."""

    stage: str
    messages: Sequence[Body]
    rounds: int = 1


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one record each (or in none), and the script that shows it.

    first, second: the record that only this data set has; None: none
    script: all rounds, with the messages whose contributions change most
    other: with the messages whose change differs most from that
    reached: the change, as a share of what is promised
    """

    first: Record | None
    second: Record
    script: Script
    other: Script
    reached: float


def worst_neighbours(planned: Planned, rounds: Sequence[Choices], seed: int) -> Neighbours:
    """Return the neighbours of the job's adjacency that are furthest apart.

    Raises `SecaggError` if no candidate has a contribution.
    """
    rng = np.random.default_rng(seed)
    records = _candidates(tuple(planned.job.columns.values()), rng)
    shared = shared_records(planned, _AMONG, rng)
    saturated = [replace(each, messages=_saturated(each.messages)) for each in rounds]
    started = [_furthest(planned, each, records, shared) for each in (rounds, saturated)]
    return max(
        (_refined(planned, rounds, each, records, shared) for each in started),
        key=lambda found: found.reached,
    )


def _refined(
    planned: Planned,
    rounds: Sequence[Choices],
    found: Neighbours,
    records: list[Record],
    shared: list[Record],
) -> Neighbours:
    """Return neighbours that are further apart, by messages close to those of `found`.

    A message of one vector has the extremes already.
    """
    for reach, dimensions in itertools.product(_REACHES, (2, 0, 1)):
        sent = dict(found.script)
        finer = [replace(each, messages=_finer(sent[each.stage], dimensions, reach))
                 for each in rounds]  # fmt: skip
        if any(len(each.messages) > 1 for each in finer):
            found = replace(_furthest(planned, finer, records, shared), other=found.other)
    return found


def _furthest(
    planned: Planned, rounds: Sequence[Choices], records: list[Record], shared: list[Record]
) -> Neighbours:
    """Return the two of these records, and the messages, that are furthest apart."""
    private = planned.private
    assert private is not None
    moves = [_moves(planned, records, each, shared) for each in rounds]
    # by message, in each round: of adding a record, or of replacing one by another
    added = [np.sum(move**2, axis=2) for move in moves]
    if private.terms.adjacency is Adjacency.ADD_REMOVE:
        j = int(np.argmax(sum(square.max(axis=0) for square in added)))
        first, change = None, [move[:, j] for move in moves]
    else:
        inner = [np.einsum("mid,mjd->mij", move, move) for move in moves]
        apart = [
            square[:, :, None] + square[:, None, :] - 2 * each
            for square, each in zip(added, inner, strict=True)
        ]
        furthest = sum(each.max(axis=0) for each in apart)
        i, j = map(int, np.unravel_index(np.argmax(furthest), furthest.shape))
        first, change = records[i], [move[:, j] - move[:, i] for move in moves]
    script, other, square = list[Asked](), list[Asked](), 0.0
    for each, of_messages in zip(rounds, change, strict=True):
        lengths = np.sum(of_messages**2, axis=1)
        best = int(np.argmax(lengths))
        away = int(np.argmax(np.sum((of_messages - of_messages[best]) ** 2, axis=1)))
        script += [(each.stage, each.messages[best])] * each.rounds
        other += [(each.stage, each.messages[away])] * each.rounds
        square += each.rounds * float(lengths[best])
    reached = math.sqrt(square) / _promised(planned, script)
    return Neighbours(first, records[j], script, other, reached)


def rounds_of(planned: Planned) -> list[Choices]:
    """Return the rounds that the coordinator may ask for, with messages that it may send.

    The first message of each is the method's own: with one kind of round its first one, otherwise
    those of a run without noise on records at corners. Others make every residual large and
    positive, or negative; or positive for a record and negative for another that differs in one
    coordinate; or, with several kinds, multiply the numbers of a message by some factors.
    """
    script = _own_script(planned)
    if len({stage for stage, _ in script}) > 1:
        return [Choices(stage, _varied(message)) for stage, message in script]
    stage, first = script[0]
    beta, found = first.get("beta"), [first]
    if isinstance(beta, np.ndarray):
        p = len(beta)
        far = _FAR * np.eye(p)[0]
        steep = [0.95 * _STEEP * np.eye(p)[0] - _STEEP * np.eye(p)[j] for j in range(1, min(p, 4))]
        found += [{"beta": each} for each in (-far, far, *steep)]
    return [Choices(stage, found, len(script))]


def _own_script(planned: Planned) -> list[Asked]:
    method, public = planned.method, replace(planned.public, noise={})
    state, script = method.initial_state(public), list[Asked]()
    stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
    if len(stages) == 1:
        asked = method.next_request(state)
        assert asked is not None
        return [asked] * stages[0].max_rounds
    rng = np.random.default_rng(_SEED)
    rows, memory = _read(planned, corners(planned, _ROWS, rng)), State()
    while (asked := method.next_request(state)) is not None:
        script.append(asked)
        stage, message = asked
        update, memory = method.contribute(stage, rows, message, memory, public, rng.bytes)
        state = method.aggregate(state, update, 1)
    return script


def _varied(message: Body) -> list[Body]:
    """Return the message with its numbers, vectors and matrices times all triples of factors."""
    if not any(isinstance(value, float | np.ndarray) for value in message.values()):
        return [message]
    return [message] + [
        {key: value * factors[np.ndim(value)] for key, value in message.items()}
        for factors in itertools.product(_FACTORS, repeat=3)
    ]


def _saturated(messages: Sequence[Body]) -> list[Body]:
    """Return these, and the first with coefficients that saturate residuals.

    With matrices times many factors: a sum may be largest where a record is as long as a limit.
    """
    first, found = messages[0], list(messages)
    for far in (-_FAR, _FAR):
        vectors = {k: far * np.eye(len(v))[0] for k, v in first.items() if np.ndim(v) == 1}
        found += _finer({**first, **vectors}, 2, _WIDEST) if vectors else []
    return found


def _finer(message: Body, dimensions: int, reach: float) -> list[Body]:
    """Return the message, and with its numbers, vectors or matrices times more factors.

    dimensions: 0, 1 or 2; reach: the largest factor
    """
    if len(message) == 1 or not any(np.ndim(v) == dimensions for v in message.values()):
        return [message]
    return [message] + [
        {k: v * factor if np.ndim(v) == dimensions else v for k, v in message.items()}
        for factor in np.geomspace(1 / reach, reach, _FACTORS_OF_REACH).tolist()
    ]


def _promised(planned: Planned, script: Script) -> float:
    """Return how far a record may move all contributions, in units of the noise."""
    assert planned.private is not None
    replaced = planned.private.terms.adjacency is Adjacency.REPLACE
    total = 0.0
    for name, _ in script:
        moved = sensitivity_of(planned.plans.stages[name])
        assert moved is not None
        total += ((moved.replace if replaced else moved.add) / _sigma(planned, name)) ** 2
    return math.sqrt(total)


def _sigma(planned: Planned, stage: str) -> float:
    noise = planned.public.noise[stage]
    return math.sqrt(noise.variance) * 2.0**-noise.fraction_bits


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


def _read(planned: Planned, records: Sequence[Record], of_unit: int = 1) -> SiteRecords:
    """Return the records as a site reads them. of_unit: the first so many are one person's"""
    privacy = planned.job.privacy
    persons = [f"p{max(i, of_unit - 1)}" for i in range(len(records))]
    table = table_of(planned, records, persons)
    return read_rows(
        planned.job.columns, table, planned.public, planned.public.sites[0], privacy.person,
        privacy.records_per_person,
    )  # fmt: skip


def _moves(
    planned: Planned, records: Sequence[Record], asked: Choices, shared: list[Record]
) -> Array:
    """Return how each record changes a contribution, in units of the noise.

    Shape (messages, records, numbers). Where the code refuses, the change is 0. With a limit for a
    person's records together: one m-th of how m such records of a person change it.
    """
    stage = planned.plans.stages[asked.stage]
    moved = sensitivity_of(stage)
    assert moved is not None
    size = sum(field.size for field in stage.spec)
    root = np.sqrt(np.array(moved.weights or (1,) * size, dtype=np.float64))
    unit = _sigma(planned, asked.stage) * root
    privacy = planned.job.privacy
    copies = 1 if privacy.person_norm is None else privacy.records_per_person

    def contribution(rows: SiteRecords, message: Body) -> Array:
        public, random = planned.public, replayable_random(0)
        update, _ = planned.method.contribute(asked.stage, rows, message, {}, public, random)
        return np.concatenate([update[field.name].ravel() for field in stage.spec]) / unit

    base = _read(planned, shared)
    read = [_read(planned, [record] * copies + shared, copies) for record in records]
    found = np.zeros((len(asked.messages), len(records), size))
    for m, message in enumerate(asked.messages):
        for i, rows in enumerate(read):
            try:
                move = (contribution(rows, message) - contribution(base, message)) / copies
            except SecaggError:
                continue
            found[m, i] = np.where(np.isfinite(move), move, 0.0)
    return found
