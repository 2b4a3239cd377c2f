"""Sums under Paillier encryption: sites encrypt, the coordinator multiplies, a site decrypts.

Follows P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes"
(EUROCRYPT 1999): the product of ciphertexts decrypts to the sum of plaintexts. A ciphertext holds
many values, each in a slot with guard bits (`packing`, after BatchCrypt, USENIX ATC 2020). Keys,
randomisers and their assumptions are in `keys` and `cryptosystem`.

Set-up: one site draws the key pair and seals the private key for every other site. The coordinator
relays these envelopes but cannot read them. It learns only the public key.

A sum: every site sends ciphertexts, and the coordinator multiplies them. One contributing site
checks the release rules, decrypts the product and returns the sum. If this site does not answer,
the coordinator asks another site.

Threat model: an honest-but-curious coordinator that does not collude with any site. It learns
nothing about a single contribution, under the decisional composite residuosity assumption and the
assumption that factoring is hard (see `cryptosystem`).

Not protected:

* Everything, if the coordinator colludes with a single site, because each site holds the private
  key.
* A contribution, if the coordinator asks a site to decrypt one site's ciphertext instead of the
  product. The site cannot see the difference. (`threshold_paillier` prevents this.)
* The result, because the values of a malicious site can overflow into other slots.
* A site's protocol state, which contains the private key unencrypted. The state must be stored as
  safely as the site's own keys.

`phe` (GPLv3) is imported in this file only, and only by `to_phe` and `from_phe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from secagg.contracts import (
    Body,
    Capabilities,
    Context,
    PhaseRequest,
    ProtocolState,
    Shape,
    Total,
)
from secagg.core import ring
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import PeerError, ProtocolAbort
from secagg.protocols.paillier import cryptosystem, phases
from secagg.protocols.paillier.encrypted_vectors import EncryptedVectors
from secagg.protocols.paillier.keys import (
    PrivateKey,
    PublicKey,
    check_private_key,
    generate_keypair,
)
from secagg.protocols.paillier.phases import PaillierPhases

if TYPE_CHECKING:
    import phe


@dataclass(frozen=True)
class Paillier(PaillierPhases):
    """Paillier sums under one key that all sites hold."""

    short_exponents: bool = False
    """Encrypt about five times faster, under the further assumption that powers with short random
    exponents cannot be distinguished from random ones."""

    name: ClassVar[str] = "paillier"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="any site may drop out, as long as one contributing site remains to decrypt",
        sees={
            "coordinator": "ciphertexts it cannot read, and the sum",
            "site": "which sites took part, the total number of records, the method's messages, "
            "and, if it is asked to decrypt, the sum (every site holds the private key)",
        },
        unprotected=(
            "All sites hold the private key: the coordinator together with any one site could read "
            "every contribution.",
            "The coordinator is trusted to follow the protocol: a site cannot check that it "
            "decrypts the sum and not a single contribution.",
            "A malicious site can change other values of the sum and so make it wrong.",
        ),
    )

    def guarantee_text(self, sites: int) -> str:
        return f"each of the {sites} sites holds the key: none may collude with the coordinator"

    def max_colluding(self, sites: int) -> int:
        """Return 0, because each site holds the key."""
        return 0

    def least_sites(self, sites: int) -> int:
        """Return 2: no number protects against a site that colludes."""
        return 2

    def draw_key(self, random: RandomBytes) -> PrivateKey:
        """Return a fresh key. Override this method to use an existing key."""
        return generate_keypair(self.key_bits, random)

    # --- a site ------------------------------------------------------------------------------

    def _deal(self, context: Context) -> tuple[ProtocolState, Body]:
        key = self.draw_key(context.random)
        others = [site for site in context.roster.with_role(Role.SITE) if site != context.me]
        reply = phases.deal(key.public, {site: _plain_key(key) for site in others}, context)
        return {"key": _plain_key(key), "opened": -1}, reply

    def _install(self, body: Body, context: Context) -> ProtocolState:
        dealer, plain = phases.open_dealt(body, context)
        key = _read_key(plain)
        phases.check_size(dealer, key.public, self.key_bits)
        check_private_key(key)
        return {"key": _plain_key(key), "opened": -1}

    def _encrypt(self, state: ProtocolState, contribution: RingVector, context: Context) -> Body:
        key = _key(state)
        ciphertexts = cryptosystem.encrypt_as_key_holder(
            key,
            EncryptedVectors.of(key.public, context).plaintexts(contribution),
            context.random,
            short_exponent_assumption=self.short_exponents,
        )
        return {"ciphertexts": ciphertexts.to_bytes()}

    def _decrypt(self, state: ProtocolState, body: Body, context: Context) -> Body:
        key = _key(state)
        sums = EncryptedVectors.of(key.public, context)
        ciphertexts = sums.ciphertexts(context.roster.coordinator, body.get("product"))
        return {
            "sum": sums.total(cryptosystem.decrypt(key, ciphertexts), len(body["contributors"]))
        }

    # --- the coordinator ---------------------------------------------------------------------

    def _multiply(
        self, state: phases.CoordinatorState, replies: Mapping[str, Body], context: Context
    ) -> tuple[phases.CoordinatorState, PhaseRequest]:
        public = PublicKey(state["n"], state["h_s"])
        sums = EncryptedVectors.of(public, context)
        columns = [
            sums.ciphertexts(site, body.get("ciphertexts")) for site, body in replies.items()
        ]
        product = cryptosystem.multiply(public, columns).to_bytes()
        contributors = list(replies)
        return _ask_decryption({**state, "product": product, "summed": contributors}, contributors)

    def _collect(
        self, state: phases.CoordinatorState, replies: Mapping[str, Body], context: Context
    ) -> tuple[phases.CoordinatorState, PhaseRequest | Total]:
        if not replies:
            return _ask_decryption(state, state["decryptors"][1:])
        ((site, body),) = replies.items()
        values = body.get("sum")
        if not ring.is_vector(values, context.shape.length, context.shape.ring_bits):
            raise PeerError(site, "its decrypted sum has the wrong shape")
        return phases.session_state(state), Total(values, tuple(state["summed"]))


def _key(state: ProtocolState) -> PrivateKey:
    if "key" not in state:
        raise PeerError("paillier", "this site has no key")
    return _read_key(state["key"])


def _plain_key(key: PrivateKey) -> Body:
    return {"n": key.public.n, "h_s": key.public.h_s, "p": key.p, "q": key.q}


def _read_key(plain: Body) -> PrivateKey:
    match plain:
        case {"n": int(n), "h_s": None | int() as h_s, "p": int(p), "q": int(q)}:
            return PrivateKey(PublicKey(n, h_s), p, q)
    raise PeerError("paillier", "malformed message: not a private key")


def _ask_decryption(
    state: phases.CoordinatorState, candidates: list[str]
) -> tuple[phases.CoordinatorState, PhaseRequest]:
    if not candidates:
        raise ProtocolAbort("paillier", "no contributing site answered the request to decrypt")
    state = {**state, "decryptors": candidates}
    body: Body = {"product": state["product"]}
    return state, PhaseRequest("decrypt", {candidates[0]: body}, tuple(state["summed"]))


# --- the whole protocol without messages ---------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector], shape: Shape, key: PrivateKey, random: RandomBytes
) -> RingVector:
    """Compute the sum without messages: pack, encrypt, multiply, decrypt, unpack."""
    sums = EncryptedVectors(key.public, shape, len(contributions))
    columns = [
        cryptosystem.encrypt(key.public, sums.plaintexts(contribution), random)
        for contribution in contributions.values()
    ]
    return sums.total(
        cryptosystem.decrypt(key, cryptosystem.multiply(key.public, columns)), len(contributions)
    )


# --- keys of the `phe` package -------------------------------------------------------------------


def to_phe(key: PrivateKey) -> phe.PaillierPrivateKey:
    """Return a key as a `phe` private key (public key in `.public_key`)."""
    import phe  # noqa: PLC0415  # GPLv3: loaded only if these functions are used

    return phe.PaillierPrivateKey(phe.PaillierPublicKey(key.public.n), key.p, key.q)


def from_phe(key: phe.PaillierPrivateKey) -> PrivateKey:
    """Return a `phe` private key as a `PrivateKey`. Raises `PeerError` if damaged or too short.

    Such keys have no h_s, so encryption uses the randomisers r^n, which is slower. Security is at
    least as good.
    """
    imported = PrivateKey(PublicKey(int(key.public_key.n)), int(key.p), int(key.q))
    check_private_key(imported)
    return imported
