"""Play a method's rounds without a session: no keys, rules, ledgers or log.

As in a run, messages and memories pass through the encoding, and the sums are sums of fixed-point
integers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, RecordCount, Result, SiteRecords, State
from secagg.core import canonical_encoding
from secagg.core.randomness import RandomBytes
from secagg.core.ring import total
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.sum_plan import plan_sum

_ENCODED = 5  # rounds in which the coordinator's state is encoded: it may grow with each round


@dataclass(frozen=True)
class Played:
    """The outcome: the result, the coordinator's state, and the memory of each site."""

    result: Result
    state: State
    memories: list[State]


def rows_of(values: NDArray[np.float64]) -> SiteRecords:
    """Return the records of a site that has only complete ones."""
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
    """Play all rounds; a clipped value fails the test.

    method: a `secagg.contracts.Method` (type checkers reject one whose `title` is a constant)
    randoms: one for each site, like rows
    after: called with the coordinator's state and the sites' memories after each round
    together: compute all contributions at once, without encoding messages
        (`secagg.contracts.BatchedLocal`), which is much faster
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
                sent = canonical_encoding.loads(canonical_encoding.dumps(message))
                update, left = method.contribute(
                    stage, rows[k], sent, memories[k], public, randoms[k]
                )
                answers.append((update, canonical_encoding.loads(canonical_encoding.dumps(left))))
        memories = [memory for _, memory in answers]
        vectors = [encode(plan, update) for update, _ in answers]
        summed, clipped = decode(plan, total(vectors, plan.length, plan.ring_bits))
        assert not clipped.any()
        state, done = method.aggregate(state, summed, sites), done + 1
        if done <= _ENCODED:
            state = canonical_encoding.loads(canonical_encoding.dumps(state))
        after(state, memories)
    counted = RecordCount(float(sum(len(each.values) for each in rows)), 0.0)
    return Played(method.result(state, public, counted), state, memories)
