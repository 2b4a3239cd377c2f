"""How many records the difference of two sums of a run is made of.

Source: a run releases every difference of its sums. If a contribution is a sum over records of
c_i(message), the difference of the sums of two rounds t and u is the sum over records of
c_i(u) - c_i(t). With w_i its length, the effective number of records is (Kish 1965)

    n_eff = (sum_i w_i)^2 / sum_i w_i^2,                                                         (1)

n if all records change alike and 1 if one record alone does. c_i is what the method itself
contributes for a site with record i alone. That contributions are such sums is checked: what all
records contribute alone must add up to the opened sum.

Not protected: this is a measurement for audits and tests, with the true records. It looks at two
sums at a time; combinations of more sums may be made of fewer records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from secagg.audits.views import SeenRound, View
from secagg.contracts import SiteRecords, Update
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.sessions.planned_job import Planned

_CALLS = 10_000  # of the method, of some 0.3 ms each
_NUMBERS = 5_000_000  # kept at once: rounds times records times numbers
_ROUNDING = 8  # a difference is visible if it is so many times larger than the rounding of sums


@dataclass(frozen=True)
class Difference:
    """The difference of the sums of two rounds. effective: (1); largest: record that changes most

    rounds: positions among those given
    """

    rounds: tuple[int, int]
    effective: float
    largest: int


def most_rounds(view: View) -> tuple[SeenRound, ...]:
    """Return the rounds of the stage that has most of them."""
    stages = [seen.stage for seen in view.rounds]
    most = max(set(stages), key=lambda stage: (stages.count(stage), stage), default="")
    return tuple(seen for seen in view.rounds if seen.stage == most)


def flat(update: Update) -> Array:
    """Return all numbers of a contribution."""
    return np.concatenate([np.ravel(update[name]) for name in sorted(update)])


def chosen_rounds(rounds: Sequence[SeenRound], records: int) -> list[int]:
    """Return the positions of rounds to look at, so that the work is bounded: first and last."""
    numbers = max(1, sum(np.size(each) for each in rounds[0].total.values()))
    most = min(_CALLS // records, _NUMBERS // (records * numbers))
    if len(rounds) <= most:
        return list(range(len(rounds)))
    first = max(1, most // 2)
    return [*range(first), *range(len(rounds) - max(1, most - first), len(rounds))]


def contributions_of_each(
    planned: Planned, seen: SeenRound, sites: Mapping[str, SiteRecords]
) -> Array:
    """Return c_i of all records for the message of a round, shape (records, numbers)."""
    found = [
        flat(_alone(planned, seen, rows, i))
        for _, rows in sorted(sites.items())
        for i in range(len(rows.values))
    ]
    return np.array(found)


def _alone(planned: Planned, seen: SeenRound, rows: SiteRecords, i: int) -> Update:
    one, public = rows.part(i, i + 1), planned.public
    random = seeded_random(bytes(32))
    return planned.method.contribute(seen.stage, one, seen.message, {}, public, random)[0]


def adds_up(each: Array, seen: SeenRound, planned: Planned) -> bool:
    """Return whether the records' own contributions add up to the opened sum."""
    total, rounding = flat(seen.total), _rounding(seen, planned)
    size = np.abs(each).sum(axis=0)
    return bool(np.all(np.abs(each.sum(axis=0) - total) <= _ROUNDING * rounding + 1e-9 * size))


def differences(
    rounds: Sequence[SeenRound], each: Sequence[Array], planned: Planned
) -> Iterator[Difference]:
    """Yield (1) for any two of the rounds, unless the sums differ by rounding only."""
    for t, u in combinations(range(len(rounds)), 2):
        visible = np.abs(flat(rounds[u].total) - flat(rounds[t].total))
        if not np.any(visible > _ROUNDING * _rounding(rounds[u], planned)):
            continue
        w = np.linalg.norm(each[u] - each[t], axis=1)
        if not np.any(w):
            continue
        w = w / w.max()
        yield Difference((t, u), float(w.sum() ** 2 / (w**2).sum()), int(np.argmax(w)))


def _rounding(seen: SeenRound, planned: Planned) -> Array:
    """Return the rounding of each number of a sum."""
    fields = {field.name: field for field in planned.plans.stages[seen.stage].spec}
    sites = len(planned.public.sites)
    steps = {
        name: np.full(np.shape(total), sites * 2.0 ** -fields[name].fraction_bits)
        if name in fields
        else np.zeros(np.shape(total))  # planted, and not rounded
        for name, total in seen.total.items()
    }
    return flat(steps)
