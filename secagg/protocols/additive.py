"""Additive secret sharing: each site splits its contribution into shares for S aggregators.

Follows the textbook scheme (Cramer, Damgård, Nielsen, *Secure Multiparty Computation and Secret
Sharing*, 2015, section 1.3.2). A vector x of integers modulo 2^w is split into S shares whose sum
is x. Any S - 1 of the shares are uniform and independent of x. An aggregator adds the shares that
it received from all sites, and the sum of all aggregators' results is the sum of the contributions.

To save bandwidth, S - 1 of the shares are computed from random seeds of 32 bytes, and only the
seeds are sent (as in Prio3: RFC draft VDAF, section 7.2.1). These shares are pseudorandom instead
of uniform, so the scheme is as secure as AES-256 in counter mode.

Threat model: coordinator and sites are honest but curious, and at least one of the S aggregators
does not collude with the others.

* A site signs each share and seals it for one aggregator. The coordinator relays the shares but
  cannot read them. After sending its shares, the site may go offline.
* A site's contribution is part of the sum only if *every* aggregator holds its share. Otherwise all
  aggregators leave the site out. So if some of a site's shares are lost, the sum is still correct.
* In each round, an aggregator opens one sum over one set of sites. It refuses a second request,
  because the difference between two sums could be the contribution of a single site.

Not protected:

* Everything, if all S aggregators combine their shares.
* The result, if an aggregator drops out or sends a false sum of shares. All S aggregators are
  needed, and shares contain no proof that they are correct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypedDict, cast

from secagg.contracts import (
    Body,
    Capabilities,
    Context,
    Phase,
    PhaseRequest,
    ProtocolState,
    Ready,
    Shape,
    Total,
)
from secagg.core import ring
from secagg.core.frames import open_frame, seal_frame
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import InternalError, JobError, PeerError, PolicyRefusal, ProtocolAbort
from secagg.protocols import prg

_MOST_AGGREGATORS = 100
"""Every party names all of them, so a job could otherwise take any memory."""


class AggregatorState(TypedDict, total=False):
    """What an aggregator keeps of the last round: the shares by site, until it opens their sum.

    shape: bits of the ring and length of a contribution
    """

    round: int
    shape: list[int]
    held: dict[str, Body]
    opened: bool


class CoordinatorState(TypedDict):
    """What the coordinator keeps while a sum is opened: the sites in it."""

    survivors: list[str]


@dataclass(frozen=True)
class Additive:
    """Additive secret sharing among S aggregators."""

    aggregators: int = 2
    """Number of aggregators, from 2 to 100."""

    name: ClassVar[str] = "additive"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="any site may drop out; every aggregator must stay",
        sees={
            "coordinator": "encrypted shares, which it cannot read, and the sum",
            "aggregator": "one share of each contribution (a random number if alone), which sites "
            "took part, and how many each of them requires",
            "site": "which sites took part, the total number of records, and the method's messages",
        },
        unprotected=(
            "If all aggregators pool their shares, they read every site's contribution.",
            "An aggregator that lies about its share makes the sum wrong; there is no proof.",
            "The coordinator is trusted to send the method's own messages. With other messages, a "
            "sum could reveal more than the method declares.",
        ),
    )
    setup: ClassVar[tuple[Phase, ...]] = ()
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("share", Role.SITE, contributes=True),
        Phase("hold", Role.AGGREGATOR),
        Phase("open", Role.AGGREGATOR, opens=True),
    )

    def __post_init__(self) -> None:
        if not 2 <= self.aggregators <= _MOST_AGGREGATORS:
            what = f"must be from 2 to {_MOST_AGGREGATORS}"
            raise JobError("protocol.aggregators", what)

    def guarantee_text(self, sites: int) -> str:
        return (
            f"up to {self.aggregators - 1} of {self.aggregators} aggregators may collude with the "
            f"coordinator and any of the {sites} sites; no aggregator may drop out"
        )

    def max_colluding(self, sites: int) -> int:
        """Return the number of all sites, because sites hold no shares of other sites."""
        return sites

    def least_sites(self, sites: int) -> int:
        """Return 2: only the aggregators, which are not sites, could see more."""
        return 2

    def parties(self) -> tuple[tuple[str, Role], ...]:
        return tuple((f"aggregator_{i + 1}", Role.AGGREGATOR) for i in range(self.aggregators))

    def client(
        self,
        phase: str,
        state: ProtocolState,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[ProtocolState, Body]:
        """Run a phase: "share" at a site; "hold" and "open" at an aggregator."""
        match phase:
            case "share" if contribution is not None:
                return state, {"envelopes": _seal_shares(contribution, context)}
            case "hold":
                return _hold(cast("AggregatorState", state), body, context)
            case "open":
                return _open(cast("AggregatorState", state), body, context)
        raise InternalError("additive", f"no client step {phase!r}")

    def server(
        self, phase: str, state: ProtocolState, replies: Mapping[str, Body], context: Context
    ) -> tuple[ProtocolState, PhaseRequest | Total | Ready]:
        """Relay shares, find the sites whose shares all aggregators hold, and add the sums."""
        match phase:
            case "setup":
                return state, Ready()
            case "sum":
                return {}, PhaseRequest("share", {site: {} for site in replies})
            case "share":
                return {}, PhaseRequest("hold", _sort_envelopes(replies, context))
            case "hold":
                _need_all(replies, context)
                survivors = _held_by_all(replies)
                if not survivors:
                    raise ProtocolAbort("additive", "no site's shares reached all aggregators")
                bodies: dict[str, Body] = {aggregator: {} for aggregator in replies}
                summed: CoordinatorState = {"survivors": list(survivors)}
                return summed, PhaseRequest("open", bodies, survivors)
            case "open":
                _need_all(replies, context)
                survivors = tuple(cast("CoordinatorState", state)["survivors"])
                return {}, Total(_add_shares(replies, context.shape), survivors)
        raise InternalError("additive", f"no server step {phase!r}")


# --- the site ------------------------------------------------------------------------------------


def split(
    contribution: RingVector, seeds: int, random: RandomBytes
) -> tuple[list[bytes], RingVector]:
    """Split a contribution into `seeds` + 1 shares. Return a list of fresh seeds and one vector.

    The sum of the vectors computed from the seeds, plus the returned vector, is the contribution.

    Guarantee: any `seeds` of the shares together are pseudorandom, whatever the contribution. The
    seeds do not depend on the contribution, and each seed masks the returned vector.
    """
    fresh_seeds = [random(prg.SEED_BYTES) for _ in range(seeds)]
    remainder = contribution.copy()
    prg.apply_masks(remainder, add=(), subtract=fresh_seeds)
    return fresh_seeds, remainder


def _seal_shares(contribution: RingVector, context: Context) -> dict[str, bytes]:
    aggregators = context.roster.with_role(Role.AGGREGATOR)
    seeds, remainder = split(contribution, len(aggregators) - 1, context.random)
    # The long share goes to different aggregators for different sites, to balance the load.
    offset = context.roster.with_role(Role.SITE).index(context.me) % len(aggregators)
    recipients = aggregators[offset:] + aggregators[:offset]
    bodies: list[Body] = [{"vector": remainder}, *({"seed": seed} for seed in seeds)]
    return {
        aggregator: seal_frame(
            context.identity, context.roster, context.session, context.round, "share",
            aggregator, body,
        )
        for aggregator, body in zip(recipients, bodies, strict=True)
    }  # fmt: skip


# --- an aggregator -------------------------------------------------------------------------------


def _hold(state: AggregatorState, body: Body, context: Context) -> tuple[AggregatorState, Body]:
    """Store all valid shares, and reply with the names of their sites.

    An invalid share counts as not sent.
    """
    if context.round <= state.get("round", -1):
        raise PolicyRefusal(context.me, "already holds the shares of this round")
    envelopes = body.get("envelopes")
    if not isinstance(envelopes, dict):
        raise PeerError(context.roster.coordinator, "malformed request: no envelopes")
    held: dict[str, Body] = {}
    for site, envelope in envelopes.items():
        try:
            held[site] = _read_share(site, envelope, context)
        except PeerError:
            continue
    shape = [context.shape.ring_bits, context.shape.length]
    state = {"round": context.round, "shape": shape, "held": held, "opened": False}
    return state, {"held": sorted(held)}


def _read_share(site: str, envelope: object, context: Context) -> Body:
    if site not in context.roster.with_role(Role.SITE) or not isinstance(envelope, bytes):
        raise PeerError(site, "malformed envelope, or one from a party that is not a site")
    share = open_frame(
        context.identity, context.roster, context.session, context.round, "share", site, envelope
    )
    match share:
        case {"seed": bytes(seed), **rest} if len(seed) == prg.SEED_BYTES and not rest:
            return share
        case {"vector": vector, **rest} if not rest and _has_shape(vector, context.shape):
            return share
    raise PeerError(site, "a share has the wrong shape")


def _open(state: AggregatorState, body: Body, context: Context) -> tuple[AggregatorState, Body]:
    """Return the sum of this aggregator's shares from the named sites, once in each round."""
    if state.get("round") != context.round or state.get("opened"):
        raise PolicyRefusal(context.me, "holds no shares of this round, or has already opened it")
    if state["shape"] != [context.shape.ring_bits, context.shape.length]:
        raise PeerError(context.roster.coordinator, "asks to open a stage without shares here")
    contributors = body["contributors"]
    missing = set(contributors) - set(state["held"])
    if missing:
        raise PeerError(context.roster.coordinator, "asks to open sites without shares here")
    shares = [state["held"][site] for site in contributors]
    opened: AggregatorState = {**state, "held": {}, "opened": True}
    return opened, {"share": _sum_shares(shares, context.shape)}


