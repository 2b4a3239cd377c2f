"""Guards and ledgers of a session: whose they are, and what they are told.

A site's guard (`secagg.privacy.policy.guard`) knows the job as its own process read it, and its own
policy and ledger. The coordinator has a ledger too, without seeds: before a released sum is used,
it puts down over which sites it was and what it cost, and it asks for no sum that, with all earlier
ones, would show fewer sites than the job's `min_sites`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from secagg.contracts import Stage
from secagg.contracts.noise import Placement
from secagg.core import encoding
from secagg.core.identity import Roster
from secagg.core.randomness import RandomBytes, system_random
from secagg.core.ring import RingVector
from secagg.errors import UsageError
from secagg.jobs.data_sources import SiteSource, as_policy, ledger_name
from secagg.jobs.job import Job
from secagg.privacy.accounting.calibration import EXACT, Calibrated
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Cohort, Release
from secagg.privacy.policy.evaluation import PolicyRequest, parameters
from secagg.privacy.policy.guard import Guard
from secagg.privacy.policy.release_rules import check_cohort

ALL_SITES = "all sites"
"""The coordinator's name for the records of all sites together."""


def open_ledger(path: Path | None) -> Ledger:
    """Open a party's ledger, make it if there is none; one in memory if it has no place."""
    if path is None:
        return Ledger.in_memory(_now)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        advice = "Set sites.ledgers to a folder that secagg may write to."
        raise UsageError(str(path.parent), f"cannot be made ({error.strerror})", advice) from None
    return Ledger.open(path, create=True, now=_now)


def _now() -> datetime:
    return datetime.now(UTC)


def make_guard(
    job: Job, stages: Sequence[Stage], private: Calibrated | None, source: SiteSource,
    roster: Roster, session: bytes, random: RandomBytes,
) -> Guard:  # fmt: skip
    """Return a site's guard. `stages` are the method's own."""
    key, replayable = roster.parties[roster.coordinator].verify_key, random is not system_random
    terms = None if private is None or replayable else private.terms
    asked = contribution_request(job, stages, source.name, key, terms)
    return Guard(
        session.hex(), source.dataset, source.policy, asked, private,
        functools.partial(open_ledger, source.ledger), query_digest(job), replayable,
    )  # fmt: skip


def contribution_request(
    job: Job, stages: Sequence[Stage], site: str, key: bytes, terms: Terms | None
) -> PolicyRequest:
    """Return what a job asks of a site, all but the cohort.

    stages: the method's own; key: of the coordinator who asks
    terms: None without noise; noise that others can draw again is none
    """
    return PolicyRequest(
        site=site,
        coordinator_key=key,
        method=job.method.name,
        columns=tuple(job.columns),
        protocol=job.protocol.name,
        parameters=parameters(stages),
        cohort=(),
        counting=True,
        terms=terms,
    )


def query_digest(job: Job) -> bytes:
    """Return a digest of what decides a contribution, beside its spec and the message.

    A method's other settings decide what is made of the sums (`moments`: which analyses).
    """
    columns = [[name, column.model_dump(mode="json")] for name, column in job.columns.items()]
    privacy = job.privacy
    whose = [privacy.record_norm, privacy.person, privacy.records_per_person]
    return encoding.digest([job.method.name, columns, whose])


@dataclass(eq=False)
class CoordinatorLedger:
    """The coordinator's side of a ledger in one session.

    path: of the ledger, which is open from the first release on; None where nothing is kept
    earlier: the cohorts of all that it released before this session
    """

    job: Job
    private: Calibrated | None
    stages: Mapping[str, Stage]
    session: str
    path: Path | None
    earlier: tuple[frozenset[str], ...]
    _ledger: Ledger | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        job: Job,
        private: Calibrated | None,
        stages: Mapping[str, Stage],
        session: bytes,
        folder: Path | None,
    ) -> CoordinatorLedger:
        """Read the coordinator's ledger in this folder, if there is one already."""
        path = None if folder is None else folder / ledger_name("coordinator")
        earlier: tuple[frozenset[str], ...] = ()
        if path is not None and path.exists():
            with closing(open_ledger(path)) as ledger:
                earlier = tuple(known.sites for known in ledger.cohorts(ALL_SITES))
        return cls(job, private, stages, session.hex(), path, earlier)

    def check_budget(self) -> None:
        """Decide whether the whole run fits the coordinator's own caps. Raises `PolicyRefusal`.

        Not for noise of the sites' own: only the sums tell whether it was released before.
        """
        job, private = self.job, self.private
        if self.path is None or not self.path.exists() or job.privacy.placement is Placement.SITE:
            return
        terms = None if private is None else private.terms
        costs = [EXACT]
        if private is not None:
            costs = [m.cost() for m in private.mechanisms.values() for _ in range(m.rounds)]
        delta, adjacency = (0.0, None) if terms is None else (terms.delta, terms.adjacency)
        self._open().check_costs(ALL_SITES, costs, (), delta, adjacency)

    def record_release(self, event: Mapping[str, Any], total: RingVector) -> None:
        """Put down a release, before its sum is kept or used. Raises `PolicyRefusal`.

        Where sites noise once and for all, the same sum again tells nothing new, and costs nothing.
        """
        if self.path is None:
            return
        stage, cohort = self.stages[event["stage"]], tuple(event["contributors"])
        noise = None if self.private is None else self.private.mechanisms[stage.name].noise
        privacy = self.job.privacy
        release = Release(
            party="coordinator",
            dataset=ALL_SITES,
            session=self.session,
            round=event["round"],
            stage=stage.name,
            query=query_digest(self.job).hex(),
            placement=privacy.placement,
            cost=EXACT if self.private is None else self.private.mechanisms[stage.name].cost(),
            delta=privacy.delta or 0.0,
            cohort=cohort,
            records=encoding.digest(total).hex(),
            variance=0 if noise is None else noise.variance,
            fraction_bits=stage.spec[0].fraction_bits,
            adjacency=privacy.adjacency if self.private is not None else None,
        )
        self._open().record_release(release, compare=functools.partial(self._compare, cohort))

    def close(self) -> None:
        """Let the ledger go."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _open(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(self.path)
        return self._ledger

    def _compare(self, cohort: Sequence[str], earlier: Sequence[Cohort]) -> None:
        sites = [known.sites for known in earlier]
        check_cohort(as_policy(self.job.release), "coordinator", cohort, sites)
