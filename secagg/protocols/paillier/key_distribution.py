"""Set-up of the Paillier protocols: one site, the dealer, makes a key; the coordinator relays it.

There are two phases, for whole keys and for key shares. *deal*: the dealer draws a key, seals each
other site's key or key share for it, and sends the public key to the coordinator. *install*: each
site opens its envelope. If a dealer does not answer, the coordinator asks the next site.

Threat model: an honest-but-curious coordinator that may also try to make sites accept a key of its
choice: sites accept only an envelope that a *site* sealed and signed in this session. Trusted: the
dealer, which knows the whole key while it deals. Not protected: a malicious coordinator can ask
several sites to deal, and relay different keys to different sites; it knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import Body, Context, Phase, PhaseRequest, Ready, State
from secagg.core.frames import open_frame, seal_frame
from secagg.core.identity import Role
from secagg.errors import InternalError, JobError, PeerError, ProtocolAbort
from secagg.protocols.paillier.keys import (
    DEFAULT_BITS,
    MAX_BITS,
    MIN_BITS,
    PublicKey,
    check_public_key,
)

DEALING = (Phase("deal", Role.SITE), Phase("install", Role.SITE))


def check_key_bits(key_bits: int) -> None:
    """Raise `JobError` unless the setting `key_bits` is a supported length."""
    if key_bits % 2 or not MIN_BITS <= key_bits <= MAX_BITS:
        raise JobError(
            "protocol.key_bits",
            f"must be an even number from {MIN_BITS} to {MAX_BITS}, not {key_bits}",
            f"The default is {DEFAULT_BITS}.",
        )


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
            dealer in context.roster.with_role(Role.SITE)  # a key from the coordinator is refused
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


def relay(
    phase: str, state: State, replies: Mapping[str, Body], key_bits: int
) -> tuple[State, PhaseRequest | Ready]:
    """Run the coordinator's side of set-up; the final state has n, h_s and the key holders."""
    match phase:
        case "setup":
            return _ask_dealer(sorted(replies))
        case "deal" if replies:
            return _relay_key(state, replies, key_bits)
        case "deal":
            return _ask_dealer([s for s in state["candidates"] if s != state["dealer"]])
        case "install":
            holders = sorted({state["dealer"], *replies})
            return {"n": state["n"], "h_s": state["h_s"], "holders": holders}, Ready()
    raise InternalError("dealing", f"no server step {phase!r}")


def _ask_dealer(candidates: list[str]) -> tuple[State, PhaseRequest]:
    if not candidates:
        raise ProtocolAbort("paillier", "no site answered the request to make a key")
    state = {"candidates": candidates, "dealer": candidates[0]}
    return state, PhaseRequest("deal", {candidates[0]: {}})


def _relay_key(
    state: State, replies: Mapping[str, Body], key_bits: int
) -> tuple[State, PhaseRequest]:
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
