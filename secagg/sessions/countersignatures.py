"""What binds the end of a run: digests of the released sums, and the sites' countersignatures.

*Digest of a sum.* The event of each release contains `sum_digest`: SHA-256 of the sum, with the
session, the round, the stage and a salt. The salt and the sum are in a file of the run folder
(`secagg.evidence.released_sums`). Without that file, the log reveals nothing about a sum, not even
to a person who guesses it. The salt is HMAC-SHA256 with the coordinator's signing key, so a resumed
run finds the same salt again.

*Countersignature.* When the result and the report are written and their digests are in the log, the
coordinator sends each site of the run three digests: the log's head, the result (result.json), and
the list of all requests of the session to which the site contributed. The site compares the list
with its own, signs all three, and ends the session: it answers no further request. So a site signs
once in a session.

What a site checks before it signs: the session (job, bounds, rules, keys); that it has contributed;
and that the coordinator's list has exactly the requests of its own list, in the same order. What it
cannot check: the head and the result. A site sees neither the log nor the sums, because sums are
released to the coordinator only.

What the signature proves: at the end of this session the coordinator announced this head and this
result, and the site contributed to these requests and to no other. If the log is rewritten later,
its head differs from the signed one.

What it does not prove:

* That the result follows from the sums (`secagg.evidence.recomputation` checks that), or that the
  sums in the file are those that were opened. A coordinator that lies from the beginning gets its
  false result countersigned.
* Anything against a forger who has the keys of all sites that countersigned.
* That the run ended well at a site that did not answer: it may have dropped out at this moment. The
  run still counts, and the log names the site as missing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from secagg.core import canonical_encoding
from secagg.core.frames import verify_header
from secagg.core.identity import Identity, Roster
from secagg.core.ring import RingVector
from secagg.errors import PeerError
from secagg.sessions.rounds import COUNTERSIGN

EVIDENCE: Final = 3
"""The version of the evidence in a run folder, which the parties agree on. Version 1 had neither
digests of sums nor countersignatures. In version 2, the digest of a request did not cover the
requests before it."""
_DIGEST_BYTES: Final = 32


def sum_salt(identity: Identity, session: bytes, round_: int) -> bytes:
    """Return the salt of a sum; only the coordinator can compute it."""
    context = canonical_encoding.dumps(["secagg sum salt 1", session, round_])
    return hmac.digest(identity.signing_key, context, hashlib.sha256)


def sum_digest(session: bytes, round_: int, stage: str, salt: bytes, total: RingVector) -> bytes:
    """Return the digest of a released sum."""
    return canonical_encoding.digest(["secagg sum 1", session, round_, stage, salt, total])


def extend_requests(before: bytes, request: bytes) -> bytes:
    """Return the digest of a list of requests, from the digest of the list without its last one.

    request: digest of the last request (`secagg.sessions.attestations.digest_request`)
    """
    return canonical_encoding.digest(["secagg requests 1", before, request])


@dataclass(frozen=True)
class Statement:
    """What a site countersigns: the digests of log, result and requests."""

    head: bytes
    result: bytes
    requests: bytes

    def note(self) -> dict[str, Any]:
        """Return the statement as the note of a frame."""
        return dict(vars(self))

    @classmethod
    def read(cls, plain: Mapping[str, Any], sender: str) -> Self:
        """Return the statement in a message. Raises `PeerError`."""
        match dict(plain):
            case {"head": bytes(head), "result": bytes(result), "requests": bytes(requests)} if len(
                plain
            ) == 3 and {len(head), len(result), len(requests)} == {_DIGEST_BYTES}:
                return cls(head, result, requests)
        raise PeerError(sender, "sends a malformed statement to countersign")


def check_countersignature(
    site: str, claim: object, statement: Statement, roster: Roster, session: bytes
) -> None:
    """Raise `PeerError` unless `claim` proves that this site countersigned the statement.

    `claim` is [header, signature] of the site's last reply.
    """
    match claim:
        case [bytes(header_bytes), bytes(signature)]:
            header = verify_header(header_bytes, signature, roster, session)
            signed = (header.sender, header.phase, dict(header.note))
            if signed == (site, COUNTERSIGN.name, statement.note()):
                return
    raise PeerError(site, "its countersignature is not valid, or is for another statement")
