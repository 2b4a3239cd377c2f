"""The folder `transcript` of a run: every message as it arrived, for an audit of what leaked.

It is written on request only (`secagg run --transcript`), because it makes attacks possible that
the sums alone do not make possible: under the protocol `plain` it holds each site's contribution in
clear. Under the other protocols it holds what the coordinator relayed and could not read. The file
is private (mode 0600, in a folder of mode 0700), and its digest is in the log.

All messages pass through the coordinator, so one file has what every party sent and received.
Not in it: the parties' private keys, their random numbers, and a site's records.

Each item is [round, phase, sender, recipient, frame]. Messages after the result (the sites'
countersignatures) are not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from secagg.core.frames import Delivery
from secagg.core.item_file import ItemFile, read_items
from secagg.errors import EvidenceError

TRANSCRIPT: Final = "transcript"
MESSAGES_FILE: Final = f"{TRANSCRIPT}/messages.bin"


@dataclass(frozen=True)
class Message:
    """One message that arrived."""

    round: int
    phase: str
    sender: str
    recipient: str
    frame: bytes


def transcript_file(folder: Path, *, sync: bool) -> ItemFile:
    """Return the file in the folder of a run. Raises `OSError`."""
    (folder / TRANSCRIPT).mkdir(mode=0o700, parents=True, exist_ok=True)
    return ItemFile(folder / MESSAGES_FILE, sync)


def append_message(file: ItemFile, delivery: Delivery, frame: bytes) -> None:
    """Write one message at the end. Raises `OSError`."""
    about = [delivery.round, delivery.phase, delivery.sender, delivery.recipient]
    file.append([[*about, frame]])


def read_messages(data: bytes) -> Iterator[Message]:
    """Return the messages in the file one by one. Raises `EvidenceError` where it is malformed."""
    for item in read_items(MESSAGES_FILE, data):
        match item:
            case [int(round_), str(phase), str(sender), str(recipient), bytes(frame)]:
                yield Message(round_, phase, sender, recipient, frame)
            case _:
                raise EvidenceError(MESSAGES_FILE, "is malformed")
