"""Set up one session: sites, keys, roster, plan, parties, coordinator, engine.

`open_session` does all of it in one process. Where each party has a process of its own, each makes
its own `Party` with `make_party`, and `secagg.runtime.process_session` the coordinator with
`make_coordinator`.

The session's name, which every signature in it covers, is a digest of the roster, a fresh nonce and
what was agreed: job, bounds, rules, settings and version. So a signature given in one session is
none under any other agreement, and `secagg verify` can check this from the log alone.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from secagg.contracts import LeavesOwn, Method, Public, Rows, SecureSum, Stage
from secagg.contracts.noise import Placement
from secagg.core.hash_chain_log import canonical
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes, expanded
from secagg.core.version import __version__
from secagg.errors import CapabilityError, DataError, JobError
from secagg.jobs.data_sources import Data, SiteSource, as_policy, find_sites, ledger_folder
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method, make_protocol, settings_of
from secagg.privacy.accounting.calibration import Calibrated, Terms, calibrate
from secagg.runtime.coordinator import Coordinator
from secagg.runtime.engines.loopback import LoopbackEngine
from secagg.runtime.engines.memory import MemoryEngine, Tamper
from secagg.runtime.journal import Journal
from secagg.runtime.party import Party, SiteSide
from secagg.runtime.rounds import COHORT, StagePlans, declared_stages, plan_stages
from secagg.runtime.session_ledgers import Book, make_guard

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
    private: Calibrated | None = None
    """the mechanisms of differential privacy, where the job asks for it"""


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
    sides: Mapping[str, SiteSide] = field(default_factory=dict)
    journal: Journal | None = None
    book: Book | None = None

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


def plan_job(job: Job, data: Data | None = None) -> Planned:
    """Find the sites by name and prove that every sum fits. Raises `UsageError`s."""
    if job.engine.name == "processes":
        _check_apart(job, data)
    sources = find_sites(job, data)
    return plan_sites(job, tuple(sources), sources)


def plan_sites(job: Job, names: tuple[str, ...], sources: Mapping[str, SiteSource]) -> Planned:
    """Prove that every sum over these sites fits; `sources` are those that this process reads."""
    method, protocol = make_method(job.method), make_protocol(job.protocol)
    taken = set(names) & {COORDINATOR, *(name for name, _ in protocol.parties())}
    if taken:
        raise DataError("sites", f"no site may be called {min(taken)!r}", "Rename its file.")
    if job.simulation.site_alone and isinstance(method, LeavesOwn):
        what = f"{method.name} tells what sites have in common, which one site alone does not know"
        mend = "Leave it out: what each site finds for itself is in its own result."
        raise JobError("simulation.site_alone", what, mend)
    public = public_facts(job, names)
    private = _calibrate(job, declared_stages(method, public), protocol, len(names))
    if private is not None:
        noise = {name: mechanism.noise for name, mechanism in private.mechanisms.items()}
        public = replace(public, noise=noise)
    plans = plan_stages(method, public, protocol.capabilities.ring_bits)
    return Planned(job, dict(sources), public, method, protocol, plans, private)


def _calibrate(
    job: Job, stages: Sequence[Stage], protocol: SecureSum, sites: int
) -> Calibrated | None:
    asked = job.privacy
    if asked.placement is Placement.NONE:
        return None
    if job.simulation.site_alone:
        mend = "Add --set simulation.site_alone=false."
        raise JobError("simulation.site_alone", "shows each site's results without noise", mend)
    if job.release.min_sites is None or job.release.min_records is None:
        unset = "min_sites" if job.release.min_sites is None else "min_records"
        raise JobError(f"release.{unset}", "is not set, and the noise is sized by it", "Set it.")
    assert asked.epsilon is not None and asked.delta is not None  # as the job's model checks
    terms = Terms(
        asked.placement, asked.epsilon, asked.delta, asked.adjacency, asked.colluding,
        asked.count_share, asked.records_per_person, asked.sites_per_person,
    )  # fmt: skip
    # Whoever sees one contribution sees it with that site's share of the noise only. (All but one
    # colluding, that share is all of it, and they can subtract theirs from the sum anyway.)
    if (
        terms.placement is not Placement.SITE
        and protocol.capabilities.hides_from_coordinator
        and protocol.withstands(sites) < terms.colluding < sites - 1
    ):
        raise CapabilityError(
            "privacy.colluding",
            f"is {terms.colluding}, and protocol {protocol.name!r}: {protocol.in_numbers(sites)}",
            "Lower it, or take another protocol or placement 'site'.",
        )
    least = job.release.min_sites
    expected = max(asked.expected_records or 0, least * job.release.min_records)
    return calibrate(terms, stages, least, expected, protocol.capabilities.hides_from_coordinator)


def _check_apart(job: Job, data: Data | None) -> None:
    """Refuse what would need all records in one process. Raises `JobError`."""
    mend = 'Leave it out, or take engine "memory".'
    if data is not None:
        raise JobError("data", "is in this process, and a site's process reads its own", mend)
    if job.simulation.site_alone:
        mend = 'Add --set simulation.site_alone=false, or take engine "memory".'
        raise JobError("simulation.site_alone", "reads all sites' records in one process", mend)


def roles(planned: Planned) -> dict[str, Role]:
    """Return every party of the session but the coordinator."""
    return dict.fromkeys(planned.public.sites, Role.SITE) | dict(planned.protocol.parties())


def open_session(
    planned: Planned,
    random: RandomBytes,
    tamper: Tamper | None = None,
    stand_in: Callable[[Public], Rows] | None = None,
    coordinator: Identity | None = None,
) -> Session:
    """Draw every party's keys, pin them in a roster, and build the parties, in this process.

    stand_in: rows to use at every site instead of its records
    coordinator: its own keys, if it has any
    """
    everyone = {COORDINATOR: Role.COORDINATOR} | roles(planned)
    # First of all, so that what methods draw is the same under every protocol.
    own = {name: expanded(random(32)) for name in sorted(planned.public.sites)}
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
    book = None if stand_in is not None else open_book(planned, session)
    leader = make_coordinator(planned, keys[COORDINATOR], roster, session, random, book)
    sides = {name: party.site for name, party in parties.items() if party.site is not None}
    engine = MemoryEngine(COORDINATOR, parties, tamper)
    return Session(planned, nonce, leader, engine, sides, book=book)


def open_book(planned: Planned, session: bytes) -> Book:
    """Return the coordinator's ledger for a session; it outlives the run where the sites' do."""
    job, lasting = planned.job, all(s.ledger is not None for s in planned.sources.values())
    folder = ledger_folder(job) if lasting else None
    return Book.of(job, planned.private, planned.plans.stages, session, folder)


def make_party(
    planned: Planned,
    identity: Identity,
    roster: Roster,
    session: bytes,
    random: RandomBytes,
    own: RandomBytes,
    stand_in: Callable[[Public], Rows] | None = None,
) -> Party:
    """Return one party; a site with its own policy and records, which `planned.sources` holds.

    own: for the draws of a site's method
    """
    policy, side = as_policy(planned.job.release), None
    if identity.role is Role.SITE:
        source = planned.sources[identity.name]
        policy, guard = source.policy.release, None
        if stand_in is None:
            stages = [s for name, s in planned.plans.stages.items() if name != COHORT]
            guard = make_guard(
                planned.job, stages, planned.private, source, roster, session, random
            )
        load = _loader(planned, source, stand_in)
        side = SiteSide(planned.method, planned.public, load, guard, own)
    return Party(
        identity, roster, session, planned.protocol, planned.plans, policy, random, side
    )  # fmt: skip


def make_coordinator(
    planned: Planned,
    identity: Identity,
    roster: Roster,
    session: bytes,
    random: RandomBytes,
    book: Book | None = None,
) -> Coordinator:
    """Return the coordinator, which needs no records; without a book it knows no earlier sums."""
    return Coordinator(
        identity, roster, session, planned.protocol, planned.method, planned.public, planned.plans,
        as_policy(planned.job.release), random, () if book is None else book.earlier,
    )  # fmt: skip


def session_of(planned: Planned, roster: Roster, nonce: bytes) -> bytes:
    """Return the name of the session in which these parties agree to this."""
    return session_name(roster, nonce, agreement(planned))


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
                 "sum_bits": p.sum_bits, "noise_tail": p.tail}
                for p in plan.fields
            ],
        }
        for name, plan in plans.plans.items()
    ]  # fmt: skip


def session_name(roster: Roster, nonce: bytes, agreed: Mapping[str, Any]) -> bytes:
    """Return the session's name; `agreed` is an `agreement`, or the same as read from a log."""
    return roster.session(nonce, hashlib.sha256(canonical(agreed)).digest())


def rows_of(planned: Planned, name: str) -> Rows:
    """Return a site's records, read now. For whoever plans a job and holds the records, too."""
    return _loader(planned, planned.sources[name], None)()


def _loader(
    planned: Planned, source: SiteSource, stand_in: Callable[[Public], Rows] | None
) -> Callable[[], Rows]:
    if stand_in is not None:
        return functools.partial(stand_in, planned.public)
    privacy = planned.job.privacy
    return lambda: read_rows(
        planned.job.columns, source.read(), planned.public, source.name,
        privacy.person, privacy.records_per_person,
    )  # fmt: skip
