"""How far a party has come in a session, kept twice, so that an old copy of its state is noticed.

A party whose state is an old copy would repeat steps that it has already taken. It would mask a
second contribution with the same masks, sign a second list of survivors, or reveal its shares of
both secrets of a site. The difference of two such answers can be one site's contribution. So after
each step the party's progress (the number of steps, and a digest of all of them) is written with
the state, and then once more beside the ledgers: the *witness*. Only then does the reply leave.

===========================================  ===================================================
found at the next start                      result
===========================================  ===================================================
state and witness agree                      goes on
the state is one step ahead of the witness   goes on: the process was killed between the two
                                             writes, and no reply left
the state is older, or of another history    `EvidenceError`
the state is deleted, or damaged             `EvidenceError`, if a step was witnessed
the witness is deleted                       `EvidenceError`, if the state has a step
===========================================  ===================================================

Not protected: state and witness that are restored together, as in an old copy of the whole home.
The party then cannot notice this, but the others can: each contribution is signed with a digest of
all requests that the site answered before (`secagg.sessions.attestations.digest_request`). A site
that forgot some of these requests signs another digest than the others. So nobody helps to open the
sum, and the site's masks do not cancel. Only the request that is open at this moment can be
answered twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from secagg.core import canonical_encoding
from secagg.core.private_files import read_checked, write_checked
from secagg.errors import EvidenceError

_ADVICE = (
    "Restore the newest copy of this folder, or start a new run and never this session again: "
    "a second answer to the same request could reveal this site's contribution."
)


@dataclass(frozen=True)
class Progress:
    """The number of a party's steps, a digest of all of them, and that of all but the last."""

    steps: int = 0
    head: bytes = b""
    before: bytes = b""

    def after(self, step: Any) -> Self:
        """Return the progress after one more step, which is plain data."""
        head = canonical_encoding.digest(["secagg progress 1", self.steps + 1, self.head, step])
        return type(self)(self.steps + 1, head, self.head)

    def to_plain(self) -> list[Any]:
        """Return the progress as plain data."""
        return [self.steps, self.head, self.before]


def check_witness(folder: Path, found: Progress | None, witness: Path | None) -> None:
    """Raise `EvidenceError` unless the witness agrees, as in the table; then it does.

    folder: of the party's state; found: the progress there, or None if there is no state
    """
    if witness is None:
        return
    known = Progress(*read_checked(witness)) if witness.exists() else Progress()
    if found is None:
        if known.steps:
            raise EvidenceError(str(folder), "was deleted after this party had answered", _ADVICE)
        return
    if found == known:
        return
    if (found.steps, found.before) != (known.steps + 1, known.head):
        what = f"is an old copy, or the party's progress ({witness}) is"
        raise EvidenceError(str(folder), what, _ADVICE)
    write_checked(witness, found.to_plain())
