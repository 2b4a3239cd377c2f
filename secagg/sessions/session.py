"""Set up one session: sites, keys, roster, plan, parties, coordinator, engine.

`open_session` does this in one process. If each party has its own process, each of them builds its
own `Party` with `make_party`, and `secagg.sessions.stored_session` builds the coordinator.

The session's name is a digest of the roster, a fresh nonce and the agreement: job, bounds, rules,
settings and version. Every signature covers this name, so a signature from one session is invalid
under any other agreement. `secagg verify` checks the name from the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secagg.contracts import SiteRecords
from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.sessions.coordinator import Coordinator
from secagg.sessions.engines.engine import RemoteParties
from secagg.sessions.engines.memory import MemoryEngine, Tamper
from secagg.sessions.journal import Journal
from secagg.sessions.parties import make_coordinator, make_party, open_coordinator_ledger
from secagg.sessions.party import SiteContext
from secagg.sessions.planned_job import Planned, roles, session_of
from secagg.sessions.session_ledgers import CoordinatorLedger


@dataclass(frozen=True)
class Session:
    """A planned job with keys and parties, ready to run.

    sites: the contexts of the sites, if they are in this process
    journal: the journal of the coordinator's steps, for a run that can be resumed
    ledger: the coordinator's ledger
    """

    planned: Planned
    nonce: bytes
    coordinator: Coordinator
    engine: MemoryEngine | RemoteParties
    sites: Mapping[str, SiteContext] = field(default_factory=dict)
    journal: Journal | None = None
    ledger: CoordinatorLedger | None = None

    def close(self) -> None:
        """Close all ledgers that are open in this process."""
        for site in self.sites.values():
            if site.guard is not None:
                site.guard.close()
        if self.ledger is not None:
            self.ledger.close()

    @property
    def session(self) -> bytes:
        """The session's name."""
        return self.coordinator.session

    @property
    def roster(self) -> Roster:
        """All parties, with their public keys."""
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
    coordinator: its keys, if it has lasting ones
    """
    everyone = {COORDINATOR: Role.COORDINATOR} | roles(planned)
    # Drawn first, so that the draws of a method are the same under every protocol.
    method_random = {name: seeded_random(random(32)) for name in sorted(planned.public.sites)}
    keys = {name: Identity.generate(name, role, random) for name, role in everyone.items()}
    if coordinator is not None:
        keys[COORDINATOR] = coordinator
    roster = Roster({name: identity.public for name, identity in keys.items()})
    nonce = random(16)
    session = session_of(planned, roster, nonce)
    parties = {
        name: make_party(
            planned, keys[name], roster, session, random, method_random.get(name, random), stand_in
        )
        for name in roles(planned)
    }
    ledger = None if stand_in is not None else open_coordinator_ledger(planned, session)
    leader = make_coordinator(planned, keys[COORDINATOR], roster, session, random, ledger)
    sites = {name: party.site for name, party in parties.items() if party.site is not None}
    engine = MemoryEngine(COORDINATOR, parties, tamper)
    return Session(planned, nonce, leader, engine, sites, ledger=ledger)
