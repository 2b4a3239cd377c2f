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

from secagg import ring
from secagg.contracts import Ask, Body, Capabilities, Context, Phase, Ready, Shape, State, Total
from secagg.errors import InternalError, JobError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.frames import open_frame, seal_frame
from secagg.identity import Role
from secagg.protocols import djn
from secagg.protocols.djn_keys import (
    DEFAULT_BITS,
    MAX_BITS,
    MIN_BITS,
    PrivateKey,
    PublicKey,
    check_private_key,
    check_public_key,
    generate_keypair,
)
from secagg.protocols.packing import Packing
from secagg.randomness import RandomBytes
from secagg.ring import RingVector

if TYPE_CHECKING:
    import phe


@dataclass(frozen=True)
class Paillier:
    """Paillier sums; `key_bits` is the length of n: 3072 (128-bit level) or 2048 (112-bit).

    short_exponents: randomisers from 256-bit exponents; some five times faster to encrypt, and
        assumes that such short powers look random (see `djn.encrypt`)
    """

    key_bits: int = DEFAULT_BITS
    short_exponents: bool = False

    name: ClassVar[str] = "paillier"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(64, 128),
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
    setup: ClassVar[tuple[Phase, ...]] = (
        Phase("deal", Role.SITE),
        Phase("install", Role.SITE),
    )
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("encrypt", Role.SITE, contributes=True),
        Phase("decrypt", Role.SITE, opens=True),
    )

    def __post_init__(self) -> None:
        if self.key_bits % 2 or not MIN_BITS <= self.key_bits <= MAX_BITS:
            raise JobError(
                "protocol.key_bits", f"{self.key_bits} is not an even length from {MIN_BITS} to "
                f"{MAX_BITS}", f"{DEFAULT_BITS} is the default.",
            )  # fmt: skip

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
                return self._deal(body, context)
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
            case "setup":
                return _ask_dealer({"candidates": sorted(replies)}, sorted(replies))
            case "deal" if replies:
                return self._relay_key(state, replies)
            case "deal":
                return _ask_dealer(state, [s for s in state["candidates"] if s != state["dealer"]])
            case "install":
                holders = sorted({state["dealer"], *replies})
                return {"n": state["n"], "h_s": state["h_s"], "holders": holders}, Ready()
            case "sum":
                asked = [site for site in replies if site in state["holders"]]
                return state, Ask("encrypt", {site: {} for site in asked})
            case "encrypt":
                return _multiply(state, replies, context)
            case "decrypt":
                return _finish(state, replies, context)
        raise InternalError("paillier", f"no server step {phase!r}")

    # --- a site ------------------------------------------------------------------------------

    def _deal(self, body: Body, context: Context) -> tuple[State, Body]:
        key = self.draw_key(context.random)
        sealed = {
            site: seal_frame(
                context.identity, context.roster, context.session, context.round, "deal", site,
                _plain_key(key),
            )
            for site in context.roster.named(Role.SITE)
            if site != context.me
        }  # fmt: skip
        public = {"n": key.public.n, "h_s": key.public.h_s, "envelopes": sealed}
        return {"key": _plain_key(key), "opened": -1}, public

    def _install(self, state: State, body: Body, context: Context) -> tuple[State, Body]:
        """Take the private key that the dealer, a site, sealed for us, once a session."""
        coordinator = context.roster.coordinator
        if "key" in state:
            raise PeerError(coordinator, "deals a second key")
        match body:
            case {"dealer": str(dealer), "envelope": bytes(envelope)} if (
                dealer in context.roster.named(Role.SITE)  # the coordinator must never know the key
            ):
                pass
            case _:
                raise PeerError(coordinator, "malformed request: no key sealed by a site")
        key = _read_key(
            open_frame(
                context.identity, context.roster, context.session, context.round, "deal", dealer,
                envelope,
            )
        )  # fmt: skip
        self._check_size(dealer, key.public)
        check_private_key(key)
        return {"key": _plain_key(key), "opened": -1}, {}

    def _check_size(self, dealer: str, key: PublicKey) -> None:
        if key.bits != self.key_bits:
            raise PeerError(dealer, f"deals a key that has not the job's {self.key_bits} bits")

    def _encrypt(self, key: PrivateKey, contribution: RingVector, context: Context) -> bytes:
        packing = slots(key.public, context)
        offset = ring.add(contribution, _offsets(context.shape, 1))
        ciphertexts = djn.encrypt_as_key_holder(
            key,
            packing.pack(offset),
            context.random,
            short_exponent_assumption=self.short_exponents,
        )
        return djn.ciphertexts_to_bytes(key.public, ciphertexts)

    # --- the coordinator ---------------------------------------------------------------------

    def _relay_key(self, state: State, replies: Mapping[str, Body]) -> tuple[State, Ask]:
        dealer = state["dealer"]
        match replies[dealer]:
            case {"n": int(n), "h_s": None | int() as h_s, "envelopes": dict(envelopes)}:
                public = PublicKey(n, h_s)
            case _:
                raise PeerError(dealer, "deals a malformed key")
        self._check_size(dealer, public)
        check_public_key(public)
        bodies: dict[str, Body] = {
            site: {"dealer": dealer, "envelope": envelope}
            for site, envelope in envelopes.items()
            if site in state["candidates"]
        }
        return {**state, "n": n, "h_s": h_s}, Ask("install", bodies)


