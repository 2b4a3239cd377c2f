"""The phases of both Paillier protocols. One site, the dealer, makes a key; then sums follow.

Set-up has two phases:

* *deal*: the dealer draws a key. It seals the key, or a share of the key, for each other site, and
  sends the public key to the coordinator. If a dealer does not answer, the coordinator asks the
  next site.
* *install*: each site opens its envelope.

A sum has two phases: all sites with a key or share *encrypt*, and contributing sites *decrypt*.

Threat model: an honest-but-curious coordinator, which may also try to make sites accept a key that
it chose. Sites accept only an envelope that a *site* sealed and signed in this session. The dealer
is trusted, because it knows the whole key while it deals.

Not protected: a malicious coordinator can ask several sites to deal, and relay different keys to
different sites. It knows none of these keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, cast

from secagg.contracts import Body, Context, Phase, PhaseRequest, ProtocolState, Ready, Total
from secagg.core.frames import open_frame, seal_frame
from secagg.core.identity import Role
from secagg.core.ring import RingVector
from secagg.errors import InternalError, JobError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.protocols.paillier.keys import DEFAULT_BITS, PublicKey, check_length, check_public_key


class CoordinatorState(TypedDict, total=False):
    """What the coordinator keeps.

    candidates: sites that may make the key; dealer: the first of them, which is asked
    n, h_s: the public key; holders: the sites that have the key or a share of it
    The others are from "encrypt" until the sum is open. product: of the ciphertexts, encoded
    summed, decryptors: with a single key, the sites in the sum, and those that may yet decrypt it
    ciphertexts, unasked, answers: with a threshold, the ciphertexts by site, the sites that may yet
        be asked, and the partial decryptions by site
    """

    candidates: list[str]
    dealer: str
    n: int
    h_s: int | None
    holders: list[str]
    product: bytes
    summed: list[str]
    decryptors: list[str]
    ciphertexts: dict[str, bytes]
    unasked: list[str]
    answers: dict[str, bytes]


@dataclass(frozen=True)
class PaillierPhases(ABC):
    """The common part of both protocols.

    A site's state has the key "opened", the last round in which the site decrypted.
    """

    key_bits: int = DEFAULT_BITS
    """Length of the modulus in bits: an even number from 2048 (112-bit security) to 16384. 3072
    bits give 128-bit security."""

    name: ClassVar[str]
    setup: ClassVar[tuple[Phase, ...]] = (Phase("deal", Role.SITE), Phase("install", Role.SITE))
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("encrypt", Role.SITE, contributes=True),
        Phase("decrypt", Role.SITE, opens=True),
    )

    @abstractmethod
    def max_colluding(self, sites: int) -> int:
        """As in `SecureSum`."""

    @abstractmethod
    def least_sites(self, sites: int) -> int:
        """As in `SecureSum`."""

    def __post_init__(self) -> None:
        check_length(self.key_bits, "protocol.key_bits", JobError)

    def parties(self) -> tuple[tuple[str, Role], ...]:
        return ()

    def client(
        self,
        phase: str,
        state: ProtocolState,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[ProtocolState, Body]:
        match phase:
            case "deal" | "install" if "opened" in state:
                raise PeerError(context.roster.coordinator, "asks for or sends a second key")
            case "deal":
                self._check_session(context)
                return self._deal(context)
            case "install":
                return self._install(body, context), {}
            case "encrypt" if contribution is not None:
                return state, self._encrypt(state, contribution, context)
            case "decrypt":
                if context.round <= state.get("opened", -1):
                    raise PolicyRefusal(context.me, "has already decrypted a sum of this round")
                return {**state, "opened": context.round}, self._decrypt(state, body, context)
        raise InternalError(self.name, f"no client step {phase!r}")

    def server(
        self, phase: str, state: ProtocolState, replies: Mapping[str, Body], context: Context
    ) -> tuple[ProtocolState, PhaseRequest | Total | Ready]:
        """Relay the key, multiply ciphertexts, ask sites to decrypt the product."""
        kept = cast("CoordinatorState", state)
        match phase:
            case "setup":
                self._check_session(context)
                return _ask_dealer(sorted(replies))
            case "deal" if replies:
                return _relay_key(kept, replies, self.key_bits)
            case "deal":
                return _ask_dealer([s for s in kept["candidates"] if s != kept["dealer"]])
            case "install":
                holders = sorted({kept["dealer"], *replies})
                return session_state({**kept, "holders": holders}), Ready()
            case "sum":
                key_holders = [site for site in replies if site in kept["holders"]]
                return state, PhaseRequest("encrypt", {site: {} for site in key_holders})
            case "encrypt" if not replies:
                raise ProtocolAbort(self.name, "no site sent ciphertexts")
            case "encrypt":
                return self._multiply(kept, replies, context)
            case "decrypt":
                return self._collect(kept, replies, context)
        raise InternalError(self.name, f"no server step {phase!r}")

    def _check_session(self, context: Context) -> None:
        """Raise `PolicyRefusal` if this session lacks too many of the job's sites.

        Raises `JobError` if the settings do not fit the number of the job's sites.
        """
        least, sites = self.least_sites(context.job_sites), context.roster.with_role(Role.SITE)
        if len(sites) < least:
            what = f"the session has {len(sites)} sites, and this job needs {least} of its sites"
            raise PolicyRefusal(context.me, what, "Run again when more sites can be reached.")

    @abstractmethod
    def _deal(self, context: Context) -> tuple[ProtocolState, Body]:
        """Draw a key and seal it for the other sites. Return the dealer's state and its reply."""

    @abstractmethod
    def _install(self, body: Body, context: Context) -> ProtocolState:
        """Return the state with the key or share that the dealer sealed for this site."""

    @abstractmethod
    def _encrypt(self, state: ProtocolState, contribution: RingVector, context: Context) -> Body:
        """Return the encrypted contribution."""

    @abstractmethod
    def _decrypt(self, state: ProtocolState, body: Body, context: Context) -> Body:
        """Decrypt the product over the contributors. `Party` has checked the release rules."""

    @abstractmethod
    def _multiply(
        self, state: CoordinatorState, replies: Mapping[str, Body], context: Context
    ) -> tuple[CoordinatorState, PhaseRequest]:
        """Multiply the ciphertexts and ask sites to decrypt."""

    @abstractmethod
    def _collect(
        self, state: CoordinatorState, replies: Mapping[str, Body], context: Context
    ) -> tuple[CoordinatorState, PhaseRequest | Total]:
        """Return the sum, or ask further sites to decrypt."""


