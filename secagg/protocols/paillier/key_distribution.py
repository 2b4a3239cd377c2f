"""Set-up of the Paillier protocols: one site deals a key, the coordinator relays it.

Two phases, the same whatever is dealt. *deal*: a site draws a key, seals to every other site what
that site may know, and shows the coordinator the public half. *install*: each site opens what was
sealed to it. A site that does not answer the first request is passed over as dealer.

Threat model: the coordinator is curious, and may lie to get a key of its own choice accepted: only
an envelope that a *site* sealed and signed in this session is taken. Trusted: the dealer, which
knows the whole key while it deals. Not protected: a malicious coordinator may have several sites
deal, and relay the key of one to some and that of another to others; it knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import Ask, Body, Context, Phase, Ready, State
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
    """Raise `JobError` for a setting `key_bits` that no key is made with."""
    if key_bits % 2 or not MIN_BITS <= key_bits <= MAX_BITS:
        raise JobError(
            "protocol.key_bits",
            f"{key_bits} is not an even length from {MIN_BITS} to {MAX_BITS}",
            f"{DEFAULT_BITS} is the default.",
        )


# --- a site --------------------------------------------------------------------------------------


def deal(public: PublicKey, bodies: Mapping[str, Body], context: Context) -> Body:
    """Return the dealer's reply: the public key, and each of `bodies` sealed to its site."""
    envelopes = {
        site: seal_frame(
            context.identity, context.roster, context.session, context.round, "deal", site, body
        )
        for site, body in bodies.items()
    }
    return {"n": public.n, "h_s": public.h_s, "envelopes": envelopes}


def open_dealt(body: Body, context: Context) -> tuple[str, dict[str, Any]]:
    """Return the dealer and what it sealed for us. Raises `PeerError`."""
    match body:
        case {"dealer": str(dealer), "envelope": bytes(envelope)} if (
            dealer in context.roster.named(Role.SITE)  # the coordinator must never know the key
        ):
            pass
        case _:
            raise PeerError(
                context.roster.coordinator, "malformed request: no key sealed by a site"
            )
    identity, roster, session = context.identity, context.roster, context.session
    return dealer, open_frame(identity, roster, session, context.round, "deal", dealer, envelope)


def check_size(dealer: str, key: PublicKey, key_bits: int) -> None:
    """Raise `PeerError` unless the key has the length that the job says."""
    if key.bits != key_bits:
        raise PeerError(dealer, f"deals a key that has not the job's {key_bits} bits")


# --- the coordinator -----------------------------------------------------------------------------


def relay(
    phase: str, state: State, replies: Mapping[str, Body], key_bits: int
) -> tuple[State, Ask | Ready]:
    """Run the coordinator's side of set-up; it ends with n, h_s and the sites that hold the key."""
    match phase:
        case "setup":
            return _ask_dealer(sorted(replies))
        case "deal" if replies:
            return _hand_out(state, replies, key_bits)
        case "deal":
            return _ask_dealer([s for s in state["candidates"] if s != state["dealer"]])
        case "install":
            holders = sorted({state["dealer"], *replies})
            return {"n": state["n"], "h_s": state["h_s"], "holders": holders}, Ready()
    raise InternalError("dealing", f"no server step {phase!r}")


def _ask_dealer(candidates: list[str]) -> tuple[State, Ask]:
    if not candidates:
        raise ProtocolAbort("paillier", "no site answered to make the key")
    state = {"candidates": candidates, "dealer": candidates[0]}
    return state, Ask("deal", {candidates[0]: {}})


def _hand_out(state: State, replies: Mapping[str, Body], key_bits: int) -> tuple[State, Ask]:
    dealer = state["dealer"]
    match replies[dealer]:
        case {"n": int(n), "h_s": None | int() as h_s, "envelopes": dict(envelopes)}:
            public = PublicKey(n, h_s)
        case _:
            raise PeerError(dealer, "deals a malformed key")
    check_size(dealer, public, key_bits)
    check_public_key(public)
    bodies: dict[str, Body] = {
        site: {"dealer": dealer, "envelope": envelope}
        for site, envelope in envelopes.items()
        if site in state["candidates"]
    }
    return {**state, "n": n, "h_s": h_s}, Ask("install", bodies)
