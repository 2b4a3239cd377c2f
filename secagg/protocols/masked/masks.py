"""Keys, signed statements and mask seeds of the masked sum, which `protocol` describes.

Follows Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning"
(CCS 2017), section 4 and figure 4. Two sites i < j have a shared secret, from which both compute
the same pseudorandom vector, the pairwise mask. Site i adds this vector to its contribution, and
site j subtracts it. In addition each site i adds a *self mask*, which only i knows until the list
of survivors (sites that have not dropped out) is fixed. If the coordinator falsely claims that i
dropped out, it learns all pairwise masks of i, but the self mask still protects the contribution.
With G for the pseudorandom generator of `prg`, site i sends y_i instead of its contribution x_i:

    y_i = x_i + G(self seed of i) + sum over j > i of G(seed_ij) - sum over j < i of G(seed_ij)

The keys and seeds are derived as follows. The first string of each digest or info names its use:

    pair key  = HKDF-SHA256(X25519(own private, peer's public), salt = session, info = kind, names)
    seed_ij   = HMAC-SHA256(pair key, label)
    self seed = HMAC-SHA256(self secret, label)
    label     = SHA-256 of (session, round, previous, masking sites, request)

In the first sum, `previous` is the digest of the key directory, which is the list of all sites'
keys. In later sums it is the label of the previous sum. So a label depends on everything that was
requested in the session so far. Suppose that two sites ever receive different requests, for example
another directory, other sites or another message of the method. Then they derive different seeds,
and their masks do not cancel. The coordinator obtains random numbers, and not a sum that reveals
more than the sites agreed to.

Threat model: as in `protocol`. Seeds are as secure as X25519 and SHA-256 (128 bits). AES computes
the masks from the seeds (`prg`).

Not protected: if a label were used twice with the same pair key, a mask would be repeated. So the
caller must use increasing numbers of rounds (`site` ensures this).
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
from secagg.core import canonical_encoding
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
    """The public keys that a site sends to all others, and a commitment; 32 bytes each.

    first: public key for the pairwise masks of the first sum; the site splits the private key into
        shares for its neighbours
    later: public key for the pairwise masks of all later sums, and for sealing shares. The private
        key never leaves the site, because it opens the shares that this site holds
    commitment: digest of the self secret, with which others can check that they recovered it
        correctly
    """

    first: bytes
    later: bytes
    commitment: bytes

    def to_plain(self) -> dict[str, bytes]:
        return {"first": self.first, "later": self.later, "commitment": self.commitment}


Directory = dict[str, PublicKeys]
"""The verified keys of all sites that advertised, sorted by name."""


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def commit(self_secret: bytes) -> bytes:
    """Return the commitment (a digest) to a uniform secret of 32 bytes.

    The digest hides the secret, because nobody can try 2^256 values.
    """
    return canonical_encoding.digest(["secagg self secret 1", self_secret])


# --- statements: signed once, shown to all parties -----------------------------------------------


# Each party verifies each statement. If parties share a process, results are cached, because they
# depend only on the bytes, the roster and the session. Only valid statements are cached, and
# statements are public.
_read_once = lru_cache(maxsize=1 << 12)(read_frame)


def sign_statement(context: Context, phase: str, body: Mapping[str, bytes]) -> bytes:
    """Return a signed frame for all parties, which the coordinator can relay but not alter."""
    return write_frame(
        context.identity, context.session, context.round, phase, ALL_RECIPIENTS, dict(body)
    )


def read_statement(statement: object, site: str, phase: str, context: Context) -> dict[str, object]:
    """Return the content of a statement that `site` signed in this round and phase.

    Raises `PeerError` if it is not such a statement.
    """
    if not isinstance(statement, bytes):
        raise PeerError(site, "malformed message: no signed statement")
    frame = _read_once(statement, context.roster, ALL_RECIPIENTS, context.session)
    header = frame.header
    if (header.sender, header.round, header.phase) != (site, context.round, phase):
        raise PeerError(site, "a statement belongs to another site, round or phase")
    if context.roster.parties[site].role is not Role.SITE:
        raise PeerError(site, "only sites take part in a masked sum")
    return frame.body


def read_directory(statements: Mapping[str, object], context: Context) -> Directory:
    """Return the keys in the sites' signed statements. Raises `PeerError` if one is invalid.

    Keys must be in canonical form, and no key may occur twice, because a site that copies another
    site's public key does not know the private key.
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
                raise PeerError(site, "advertised malformed keys")  # fmt: skip
    public = [key for keys in directory.values() for key in (keys.first, keys.later)]
    if len(set(public)) != len(public):
        raise PeerError(context.roster.coordinator, "sent a key directory with a repeated key")
    return directory


