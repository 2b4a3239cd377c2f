"""Replies to the coordinator that do not count: stale, forged, misdirected, repeated, or junk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.world import SumNumbers, World, events, run_until

from secagg.core import encoding, ring
from secagg.core.frames import Header, write_frame
from secagg.errors import ProtocolAbort
from secagg.protocols.plain import Plain
from secagg.runtime.rounds import COHORT

SITES = ("a", "b", "c", "d")
NUMBERS = {site: np.array([2.0**i, -0.5]) for i, site in enumerate(SITES)}
TOTAL = [15.0, -2.0]


def world(rounds: int = 2) -> World:
    return World(Plain(), NUMBERS, SumNumbers((2,), rounds=rounds))


def forge(kind: str) -> Callable[[World, dict[str, bytes]], list[bytes]]:
    """Frames that arrive before the honest ones, in round 1 of plain's `submit`."""

    def values(w: World, **changed: Any) -> bytes:
        lie = {"values": np.full((4, 1), 99, np.uint64)}
        given = {"identity": w.identities["a"], "session": w.session, "round_": 1,
                 "phase": "submit", "recipient": "coordinator", "body": lie,
                 "note": {"min_sites": 2}} | changed  # fmt: skip
        return write_frame(**given)

    def frames(w: World, earlier: dict[str, bytes]) -> list[bytes]:
        match kind:
            case "earlier round":
                return [earlier["a"]]
            case "another session":
                return [values(w, session=bytes(16))]
            case "another recipient":
                return [values(w, recipient="b")]
            case "another phase":
                return [values(w, phase="share")]
            case "later round":
                return [values(w, round_=2)]
            case "not a party that was asked":
                return [values(w, identity=w.identities["coordinator"])]
            case "junk":
                return [b"", b"junk", encoding.dumps([b"", b"", b""])]
        raise AssertionError(kind)

    return frames


@pytest.mark.parametrize(
    "kind",
    ["earlier round", "another session", "another recipient", "another phase", "later round",
     "not a party that was asked", "junk"],
)  # fmt: skip
def test_replies_that_do_not_count(kind: str) -> None:
    w = world()
    earlier: dict[str, bytes] = {}
    w.engine.tamper = lambda sender, recipient, frame: [earlier.setdefault(sender, frame), frame][
        1:
    ]
    step = run_until(w, "submit", round_=1)
    honest = w.engine.exchange(step.requests)
    extra = forge(kind)(w, earlier)
    after = w.coordinator.advance(step.state, [*extra, *honest])
    assert len(events([after], "rejected")) == len(extra)
    assert not events([after], "missing")
    done = w.coordinator.advance(after.state, [])
    assert done.state.method["totals"][0].tolist() == TOTAL


def test_the_first_of_two_good_replies_counts() -> None:
    w = world(rounds=1)
    step = run_until(w, "submit", round_=1)
    honest = w.engine.exchange(step.requests)
    lie = {"values": np.full((3, 1), 99, np.uint64)}
    second = write_frame(
        w.identities["a"], w.session, 1, "submit", "coordinator", lie, {"min_sites": 2}
    )
    after = w.coordinator.advance(step.state, [*honest, second])
    done = w.coordinator.advance(after.state, [])
    assert done.state.method["totals"][0].tolist() == TOTAL


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"min_sites": 0},
        {"min_sites": "2"},
        {"min_sites": 10**5000},
        {"min_sites": 2, "asked": ""},
    ],
)
def test_a_contribution_without_a_valid_claim(changed: dict[str, Any]) -> None:
    w = world()
    step = run_until(w, "submit")
    *others, honest = w.engine.exchange(step.requests)
    note = {**Header.from_bytes(encoding.loads(honest)[0]).note, **changed} if changed else {}
    plan = w.plans.of(COHORT)
    body = {"values": ring.zeros(plan.length, plan.ring_bits)}
    unsigned = write_frame(w.identities["d"], w.session, 0, "submit", "coordinator", body, note)
    with pytest.raises(ProtocolAbort, match="shows no valid proof that d takes part"):
        w.coordinator.advance(step.state, [*others, unsigned])


def test_a_sum_out_of_range_is_the_peers_fault() -> None:
    w = world(rounds=1)
    step = run_until(w, "submit", round_=1)
    *others, honest = w.engine.exchange(step.requests)
    lie = {"values": np.full((3, 1), 2**62, np.uint64)}
    note = Header.from_bytes(encoding.loads(honest)[0]).note
    frame = write_frame(w.identities["d"], w.session, 1, "submit", "coordinator", lie, note)
    after = w.coordinator.advance(step.state, [*others, frame])
    with pytest.raises(ProtocolAbort, match="out of its range"):
        w.coordinator.advance(after.state, [])
