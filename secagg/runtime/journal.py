"""The coordinator's journal: what it is about to do, on disk before it does it.

Before the events of a step are logged and its requests sent, the whole step is written, with the
number of lines that the log has until then. So a coordinator that is killed anywhere can go on:

1. it writes those events of the step that the log does not have yet, and no other;
2. it sends the step's requests, the same bytes; who has answered them gives the same reply again
   (`secagg.runtime.engines.party_process`), who has not answers now.

Nothing that was sent is ever based on a step that is not in the journal, so what a killed
coordinator had computed beyond it may be computed anew, with other randomness.

Two things grow with every round: the transcript's list of frames, and what a method collects
(`secagg.contracts.COLLECTED_DRAWS`). They are in files of their own, which are only ever appended
to (`secagg.core.private_files.AppendOnlyFile`); what the journal has of them is how far they were
written.

The files hold released sums and all that the coordinator knows; it is private
(`secagg.core.private_files`), and the run's own folder never holds them. A checksum finds a damaged
journal, the log one that is older or from elsewhere. Not protected: against whoever owns the files
and writes both anew, with the coordinator's key, which lies beside them. Parties take no request
that this key has not signed, and none twice, so that even he cannot make them open another sum than
the coordinator could.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.contracts import COLLECTED_DRAWS
from secagg.core.frames import Delivery
from secagg.core.hash_chain_log import GENESIS_HASH, RunLog
from secagg.core.private_files import RESTART_ADVICE, AppendOnlyFile, read_checked, write_checked
from secagg.errors import EvidenceError
from secagg.runtime.coordinator import Step
from secagg.runtime.coordinator_state import CoordinatorState

_FORMAT = 3


@dataclass(frozen=True)
class Entry:
    """What the journal holds.

    lines, head: of the log, before the step's events; delivered: the transcript until then
    seconds: processor time of the coordinator until then
    """

    step: Step
    lines: int
    head: str
    delivered: list[Delivery]
    seconds: float


@dataclass(frozen=True)
class Journal:
    """One file of one session, replaced at each step, and two beside it that grow."""

    path: Path
    session: bytes

    @cached_property
    def _delivered(self) -> AppendOnlyFile:
        return AppendOnlyFile(self.path.with_name(f"{self.path.name}.delivered"))

    @cached_property
    def _collected(self) -> AppendOnlyFile:
        return AppendOnlyFile(self.path.with_name(f"{self.path.name}.collected"))

    def write(self, entry: Entry) -> None:
        """Replace the entry; it is on disk when this returns. Raises `OSError`."""
        step, state = entry.step, entry.step.state.to_plain()
        grown = state["method"].get(COLLECTED_DRAWS)
        if grown is not None:
            method = {
                **state["method"],
                COLLECTED_DRAWS: self._collected.append(grown, lambda item: item),
            }
            state = {**state, "method": method}
        content = {
            "format": _FORMAT, "session": self.session, "state": state,
            "requests": step.requests, "events": list(step.events),
            "lines": entry.lines, "head": entry.head, "seconds": entry.seconds,
            "delivered": self._delivered.append(entry.delivered, _as_row),
        }  # fmt: skip
        write_checked(self.path, content)

    def read(self) -> Entry:
        """Return the entry. Raises `EvidenceError` for anything but what `write` wrote."""
        kept = read_checked(self.path)
        if (kept["format"], kept["session"]) != (_FORMAT, self.session):
            raise EvidenceError(str(self.path), "is of another session or version", RESTART_ADVICE)
        state = kept["state"]
        if COLLECTED_DRAWS in state["method"]:
            state["method"][COLLECTED_DRAWS] = self._collected.read(
                state["method"][COLLECTED_DRAWS]
            )
        known = CoordinatorState.from_plain(state)
        step = Step(known, kept["requests"], tuple(kept["events"]))
        delivered = [Delivery(*row) for row in self._delivered.read(kept["delivered"])]
        return Entry(step, kept["lines"], kept["head"], delivered, kept["seconds"])


def still_to_log(entry: Entry, log: RunLog) -> Step:
    """Return the step with only those of its events that the log does not have yet.

    Raises `EvidenceError` if log and journal do not belong together.
    """
    events: Sequence[dict[str, Any]] = entry.step.events
    written = [_content(line) for line in log.events[entry.lines :]]
    before = [GENESIS_HASH, *(line["hash"] for line in log.events)][: entry.lines + 1]
    same = before[-1] == entry.head and len(before) == entry.lines + 1
    if not same or written != list(events[: len(written)]):
        raise EvidenceError(
            str(log.path), "does not belong to the journal: one of them is older", RESTART_ADVICE
        )
    return replace(entry.step, events=tuple(events[len(written) :]))


def _as_row(sent: Delivery) -> list[Any]:
    return [sent.round, sent.phase, sent.sender, sent.recipient, sent.size]


def _content(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k not in ("seq", "time", "prev", "hash")}
