"""The reference protocol: sites send their contributions in clear, and the coordinator adds them.

This protocol protects nothing, and every report of such a run says so. It is used for comparison:
every other protocol must return exactly the same sum, and costs are measured relative to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

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
from secagg.core.ring import RingVector
from secagg.errors import InternalError, PeerError, ProtocolAbort


@dataclass(frozen=True)
class Plain:
    """Sums in clear; no settings."""

    name: ClassVar[str] = "plain"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(32, 64, 128),
        hides_from_coordinator=False,
        dropouts="any site may drop out before it sends its contribution",
        sees={
            "coordinator": "every site's own contribution, in clear",
            "site": "which sites took part, the total number of records, and the method's messages",
        },
        unprotected=(
            "Nothing is protected: the coordinator reads each site's contribution. Use this "
            "protocol for comparisons only.",
        ),
    )
    setup: ClassVar[tuple[Phase, ...]] = ()
    phases: ClassVar[tuple[Phase, ...]] = (Phase("submit", Role.SITE, contributes=True),)

    def guarantee_text(self, sites: int) -> str:
        return f"the coordinator reads the contributions of all {sites} sites"

    def max_colluding(self, sites: int) -> int:
        """Return 0, because the coordinator sees everything without the help of a site."""
        return 0

    def least_sites(self, sites: int) -> int:
        """Return 2: each contribution is open in any case."""
        return 2

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
        if phase != "submit" or contribution is None:
            raise InternalError("plain", f"no client step {phase!r}")
        return state, {"values": contribution}

    def server(
        self, phase: str, state: ProtocolState, replies: Mapping[str, Body], context: Context
    ) -> tuple[ProtocolState, PhaseRequest | Total | Ready]:
        if phase == "setup":
            return state, Ready()
        if phase == "sum":
            return state, PhaseRequest("submit", {site: {} for site in replies}, tuple(replies))
        if not replies:
            raise ProtocolAbort("plain", "no site sent a contribution")
        contributions: dict[str, RingVector] = {}
        for site, body in replies.items():
            values = body.get("values")
            if not ring.is_vector(values, context.shape.length, context.shape.ring_bits):
                raise PeerError(site, "the contribution has the wrong shape")
            contributions[site] = values
        return state, Total(run_ideal(contributions, context.shape), tuple(contributions))


def run_ideal(contributions: Mapping[str, RingVector], shape: Shape) -> RingVector:
    """Return the sum that every protocol must compute (the ideal functionality)."""
    return ring.total(contributions.values(), shape.length, shape.ring_bits)
