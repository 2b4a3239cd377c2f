"""The in-process engine: who saw what, and what tests can do to a frame on its way."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from support.protocols.world import SumNumbers, World, run_until

from secagg.core.frames import peek_header
from secagg.errors import PeerError, PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain

NUMBERS = {site: np.array([1.0]) for site in ("a", "b", "c")}


def world(**options: Any) -> World:
    return World(options.pop("protocol", Plain()), NUMBERS, SumNumbers((1,)), **options)


def test_the_transcript_records_every_message() -> None:
    w = world(protocol=Additive(2))
    sizes: list[tuple[str, str, int]] = []

    def watch(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        sizes.append((sender, recipient, len(frame)))
        return [frame]

    w.engine.tamper = watch
    w.sum()
    assert [(d.sender, d.recipient, d.size) for d in w.engine.transcript] == sizes
    # Two rounds; in each every site is asked, twice, and every aggregator, twice; all answer.
    assert len(sizes) == 2 * (2 * 2 * 3 + 2 * 2 * 2)
    assert all("coordinator" in (sender, recipient) for sender, recipient, _ in sizes)
    assert {(d.round, d.phase) for d in w.engine.transcript} == {
        (round_, phase) for round_ in (0, 1) for phase in ("consent", "share", "hold", "open")
    }
    assert set(w.engine.seconds) == {*NUMBERS, "aggregator_1", "aggregator_2"}


def test_a_lost_request_has_no_reply_and_no_effect() -> None:
    w = world(tamper=lambda _, recipient, frame: [] if recipient == "b" else [frame])
    step = run_until(w, "submit")
    assert len(w.engine.exchange(step.requests)) == 2
    assert "b" not in w.engine.states
    assert not [d for d in w.engine.transcript if "b" in (d.sender, d.recipient)]


def test_a_lost_reply_still_changes_its_senders_state() -> None:
    w = world(tamper=lambda sender, _, frame: [] if sender == "b" else [frame])
    step = run_until(w, "submit")
    assert len(w.engine.exchange(step.requests)) == 2
    assert w.engine.states["b"] != w.engine.parties["b"].first_state()


def test_the_engine_keeps_the_latest_error_of_a_party() -> None:
    """A request that came twice, which is harmless, does not hide a refusal that is not."""
    w = world(policies={"a": ReleasePolicy(2, 1, min_total_records=50)})

    def twice(_: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        return [frame, frame] if recipient == "a" and peek_header(frame)[0] == 0 else [frame]

    w.engine.tamper = twice
    step = run_until(w, "consent", round_=1)
    assert isinstance(w.engine.errors["a"], PeerError)
    w.engine.exchange(step.requests)
    assert isinstance(w.engine.errors["a"], PolicyRefusal)
    assert set(w.engine.errors) == {"a"}
