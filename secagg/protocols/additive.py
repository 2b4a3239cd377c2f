"""Additive secret sharing among S >= 2 aggregators, with seeds for all shares but one.

Follows the textbook scheme (Cramer, Damgard, Nielsen, *Secure Multiparty Computation and Secret
Sharing*, 2015, section 1.3.2): a vector x in Z_2^w is split into shares that sum to x, any S - 1 of
which are uniform and independent of x. To save bandwidth S - 1 of the shares are the expansions of
random 32-byte seeds (the compression of Prio3 shares: RFC draft VDAF, section 7.2.1), so they are
pseudorandom rather than uniform: the scheme is then as strong as AES-256 in counter mode.

Threat model: coordinator and sites curious; at least one of the S aggregators does not collude with
the others. Shares travel sealed and signed, end to end from the site to its aggregator; the
coordinator relays what it cannot read. Sites need not stay online: a site is counted if *every*
aggregator holds its share, and left out by all otherwise, so a half-sent contribution can never
spoil a sum. Each aggregator opens one sum a round, over one set of sites: a second request for the
same round is refused, since the difference of two such sums would be somebody's contribution.

Not protected: everything, if all S aggregators pool what they hold; the result, if an aggregator is
lost or lies about its share (all S are needed, and shares carry no proof).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from secagg.contracts import (
    Ask,
    Body,
    Capabilities,
    Context,
    Phase,
    Ready,
    Shape,
    State,
    Total,
)
from secagg.core import ring
from secagg.core.frames import open_frame, seal_frame
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import InternalError, JobError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.protocols import prg


@dataclass(frozen=True)
class Additive:
    """Additive secret sharing among S aggregators."""

    aggregators: int = 2
    """Number of aggregators, at least 2."""

    name: ClassVar[str] = "additive"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="any site may drop out; every aggregator must stay",
        sees={
            "coordinator": "sealed shares it cannot read, and the sum",
            "aggregator": "one share of each contribution (alone it is random), the cohort, and "
            "each site's own threshold",
            "site": "the cohort, the number of records in all, and the method's messages",
        },
        unprotected=(
            "If all aggregators pool their shares, they read every site's contribution.",
            "An aggregator that lies about its share makes the sum wrong; there is no proof.",
            "The coordinator is trusted to send every site the method's own messages: it may not "
            "choose them so that a sum shows more than the method declares.",
        ),
    )
    setup: ClassVar[tuple[Phase, ...]] = ()
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("share", Role.SITE, contributes=True),
        Phase("hold", Role.AGGREGATOR),
        Phase("open", Role.AGGREGATOR, opens=True),
    )

    def __post_init__(self) -> None:
        if self.aggregators < 2:
            raise JobError("protocol.aggregators", "additive sharing needs at least 2")

    def guarantee_text(self, sites: int) -> str:
        """All aggregators but one may collude, with everybody else."""
        return (
            f"of {self.aggregators} aggregators all but one may collude with the coordinator and "
            f"any of the {sites} sites; none may drop out"
        )

    def max_colluding(self, sites: int) -> int:
        """Any number of sites: shares go to aggregators."""
        return sites

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Need S aggregators."""
        return tuple((f"aggregator_{i + 1}", Role.AGGREGATOR) for i in range(self.aggregators))

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Share (a site), hold, open (an aggregator)."""
        match phase:
            case "share" if contribution is not None:
                return state, {"envelopes": _seal_shares(contribution, context)}
            case "hold":
                return _hold(state, body, context)
            case "open":
                return _open(state, body, context)
        raise InternalError("additive", f"no client step {phase!r}")

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask | Total | Ready]:
        """Relay envelopes, settle whose shares everybody holds, add the opened shares."""
        match phase:
            case "setup":
                return state, Ready()
            case "sum":
                return {}, Ask("share", {site: {} for site in replies})
            case "share":
                return {}, Ask("hold", _sort_envelopes(replies, context))
            case "hold":
                _need_all(replies, context)
                survivors = _held_by_all(replies)
                if not survivors:
                    raise ProtocolAbort("additive", "no site's shares reached every aggregator")
                bodies: dict[str, Body] = {aggregator: {} for aggregator in replies}
                return {"survivors": list(survivors)}, Ask("open", bodies, survivors)
            case "open":
                _need_all(replies, context)
                return {}, Total(_add_shares(replies, context.shape), tuple(state["survivors"]))
        raise InternalError("additive", f"no server step {phase!r}")


# --- the site ------------------------------------------------------------------------------------


def split(
    contribution: RingVector, seeds: int, random: RandomBytes
) -> tuple[list[bytes], RingVector]:
    """Return `seeds` fresh seeds and the vector that together sum to `contribution`.

    Guarantee: any `seeds` of the seeds + 1 shares are jointly pseudorandom, whatever the
    contribution: the seeds are independent of it, and the vector is masked by every seed.
    """
    drawn = [random(prg.SEED_BYTES) for _ in range(seeds)]
    remainder = contribution.copy()
    prg.apply_masks(remainder, add=(), subtract=drawn)
    return drawn, remainder


def _seal_shares(contribution: RingVector, context: Context) -> dict[str, bytes]:
    aggregators = context.roster.named(Role.AGGREGATOR)
    seeds, remainder = split(contribution, len(aggregators) - 1, context.random)
    # Sites take turns in who gets the long share, so that no aggregator carries all the load.
    turn = context.roster.named(Role.SITE).index(context.me) % len(aggregators)
    in_turn = aggregators[turn:] + aggregators[:turn]
    bodies: list[Body] = [{"vector": remainder}, *({"seed": seed} for seed in seeds)]
    return {
        aggregator: seal_frame(
            context.identity, context.roster, context.session, context.round, "share",
            aggregator, body,
        )
        for aggregator, body in zip(in_turn, bodies, strict=True)
    }  # fmt: skip


# --- an aggregator -------------------------------------------------------------------------------


def _hold(state: State, body: Body, context: Context) -> tuple[State, Body]:
    """Keep every share that opens; say whose. One that does not is as good as not sent."""
    if context.round <= state.get("round", -1):
        raise PolicyRefusal(context.me, "shares of this round are held already")
    envelopes = body.get("envelopes")
    if not isinstance(envelopes, dict):
        raise PeerError(context.roster.coordinator, "malformed request: no envelopes")
    held: dict[str, Any] = {}
    for site, envelope in envelopes.items():
        try:
            held[site] = _read_share(site, envelope, context)
        except PeerError:
            continue
    shape = [context.shape.ring_bits, context.shape.length]
    state = {"round": context.round, "shape": shape, "held": held, "opened": False}
    return state, {"held": sorted(held)}


def _read_share(site: str, envelope: object, context: Context) -> Body:
    if site not in context.roster.named(Role.SITE) or not isinstance(envelope, bytes):
        raise PeerError(site, "not a site's envelope")
    share = open_frame(
        context.identity, context.roster, context.session, context.round, "share", site, envelope
    )
    match share:
        case {"seed": bytes(seed), **rest} if len(seed) == prg.SEED_BYTES and not rest:
            return share
        case {"vector": vector, **rest} if not rest and _fits(vector, context.shape):
            return share
    raise PeerError(site, "a share has the wrong shape")


def _open(state: State, body: Body, context: Context) -> tuple[State, Body]:
    """Return this aggregator's share of the sum over the named sites, once a round."""
    if state.get("round") != context.round or state.get("opened"):
        raise PolicyRefusal(context.me, "a sum of this round was opened already, or never held")
    if state["shape"] != [context.shape.ring_bits, context.shape.length]:
        raise PeerError(context.roster.coordinator, "asks to open another stage than is held")
    contributors = body["contributors"]
    missing = set(contributors) - set(state["held"])
    if missing:
        raise PeerError(context.roster.coordinator, "asks to open sites whose shares are not here")
    shares = [state["held"][site] for site in contributors]
    opened = {**state, "held": {}, "opened": True}
    return opened, {"share": _sum_shares(shares, context.shape)}


