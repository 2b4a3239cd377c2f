"""The keys of each party, and the roster: the list of all parties with their public keys.

Primitives: Ed25519 signatures (RFC 8032), and HPKE encryption (RFC 9180, base mode) with X25519,
HKDF-SHA256 and AES-256-GCM. All are from the `cryptography` package.

Threat model: an attacker on the network, or the coordinator that relays messages.

`party_fault` and `parties_fault` are the one check of parties from elsewhere: every reader of a
card, roster, kit, run folder or message uses them, and nobody else's rules count. They refuse

=========================================  =====================================================
parties                                    why
=========================================  =====================================================
a key outside the prime-order subgroup,    `secagg.core.curve25519`
  or in a second encoding
two parties, or two purposes, with one key  one party could sign for two, and a signature would
                                           be valid for an opening key
names that differ in case, width, spaces   a person who compares a roster takes them for one
  or invisible characters only
none or two coordinators, another name     who may ask would depend on the order of the names
  for it, or its name for another party
=========================================  =====================================================

Not protected:

* Names of the same look in different scripts, such as Latin and Cyrillic "a". Only a run on one
  computer has such names (`secagg.core.roster_file.check_name`).
* A party whose own keys are stolen.
* A site that receives a false roster. Whoever gives a site a false roster can send messages to this
  site in the name of other parties. So the set-up of a session must be trusted.

HPKE draws a key for each envelope inside the library, from the operating system's generator. These
are the only random bytes in secagg that are not passed in as an argument
(docs/adr/003-sealed-envelopes.md).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secagg.core import canonical_encoding
from secagg.core.curve25519 import is_seal_key, is_verify_key
from secagg.core.randomness import RandomBytes
from secagg.errors import PeerError

_SIGNING_CONTEXT = b"secagg frame 1\x00"  # separates frames from any other use of the same keys
_REPORT_CONTEXT = b"secagg report 1\x00"
SMALL_HEADER = 1 << 11
"""Frame headers of up to this many bytes are cached. Those of secagg are smaller. Without a limit,
another party could fill the memory."""
_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


COORDINATOR = "coordinator"


class Role(StrEnum):
    """What a party does in a run."""

    COORDINATOR = "coordinator"
    SITE = "site"
    AGGREGATOR = "aggregator"


@dataclass(frozen=True)
class PublicIdentity:
    """A party's name, role and raw public keys (32 bytes each), as listed in the roster."""

    name: str
    role: Role
    verify_key: bytes
    seal_key: bytes


@dataclass(frozen=True, repr=False)
class Identity:
    """A party's private keys (32 raw bytes each), which never leave the party."""

    name: str
    role: Role
    signing_key: bytes
    opening_key: bytes

    @classmethod
    def generate(cls, name: str, role: Role, random: RandomBytes) -> Identity:
        """Return fresh keys for the party `name`."""
        return cls(name, role, random(32), random(32))

    @cached_property
    def _signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.signing_key)

    @cached_property
    def _opener(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.opening_key)

    @property
    def public(self) -> PublicIdentity:
        """The name, role and public keys, for the roster."""
        return PublicIdentity(
            self.name,
            self.role,
            self._signer.public_key().public_bytes_raw(),
            self._opener.public_key().public_bytes_raw(),
        )

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte Ed25519 signature of a frame header."""
        return self._signer.sign(_SIGNING_CONTEXT + message)

    def sign_report(self, digest: bytes) -> bytes:
        """Return the signature of a report's digest, with this party's name and role.

        See `secagg.compliance.signatures`.
        """
        return self._signer.sign(_report_message(self.name, self.role.value, digest))

    def open(self, envelope: bytes, context: bytes) -> bytes:
        """Return the content of an envelope that was sealed for this party under `context`.

        context: the same bytes as given to `Roster.seal`
        Raises `PeerError` if the envelope was sealed for another party or context, or was altered.
        """
        try:
            return _SUITE.decrypt(envelope, self._opener, context)
        except (InvalidTag, ValueError):
            raise PeerError(self.name, "cannot open a sealed envelope") from None


class Roster:
    """The parties of a session with their public keys. The name of the session depends on them."""

    def __init__(self, parties: Mapping[str, PublicIdentity]) -> None:
        self.parties = dict(sorted(parties.items()))

    def with_role(self, role: Role) -> tuple[str, ...]:
        """Return the names of all parties with this role, in sorted order."""
        return tuple(name for name, party in self.parties.items() if party.role is role)

    @property
    def coordinator(self) -> str:
        """The coordinator's name."""
        return self.with_role(Role.COORDINATOR)[0]

    def to_plain(self) -> list[list[Any]]:
        """Return plain data for hashing, logging and sending."""
        return [[p.name, p.role.value, p.verify_key, p.seal_key] for p in self.parties.values()]

    @classmethod
    def from_plain(cls, plain: object) -> Roster:
        """Return the roster from the output of `to_plain`. Raises `PeerError`."""
        parties: list[PublicIdentity] = []
        for row in plain if isinstance(plain, list) else [None]:
            match row:
                case [str(name), str(role), bytes(verify_key), bytes(seal_key)] if role in set(
                    Role
                ):
                    parties.append(PublicIdentity(name, Role(role), verify_key, seal_key))
                case _:
                    raise PeerError("roster", "malformed roster")
        if fault := parties_fault(parties):
            raise PeerError("roster", fault)
        return cls({party.name: party for party in parties})

    def session(self, nonce: bytes, agreement_digest: bytes) -> bytes:
        """Return the 16-byte name of the session: a digest of roster, agreement and fresh nonce.

        nonce: random bytes that no other session uses
        """
        return canonical_encoding.digest(
            ["secagg session 1", self.to_plain(), agreement_digest, nonce]
        )[:16]

    def verify(self, sender: str, message: bytes, signature: bytes) -> None:
        """Raise `PeerError` if `signature` is not the sender's signature of this frame header."""
        party = self.parties.get(sender)
        if party is None:
            raise PeerError("roster", "the sender of a message is not in the roster")
        check = _verify_cached if len(message) <= SMALL_HEADER else _verify
        try:
            check(party.verify_key, message, signature)
        except (InvalidSignature, ValueError):  # ValueError: a key of another length
            raise PeerError(sender, "invalid signature") from None

    def seal(self, recipient: str, plaintext: bytes, context: bytes) -> bytes:
        """Return an envelope that only `recipient` can open, with the same `context`.

        Raises `PeerError` for a key that `party_fault` refuses, in a roster that was not checked.
        """
        try:
            key = X25519PublicKey.from_public_bytes(self.parties[recipient].seal_key)
            return _SUITE.encrypt(plaintext, key, context)
        except ValueError:
            raise PeerError(recipient, "its opening key is invalid") from None


