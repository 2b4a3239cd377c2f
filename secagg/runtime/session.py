"""Set up one session: sites, keys, roster, plan, parties, coordinator, engine.

`open_session` does all of it in one process. Where each party has a process of its own, each makes
its own `Party` with `make_party`, and `secagg.runtime.process_session` the coordinator with
`make_coordinator`.

The session's name, which every signature in it covers, is a digest of the roster, a fresh nonce and
what was agreed: job, bounds, rules, settings and version. So a signature given in one session is
none under any other agreement, and `secagg verify` can check this from the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secagg.contracts import SiteRecords
from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.runtime.coordinator import Coordinator
from secagg.runtime.engines.loopback import LoopbackEngine
from secagg.runtime.engines.memory import MemoryEngine, Tamper
from secagg.runtime.journal import Journal
from secagg.runtime.parties import make_coordinator, make_party, open_coordinator_ledger
from secagg.runtime.party import SiteContext
from secagg.runtime.planned_job import Planned, roles, session_of
from secagg.runtime.session_ledgers import CoordinatorLedger


@dataclass(frozen=True)
class Session:
    """A planned job with keys and parties, ready to run.

    sides: what the sites hold, where all of them are in this process
    journal: where the coordinator's steps are kept, if the run is to be resumed
    book: the coordinator's ledger
    """

    planned: Planned
    nonce: bytes
    coordinator: Coordinator
    engine: MemoryEngine | LoopbackEngine
    sides: Mapping[str, SiteContext] = field(default_factory=dict)
    journal: Journal | None = None
    book: CoordinatorLedger | None = None

    def close(self) -> None:
        """Let all ledgers go that are open in this process."""
        for side in self.sides.values():
            if side.guard is not None:
                side.guard.close()
        if self.book is not None:
            self.book.close()

    @property
    def session(self) -> bytes:
        """The session's name."""
        return self.coordinator.session

    @property
    def roster(self) -> Roster:
        """Who takes part, with public keys."""
        return self.coordinator.roster


def open_session(
    planned: Planned,
    random: RandomBytes,
    tamper: Tamper | None = None,
    stand_in: SiteRecords | None = None,
    coordinator: Identity | None = None,
) -> Session:
    """Draw every party's keys, pin them in a roster, and build the parties, in this process.

    stand_in: rows to use at every site instead of its records
    coordinator: its own keys, if it has any
    """
    everyone = {COORDINATOR: Role.COORDINATOR} | roles(planned)
    # First of all, so that what methods draw is the same under every protocol.
    own = {name: seeded_random(random(32)) for name in sorted(planned.public.sites)}
    keys = {name: Identity.generate(name, role, random) for name, role in everyone.items()}
    if coordinator is not None:
        keys[COORDINATOR] = coordinator
    roster = Roster({name: identity.public for name, identity in keys.items()})
    nonce = random(16)
    session = session_of(planned, roster, nonce)
    parties = {
        name: make_party(
            planned, keys[name], roster, session, random, own.get(name, random), stand_in
        )
        for name in roles(planned)
    }
    book = None if stand_in is not None else open_coordinator_ledger(planned, session)
    leader = make_coordinator(planned, keys[COORDINATOR], roster, session, random, book)
    sides = {name: party.site for name, party in parties.items() if party.site is not None}
    engine = MemoryEngine(COORDINATOR, parties, tamper)
    return Session(planned, nonce, leader, engine, sides, book=book)