def _are_keys(*keys: bytes) -> bool:
    """Return whether these are X25519 public keys in canonical form (RFC 7748: below p)."""
    return all(
        len(key) == KEY_BYTES and int.from_bytes(key, "little") < _FIELD_PRIME for key in keys
    )


def directory_digest(directory: Directory) -> bytes:
    """Return the digest that all sites must agree on."""
    plain = {site: keys.to_plain() for site, keys in directory.items()}
    return canonical_encoding.digest(["secagg key directory 1", plain])


# --- secrets and seeds ---------------------------------------------------------------------------


def pair_keys(
    private: bytes, public: Mapping[str, bytes], kind: str, me: str, session: bytes
) -> dict[str, bytes]:
    """Return the secret key that a site shares with each other site; both derive the same key.

    private: this site's private key
    public: the public keys of the other sites, by name
    kind: the purpose of the keys; keys of different kinds are independent
    me: the name of this site
    Raises `PeerError` for a public key of small order.
    """
    own = X25519PrivateKey.from_private_bytes(private)  # slow, so computed only once
    keys: dict[str, bytes] = {}
    for peer, key in public.items():
        try:
            secret = own.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError:  # the shared secret would be zero
            raise PeerError(peer, "advertised an invalid key (of small order)") from None
        info = canonical_encoding.dumps(["secagg pair key 1", kind, sorted((me, peer))])
        keys[peer] = HKDF(hashes.SHA256(), SEED_BYTES, salt=session, info=info).derive(secret)
    return keys


def label(
    session: bytes, round_: int, previous: bytes, masking: Sequence[str], request_digest: bytes
) -> bytes:
    """Return the label of one sum's masks: a digest of everything on which its sites must agree.

    previous: digest of the key directory, or the label of the previous sum
    masking: the sites that mask their contributions
    """
    return canonical_encoding.digest(
        ["secagg masks 1", session, round_, previous, sorted(masking), request_digest]
    )


def seed(key: bytes, label_: bytes) -> bytes:
    """Return the seed of one mask: HMAC-SHA256 of the label. Each seed is used once."""
    return hmac.digest(key, label_, "sha256")


def seal_shares(
    pair: bytes, shares: bytes, sender: str, recipient: str, random: RandomBytes
) -> bytes:
    """Return shares sealed from one site to another (Bonawitz et al., figure 4, round 1).

    pair: their pair key of kind "shares"

    Only these two sites can derive the key, and both have signed their public keys. So the
    authenticated encryption (AES-256-GCM) proves to the recipient who sent the shares. A key is
    used once, in one direction and one session. The nonce is random nevertheless. If a site's state
    is restored and the site seals other shares with the same key, nothing leaks.
    """
    nonce = random(_NONCE_BYTES)
    return nonce + AESGCM(_sealing_key(pair, sender, recipient)).encrypt(nonce, shares, None)


def open_shares(pair: bytes, sealed: bytes, sender: str, recipient: str) -> bytes:
    """Return the shares that `sender` sealed for `recipient`. Raises `PeerError`."""
    try:
        nonce, sealed = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return AESGCM(_sealing_key(pair, sender, recipient)).decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError):  # ValueError: shorter than nonce and tag
        raise PeerError(sender, "cannot open its sealed shares") from None


def _sealing_key(pair: bytes, sender: str, recipient: str) -> bytes:
    return seed(pair, canonical_encoding.digest(["secagg sealed shares 1", sender, recipient]))


def survivors_digest(label_: bytes, survivors: Sequence[str]) -> bytes:
    """Return the digest of the survivors' names, which each survivor signs before unmasking."""
    return canonical_encoding.digest(["secagg survivors 1", label_, sorted(survivors)])


def mask(vector: RingVector, me: str, pair_seeds: Mapping[str, bytes], own: bytes | None) -> None:
    """Add the pairwise masks of site `me` in place, and the self mask of seed `own` if given."""
    add = [s for peer, s in pair_seeds.items() if me < peer]
    subtract = [s for peer, s in pair_seeds.items() if peer < me]
    apply_masks(vector, [*add, *([] if own is None else [own])], subtract)


def unmask(
    vector: RingVector, self_seeds: Sequence[bytes], dropped: Mapping[str, Mapping[str, bytes]]
) -> None:
    """Remove from a sum, in place, the masks that do not cancel.

    self_seeds: the self seeds of all contributors
    dropped: for each site that masked but did not contribute, its seeds with each contributor
    """
    residual = [(s, contributor < site) for site, seeds in dropped.items()
                for contributor, s in seeds.items()]  # fmt: skip
    apply_masks(
        vector,
        [s for s, was_added in residual if not was_added],
        [*self_seeds, *(s for s, was_added in residual if was_added)],
    )
