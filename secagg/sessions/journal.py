"""The coordinator's journal: each step is on disk before the coordinator carries it out.

Before the coordinator logs the events of a step and sends its requests, it writes the whole step to
the journal, with the number of lines in the log so far. A coordinator that is killed at any point
can resume:

1. it writes those events of the step that the log does not have yet;
2. it sends the requests of the step, byte for byte the same. A party that has answered repeats its
   reply (`secagg.sessions.engines.crash_safe_party`); any other party answers now.

Every message that was sent belongs to a step in the journal. So what a killed coordinator had
computed after its last step in the journal was not sent, and may be computed again with new
randomness.

Two lists grow with every round: the frames of the transcript, and the draws that a method collects
(`secagg.contracts.COLLECTED_DRAWS`). Each has its own append-only file
(`secagg.core.private_files.AppendOnlyFile`); the journal stores how far each file was written.

The files hold released sums and the whole state of the coordinator. They are private
(`secagg.core.private_files`), and the folder of the finished run does not contain them. A checksum
detects a damaged journal; the log detects a journal that is older or from another run. Not
protected: the owner of the files can write journal and log anew, with the coordinator's key, which
lies in the same folder. Parties accept only requests signed with this key, and none of them twice.
So the owner cannot open any sum that the coordinator could not open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.contracts import COLLECTED_DRAWS
from secagg.core.frames import Delivery
from secagg.core.hash_chain_log import GENESIS_HASH, RunLog
from secagg.core.private_files import RESTART_ADVICE, AppendOnlyFile, read_checked, write_checked
from secagg.errors import EvidenceError
from secagg.sessions.coordinator import Step
from secagg.sessions.coordinator_state import CoordinatorState

_FORMAT = 3


@dataclass(frozen=True)
class Entry:
    """The content of the journal.

    lines, head: length and last hash of the log, before the events of the step
    delivered, seconds: the transcript, and the coordinator's processor time, before the step
    """

    step: Step
    lines: int
    head: str
    delivered: list[Delivery]
    seconds: float


@dataclass(frozen=True)
class Journal:
    """The journal file of one session, replaced at each step, and two append-only files."""

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
        draws = state["method"].get(COLLECTED_DRAWS)
        if draws is not None:
            length = self._collected.append(draws, lambda item: item)
            state = {**state, "method": {**state["method"], COLLECTED_DRAWS: length}}
        content = {
            "format": _FORMAT, "session": self.session, "state": state,
            "requests": dict(step.requests), "events": list(step.events),
            "lines": entry.lines, "head": entry.head, "seconds": entry.seconds,
            "delivered": self._delivered.append(entry.delivered, lambda sent: list(astuple(sent))),
        }  # fmt: skip
        write_checked(self.path, content)

    def read(self) -> Entry:
        """Return the entry. Raises `EvidenceError` unless `write` wrote it for this session."""
        content = read_checked(self.path)
        if (content["format"], content["session"]) != (_FORMAT, self.session):
            what = "belongs to another session or version"
            raise EvidenceError(str(self.path), what, RESTART_ADVICE)
        state, method = content["state"], content["state"]["method"]
        if COLLECTED_DRAWS in method:
            method[COLLECTED_DRAWS] = self._collected.read(method[COLLECTED_DRAWS])
        step = Step(
            CoordinatorState.from_plain(state), content["requests"], tuple(content["events"])
        )
        delivered = [Delivery(*row) for row in self._delivered.read(content["delivered"])]
        return Entry(step, content["lines"], content["head"], delivered, content["seconds"])


def still_to_log(entry: Entry, log: RunLog) -> Step:
    """Return the step with only the events that the log does not have yet.

    Raises `EvidenceError` if log and journal do not match.
    """
    events: Sequence[dict[str, Any]] = entry.step.events
    written = [_content(line) for line in log.events[entry.lines :]]
    hashes = [GENESIS_HASH, *(line["hash"] for line in log.events)][: entry.lines + 1]
    matches = hashes[-1] == entry.head and len(hashes) == entry.lines + 1
    if not matches or written != list(events[: len(written)]):
        what = "does not match the journal; one of the two is older"
        raise EvidenceError(str(log.path), what, RESTART_ADVICE)
    return replace(entry.step, events=tuple(events[len(written) :]))


def _content(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k not in ("seq", "time", "prev", "hash")}
