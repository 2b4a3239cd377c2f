"""Known-answer vectors: one request to one party, and the required outcome.

A vector holds everything the party needs (its own keys included: they are test keys), the request
frame and the outcome: the digest of the reply, or the code of the refusal. Replies that contain a
sealed envelope differ from run to run (docs/adr/003-sealed-envelopes.md), so theirs is only
"accepted". `python tests/support/protocols/make_vectors.py [PROTOCOL]...` writes them anew.
"""

import functools
import hashlib
from typing import Any

import numpy as np
from support.protocols.world import SumNumbers

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.core.identity import Identity, PublicIdentity, Role, Roster
from secagg.core.randomness import replayable_random
from secagg.errors import SecaggError
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.paillier.keys import generate_keypair
from secagg.protocols.paillier.single_key import Paillier
from secagg.protocols.paillier.threshold import ThresholdPaillier
from secagg.protocols.plain import Plain
from secagg.sessions.party import Handled, Party, SiteContext
from secagg.sessions.rounds import plan_stages

METHOD = SumNumbers((3,), rounds=2)
PUBLIC_VARIABLE = Variable("x", "x", 0.0, 1.0)


@functools.cache
def shared_key():
    return generate_keypair(2048, replayable_random(2048))


class PaillierOfVectors(Paillier):
    """Deals the one key of all vectors."""

    def draw_key(self, random):
        return shared_key()


class ThresholdOfVectors(ThresholdPaillier):
    """Deals the one key of all vectors; its ordinary primes suit shares of four sites."""

    def draw_key(self, random):
        return generate_keypair(2048, replayable_random(3))


PROTOCOLS = {
    "plain": Plain(),
    "additive": Additive(2),
    "masked": Masked(),
    "paillier": PaillierOfVectors(2048),
    "threshold_paillier": ThresholdOfVectors(2048),
}
SEALED = {("additive", "share"), ("paillier", "deal"), ("threshold_paillier", "deal")}
"""Protocol and phase of replies that hold envelopes of HPKE."""


def party_of(vector: dict[str, Any]) -> Party:
    """Return the party that a vector describes."""
    protocol = PROTOCOLS[vector["protocol"]]
    roster = Roster(
        {
            p["name"]: PublicIdentity(
                p["name"], Role(p["role"]), *(bytes.fromhex(p[k]) for k in ("verify", "seal"))
            )
            for p in vector["roster"]
        }
    )
    me = roster.parties[vector["party"]]
    identity = Identity(
        me.name, me.role, *(bytes.fromhex(vector[k]) for k in ("signing_key", "opening_key"))
    )
    public = PublicFacts((PUBLIC_VARIABLE,), ("x",), 1 << 20, roster.with_role(Role.SITE))
    side = None
    if me.role is Role.SITE:
        rows = SiteRecords(np.array(vector["numbers"], dtype=np.float64)[:, None], 0, np.zeros(1))
        side = SiteContext(METHOD, public, lambda: rows)
    return Party(
        identity,
        roster,
        bytes.fromhex(vector["session"]),
        protocol,
        plan_stages(METHOD, public, protocol.capabilities.ring_bits),
        ReleasePolicy(vector["min_sites"], 1),
        replayable_random(vector["random_seed"]),
        side,
    )


def play(vector: dict[str, Any]) -> Handled:
    """Run the vector's request at its party."""
    return party_of(vector).handle(bytes.fromhex(vector["request"]), bytes.fromhex(vector["state"]))


def outcome(handled: Handled, protocol: str, phase: str) -> dict[str, str]:
    """Return what a vector records of a reply."""
    if handled.error is not None:
        assert isinstance(handled.error, SecaggError)
        return {"refused": handled.error.code, "where": handled.error.where}
    if (protocol, phase) in SEALED:
        return {"accepted": "a sealed envelope, different each time"}
    return {"reply_sha256": hashlib.sha256(handled.reply).hexdigest()}
