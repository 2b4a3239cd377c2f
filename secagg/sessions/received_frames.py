"""Sort the coordinator's received frames into valid replies, refusals and rejected frames."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from secagg.contracts import Body
from secagg.core.frames import MAX_ITEMS, Frame, peek_header, read_frame
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
    RecordsRefusal,
    SecaggError,
    UsageError,
)
from secagg.sessions.coordinator_state import CoordinatorState
from secagg.sessions.party import REFUSED

_REFUSALS: Mapping[str, type[SecaggError]] = {
    kind.code: kind
    for kind in (
        PolicyRefusal,
        RecordsRefusal,
        UsageError,
        JobError,
        DataError,
        OverflowRefusal,
        CapabilityError,
        InternalError,
        EvidenceError,
    )
}
"""Refusal codes that end the run. A party that sends another code counts as missing."""


@dataclass(frozen=True)
class Replies:
    """The valid replies, by party.

    claims: header and signature of each reply; missing: the parties without a valid reply
    events: log events for rejected frames and missing parties
    """

    bodies: dict[str, Body]
    claims: dict[str, list[bytes]]
    missing: tuple[str, ...]
    events: tuple[dict[str, Any], ...]


def collect(
    frames: Sequence[bytes],
    state: CoordinatorState,
    me: str,
    roster: Roster,
    session: bytes,
    items: int = MAX_ITEMS,
    key_phases: Collection[str] = (),
) -> Replies:
    """Return the first valid reply of each party that was asked, and log events for the rest.

    items, key_phases: as for `secagg.core.frames.read_frame`
    If a party refused with a code in `_REFUSALS`, raises the error of that code.
    """
    valid: dict[str, Frame] = {}
    refusals: dict[str, str] = {}
    events: list[dict[str, Any]] = []
    for data in frames:
        try:
            frame = read_frame(data, roster, me, session, items, key_phases)
            header = frame.header
            refuses = header.phase == REFUSED and header.sender in state.asked
            if refuses and header.round == state.round:
                code = frame.body.get("code")
                refusals.setdefault(header.sender, code if isinstance(code, str) else "")
                continue
            _check_expected(frame, state)
        except PeerError as error:
            events.append({"event": "rejected", "round": state.round, "why": error.line()})
            continue
        valid.setdefault(frame.header.sender, frame)
    refused = {
        party: refusal(party, code)
        for party, code in refusals.items()
        if party not in valid and code in _REFUSALS
    }
    if refused:
        raise first_of(refused)
    missing = tuple(sorted(set(state.asked) - set(valid)))
    if missing:
        event = {"event": "missing", "round": state.round, "phase": state.phase}
        events.append({**event, "parties": list(missing)})
    bodies = {party: valid[party].body for party in sorted(valid)}
    claims = {party: list(frame.proof) for party, frame in valid.items()}
    return Replies(bodies, claims, missing, tuple(events))


def refusal(party: str, code: str) -> SecaggError:
    """Return the error of a party that refuses with this code, of which only the code was sent.

    A code that is not in `_REFUSALS` could be any text, so it is not quoted.
    """
    kind = _REFUSALS.get(code, PeerError)
    return kind(party, f"refuses ({kind.code}); the reason is in its own log")


def first_of(errors: Mapping[str, SecaggError]) -> SecaggError:
    """Return the first of the parties' errors, which then names the other parties and their codes.

    Otherwise a job that several parties refuse would have to be submitted once for each.
    """
    first, *others = errors.values()
    if others:
        listed = ", ".join(f"{error.where} ({error.code})" for error in others)
        first.what = f"{first.what}. Also: {listed}"
    return first


def collect_signed(
    frames: Sequence[bytes], state: CoordinatorState, me: str, roster: Roster, session: bytes
) -> Replies:
    """Return what `collect` returns, but count a party that refuses as missing."""
    kept: list[bytes] = []
    for data in frames:
        with suppress(PeerError):
            if peek_header(data)[1] == REFUSED:
                continue
        kept.append(data)  # also what is not a frame: `collect` logs why it is rejected
    return collect(kept, state, me, roster, session)


def _check_expected(frame: Frame, state: CoordinatorState) -> None:
    header = frame.header
    if (header.round, header.phase) != (state.round, state.phase):
        raise PeerError(header.sender, "answers another round or phase")
    if header.sender not in state.asked:
        raise PeerError(header.sender, "answers without being asked")