def party_fault(party: PublicIdentity) -> str:
    """Return why a party from elsewhere must not be used; nothing if it may be."""
    if not is_verify_key(party.verify_key):
        return f"the signing key of {party.name!a} is not a valid Ed25519 key"
    if not is_seal_key(party.seal_key):
        return f"the opening key of {party.name!a} is not a valid X25519 key"
    if (_folded(party.name) == COORDINATOR) != (party.role is Role.COORDINATOR) or (
        party.role is Role.COORDINATOR and party.name != COORDINATOR
    ):
        return f"only the coordinator has the name {COORDINATOR!r}"
    return ""


def parties_fault(parties: Sequence[PublicIdentity]) -> str:
    """Return why parties from elsewhere must not be the parties of a roster; nothing if they may.

    The session, not the roster, decides which parties it needs (`roster_fault`).
    """
    if fault := next((text for party in parties if (text := party_fault(party))), ""):
        return fault
    if pair := alike(party.name for party in parties):
        return f"two parties have the same name, or almost: {pair[0]!a} and {pair[1]!a}"
    if len({key for p in parties for key in (p.verify_key, p.seal_key)}) < 2 * len(parties):
        return "two cards have the same key"
    if sum(party.role is Role.COORDINATOR for party in parties) != 1:
        return "a roster has one coordinator"
    return ""


def alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that a reader could take for one, if there are such."""
    seen: dict[str, str] = {}
    for name in names:
        folded = _folded(name)
        if folded in seen:
            return seen[folded], name
        seen[folded] = name
    return None


def _folded(name: str) -> str:
    """Return a name without case, width, accents' encoding, spaces and invisible characters.

    As in Unicode's compatibility caseless matching (The Unicode Standard, section 3.13).
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", name).casefold())
    return "".join(c for c in text.casefold() if c.isprintable() and not c.isspace())


def _report_message(name: str, role: str, digest: bytes) -> bytes:
    return _REPORT_CONTEXT + canonical_encoding.digest([name, role, digest])


def is_report_signature(
    verify_key: bytes, name: str, role: str, digest: bytes, signature: bytes
) -> bool:
    """Return whether the owner of this key signed a report with this digest, as this party."""
    if not is_verify_key(verify_key):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(verify_key)
        key.verify(signature, _report_message(name, role, digest))
    except InvalidSignature:
        return False
    return True


def _verify(verify_key: bytes, message: bytes, signature: bytes) -> None:
    """Raise `InvalidSignature` unless the signature is valid."""
    Ed25519PublicKey.from_public_bytes(verify_key).verify(signature, _SIGNING_CONTEXT + message)


_verify_cached = lru_cache(maxsize=1 << 10)(_verify)
"""Does not verify again what it found valid: the coordinator verifies each claim when it arrives,
and before the release. Whether a signature is valid depends on these three values only, and the
cache compares all of their bytes. An exception is not cached."""
