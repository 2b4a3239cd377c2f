"""The coordinator's journal: what it is about to do, on disk before it does it.

Before the events of a step are logged and its requests sent, the whole step is written, with the
number of lines that the log has until then. So a coordinator that is killed anywhere can go on:

1. it writes those events of the step that the log does not have yet, and no other;
2. it sends the step's requests, the same bytes; who has answered them gives the same reply again
   (`secagg.engines.party_process`), who has not answers now.

Nothing that was sent is ever based on a step that is not in the journal, so what a killed
coordinator had computed beyond it may be computed anew, with other randomness.

The file holds released sums and all that the coordinator knows; it is private (`secagg.durable`),
and the run's own folder never holds it. A checksum finds a damaged journal, the log one that is
older or from elsewhere. Not protected: against whoever owns the files and writes both anew, with
the coordinator's key, which lies beside them. Parties take no request that this key has not signed,
and none twice, so that even he cannot make them open another sum than the coordinator could.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secagg.coordinator import Step
from secagg.durable import BEGIN_AGAIN, read_checked, write_checked
from secagg.engines.memory import Delivery
from secagg.errors import EvidenceError
from secagg.runlog import FIRST, RunLog

_FORMAT = 1


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
    """One file of one session, replaced at each step."""

    path: Path
    session: bytes

    def write(self, entry: Entry) -> None:
        """Replace the entry; it is on disk when this returns. Raises `OSError`."""
        step = entry.step
        delivered = [[d.round, d.phase, d.sender, d.recipient, d.size] for d in entry.delivered]
        content = {
            "format": _FORMAT, "session": self.session, "state": step.state,
            "requests": step.requests, "events": list(step.events), "done": step.done,
            "lines": entry.lines, "head": entry.head, "delivered": delivered,
            "seconds": entry.seconds,
        }  # fmt: skip
        write_checked(self.path, content)

    def read(self) -> Entry:
        """Return the entry. Raises `EvidenceError` for anything but what `write` wrote."""
        kept = read_checked(self.path)
        if (kept["format"], kept["session"]) != (_FORMAT, self.session):
            raise EvidenceError(str(self.path), "is of another session or version", BEGIN_AGAIN)
        step = Step(kept["state"], kept["requests"], tuple(kept["events"]), kept["done"])
        delivered = [Delivery(*row) for row in kept["delivered"]]
        return Entry(step, kept["lines"], kept["head"], delivered, kept["seconds"])


def still_to_log(entry: Entry, log: RunLog) -> Step:
    """Return the step with only those of its events that the log does not have yet.

    Raises `EvidenceError` if log and journal do not belong together.
    """
    events: Sequence[dict[str, Any]] = entry.step.events
    written = [_content(line) for line in log.events[entry.lines :]]
    before = [FIRST, *(line["hash"] for line in log.events)][: entry.lines + 1]
    same = before[-1] == entry.head and len(before) == entry.lines + 1
    if not same or written != list(events[: len(written)]):
        raise EvidenceError(
            str(log.path), "does not belong to the journal: one of them is older", BEGIN_AGAIN
        )
    return replace(entry.step, events=tuple(events[len(written) :]))


def _content(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k not in ("seq", "time", "prev", "hash")}
