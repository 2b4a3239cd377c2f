"""Sums under Paillier encryption: sites encrypt, the coordinator multiplies, a site decrypts.

Follows P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes"
(EUROCRYPT 1999): the product of ciphertexts decrypts to the sum of plaintexts. Many values share a
ciphertext, each in a slot with guard bits (`packing`; BatchCrypt, USENIX ATC 2020, is the reference
in federated learning); keys, randomisers and their assumptions are in `djn_keys` and `djn`.

Set-up: one site draws the key pair and seals the private key to every other site; the coordinator
gets the public key only, and an unreadable envelope for each site to relay. A sum: every site sends
ciphertexts; the coordinator multiplies them; one contributing site, after checking the release
rules, decrypts the product and returns the sum. If it does not answer, another one is asked.

Threat model: a coordinator who follows the protocol and does not collude with any site. Sums are
semantically secure under the decisional composite residuosity assumption (and factoring, for the
half-length exponents of `djn`).

Not protected: everything, against the coordinator together with a single site (it holds the private
key); against a coordinator who asks for the decryption of one site's ciphertext instead of the
product (the key holder cannot see the difference: threshold decryption with proofs is what mends
that); and a dishonest site can spill into neighbouring slots, making the sum wrong.

A site's protocol state holds the private key in clear: whoever stores it keeps it as safe as the
site's own keys.

`phe` (GPLv3) is imported in this file only, and only by `to_phe` and `from_phe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from secagg.contracts import Ask, Body, Capabilities, Context, Phase, Ready, Shape, State, Total
from secagg.core import ring
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import InternalError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.protocols.paillier import cryptosystem, key_distribution
from secagg.protocols.paillier.encrypted_vectors import EncryptedSums
from secagg.protocols.paillier.keys import (
    DEFAULT_BITS,
    PrivateKey,
    PublicKey,
    check_private_key,
    generate_keypair,
)

if TYPE_CHECKING:
    import phe


@dataclass(frozen=True)
class Paillier:
    """Paillier sums under one key that all sites hold."""

    key_bits: int = DEFAULT_BITS
    """Length of the modulus in bits, even, from 2048 (112-bit security) to 16384. 3072 is the
    128-bit level."""
    short_exponents: bool = False
    """Encrypt about five times faster, under the further assumption that short random powers look
    random."""

    name: ClassVar[str] = "paillier"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="any site may drop out, as long as one that contributed can decrypt",
        sees={
            "coordinator": "ciphertexts it cannot read, and the sum",
            "site": "the cohort, the number of records in all, the method's messages, and the sum "
            "when it is asked to decrypt (every site holds the private key)",
        },
        unprotected=(
            "All sites hold the private key: the coordinator together with any one site could read "
            "every contribution.",
            "A site that decrypts cannot see that it was given the sum and nothing else, nor what "
            "other sites were asked to decrypt; the coordinator is trusted to follow the protocol.",
            "A dishonest site can spill into neighbouring values and make the sum wrong.",
        ),
    )
    setup: ClassVar[tuple[Phase, ...]] = key_distribution.DEALING
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("encrypt", Role.SITE, contributes=True),
        Phase("decrypt", Role.SITE, opens=True),
    )

    def __post_init__(self) -> None:
        key_distribution.check_key_bits(self.key_bits)

    def guarantee_text(self, sites: int) -> str:
        """No site may collude with the coordinator."""
        return f"each of the {sites} sites holds the key: none may collude with the coordinator"

    def max_colluding(self, sites: int) -> int:
        """No site: each holds the key."""
        return 0

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Need nobody beside sites and coordinator."""
        return ()

    def draw_key(self, random: RandomBytes) -> PrivateKey:
        """Return a fresh key; whoever wants to deal an existing one overrides this."""
        return generate_keypair(self.key_bits, random)

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Deal, install, encrypt, decrypt: all at a site."""
        match phase:
            case "deal":
                return self._deal(state, context)
            case "install":
                return self._install(state, body, context)
            case "encrypt" if contribution is not None:
                return state, {"ciphertexts": self._encrypt(_key(state), contribution, context)}
            case "decrypt":
                return _decrypt(state, body, context)
        raise InternalError("paillier", f"no client step {phase!r}")

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask | Total | Ready]:
        """Relay the key, multiply ciphertexts, ask one site after another to decrypt."""
        match phase:
            case "setup" | "deal" | "install":
                return key_distribution.relay(phase, state, replies, self.key_bits)
            case "sum":
                asked = [site for site in replies if site in state["holders"]]
                return state, Ask("encrypt", {site: {} for site in asked})
            case "encrypt":
                return _multiply(state, replies, context)
            case "decrypt":
                return _finish(state, replies, context)
        raise InternalError("paillier", f"no server step {phase!r}")

    # --- a site ------------------------------------------------------------------------------

    def _deal(self, state: State, context: Context) -> tuple[State, Body]:
        if "key" in state:
            raise PeerError(context.roster.coordinator, "asks for a second key")
        key = self.draw_key(context.random)
        others = [site for site in context.roster.named(Role.SITE) if site != context.me]
        reply = key_distribution.deal(
            key.public, {site: _plain_key(key) for site in others}, context
        )
        return {"key": _plain_key(key), "opened": -1}, reply

    def _install(self, state: State, body: Body, context: Context) -> tuple[State, Body]:
        """Take the private key that the dealer, a site, sealed for us, once a session."""
        if "key" in state:
            raise PeerError(context.roster.coordinator, "deals a second key")
        dealer, plain = key_distribution.open_dealt(body, context)
        key = _read_key(plain)
        key_distribution.check_size(dealer, key.public, self.key_bits)
        check_private_key(key)
        return {"key": _plain_key(key), "opened": -1}, {}

    def _encrypt(self, key: PrivateKey, contribution: RingVector, context: Context) -> bytes:
        ciphertexts = cryptosystem.encrypt_as_key_holder(
            key,
            EncryptedSums.of(key.public, context).plaintexts(contribution),
            context.random,
            short_exponent_assumption=self.short_exponents,
        )
        return cryptosystem.ciphertexts_to_bytes(key.public, ciphertexts)


def _decrypt(state: State, body: Body, context: Context) -> tuple[State, Body]:
    """Decrypt the product over the contributors, once a round; the rules were checked before."""
    key = _key(state)
    if context.round <= state["opened"]:
        raise PolicyRefusal(context.me, "a sum of this round was decrypted already")
    product = body.get("product")
    if not isinstance(product, bytes):
        raise PeerError(context.roster.coordinator, "malformed request: no ciphertexts")
    sums = EncryptedSums.of(key.public, context)
    ciphertexts = sums.ciphertexts(context.roster.coordinator, product)
    total = sums.total(cryptosystem.decrypt(key, ciphertexts), len(body["contributors"]))
    return {**state, "opened": context.round}, {"sum": total}


def _key(state: State) -> PrivateKey:
    if "key" not in state:
        raise PeerError("paillier", "this site was never dealt a key")
    return _read_key(state["key"])


def _plain_key(key: PrivateKey) -> Body:
    return {"n": key.public.n, "h_s": key.public.h_s, "p": key.p, "q": key.q}


def _read_key(plain: Body) -> PrivateKey:
    match plain:
        case {"n": int(n), "h_s": None | int() as h_s, "p": int(p), "q": int(q)}:
            return PrivateKey(PublicKey(n, h_s), p, q)
    raise PeerError("paillier", "malformed message: not a private key")


# --- the coordinator -----------------------------------------------------------------------------


def _multiply(
    state: State, replies: Mapping[str, Body], context: Context
) -> tuple[State, Ask | Total]:
    if not replies:
        raise ProtocolAbort("paillier", "no site sent ciphertexts")
    public = PublicKey(state["n"], state["h_s"])
    sums = EncryptedSums.of(public, context)
    columns = [sums.ciphertexts(site, body.get("ciphertexts")) for site, body in replies.items()]
    product = cryptosystem.ciphertexts_to_bytes(public, cryptosystem.multiply(public, columns))
    return _ask_decryption({**state, "product": product, "summed": list(replies)}, list(replies))


def _ask_decryption(state: State, candidates: list[str]) -> tuple[State, Ask]:
    if not candidates:
        raise ProtocolAbort("paillier", "no contributing site answered to decrypt the sum")
    state = {**state, "decryptors": candidates}
    body: Body = {"product": state["product"]}
    return state, Ask("decrypt", {candidates[0]: body}, tuple(state["summed"]))


def _finish(
    state: State, replies: Mapping[str, Body], context: Context
) -> tuple[State, Ask | Total]:
    if not replies:
        return _ask_decryption(state, state["decryptors"][1:])
    ((site, body),) = replies.items()
    values = body.get("sum")
    if not ring.is_vector(values, context.shape.length, context.shape.ring_bits):
        raise PeerError(site, "its decrypted sum has the wrong shape")
    lasting = {key: state[key] for key in ("n", "h_s", "holders")}
    return lasting, Total(values, tuple(state["summed"]))


# --- all parties on one screen -------------------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector], shape: Shape, key: PrivateKey, random: RandomBytes
) -> RingVector:
    """Play every party, without messages: offset and pack, encrypt, multiply, decrypt, unpack."""
    sums = EncryptedSums(key.public, shape, len(contributions))
    columns = [
        cryptosystem.encrypt(key.public, sums.plaintexts(contribution), random)
        for contribution in contributions.values()
    ]
    return sums.total(
        cryptosystem.decrypt(key, cryptosystem.multiply(key.public, columns)), len(contributions)
    )


# --- keys of the `phe` package -------------------------------------------------------------------


def to_phe(key: PrivateKey) -> phe.PaillierPrivateKey:
    """Return our key as a `phe` private key (its public half in `.public_key`)."""
    import phe  # noqa: PLC0415  # GPLv3: loaded only by who asks for its objects

    return phe.PaillierPrivateKey(phe.PaillierPublicKey(key.public.n), key.p, key.q)


def from_phe(key: phe.PaillierPrivateKey) -> PrivateKey:
    """Return a `phe` private key as ours. Raises `PeerError` if it is damaged or too short.

    Such keys lack h_s, so encryption uses the classical randomisers r^n: slower, same security.
    """
    imported = PrivateKey(PublicKey(int(key.public_key.n)), int(key.p), int(key.q))
    check_private_key(imported)
    return imported
