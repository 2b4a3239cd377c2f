"""Keys, pairwise secrets and mask seeds of the masked sum (`masked`), as pure functions.

Follows Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning"
(CCS 2017), section 4 and figure 4. Two sites i < j that agreed on a secret add and subtract the
same pseudorandom vector; a *self mask*, known to i alone until the survivors are settled, keeps a
contribution hidden even from a coordinator who claims that i dropped out and so learns i's half of
all pairwise masks.

    y_i = x_i + G(self seed of i) + sum over j > i of G(seed_ij) - sum over j < i of G(seed_ij)

Derivations (domains separated by the first string of each digest or info):

    pair key  = HKDF-SHA256(X25519(own private, peer's public), salt = session, info = kind, names)
    seed_ij   = HMAC-SHA256(pair key, label)
    self seed = HMAC-SHA256(self secret, label)
    label     = SHA-256 of (session, round, what was before, who masks, request)

What was before is the digest of the key directory in the first sum, and the label of the sum
before in later ones: a label stands for all that was asked in the session so far. Sites that were
ever told different things (another directory, other partners, another message of the method) derive
different seeds, their masks do not cancel, and the coordinator is left with noise instead of a sum
that would show more than was agreed.

Threat model: as in `masked`. Seeds are as strong as X25519 and SHA-256 (128 bits), and expanded
by AES (`prg`). Not protected: a label used twice with the same pair key would repeat a mask; that
rounds only ever go up is enforced by whoever calls (`masked_site`).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secagg.contracts import Context
from secagg.core import encoding
from secagg.core.frames import read_frame, write_frame
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import PeerError
from secagg.protocols.prg import SEED_BYTES, apply_masks

KEY_BYTES = 32
_FIELD_PRIME = 2**255 - 19
_NONCE_BYTES = 12
ALL_RECIPIENTS = ""
"""Recipient of a signed statement that is meant for all parties."""


@dataclass(frozen=True)
class PublicKeys:
    """What a site advertises, 32 bytes each.

    first: public key of the pairwise masks of the first sum (its private key is shared)
    later: public key of the pairwise masks of all later sums, and of what seals shares (its private
        key never leaves: whoever learnt it could read the shares that this site holds)
    commitment: digest of the self secret, so that a wrong reconstruction is seen
    """

    first: bytes
    later: bytes
    commitment: bytes

    def to_plain(self) -> dict[str, bytes]:
        """Return the keys as the body of a message."""
        return {"first": self.first, "later": self.later, "commitment": self.commitment}


Directory = dict[str, PublicKeys]
"""The verified keys of all sites that advertised, by name, sorted."""


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def commit(self_secret: bytes) -> bytes:
    """Return the commitment to a uniform 32-byte secret (hiding, since nobody can search 2^256)."""
    return encoding.digest(["secagg self secret 1", self_secret])


# --- statements: signed once, shown to everybody -------------------------------------------------


# Each party verifies each statement; where parties share a process, as in a simulation, once is
# enough: the answer depends on the same bytes, roster and session alone. What is refused is not
# kept. What is kept is public, and no more than everybody was shown.
_read_once = lru_cache(maxsize=1 << 12)(read_frame)


def state_publicly(context: Context, phase: str, body: Mapping[str, bytes]) -> bytes:
    """Return a signed frame for everybody, which the coordinator can relay but not alter."""
    return write_frame(
        context.identity, context.session, context.round, phase, ALL_RECIPIENTS, dict(body)
    )


def read_statement(statement: object, site: str, phase: str, context: Context) -> dict[str, object]:
    """Return what `site` stated in this round and phase. Raises `PeerError`."""
    if not isinstance(statement, bytes):
        raise PeerError(site, "makes no statement")
    frame = _read_once(statement, context.roster, ALL_RECIPIENTS, context.session)
    header = frame.header
    if (header.sender, header.round, header.phase) != (site, context.round, phase):
        raise PeerError(site, "a statement is another site's, or of another round or phase")
    if context.roster.parties[site].role is not Role.SITE:
        raise PeerError(site, "only sites take part in a masked sum")
    return frame.body


def read_directory(statements: Mapping[str, object], context: Context) -> Directory:
    """Return the keys in the sites' signed statements. Raises `PeerError` for any that is not good.

    Keys are taken in their one canonical form, and none twice: whoever shows another's key as its
    own does not know the private half, and is no neighbour to anybody.
    """
    directory: Directory = {}
    for site in sorted(statements):
        match read_statement(statements[site], site, "advertise", context):
            case {
                "first": bytes(first),
                "later": bytes(later),
                "commitment": bytes(commitment),
                **rest,
            } if not rest and _are_keys(first, later) and len(commitment) == KEY_BYTES:
                directory[site] = PublicKeys(first, later, commitment)
            case _:
                raise PeerError(site, "advertises malformed keys")  # fmt: skip
    public = [key for keys in directory.values() for key in (keys.first, keys.later)]
    if len(set(public)) != len(public):
        raise PeerError(context.roster.coordinator, "shows a key directory with one key twice")
    return directory


def _are_keys(*keys: bytes) -> bool:
    """Return whether these are X25519 public keys as RFC 7748 writes them, reduced modulo p."""
    return all(
        len(key) == KEY_BYTES and int.from_bytes(key, "little") < _FIELD_PRIME for key in keys
    )


def directory_digest(directory: Directory) -> bytes:
    """Return the digest that all sites must agree on."""
    plain = {site: keys.to_plain() for site, keys in directory.items()}
    return encoding.digest(["secagg key directory 1", plain])


# --- secrets and seeds ---------------------------------------------------------------------------


def pair_keys(
    private: bytes, public: Mapping[str, bytes], kind: str, me: str, session: bytes
) -> dict[str, bytes]:
    """Return the keys that a site shares with others, by name; both sides get the same.

    public: the others' public keys; kind: what the keys are for, which no other kind's can be
    Raises `PeerError` for a public key of small order.
    """
    own = X25519PrivateKey.from_private_bytes(private)  # costs as much as an exchange: once
    keys: dict[str, bytes] = {}
    for peer, key in public.items():
        try:
            secret = own.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError:  # the secret would be zero
            raise PeerError(peer, "advertises a key that agrees on nothing") from None
        info = encoding.dumps(["secagg pair key 1", kind, sorted((me, peer))])
        keys[peer] = HKDF(hashes.SHA256(), SEED_BYTES, salt=session, info=info).derive(secret)
    return keys


def label(
    session: bytes, round_: int, before: bytes, masking: Sequence[str], asked: bytes
) -> bytes:
    """Return the label of one sum's masks: everything its sites must have been told alike.

    before: digest of the key directory, or the label of the sum before
    """
    return encoding.digest(["secagg masks 1", session, round_, before, sorted(masking), asked])


def seed(key: bytes, label_: bytes) -> bytes:
    """Return the seed of one mask: HMAC-SHA256 as a PRF, one key and label for one expansion."""
    return hmac.digest(key, label_, "sha256")


def seal_shares(
    pair: bytes, shares: bytes, sender: str, recipient: str, random: RandomBytes
) -> bytes:
    """Return shares sealed from one site to another (Bonawitz et al., figure 4, round 1).

    pair: their pair key of kind "shares". Authenticated encryption under a key that only these two
    can derive, from keys that both have signed, tells the recipient who sealed. AES-256-GCM. A key
    seals once (one direction, one session); the nonce is drawn all the same, so that a site whose
    state was put back, and which seals other shares with it, gives nothing away.
    """
    nonce = random(_NONCE_BYTES)
    return nonce + AESGCM(_sealing_key(pair, sender, recipient)).encrypt(nonce, shares, None)


def open_shares(pair: bytes, sealed: bytes, sender: str, recipient: str) -> bytes:
    """Return the shares that `sender` sealed for `recipient`. Raises `PeerError`."""
    try:
        nonce, sealed = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return AESGCM(_sealing_key(pair, sender, recipient)).decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError):  # ValueError: shorter than nonce and tag
        raise PeerError(sender, "sealed shares do not open here") from None


def _sealing_key(pair: bytes, sender: str, recipient: str) -> bytes:
    return seed(pair, encoding.digest(["secagg sealed shares 1", sender, recipient]))


def survivors_digest(label_: bytes, survivors: Sequence[str]) -> bytes:
    """Return what each survivor signs before anything is unmasked."""
    return encoding.digest(["secagg survivors 1", label_, sorted(survivors)])


def mask(vector: RingVector, me: str, pair_seeds: Mapping[str, bytes], own: bytes | None) -> None:
    """Add the pairwise masks of `me` in place, and its self mask if it has one."""
    add = [s for peer, s in pair_seeds.items() if me < peer]
    subtract = [s for peer, s in pair_seeds.items() if peer < me]
    apply_masks(vector, [*add, *([] if own is None else [own])], subtract)


def unmask(
    vector: RingVector, self_seeds: Sequence[bytes], lost: Mapping[str, Mapping[str, bytes]]
) -> None:
    """Remove from a sum, in place, what does not cancel in it.

    self_seeds: of every contributor
    lost: for each site that masked but did not contribute, its seeds with each contributor
    """
    left = [(s, contributor < site) for site, seeds in lost.items()
            for contributor, s in seeds.items()]  # fmt: skip
    apply_masks(
        vector,
        [s for s, added in left if not added],
        [*self_seeds, *(s for s, added in left if added)],
    )
