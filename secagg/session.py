"""Set up one session in one process: sites, keys, roster, plan, parties, coordinator, engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from secagg import wire
from secagg.contracts import Method, Public, Rows, SecureSum
from secagg.coordinator import Coordinator
from secagg.engines.memory import MemoryEngine, Tamper
from secagg.errors import DataError
from secagg.identity import Identity, Role, Roster
from secagg.job import Job
from secagg.party import Party, SiteSide
from secagg.privacy.gate import ReleasePolicy
from secagg.randomness import RandomBytes
from secagg.registry import make_method, make_protocol
from secagg.schema import public_facts, read_rows
from secagg.sites import Data, SiteSource, as_policy, find_sites
from secagg.stages import StagePlans, plan_stages

COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Planned:
    """A job that has been proved to fit, before any record was read."""

    job: Job
    sources: dict[str, SiteSource]
    public: Public
    method: Method
    protocol: SecureSum
    plans: StagePlans


@dataclass(frozen=True)
class Session:
    """A planned job with keys and parties, ready to run."""

    planned: Planned
    session: bytes
    roster: Roster
    coordinator: Coordinator
    engine: MemoryEngine
    sides: dict[str, SiteSide]


def plan_job(job: Job, data: Data | None = None) -> Planned:
    """Find the sites by name and prove that every sum fits. Raises `UsageError`s."""
    sources = find_sites(job, data)
    taken = set(sources) & {COORDINATOR}
    method, protocol = make_method(job.method), make_protocol(job.protocol)
    taken |= set(sources) & {name for name, _ in protocol.parties()}
    if taken:
        raise DataError("sites", f"no site may be called {min(taken)!r}", "Rename its file.")
    public = public_facts(job, tuple(sources))
    plans = plan_stages(method, public, protocol.capabilities.ring_bits)
    return Planned(job, sources, public, method, protocol, plans)


def open_session(
    planned: Planned,
    random: RandomBytes,
    tamper: Tamper | None = None,
    stand_in: Callable[[Public], Rows] | None = None,
) -> Session:
    """Draw every party's keys, pin them in a roster, and build the parties.

    stand_in: rows to use at every site instead of its records
    """
    roles = [(COORDINATOR, Role.COORDINATOR), *((s, Role.SITE) for s in planned.public.sites)]
    roles += planned.protocol.parties()
    identities = {name: Identity.generate(name, role, random) for name, role in roles}
    roster = Roster({name: identity.public for name, identity in identities.items()})
    job_digest = wire.digest(planned.job.model_dump_json())
    session = roster.session(random(16), job_digest)
    shared = as_policy(planned.job.release)
    sides = {
        name: SiteSide(planned.method, planned.public, _loader(planned, source, stand_in))
        for name, source in planned.sources.items()
    }

    def party(name: str, policy: ReleasePolicy, side: SiteSide | None) -> Party:
        return Party(
            identities[name], roster, session, planned.protocol, planned.plans, policy, random, side
        )

    parties = {n: party(n, source.policy, sides[n]) for n, source in planned.sources.items()}
    parties |= {name: party(name, shared, None) for name, _ in planned.protocol.parties()}
    coordinator = Coordinator(
        identities[COORDINATOR],
        roster,
        session,
        planned.protocol,
        planned.method,
        planned.public,
        planned.plans,
        shared,
        random,
    )
    engine = MemoryEngine(COORDINATOR, parties, tamper)
    return Session(planned, session, roster, coordinator, engine, sides)


def _loader(
    planned: Planned, source: SiteSource, stand_in: Callable[[Public], Rows] | None
) -> Callable[[], Rows]:
    if stand_in is not None:
        return functools.partial(stand_in, planned.public)
    return lambda: read_rows(planned.job.columns, source.read(), planned.public, source.name)