def _sum_shares(shares: Sequence[Body], shape: Shape) -> RingVector:
    vectors = [share["vector"] for share in shares if "vector" in share]
    result = ring.total(vectors, shape.length, shape.ring_bits)
    seeds = [share["seed"] for share in shares if "seed" in share]
    prg.apply_masks(result, add=seeds, subtract=())
    return result


# --- the coordinator -----------------------------------------------------------------------------


def _sort_envelopes(replies: Mapping[str, Body], context: Context) -> dict[str, Body]:
    """Turn each site's envelopes by aggregator into each aggregator's by site."""
    requests: dict[str, Body] = {
        aggregator: {"envelopes": {}} for aggregator in context.roster.named(Role.AGGREGATOR)
    }
    for site, reply in replies.items():
        envelopes = reply.get("envelopes")
        if isinstance(envelopes, dict):
            for aggregator, request in requests.items():
                if aggregator in envelopes:
                    request["envelopes"][site] = envelopes[aggregator]
    return requests


def _need_all(replies: Mapping[str, Body], context: Context) -> None:
    lost = sorted(set(context.roster.named(Role.AGGREGATOR)) - set(replies))
    if lost:
        raise ProtocolAbort(
            "additive", f"{lost[0]} did not answer, and all aggregators are needed",
            "Bring it back and run again.",
        )  # fmt: skip


def _held_by_all(replies: Mapping[str, Body]) -> tuple[str, ...]:
    held: list[set[str]] = []
    for aggregator, reply in replies.items():
        match reply.get("held"):
            case list(names) if all(isinstance(name, str) for name in names):
                held.append(set(names))
            case _:
                raise PeerError(aggregator, "does not say whose shares it holds")
    return tuple(sorted(set.intersection(*held)))


def _fits(value: object, shape: Shape) -> bool:
    return ring.is_vector(value, shape.length, shape.ring_bits)


def _add_shares(replies: Mapping[str, Body], shape: Shape) -> RingVector:
    for aggregator, reply in replies.items():
        if not _fits(reply.get("share"), shape):
            raise PeerError(aggregator, "its share of the sum has the wrong shape")
    return ring.total((reply["share"] for reply in replies.values()), shape.length, shape.ring_bits)


# --- all parties on one screen -------------------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector], shape: Shape, aggregators: int, random: RandomBytes
) -> RingVector:
    """Play every party, without messages: split, add up by aggregator, add the aggregators."""
    columns: list[list[Body]] = [[] for _ in range(aggregators)]
    for contribution in contributions.values():
        seeds, remainder = split(contribution, aggregators - 1, random)
        columns[0].append({"vector": remainder})
        for column, seed in zip(columns[1:], seeds, strict=True):
            column.append({"seed": seed})
    sums = [_sum_shares(column, shape) for column in columns]
    return ring.total(sums, shape.length, shape.ring_bits)
