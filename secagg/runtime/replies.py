"""What came back to the coordinator: the good replies, refusals, and what is to be logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.contracts import Body
from secagg.core.frames import Frame, read_frame
from secagg.core.identity import Roster
from secagg.errors import (
    CapabilityError,
    DataError,
    EvidenceError,
    InternalError,
    JobError,
    OverflowRefusal,
    PeerError,
    PolicyRefusal,
    SecaggError,
    UsageError,
)
from secagg.runtime.coordinator_state import CoordinatorState
from secagg.runtime.party import REFUSED

_REFUSALS: Mapping[str, type[SecaggError]] = {
    kind.code: kind
    for kind in (
        PolicyRefusal,
        UsageError,
        JobError,
        DataError,
        OverflowRefusal,
        CapabilityError,
        InternalError,
        EvidenceError,
    )
}
"""Codes of a party's refusal that end the run. Any other code counts as no answer."""


@dataclass(frozen=True)
class Replies:
    """The good replies, by party.

    claims: header and signature of each; missing: who was asked and gave no good reply
    events: what the log has to say of the others
    """

    bodies: dict[str, Body]
    claims: dict[str, list[bytes]]
    missing: tuple[str, ...]
    events: tuple[dict[str, Any], ...]


def collect(
    frames: Sequence[bytes], state: CoordinatorState, me: str, roster: Roster, session: bytes
) -> Replies:
    """Keep the first good reply of each party that was asked; log what was not good.

    Raises the error whose code a party sent, if it is one that ends the run.
    """
    good: dict[str, Frame] = {}
    refusals: dict[str, str] = {}
    events: list[dict[str, Any]] = []
    for data in frames:
        try:
            frame = read_frame(data, roster, me, session)
            header = frame.header
            refused = header.phase == REFUSED and header.sender in state.asked
            if refused and header.round == state.round:
                code = frame.body.get("code")
                refusals.setdefault(header.sender, code if isinstance(code, str) else "")
                continue
            _check_expected(frame, state)
        except PeerError as error:
            events.append({"event": "rejected", "round": state.round, "why": error.line()})
            continue
        good.setdefault(frame.header.sender, frame)
    for party, code in refusals.items():
        if party not in good and code in _REFUSALS:
            raise _REFUSALS[code](party, f"refuses ({code}); its own log says why")
    missing = tuple(sorted(set(state.asked) - set(good)))
    if missing:
        about = {"round": state.round, "phase": state.phase, "parties": list(missing)}
        events.append({"event": "missing", **about})
    bodies = {party: good[party].body for party in sorted(good)}
    claims = {party: list(frame.proof) for party, frame in good.items()}
    return Replies(bodies, claims, missing, tuple(events))


def _check_expected(frame: Frame, state: CoordinatorState) -> None:
    header = frame.header
    if (header.round, header.phase) != (state.round, state.phase):
        raise PeerError(header.sender, "answers another round or phase")
    if header.sender not in state.asked:
        raise PeerError(header.sender, "answers without being asked")