def _sum_shares(shares: Sequence[Body], shape: Shape) -> RingVector:
    vectors = [share["vector"] for share in shares if "vector" in share]
    result = ring.total(vectors, shape.length, shape.ring_bits)
    seeds = [share["seed"] for share in shares if "seed" in share]
    prg.apply_masks(result, add=seeds, subtract=())
    return result


# --- the coordinator -----------------------------------------------------------------------------


def _sort_envelopes(replies: Mapping[str, Body], context: Context) -> dict[str, Body]:
    """Group the envelopes by aggregator. Each site's reply has one envelope for each aggregator."""
    requests: dict[str, Body] = {
        aggregator: {"envelopes": {}} for aggregator in context.roster.with_role(Role.AGGREGATOR)
    }
    for site, reply in replies.items():
        envelopes = reply.get("envelopes")
        if isinstance(envelopes, dict):
            for aggregator, request in requests.items():
                if aggregator in envelopes:
                    request["envelopes"][site] = envelopes[aggregator]
    return requests


def _need_all(replies: Mapping[str, Body], context: Context) -> None:
    missing = sorted(set(context.roster.with_role(Role.AGGREGATOR)) - set(replies))
    if missing:
        raise ProtocolAbort(
            "additive", f"{missing[0]} did not answer, but all aggregators are required",
            "Run again when it can be reached.",
        )  # fmt: skip


