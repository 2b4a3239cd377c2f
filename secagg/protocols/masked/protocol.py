"""Masked sums with dropout recovery, and sessions in which a later sum is one message a site.

Follows Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning"
(CCS 2017; the variant with signatures and a consistency check, figure 4), on the neighbour graphs
of Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead" (CCS 2020,
section 3). `masking` has the keys and masks, `shamir` the shares, `neighbours` the graph and the
proof of its sizes, `masked_site` a site's steps.

The first sum of a session has five phases. A site may drop out in any of them:

    advertise   each site signs two public keys and a commitment to its self secret
    share       each site verifies the directory and seals shares of its key and of its self secret
                to its neighbours
    mask        each site masks its contribution, once with every neighbour and once with itself
    agree       each survivor signs the list of survivors
    unmask      shown enough signatures on one list, each survivor gives one share of each
                neighbour: of the self secret of a survivor, of the key of who is lost

Every later sum has one phase, `mask`, over the survivors of the first: pairwise masks only, from
keys that were never shared, so the sum opens when, and only when, the whole cohort has sent. Nobody
can help to recover a later sum over fewer sites, and that is on purpose: whoever can finish a sum
from the same uploads with and without a site, and needs no message of that site in between, can
subtract the two (docs/adr/007-masked-sessions.md). A site that was away may answer until the
engine's deadline has passed, and a run that was stopped there may be resumed.

Threat model: a coordinator that may depart from the protocol, with up to `colluding` of the sites,
learns nothing of the others' contributions but one sum, over at least as many sites as `neighbours`
plans for and no fewer than each contributor's own threshold. Where the graph is not complete this
fails with probability 2^-40 at most, for 2^40 tries of steering the graph by what keys it shows.

=====================================================  ===========================================
what the coordinator tries                             what a site does
=====================================================  ===========================================
another site's key, or an unsigned one, in the          refuses the directory
directory; one key twice; without its own keys
fewer keys, maskers, survivors or signatures than       refuses; nothing is shared, sent or opened
the plan needs
both secrets of one neighbour                           cannot be asked: see `masked_site.unmask`
two lists of survivors                                  signs one only
survivors who did not mask, or not itself               refuses
a round that is past, or one phase twice                refuses
other requests or directories for some sites, now or     answers; the masks do not cancel
in any sum before
=====================================================  ===========================================

Not protected: a site that lies about its contribution, or masks wrongly, spoils the sum, which is
not noticed unless it leaves its bounds, and one that sends bad keys or shares ends the run; traffic
(who takes part, when, how much); everything against the coordinator together with all other sites;
from 33 sites on, against a coordinator that wins sites over *after* it has seen the graph (of 1000
sites the 321 neighbours that open one site's secrets are fewer than the 333 that may collude); and
a site whose state is put back to an earlier one, which would share, sign or mask twice.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from secagg.contracts import Ask, Body, Capabilities, Context, Phase, Ready, Shape, State, Total
from secagg.core import ring
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import InternalError, JobError, PeerError, ProtocolAbort
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.graph import GraphPlan, plan_graph
from secagg.protocols.masked.masks import Directory

FAILURE_LOG2 = -40
"""Of the probability that a graph which is not complete lets anything be learnt, or a sum fail."""
GRINDING_LOG2 = 40
"""Of the tries that colluding sites and coordinator have at the graph, by whose keys they show."""


@dataclass(frozen=True)
class Masked:
    """Masked sums."""

    colluding: float = 1 / 3
    """Largest share of the sites that may pool all they know with the coordinator, at least 0 and
    below 1. A larger share means that fewer sites may drop out."""
    dropping: float = 0.1
    """With more than 32 sites, which share masks with some others only: largest share of sites that
    may drop out, at least 0 and below 1. The guarantee then fails with probability at most
    2^-40."""

    name: ClassVar[str] = "masked"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="sites may drop out in any phase of the first sum: of up to 32 as many as leave "
        "more than half of all sites and the colluding ones together, of more the share "
        "“dropping”; later sums need all of its survivors within the engine's deadline",
        sees={
            "coordinator": "masked contributions (alone they are random), the sum, and who took "
            "part; of a site that drops out in the first sum, the key of its pairwise masks there",
            "site": "the cohort, the number of records in all, the method's messages, and shares "
            "of its neighbours' secrets (too few to use)",
        },
        unprotected=(
            "The coordinator and more of the sites than the setting “colluding” allows, pooling "
            "what they know, could read a contribution.",
            "A site that masks wrongly spoils the sum; there is no proof.",
            "The coordinator is trusted to send every site the method's own messages: it may not "
            "choose them so that a sum shows more than the method declares.",
        ),
    )
    setup: ClassVar[tuple[Phase, ...]] = ()
    phases: ClassVar[tuple[Phase, ...]] = (
        Phase("advertise", Role.SITE),
        Phase("share", Role.SITE),
        Phase("mask", Role.SITE, contributes=True),
        Phase("agree", Role.SITE),
        Phase("unmask", Role.SITE, opens=True),
    )

    def __post_init__(self) -> None:
        for name in ("colluding", "dropping"):
            if not 0 <= getattr(self, name) < 1:
                raise JobError(f"protocol.{name}", "is a share of the sites: at least 0, below 1")

    def guarantee_text(self, sites: int) -> str:
        """As planned for the graph of so many sites."""
        plan = self._plan_for(sites)
        colluding = self.max_colluding(sites)
        text = (
            f"of {sites} sites, up to {colluding} may collude with the coordinator; up to "
            f"{sites - plan.least_survivors} may drop out of the first sum, none of a later one"
        )
        if plan.degree < sites - 1:
            text += f"; each shares masks with {plan.degree} others"
        return text

    def max_colluding(self, sites: int) -> int:
        """As many as the setting says, of so many sites."""
        return int(self.colluding * sites + 1e-9)  # the floor, of 0.29 * 100 too

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Need nobody beside sites and coordinator."""
        return ()

    def plan(self, context: Context) -> GraphPlan:
        """Return degree and thresholds, from the number of sites in the roster alone."""
        return self._plan_for(len(context.roster.named(Role.SITE)))

    def _plan_for(self, sites: int) -> GraphPlan:
        return plan_graph(sites, self.colluding, self.dropping, FAILURE_LOG2 - GRINDING_LOG2)

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Advertise, share, mask, agree, unmask: all at a site."""
        plan = self.plan(context)
        match phase:
            case "advertise":
                return site_steps.advertise(state, context)
            case "share":
                return site_steps.share(state, body, plan, context)
            case "mask" if contribution is not None:
                return site_steps.mask(state, body, plan, context, contribution)
            case "agree":
                return site_steps.agree(state, body, plan, context)
            case "unmask":
                return site_steps.unmask(state, body, plan, context)
        raise InternalError("masked", f"no client step {phase!r}")

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, Ask | Total | Ready]:
        """Relay keys and shares, add what is masked, remove what does not cancel."""
        plan = self.plan(context)
        match phase:
            case "setup":
                return {}, Ready()
            case "sum" if "first" in state:
                return state, Ask("mask", {site: {} for site in replies})
            case "sum":
                return {"first": context.round}, Ask("advertise", {site: {} for site in replies})
            case "advertise":
                return _relay_directory(state, replies, plan, context)
            case "share":
                return _relay_shares(state, replies, plan)
            case "mask" if context.round == state["first"]:
                return _collect_first(state, replies, plan, context)
            case "mask":
                return {"first": state["first"]}, _add_later(replies, context.shape)
            case "agree":
                return _relay_agreement(state, replies, plan, context)
            case "unmask":
                return {"first": state["first"]}, _unmask(state, replies, plan, context)
        raise InternalError("masked", f"no server step {phase!r}")


# --- the coordinator's steps ---------------------------------------------------------------------


def _need(plan: GraphPlan, sites: Sequence[str], did: str) -> None:
    if len(sites) < plan.least_survivors:
        raise ProtocolAbort(
            "masked", f"{len(sites)} sites {did}, and {plan.least_survivors} are needed",
            "Nothing was released. Run again when more sites can be reached.",
        )  # fmt: skip


def _relay_directory(
    state: State, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> tuple[State, Ask]:
    statements = {site: reply.get("keys") for site, reply in replies.items()}
    directory = masks.read_directory(statements, context)
    _need(plan, list(directory), "advertised keys")
    plain = {site: keys.to_plain() for site, keys in directory.items()}
    body: Body = {"directory": statements}
    return {**state, "directory": plain}, Ask("share", dict.fromkeys(directory, body))


def _relay_shares(state: State, replies: Mapping[str, Body], plan: GraphPlan) -> tuple[State, Ask]:
    sealed: dict[str, dict[Any, Any]] = {}
    for site, reply in replies.items():
        envelopes = reply.get("envelopes")
        if not isinstance(envelopes, dict):
            raise PeerError(site, "seals no shares")
        sealed[site] = envelopes
    sharing = sorted(sealed)
    _need(plan, sharing, "shared their secrets")
    bodies: dict[str, Body] = {
        site: {
            "masking": sharing,
            "envelopes": {by: to[site] for by, to in sealed.items() if site in to},
        }
        for site in sharing
    }
    return {**state, "masking": sharing}, Ask("mask", bodies)


def _read_masked(replies: Mapping[str, Body], shape: Shape) -> RingVector:
    for site, reply in replies.items():
        if not ring.is_vector(reply.get("masked"), shape.length, shape.ring_bits):
            raise PeerError(site, "its masked contribution has the wrong shape")
    return ring.total((r["masked"] for r in replies.values()), shape.length, shape.ring_bits)


def _collect_first(
    state: State, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> tuple[State, Ask]:
    survivors = sorted(replies)
    _need(plan, survivors, "sent a masked contribution")
    label = masks.label(
        context.session, context.round, masks.directory_digest(_directory(state)),
        state["masking"], context.asked,
    )  # fmt: skip
    total = _read_masked(replies, context.shape)
    state = {**state, "survivors": survivors, "label": label, "masked": total}
    return state, Ask("agree", {site: {"survivors": survivors} for site in survivors})


def _add_later(replies: Mapping[str, Body], shape: Shape) -> Total:
    """Add the contributions of the whole cohort; that none is missing was checked before."""
    return Total(_read_masked(replies, shape), tuple(replies))


def _relay_agreement(
    state: State, replies: Mapping[str, Body], plan: GraphPlan, context: Context
) -> tuple[State, Ask]:
    _need(plan, list(replies), "signed the list of survivors")
    # As many as are needed, for each site verifies each of them.
    signing = sorted(replies)[: plan.least_survivors]
    statements = {site: replies[site].get("statement") for site in signing}
    site_steps.check_agreement(statements, state["label"], state["survivors"], plan, context)
    body: Body = {"statements": statements}
    return state, Ask("unmask", dict.fromkeys(replies, body), tuple(state["survivors"]))


def _unmask(state: State, replies: Mapping[str, Body], plan: GraphPlan, context: Context) -> Total:
    """Put the secrets together, check each against what was advertised, remove its masks."""
    directory, label, survivors = _directory(state), state["label"], state["survivors"]
    points = {site: index + 1 for index, site in enumerate(directory)}
    graph = site_steps.draw_graph(directory, plan, context.session)

    def secret(owner: str) -> bytes:
        shares: dict[int, bytes] = {}
        for holder in (owner, *graph[owner]):
            given = replies.get(holder, {}).get("shares")
            if isinstance(given, dict) and isinstance(given.get(owner), bytes):
                shares[points[holder]] = given[owner]
        if len(shares) < plan.threshold:
            raise ProtocolAbort(
                "masked", f"{len(shares)} shares of {owner} came back, and {plan.threshold} are "
                "needed", "Nothing was released. Run again when more sites can be reached.",
            )  # fmt: skip
        # What was advertised tells a wrong secret from the right one: more shares add nothing.
        enough = dict(sorted(shares.items())[: plan.threshold])
        return shamir.combine(enough)

    self_seeds: list[bytes] = []
    for site in survivors:
        self_secret = secret(site)
        _check(site, masks.commit(self_secret), directory[site].commitment)
        self_seeds.append(masks.seed(self_secret, label))
    lost: dict[str, dict[str, bytes]] = {}
    for site in sorted(set(state["masking"]) - set(survivors)):
        private = secret(site)
        _check(site, masks.public_key(private), directory[site].first)
        public = {peer: directory[peer].first for peer in graph[site] if peer in survivors}
        pairs = masks.pair_keys(private, public, "first", site, context.session)
        lost[site] = {peer: masks.seed(key, label) for peer, key in pairs.items()}
    total = state["masked"].copy()
    masks.unmask(total, self_seeds, lost)
    return Total(total, tuple(survivors))


def _check(site: str, computed: bytes, advertised: bytes) -> None:
    if not hmac.compare_digest(computed, advertised):
        raise PeerError(site, "the shares of its secret do not give what it advertised")


def _directory(state: State) -> Directory:
    return {site: masks.PublicKeys(**keys) for site, keys in state["directory"].items()}


# --- all parties on one screen -------------------------------------------------------------------


def run_ideal(
    contributions: Mapping[str, RingVector],
    lost: Sequence[str],
    shape: Shape,
    random: RandomBytes,
) -> RingVector:
    """Play every party, without messages or shares: mask twice, add, unmask.

    contributions: of the sites that stay; lost: sites that masked and then dropped out
    """
    label = random(32)
    sites = sorted([*contributions, *lost])
    own = {site: random(32) for site in sites}
    pairs = {(i, j): random(32) for i in sites for j in sites if i < j}

    def seeds(site: str, peers: Sequence[str]) -> dict[str, bytes]:
        keys = {peer: pairs[min(site, peer), max(site, peer)] for peer in peers if peer != site}
        return {peer: masks.seed(key, label) for peer, key in keys.items()}

    masked: list[RingVector] = []
    for site, contribution in contributions.items():
        vector = contribution.copy()
        masks.mask(vector, site, seeds(site, sites), masks.seed(own[site], label))
        masked.append(vector)
    total = ring.total(masked, shape.length, shape.ring_bits)
    masks.unmask(
        total,
        [masks.seed(own[site], label) for site in contributions],
        {site: seeds(site, list(contributions)) for site in lost},
    )
    return total