def slots(public: PublicKey, context: Context) -> Packing:
    """Return how contributions are packed: guard bits for as many sites as the roster has."""
    sites = len(context.roster.named(Role.SITE))
    return Packing.for_sites(context.shape.value_bits, sites, public.bits)


def _offsets(shape: Shape, times: int) -> RingVector:
    """Return `times` the offset 2^(value_bits - 1) that makes every slot non-negative."""
    return ring.from_integers([times << (shape.value_bits - 1)], shape.ring_bits)


def _decrypt(state: State, body: Body, context: Context) -> tuple[State, Body]:
    """Decrypt the product over the contributors, once a round; the rules were checked before."""
    key = _key(state)
    if context.round <= state["opened"]:
        raise PolicyRefusal(context.me, "a sum of this round was decrypted already")
    shape, packing = context.shape, slots(key.public, context)
    product = body.get("product")
    if not isinstance(product, bytes):
        raise PeerError(context.roster.coordinator, "malformed request: no ciphertexts")
    count = packing.plaintexts(shape.length)
    ciphertexts = djn.ciphertexts_from_bytes(key.public, product, count)
    slot_sums = packing.unpack(djn.decrypt(key, ciphertexts), shape.length)
    total = _without_offsets(slot_sums, shape, len(body["contributors"]))
    return {**state, "opened": context.round}, {"sum": total}


def _without_offsets(slot_sums: RingVector, shape: Shape, contributors: int) -> RingVector:
    """Return the ring sums from what the slots hold, the integer sums of offset values.

    A slot may be wider or narrower than the ring: reduced, then freed of the contributors' offsets;
    both are exact modulo 2^ring_bits.
    """
    reduced = ring.zeros(shape.length, shape.ring_bits)
    common = min(reduced.shape[1], slot_sums.shape[1])
    reduced[:, :common] = slot_sums[:, :common]
    return ring.subtract(reduced, _offsets(shape, contributors))


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


def _ask_dealer(state: State, candidates: list[str]) -> tuple[State, Ask]:
    if not candidates:
        raise ProtocolAbort("paillier", "no site answered to make the key")
    state = {"candidates": candidates, "dealer": candidates[0]}
    return state, Ask("deal", {candidates[0]: {}})


def _multiply(
    state: State, replies: Mapping[str, Body], context: Context
) -> tuple[State, Ask | Total]:
    if not replies:
        raise ProtocolAbort("paillier", "no site sent ciphertexts")
    public = PublicKey(state["n"], state["h_s"])
    count = slots(public, context).plaintexts(context.shape.length)
    columns: list[list[int]] = []
    for site, body in replies.items():
        data = body.get("ciphertexts")
        if not isinstance(data, bytes):
            raise PeerError(site, "sends no ciphertexts")
        columns.append(djn.ciphertexts_from_bytes(public, data, count))
    product = djn.ciphertexts_to_bytes(public, djn.multiply(public, columns))
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
    packing = Packing.for_sites(shape.value_bits, len(contributions), key.public.bits)
    offset = _offsets(shape, 1)
    columns = [
        djn.encrypt(key.public, packing.pack(ring.add(contribution, offset)), random)
        for contribution in contributions.values()
    ]
    sums = djn.decrypt(key, djn.multiply(key.public, columns))
    return _without_offsets(packing.unpack(sums, shape.length), shape, len(contributions))


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
