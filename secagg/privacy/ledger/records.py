"""The entries of a ledger: releases, decisions of rules, and the cohorts of sums.

Each release has a key, and noise is drawn once for each key. The right noise depends on the party,
the computation, and the size and placement of the noise. These are part of the key, or they are
compared with the first entry under this key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from secagg.contracts.noise import Adjacency, Placement
from secagg.core import canonical_encoding
from secagg.errors import InternalError
from secagg.privacy.accounting.composition import Cost

VOID: Final = "void (replayable noise)"

PER_RELEASE_FIELDS: Final = ("session", "round", "cohort", "delta")
"""Fields that may differ if a site repeats a release, with the same noise, in a later run."""


RECORD = "record"
"""The unit of an entry that names none."""


@dataclass(frozen=True)
class Release:
    """A release that is about to leave this party.

    party: name of the party
    dataset: name of the data set
    session: name of the session, in hexadecimal digits
    round: number of the round in the session
    stage: name of the kind of round
    query: digest of everything that determines the computation: fields, clipping, columns, bounds
        and so on; hexadecimal
    placement: where the noise is added
    cost: the cost of the release
    delta, adjacency: those of the job, for the advice in a refusal; adjacency is None without noise
    cohort: the sites of the sum, or () while they are unknown
    records: digest of the records, hexadecimal; used in placement `site` only, and never stored
    variance: variance of this party's own noise, in squared steps of 2**-fraction_bits; 0 without
        noise
    replayable: whether the noise comes from a known seed, so that it protects nothing
    unit: what the cost is for: a "record", an "event" or a "person"
    question: of the first exact release of a run: what it asks of the records
        (`secagg.privacy.policy.questions`), and with the key `records` how many there were
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
    unit: str = RECORD
    question: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        """Return the fields that the ledger stores, as plain data."""
        stored = {k: v for k, v in asdict(self).items() if k != "records"}
        if self.question is None:
            del stored["question"]
        if self.unit == RECORD:  # as every entry was before there were others
            del stored["unit"]
        stored |= {"cost": self.cost.plain(), "cohort": sorted(set(self.cohort))}
        return stored | ({"privacy": VOID} if self.replayable else {})

    def key(self) -> str:
        """Return a digest that is equal for all releases which must have the same noise.

        In placement `site`, these are all releases with the same records and computation, in any
        run. Otherwise, these are all answers of this party in this round.
        """
        if self.placement is Placement.SITE:
            if not self.records:
                raise InternalError("ledger", "placement 'site' needs a digest of the records")
            content = self.content()
            what = [[n, v] for n, v in content.items() if n not in (*PER_RELEASE_FIELDS, "dataset")]
            return hashlib.sha256(
                canonical_encoding.dumps(["site", self.records, what])
            ).hexdigest()
        answer = ["round", self.party, self.session, self.round]
        return hashlib.sha256(canonical_encoding.dumps(answer)).hexdigest()


@dataclass(frozen=True)
class Entered:
    """The ledger's answer that a release may leave, with noise computed from `seed`.

    seed: 32 bytes, which no message and no traceback shows; empty for the coordinator
    """

    seed: bytes = field(repr=False)


@dataclass(frozen=True)
class AskedQuestion:
    """The question of an exact release in the ledger."""

    question: Mapping[str, Any]
    records: int
    _seed: bytes = field(repr=False)
    _bound: str = field(repr=False)

    @classmethod
    def of(cls, content: Mapping[str, Any], seed: bytes) -> AskedQuestion:
        question = content["question"]
        return cls(question, question["records"], seed, str(content["bound"]))

    def same_records(self, digest: str) -> bool:
        """Return whether the records of the release had this digest."""
        return hmac.compare_digest(self._bound, bound(self._seed, digest))


def bound(seed: bytes, records: str) -> str:
    """Return a digest of seed and records, which reveals nothing to those without the seed."""
    return hmac.digest(seed, records.encode(), "sha256").hex()


@dataclass(frozen=True)
class Decision:
    """One rule's decision about a request.

    text: the reason with all numbers, for this party's ledger and log; it never leaves the party
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
