"""The steps of the masked sum, called without `Party`, which refuses some requests earlier."""

from contracts.secure_sum import numbers
from support.protocols.world import STAGE, SumNumbers, World

from secagg.contracts import Context, PhaseRequest
from secagg.core import ring
from secagg.protocols.masked import masks
from secagg.protocols.masked import site as site_steps
from secagg.protocols.masked.graph import GraphPlan
from secagg.protocols.masked.protocol import Masked

ALL = [f"site_{i}" for i in range(7)]
FIVE = ALL[:5]
"""Of seven sites, five must stay, and five of the seven shares recover a secret."""


class OnARing(Masked):
    """Seven sites with four neighbours each; four of five shares recover a secret."""

    def plan(self, context):
        return GraphPlan(7, 4, 4, 5, -40.0)


class Steps:
    """The steps of seven sites and the coordinator; all contributions are zeros."""

    def __init__(self, protocol=None, first=0):
        """first: the round of the first sum, and of every step for which no round is given"""
        self.protocol = protocol or Masked()
        self.world = World(self.protocol, numbers(7, 3, 1), SumNumbers((3,)))
        self.states = {site: {} for site in ALL}
        self.coordinator = {}
        self.first = first

    def context(self, who, round_=None, asked=b"request"):
        w, round_ = self.world, self.first if round_ is None else round_
        shape = w.plans.of(STAGE).shape
        return Context(w.session, round_, w.identities[who], w.roster, shape, w.random, asked)

    def ask(self, site, phase, body, round_=None, asked=b"request"):
        """Return a site's reply; its state changes unless it refuses."""
        context = self.context(site, round_, asked)
        zeros = ring.zeros(context.shape.length, context.shape.ring_bits)
        self.states[site], reply = self.protocol.client(
            phase, self.states[site], body, context, zeros if phase == "mask" else None
        )
        return reply

    def serve(self, phase, replies, round_=None):
        """Return the coordinator's next step; its state changes unless it raises."""
        context = self.context("coordinator", round_)
        self.coordinator, outcome = self.protocol.server(phase, self.coordinator, replies, context)
        return outcome

    def until(self, phase):
        """Run the first sum honestly until `phase`; return the request to each site."""
        outcome = self.serve("sum", {site: {} for site in ALL})
        while isinstance(outcome, PhaseRequest) and outcome.phase != phase:
            asked = self.bodies(outcome).items()
            replies = {site: self.ask(site, outcome.phase, body) for site, body in asked}
            outcome = self.serve(outcome.phase, replies)
        assert isinstance(outcome, PhaseRequest)
        return self.bodies(outcome)

    @staticmethod
    def bodies(ask):
        named = {"contributors": list(ask.contributors)} if ask.contributors else {}
        return {site: {**body, **named} for site, body in ask.bodies.items()}

    def replies(self, phase):
        """Run the first sum honestly through `phase`; return the sites' replies."""
        return {site: self.ask(site, phase, body) for site, body in self.until(phase).items()}

    def later(self, cohort=ALL, round_=1, other=None):
        """Return the sum of a later round's uploads; site_0 may receive another request.

        It is zero if and only if the masks cancel.
        """
        uploads = [
            self.ask(s, "mask", {"cohort": cohort}, round_,
                     other if other and s == "site_0" else b"request")["masked"]
            for s in cohort
        ]  # fmt: skip
        return ring.total(uploads, len(uploads[0]), 64)

    @staticmethod
    def wrong(data):
        """Return bytes that differ in the first bit."""
        return bytes([data[0] ^ 1]) + data[1:]

    def statement(self, site, phase, body, round_=None):
        return masks.sign_statement(self.context(site, round_), phase, body)

    def keys(self, site):
        return site_steps._own_keys(self.states[site]["advertised"]).to_plain()


def high_bit(steps, name):
    """Return a key of site_3 with the bit set that X25519 ignores."""
    key = steps.keys("site_3")[name]
    return key[:31] + bytes([key[31] | 0x80])
