"""A coordinator that departs from the protocol, for tests of attacks."""

from typing import Any

from contracts.secure_sum import numbers
from support.protocols.world import STAGE, SumNumbers, World

from secagg.contracts import Body, SecureSum
from secagg.core import canonical_encoding
from secagg.core.frames import write_frame
from secagg.sessions.rounds import COHORT


class Cheat:
    """Sends signed requests of its choice to the parties of a world, and keeps their states."""

    def __init__(self, protocol: SecureSum, sites: int = 4, **options: Any) -> None:
        options = {"min_sites": 3, **options}
        self.world = World(protocol, numbers(sites, 3, 1), SumNumbers((3,), rounds=2), **options)
        self.sites = sorted(self.world.numbers)
        self.states = {n: p.first_state() for n, p in self.world.engine.parties.items()}
        self.claims: dict[str, list[bytes]] = {}

    def ask(self, party: str, phase: str, round_: int, body: Body) -> Body:
        """Return the party's answer, or raise its error; store its claim in `claims`."""
        w = self.world
        request = write_frame(w.identities["coordinator"], w.session, round_, phase, party, body)
        handled = w.engine.parties[party].handle(request, self.states[party])
        self.states[party] = handled.state
        if handled.error is not None:
            raise handled.error
        header, signature, content = canonical_encoding.loads(handled.reply)
        self.claims[party] = [header, signature]
        return canonical_encoding.loads(content)

    def invite(
        self,
        site: str,
        phase: str,
        round_: int,
        stage: str = STAGE,
        message: Body | None = None,
        cohort: list[str] | None = None,
    ) -> Body:
        """Ask a site to contribute."""
        body = {"stage": stage, "cohort": cohort or self.sites, "message": message or {},
                "records": None if stage == COHORT else 12}  # fmt: skip
        return self.ask(site, phase, round_, body)
