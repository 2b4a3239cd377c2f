"""Set up one session in one process: sites, keys, roster, plan, parties, coordinator, engine.

The session's name, which every signature in it covers, is a digest of the roster, a fresh nonce and
what was agreed: job, bounds, rules, settings and version. So a signature given in one session is
none under any other agreement, and `secagg verify` can check this from the log alone.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from secagg import __version__
from secagg.contracts import Method, Public, Rows, SecureSum
from secagg.coordinator import Coordinator
from secagg.engines.memory import MemoryEngine, Tamper
from secagg.errors import DataError
from secagg.identity import Identity, Role, Roster
from secagg.job import Job
from secagg.party import Party, SiteSide
from secagg.privacy.gate import ReleasePolicy
from secagg.randomness import RandomBytes
from secagg.registry import make_method, make_protocol, settings_of
from secagg.runlog import canonical
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
    nonce: bytes
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
    nonce = random(16)
    session = session_name(roster, nonce, agreement(planned))
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
    return Session(planned, nonce, session, roster, coordinator, engine, sides)


def agreement(planned: Planned) -> dict[str, Any]:
    """Return, as plain data for JSON, what the parties agree to before any record is read."""
    return {
        "secagg": __version__,
        "job": planned.job.model_dump(mode="json"),
        "method": {"name": planned.method.name, "settings": settings_of(planned.method)},
        "protocol": {"name": planned.protocol.name, "settings": settings_of(planned.protocol)},
        "plan": plan_facts(planned.plans),
    }


def plan_facts(plans: StagePlans) -> list[dict[str, Any]]:
    """Return, for each stage, the bounds and the bits they were proved to fit in."""
    return [
        {
            "stage": name,
            "sees": plans.stages[name].sees,
            "max_rounds": plans.stages[name].max_rounds,
            "sites": plan.sites,
            "ring_bits": plan.ring_bits,
            "sum_bits": plan.sum_bits,
            "values": plan.length,
            "fields": [
                {"name": p.field.name, "kind": p.field.kind.value, "values": p.field.size,
                 "bound": p.field.bound, "fraction_bits": p.field.fraction_bits,
                 "sum_bits": p.sum_bits}
                for p in plan.fields
            ],
        }
        for name, plan in plans.plans.items()
    ]  # fmt: skip


def session_name(roster: Roster, nonce: bytes, agreed: Mapping[str, Any]) -> bytes:
    """Return the session's name; `agreed` is an `agreement`, or the same as read from a log."""
    return roster.session(nonce, hashlib.sha256(canonical(agreed)).digest())


def _loader(
    planned: Planned, source: SiteSource, stand_in: Callable[[Public], Rows] | None
) -> Callable[[], Rows]:
    if stand_in is not None:
        return functools.partial(stand_in, planned.public)
    return lambda: read_rows(planned.job.columns, source.read(), planned.public, source.name)
