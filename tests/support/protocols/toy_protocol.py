"""Sums in clear, written on a pad: a protocol as a newcomer would write it.

`tests/runs/test_new_protocol.py` registers it by one line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from secagg.contracts import Body, Capabilities, Context, Phase, PhaseRequest, Ready, State, Total
from secagg.core import ring
from secagg.core.identity import Role
from secagg.core.ring import RingVector


@dataclass(frozen=True)
class Pad:
    """A pad that everybody may read."""

    name: ClassVar[str] = "pad"
    capabilities: ClassVar[Capabilities] = Capabilities(
        ring_bits=(64, 128),
        hides_from_coordinator=False,
        dropouts="whoever has not written yet",
        sees={"coordinator": "the pad, with everybody's numbers", "site": "the method's messages"},
        unprotected=("Whoever finds the pad can read it.",),
    )
    setup: ClassVar[tuple[Phase, ...]] = ()
    phases: ClassVar[tuple[Phase, ...]] = (Phase("write", Role.SITE, contributes=True),)

    def guarantee_text(self, sites: int) -> str:
        """Say that nothing is hidden."""
        return f"{sites} sites write on one pad"

    def max_colluding(self, sites: int) -> int:
        """Return 0."""
        return 0

    def least_sites(self, sites: int) -> int:
        """Return 2."""
        return 2

    def parties(self) -> tuple[tuple[str, Role], ...]:
        """Return no further parties."""
        return ()

    def client(
        self,
        phase: str,
        state: State,
        body: Body,
        context: Context,
        contribution: RingVector | None = None,
    ) -> tuple[State, Body]:
        """Write."""
        return state, {"written": contribution}

    def server(
        self, phase: str, state: State, replies: Mapping[str, Body], context: Context
    ) -> tuple[State, PhaseRequest | Total | Ready]:
        """Read, and add."""
        if phase == "setup":
            return state, Ready()
        if phase == "sum":
            return state, PhaseRequest("write", {site: {} for site in replies}, tuple(replies))
        written = [body["written"] for body in replies.values()]
        total = ring.total(written, context.shape.length, context.shape.ring_bits)
        return state, Total(total, tuple(replies))
