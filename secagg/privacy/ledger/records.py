"""What a party tells its ledger: what is about to leave, what rules said, whose sum it was.

A release is bound to its noise by `Release.key`: noise is drawn once for a key, and what decides
which noise is right (who, what was computed, how much noise, drawn how) is compared or in the key.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from secagg.contracts.noise import Adjacency, Placement
from secagg.core import encoding
from secagg.errors import InternalError
from secagg.privacy.accounting.budget import Cost

VOID: Final = "void (replayable noise)"

PER_RELEASE_FIELDS: Final = ("session", "round", "cohort", "delta")
"""What differs when a site answers again with the noise of an earlier run."""


@dataclass(frozen=True)
class Release:
    """What is about to leave this party.

    session, round: hex, and the round in it; stage: its name
    query: hex digest of all that decides what was computed: spec, clipping, columns, bounds, ...
    records: hex digest of the records; needed in placement `site` only, and stored nowhere
    cohort: the sites of the sum, or () while that is not known
    delta: of the job, in whose terms a refusal says what is affordable
    variance: of this party's own noise, in squared steps of 2**-fraction_bits; 0 for an exact one
    replayable: the noise can be drawn again by whoever knows a number, so it protects nothing
    adjacency: of the job, None without noise: a refusal says what is affordable in its terms
    """

    party: str
    dataset: str
    session: str
    round: int
    stage: str
    query: str
    placement: Placement
    cost: Cost
    delta: float
    cohort: tuple[str, ...] = ()
    records: str = ""
    variance: int = 0
    fraction_bits: int = 0
    replayable: bool = False
    adjacency: Adjacency | None = None

    def content(self) -> dict[str, Any]:
        """Return what the ledger keeps of it, as plain data."""
        kept = {k: v for k, v in asdict(self).items() if k != "records"}
        kept |= {"cost": self.cost.plain(), "cohort": sorted(set(self.cohort))}
        return kept | ({"privacy": VOID} if self.replayable else {})

    def key(self) -> str:
        """Return what its noise is drawn for, as a digest.

        In placement `site`: these records and everything that was computed on them, whenever.
        Otherwise: this party's answer in this round.
        """
        if self.placement is Placement.SITE:
            if not self.records:
                raise InternalError("ledger", "noise of a site is drawn for records, and none came")
            content = self.content()
            what = [[n, v] for n, v in content.items() if n not in (*PER_RELEASE_FIELDS, "dataset")]
            return hashlib.sha256(encoding.dumps(["site", self.records, what])).hexdigest()
        answer = ["round", self.party, self.session, self.round]
        return hashlib.sha256(encoding.dumps(answer)).hexdigest()


@dataclass(frozen=True)
class Entered:
    """The answer of the ledger: what is entered may leave, with noise expanded from `seed`.

    seed: 32 bytes, which no message or traceback shows; empty if no generator was given
    """

    seed: bytes = field(repr=False)


@dataclass(frozen=True)
class Decision:
    """What a rule said of a request, in full; it stays in this party's file."""

    dataset: str
    session: str
    round: int
    stage: str
    rule: str
    allowed: bool
    text: str


@dataclass(frozen=True)
class Cohort:
    """The sites of one sum that left, or may have."""

    sites: frozenset[str]
    session: str
    round: int
