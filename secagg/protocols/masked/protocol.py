"""Masked sums: random masks hide each contribution and cancel in the sum.

Follows Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning"
(CCS 2017; the variant with signatures and a consistency check, figure 4), on the neighbour graphs
of Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead" (CCS 2020,
section 3). A site's steps are in `site`, the coordinator's in `coordinator`, the keys and masks in
`masks`, the secret sharing in `shamir`, and the neighbour graph and the choice of its parameters in
`graph`.

The first sum of a session has five phases. A site may drop out in any phase; the others survive:

    advertise   each site draws a self secret, from which its self mask is derived. It signs a
                commitment to this secret and two public keys: for the first sum and later sums
    share       each site verifies the directory, which has the signed keys of all sites. It sends
                each neighbour, encrypted, a share of its first private key and of its self secret
    mask        each site adds a pairwise mask for each neighbour, and its self mask
    agree       each survivor signs the list of survivors
    unmask      after checking enough signatures on one list, each survivor reveals one share for
                each neighbour: a share of the self secret if the neighbour survived, and of the
                first private key if it dropped out

Every later sum has one phase, `mask`, in which each site sends one message. The site uses pairwise
masks only. They come from the second keys, of which no shares were made. These masks cancel only if
every survivor of the first sum has sent its contribution. So nobody can compute a later sum over
fewer sites. This is on purpose. Suppose somebody could compute from the same messages a sum with a
site and the sum without this site. Then the difference would be the site's contribution
(docs/adr/007-masked-sessions.md). An absent site may answer until the engine's deadline. If the run
stops at the deadline, it can be resumed.

Threat model: a malicious coordinator, which may depart from the protocol and collude with up to the
fraction `colluding` of the sites that the job names. All of these may be in a session that leaves
other sites out. So every session keeps the thresholds that were computed for all named sites. If it
cannot, it does not begin. In each round the coordinator learns one sum of contributions, and
nothing else about them. The sum covers at least as many sites as the plan of `graph` requires, and
as many as each contributor's own release rule requires. If the graph is not complete, this fails
with probability at most 2^-40, even if the coordinator tries 2^40 key directories to influence the
graph.

=====================================================  ===========================================
what the coordinator tries                             what a site does
=====================================================  ===========================================
a directory with a false, unsigned or repeated key,    refuses
or without the site's own keys
fewer keys, masking sites, survivors or signatures     refuses; shares, sends and opens nothing
than the plan requires
to recover both secrets of one site                    never reveals shares of both (`site.unmask`)
two lists of survivors                                 signs only one
a list of survivors that names a site which did not    refuses
mask, or omits this site
a past round, or a phase twice                         refuses
different requests or directories for some sites,      answers, but the masks do not cancel
now or in an earlier sum
=====================================================  ===========================================

Not protected:

* The result, if a site lies about its contribution or masks it wrongly. This is noticed only if the
  sum exceeds its bounds. A site that sends invalid keys or shares stops the run.
* Traffic: who takes part, when, and how much is sent.
* A site, if the coordinator colludes with all other sites.
* With 33 sites or more, the contributions, if the coordinator wins sites over *after* it has seen
  the graph. For example, of 1000 sites 333 may collude, and any 321 neighbours of a site can
  recover its secrets. If the coordinator chooses the colluding sites late, it can choose these.
* A site whose state is restored from an earlier copy, because the site would then share, sign or
  mask twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

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
from secagg.core.identity import Role
from secagg.core.randomness import RandomBytes
from secagg.core.ring import RingVector
from secagg.errors import InternalError
from secagg.protocols.masked import coordinator as coordinator_steps
from secagg.protocols.masked import masks
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.graph import GraphPlan, check_fractions, plan_graph
from secagg.protocols.masked.states import CoordinatorState, SiteState

FAILURE_LOG2 = -40
"""log2 of the probability that secrecy or recovery fails on a graph that is not complete."""
GRINDING_LOG2 = 40
"""log2 of the number of key directories that colluding parties may try, to influence the graph."""


@dataclass(frozen=True)
class Masked:
    """Masked sums."""

    colluding: float = 1 / 3
    """Largest fraction of the sites that may collude with the coordinator, from 0 to below 1. With
    a larger fraction, fewer sites may drop out."""
    dropping: float = 0.1
    """Largest fraction of the sites that may drop out of the first sum, from 0 to below 1. It is
    used only with more than 32 sites. Each site then shares masks with only some of the others, and
    the guarantee fails with probability at most 2^-40."""

    name: ClassVar[str] = "masked"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=True,
        dropouts="sites may drop out in any phase of the first sum: with up to 32 sites, as long "
        "as more than (sites + colluding sites) / 2 remain; with more, up to the fraction "
        "“dropping”; a later sum needs all sites of the first sum, within the engine's deadline",
        sees={
            "coordinator": "masked contributions (a random number if alone), the sum, and who took "
            "part; for a site that drops out of the first sum, the key of its pairwise masks in "
            "that sum",
            "site": "which sites took part, the total number of records, the method's messages, "
            "and shares of its neighbours' secrets (too few to recover one)",
        },
        unprotected=(
            "The coordinator could read a contribution if more sites collude with it than the "
            "setting “colluding” allows.",
            "A site that masks its contribution wrongly makes the sum wrong; there is no proof.",
            "The coordinator is trusted to send the method's own messages. With other messages, a "
            "sum could reveal more than the method declares.",
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
        check_fractions(self.colluding, self.dropping)

    def guarantee_text(self, sites: int) -> str:
        plan = self._plan_for(sites)
        colluding = self.max_colluding(sites)
        text = (
            f"of {sites} sites, up to {colluding} may collude with the coordinator; the first sum "
            f"needs {plan.least_survivors} sites, each later one all sites of the first"
        )
        if plan.degree < sites - 1:
            text += f"; each site shares masks with {plan.degree} others"
        return text

    def max_colluding(self, sites: int) -> int:
        """Return the fraction `colluding` of the sites, rounded down."""
        return int(self.colluding * sites + 1e-9)  # 1e-9: 0.29 * 100 gives 29

    def least_sites(self, sites: int) -> int:
        """Return the smallest number of survivors, so that a new session is no way round it."""
        return self._plan_for(sites).least_survivors

    def parties(self) -> tuple[tuple[str, Role], ...]:
        return ()

    def plan(self, context: Context) -> GraphPlan:
        """Return the plan of the neighbour graph for the number of sites that the job names.

        It is also the plan of a session over some of them. The others are sites that dropped out
        before the graph was drawn.
        """
        return self._plan_for(context.job_sites)

    def _plan_for(self, sites: int) -> GraphPlan:
        return plan_graph(sites, self.colluding, self.dropping, FAILURE_LOG2 - GRINDING_LOG2)

    def client(
        self,
        phase: str,
        state: ProtocolState,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[ProtocolState, Body]:
        plan, kept = self.plan(context), cast("SiteState", state)
        match phase:
            case "advertise":
                return site_steps.advertise(kept, context)
            case "share":
                return site_steps.share(kept, body, plan, context)
            case "mask" if contribution is not None:
                return site_steps.mask(kept, body, plan, context, contribution)
            case "agree":
                return site_steps.agree(kept, body, plan, context)
            case "unmask":
                return site_steps.unmask(kept, body, plan, context)
        raise InternalError("masked", f"no client step {phase!r}")

    def server(
        self, phase: str, state: ProtocolState, replies: Mapping[str, Body], context: Context
    ) -> tuple[ProtocolState, PhaseRequest | Total | Ready]:
        """Relay keys and shares, add masked contributions, and remove masks that do not cancel."""
        plan, kept = self.plan(context), cast("CoordinatorState", state)
        match phase:
            case "setup":
                return {}, Ready()
            case "sum" if "first" in kept:
                return kept, PhaseRequest("mask", {site: {} for site in replies})
            case "sum":
                return {"first": context.round}, PhaseRequest(
                    "advertise", {site: {} for site in replies}
                )
            case "advertise":
                return coordinator_steps.relay_directory(kept, replies, plan, context)
            case "share":
                return coordinator_steps.relay_shares(kept, replies, plan)
            case "mask" if context.round == kept["first"]:
                return coordinator_steps.collect_first(kept, replies, plan, context)
            case "mask":
                # The caller has checked that the whole cohort has contributed.
                total = Total(coordinator_steps.read_masked(replies, context.shape), tuple(replies))
                return {"first": kept["first"]}, total
            case "agree":
                return coordinator_steps.relay_agreement(kept, replies, plan, context)
            case "unmask":
                total = coordinator_steps.unmask(kept, replies, plan, context)
                return {"first": kept["first"]}, total
        raise InternalError("masked", f"no server step {phase!r}")


def run_ideal(
    contributions: Mapping[str, RingVector],
    dropped: Sequence[str],
    shape: Shape,
    random: RandomBytes,
) -> RingVector:
    """Compute the sum without messages and secret sharing: mask, add, unmask.

    contributions: the contributions of the sites that do not drop out
    dropped: the sites that shared masks and then dropped out
    """
    label = random(32)
    sites = sorted([*contributions, *dropped])
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
        {site: seeds(site, list(contributions)) for site in dropped},
    )
    return total