def _held_by_all(replies: Mapping[str, Body]) -> tuple[str, ...]:
    held: list[set[str]] = []
    for aggregator, reply in replies.items():
        match reply.get("held"):
            case list(names) if all(isinstance(name, str) for name in names):
                held.append(set(names))
            case _:
                raise PeerError(aggregator, "malformed reply: no list of the shares it holds")
    return tuple(sorted(set.intersection(*held)))


def _has_shape(value: object, shape: Shape) -> bool:
    return ring.is_vector(value, shape.length, shape.ring_bits)


def _add_shares(replies: Mapping[str, Body], shape: Shape) -> RingVector:
    for aggregator, reply in replies.items():
        if not _has_shape(reply.get("share"), shape):
            raise PeerError(aggregator, "its share of the sum has the wrong shape")
    return ring.total((reply["share"] for reply in replies.values()), shape.length, shape.ring_bits)


# --- the whole protocol without messages ---------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector], shape: Shape, aggregators: int, random: RandomBytes
) -> RingVector:
    """Compute the sum without messages: split, add at each aggregator, add the results."""
    held: list[list[Body]] = [[] for _ in range(aggregators)]
    for contribution in contributions.values():
        seeds, remainder = split(contribution, aggregators - 1, random)
        held[0].append({"vector": remainder})
        for shares, seed in zip(held[1:], seeds, strict=True):
            shares.append({"seed": seed})
    sums = [_sum_shares(shares, shape) for shares in held]
    return ring.total(sums, shape.length, shape.ring_bits)
