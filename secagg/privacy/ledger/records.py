"""What a party writes to its ledger: a release, the decisions of its rules, the cohort of a sum.

`Release.key` binds a release to its noise. Noise is drawn once for each key. Everything that
determines the right noise (party, computation, size and placement of the noise) is in the key or is
compared with the first entry.
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
"""Fields that may differ when a site answers again with the noise of an earlier run."""


@dataclass(frozen=True)
class Release:
    """A release that is about to leave this party.

    session: in hex; round: within the session; stage: its name
    query: hex digest of all that determines the computation: spec, clipping, columns, bounds, ...
    records: hex digest of the records; used in placement `site` only, and never stored
    cohort: the sites of the sum, or () while they are unknown
    delta, adjacency: of the job, for the advice in a refusal; adjacency is None without noise
    variance: of this party's own noise, in squared steps of 2**-fraction_bits; 0 without noise
    replayable: the noise comes from a known seed, so it gives no protection
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
        """Return the fields that the ledger stores, as plain data."""
        stored = {k: v for k, v in asdict(self).items() if k != "records"}
        stored |= {"cost": self.cost.plain(), "cohort": sorted(set(self.cohort))}
        return stored | ({"privacy": VOID} if self.replayable else {})

    def key(self) -> str:
        """Return a digest of what the noise is drawn for.

        In placement `site`: these records and this computation, in any run. Otherwise: this party's
        answer in this round.
        """
        if self.placement is Placement.SITE:
            if not self.records:
                raise InternalError("ledger", "placement 'site' needs a digest of the records")
            content = self.content()
            what = [[n, v] for n, v in content.items() if n not in (*PER_RELEASE_FIELDS, "dataset")]
            return hashlib.sha256(encoding.dumps(["site", self.records, what])).hexdigest()
        answer = ["round", self.party, self.session, self.round]
        return hashlib.sha256(encoding.dumps(answer)).hexdigest()


@dataclass(frozen=True)
class Entered:
    """The ledger's answer: the release may leave, with noise expanded from `seed`.

    seed: 32 bytes that no message or traceback shows; empty if no generator was given
    """

    seed: bytes = field(repr=False)


@dataclass(frozen=True)
class Decision:
    """One rule's decision about a request.

    text: with all numbers, for this party's ledger and log; it never leaves the party
    """

    rule: str
    allowed: bool
    text: str


@dataclass(frozen=True)
class Cohort:
    """The sites of one sum that was released, or may have been."""

    sites: frozenset[str]
    session: str
    round: int
