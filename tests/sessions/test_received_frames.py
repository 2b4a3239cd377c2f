"""Replies that the coordinator rejects: stale, forged, misdirected, repeated, or junk."""

from typing import Any

import numpy as np
import pytest
from support.protocols.world import SumNumbers, World, events, run_until

from secagg.core import canonical_encoding, ring
from secagg.core.frames import Header, write_frame
from secagg.errors import PeerError, ProtocolAbort
from secagg.protocols.plain import Plain
from secagg.sessions.rounds import COHORT

SITES = ("a", "b", "c", "d")
NUMBERS = {site: np.array([2.0**i, -0.5]) for i, site in enumerate(SITES)}
TOTAL = [15.0, -2.0]


def world(rounds: int = 2) -> World:
    return World(Plain(), NUMBERS, SumNumbers((2,), rounds=rounds))


LIE = {"values": np.full((4, 1), 99, np.uint64)}
FORGED: dict[str, dict[str, Any]] = {
    "another session": {"session": bytes(16)},
    "another recipient": {"recipient": "b"},
    "another phase": {"phase": "share"},
    "later round": {"round_": 2},
    "not asked": {"identity": "coordinator"},
}
"""Changes to a forged reply that arrives before the honest ones, in round 1 of `submit`."""


@pytest.mark.parametrize("kind", [*FORGED, "earlier round", "junk"])
def test_invalid_replies_are_rejected(kind: str) -> None:
    w = world()
    earlier: dict[str, bytes] = {}

    def record(sender: str, _: str, frame: bytes) -> list[bytes]:
        earlier.setdefault(sender, frame)
        return [frame]

    w.engine.tamper = record
    step = run_until(w, "submit", round_=1)
    honest = w.engine.exchange(step.requests)
    forged = {"identity": "a", "session": w.session, "round_": 1, "phase": "submit",
              "recipient": "coordinator", "body": LIE, "note": {"min_sites": 2}}  # fmt: skip
    forged |= FORGED.get(kind, {})
    extra = [write_frame(**{**forged, "identity": w.identities[str(forged["identity"])]})]  # type: ignore[arg-type]
    if kind == "earlier round":
        extra = [earlier["a"]]
    elif kind == "junk":
        extra = [b"", b"junk", canonical_encoding.dumps([b"", b"", b""])]
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


@pytest.mark.parametrize("changed", [{}, {"min_sites": 0}, {"asked": ""}])
def test_a_contribution_without_a_valid_claim_is_rejected(changed: dict[str, Any]) -> None:
    w = world()
    step = run_until(w, "submit")
    *others, honest = w.engine.exchange(step.requests)
    note = (
        {**Header.from_bytes(canonical_encoding.loads(honest)[0]).note, **changed}
        if changed
        else {}
    )
    plan = w.plans.of(COHORT)
    body = {"values": ring.zeros(plan.length, plan.ring_bits)}
    unsigned = write_frame(w.identities["d"], w.session, 0, "submit", "coordinator", body, note)
    with pytest.raises(PeerError):
        w.coordinator.advance(step.state, [*others, unsigned])


def test_a_sum_out_of_range_is_attributed_to_the_peers() -> None:
    w = world(rounds=1)
    step = run_until(w, "submit", round_=1)
    *others, honest = w.engine.exchange(step.requests)
    lie = {"values": np.full((3, 1), 2**62, np.uint64)}
    note = Header.from_bytes(canonical_encoding.loads(honest)[0]).note
    frame = write_frame(w.identities["d"], w.session, 1, "submit", "coordinator", lie, note)
    after = w.coordinator.advance(step.state, [*others, frame])
    with pytest.raises(ProtocolAbort):
        w.coordinator.advance(after.state, [])