# --- a site --------------------------------------------------------------------------------------


def deal(public: PublicKey, bodies: Mapping[str, Body], context: Context) -> Body:
    """Return the dealer's reply: the public key, and each body sealed for its site."""
    envelopes = {
        site: seal_frame(
            context.identity, context.roster, context.session, context.round, "deal", site, body
        )
        for site, body in bodies.items()
    }
    return {"n": public.n, "h_s": public.h_s, "envelopes": envelopes}


def open_dealt(body: Body, context: Context) -> tuple[str, dict[str, Any]]:
    """Return the dealer's name and the content of its envelope. Raises `PeerError`."""
    match body:
        case {"dealer": str(dealer), "envelope": bytes(envelope)} if (
            dealer in context.roster.with_role(Role.SITE)  # refuse a key from the coordinator
        ):
            pass
        case _:
            raise PeerError(
                context.roster.coordinator, "malformed request: no key sealed by a site"
            )
    identity, roster, session = context.identity, context.roster, context.session
    return dealer, open_frame(identity, roster, session, context.round, "deal", dealer, envelope)


def check_size(dealer: str, key: PublicKey, key_bits: int) -> None:
    """Raise `PeerError` unless the key has the length of the job's setting."""
    if key.bits != key_bits:
        raise PeerError(dealer, f"the key has {key.bits} bits instead of the job's {key_bits} bits")


# --- the coordinator -----------------------------------------------------------------------------


def _ask_dealer(candidates: list[str]) -> tuple[CoordinatorState, PhaseRequest]:
    if not candidates:
        raise ProtocolAbort("paillier", "no site answered the request to make a key")
    state: CoordinatorState = {"candidates": candidates, "dealer": candidates[0]}
    return state, PhaseRequest("deal", {candidates[0]: {}})


def session_state(state: CoordinatorState) -> CoordinatorState:
    """Return what remains after a sum: the public key, and who holds the private one."""
    return {"n": state["n"], "h_s": state["h_s"], "holders": state["holders"]}


def _relay_key(
    state: CoordinatorState, replies: Mapping[str, Body], key_bits: int
) -> tuple[CoordinatorState, PhaseRequest]:
    dealer = state["dealer"]
    match replies[dealer]:
        case {"n": int(n), "h_s": None | int() as h_s, "envelopes": dict(envelopes)}:
            public = PublicKey(n, h_s)
        case _:
            raise PeerError(dealer, "sent a malformed key")
    check_size(dealer, public, key_bits)
    check_public_key(public)
    bodies: dict[str, Body] = {
        site: {"dealer": dealer, "envelope": envelope}
        for site, envelope in envelopes.items()
        if site in state["candidates"]
    }
    return {**state, "n": n, "h_s": h_s}, PhaseRequest("install", bodies)
