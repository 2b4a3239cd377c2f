"""A method's rounds played by hand: its sites answer, integers are added, the coordinator goes on.

As in a run, messages and memories go over the wire's encoding, contributions over the codec's: sums
are of fixed-point integers. There are no keys, rules, ledgers or log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, RecordCount, Result, SiteRecords, State
from secagg.core import encoding
from secagg.core.randomness import RandomBytes
from secagg.core.ring import total
from secagg.runtime.fixed_point import decode, encode
from secagg.runtime.sum_plan import plan_sum

_ENCODED = 5  # rounds of which the coordinator's state is sent over the wire: it may grow with each


@dataclass(frozen=True)
class Played:
    """What a method ended with: its result, the coordinator's state, what each site remembers."""

    result: Result
    state: State
    memories: list[State]


def rows_of(values: NDArray[np.float64]) -> SiteRecords:
    """Return complete records, as carried, of a site that has no others."""
    return SiteRecords(values, 0, np.zeros(values.shape[1]))


def play(
    method: Any,
    rows: Sequence[SiteRecords],
    public: PublicFacts,
    randoms: Sequence[RandomBytes],
    after: Callable[[State, list[State]], None] = lambda _, __: None,
    *,
    together: bool = False,
) -> Played:
    """Play all rounds; a number that is clipped fails the test.

    method: a `secagg.contracts.Method` (to type checkers none is whose `title` is a constant)
    randoms: each site's own, as rows are
    after: called with the coordinator's state and the sites' memories after each round
    together: sites answer all at once, without the wire (`secagg.contracts.BatchedLocal`): much
        faster
    """
    sites = len(rows)
    plans = {stage.name: plan_sum(stage.spec, sites) for stage in method.stages(public)}
    state, memories, done = method.initial_state(public), [State() for _ in rows], 0
    while (following := method.next_request(state)) is not None:
        stage, message = following
        plan = plans[stage]
        if together:
            answers = method.contribute_batched(stage, rows, message, memories, public, randoms)
        else:
            answers = []
            for k in range(sites):
                sent = encoding.loads(encoding.dumps(message))
                update, left = method.contribute(
                    stage, rows[k], sent, memories[k], public, randoms[k]
                )
                answers.append((update, encoding.loads(encoding.dumps(left))))
        memories = [memory for _, memory in answers]
        vectors = [encode(plan, update) for update, _ in answers]
        summed, clipped = decode(plan, total(vectors, plan.length, plan.ring_bits))
        assert not clipped.any()
        state, done = method.aggregate(state, summed, sites), done + 1
        if done <= _ENCODED:
            state = encoding.loads(encoding.dumps(state))
        after(state, memories)
    counted = RecordCount(float(sum(len(each.values) for each in rows)), 0.0)
    return Played(method.result(state, public, counted), state, memories)
