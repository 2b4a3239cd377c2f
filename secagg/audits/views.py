"""What an attacker holds after a run: its messages and the sums that were opened.

A *view* is made from a finished run with a transcript (`secagg.evidence.transcript_file`). It has
no record. The coordinator's messages are functions of the sums before them. So they are computed
from the sums, as `secagg verify` does, and need no place in the transcript.

    coordinator   the message and the opened sum of each round, and what the frames of the sites
                  hold if they are read as contributions (`SeenRound.parts`): the contributions
                  themselves under `plain`, and masked numbers under `masked`. Encrypted
                  contributions, and shares for aggregators, cannot be read and are left out
    dishonest     the same; it also asks the sites with messages or jobs of its choice
    coalition     the coordinator and some sites, with the records of these sites
    outsider      the result

A single site holds its records and the coordinator's messages, so less than a coalition with it. An
aggregator holds shares, which are uniform random numbers; no view has them.

Guarantees: a view is a function of the run folder, but for the records of colluding sites and for
what sites answer when they are asked. The truth is given to the scorer of an attack, and never to
the attack (`secagg.audits.contract`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from secagg.contracts import Body, Result, SiteRecords, Update
from secagg.core import ring
from secagg.core.frames import read_frame
from secagg.core.identity import Role
from secagg.errors import EvidenceError, PeerError, ProtocolAbort
from secagg.evidence.released_sums import ReleasedSum
from secagg.evidence.run_folder import RunFolder
from secagg.evidence.transcript_file import MESSAGES_FILE, Message
from secagg.sessions.fixed_point import decode
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.sum_plan import SumPlan

AskSites = Callable[[str, Body], Update]
"""Sends a message of a stage to all sites and returns the sum of their answers, as it is opened."""


@dataclass(frozen=True)
class Answer:
    """What a job's sites answered: the opened sums with their stages, or codes of refusal by site.

    sites: those of the sums
    """

    sums: tuple[tuple[str, Update], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    sites: tuple[str, ...] = ()


class AskJob(Protocol):
    """Has the sites answer a changed job, after all jobs that they answered before."""

    def __call__(self, changes: Mapping[str, Any], absent: Collection[str] = ()) -> Answer:
        """Return the answer. changes: dotted keys of the job to values; absent: sites left out"""
        ...


class Who(StrEnum):
    """Whose view it is."""

    COORDINATOR = "coordinator"
    DISHONEST = "dishonest"
    COALITION = "coalition"
    OUTSIDER = "outsider"


@dataclass(frozen=True)
class SeenRound:
    """One sum of the method, as its coordinator saw it.

    message: to all sites; total: the opened sum
    parts: by site, its frame read as a contribution, whatever the frame holds; NaN if that gives
        numbers out of range
    """

    stage: str
    message: Body
    total: Update
    parts: Mapping[str, Update]


@dataclass(frozen=True)
class View:
    """What one attacker holds.

    planned: the job, which is public; own: the records of the colluding sites, by site
    open_session: starts a new session with the sites, for a coordinator that chooses its messages
    ask: has the sites answer another job, for a coordinator that chooses its jobs
    messages: all messages that it sent or received, in their order
    """

    who: Who
    planned: Planned
    sites: tuple[str, ...]
    rounds: tuple[SeenRound, ...]
    result: Result
    own: Mapping[str, SiteRecords] = field(default_factory=dict)
    open_session: Callable[[], AskSites] | None = None
    ask: AskJob | None = None
    messages: tuple[Message, ...] = ()

    @cached_property
    def in_clear(self) -> bool:
        """Whether the frames hold the contributions: they add up to every opened sum."""
        return bool(self.rounds) and all(map(self.adds_up, self.rounds))

    def adds_up(self, seen: SeenRound) -> bool:
        """Return whether the frames of all sites add up to the sum, but for floats' rounding."""
        return set(seen.parts) == set(self.sites) and _adds_up(seen)

    @property
    def readable_sites(self) -> tuple[str, ...]:
        """The sites whose frames to the coordinator held numbers, in the last sum."""
        return tuple(self.rounds[-1].parts) if self.rounds else ()

    @property
    def why_not_readable(self) -> str:
        """Why no site's frame can be read as a contribution; "" if one can."""
        return "" if self.readable_sites else "no frame to the coordinator holds numbers"

    @property
    def why_noise_hides(self) -> str:
        """Why sums say at most the noisy moments of a site; "" if sites use their records."""
        once = self.planned.public.site_moments
        return "all sums are computed from moments to which each site added noise" if once else ""

    @property
    def why_trained_alone(self) -> str:
        """Why the sums are not of records: each site trains a network; "" if they are."""
        training = any(stage.training for stage in self.planned.plans.stages.values())
        return "sites train alone with noise" if training else ""

    @property
    def why_no_sums_of_sites(self) -> str:
        """Why no sum hides single sites' exact statistics; "" if one does."""
        if why := self.why_trained_alone or self.why_noise_hides:
            return why
        if len(self.sites) - len(self.own) < 2 and not self.in_clear:
            return "one site remains, and every sum is its own: see last_site"
        return "" if self.rounds else "the run opened no sum of the method"

    def for_outsider(self) -> View:
        """Return the view of a person who has the result only."""
        return replace(self, who=Who.OUTSIDER, rounds=(), messages=())

    def for_coalition(self, own: Mapping[str, SiteRecords]) -> View:
        """Return the view of the coordinator together with these sites."""
        return replace(self, who=Who.COALITION, own=own)

    def first(self, sums: int) -> View:
        """Return the view after the first sums of the method: no result yet, and no frames."""
        return replace(self, rounds=self.rounds[:sums], messages=(), result=Result({}))

    def alone(self, site: str) -> View:
        """Return the view of a coordinator to which one site's contributions are the sums."""
        rounds = tuple(replace(seen, total=seen.parts[site]) for seen in self.rounds)
        return replace(self, sites=(site,), rounds=rounds)


def _adds_up(seen: SeenRound) -> bool:
    """Return whether the parts sum up to the total, but for the rounding of floats."""
    for name, total in seen.total.items():
        parts = [part[name] for part in seen.parts.values()]
        size = sum(abs(part) for part in parts) + abs(total)
        if not (abs(sum(parts) - total) <= 1e-9 * size).all():  # NaN is no sum either
            return False
    return True


def coordinator_view(folder: RunFolder, planned: Planned) -> View:
    """Return what the coordinator of a finished run holds; without a transcript, no message.

    Raises `EvidenceError` if a file is malformed or a message was changed.
    """
    parts = _readable_parts(folder, planned)
    method, rounds = planned.method, list[SeenRound]()
    state = method.initial_state(planned.public)
    sites = tuple(sorted(folder.cohort))
    for item in folder.sums:
        if item.stage == COHORT:
            continue
        rounds.append(_seen(planned, item, method.next_request(state), parts))
        state = method.aggregate(state, rounds[-1].total, len(sites))
    seen, messages = tuple(rounds), folder.messages
    return View(Who.COORDINATOR, planned, sites, seen, folder.result, messages=messages)


def _seen(
    planned: Planned,
    item: ReleasedSum,
    request: tuple[str, Body] | None,
    parts: Mapping[int, Mapping[str, ring.RingVector]],
) -> SeenRound:
    plan = planned.plans.of(item.stage)
    assert request is not None and request[0] == item.stage  # as in the run
    total, _ = decode(plan, item.total)
    own = {site: _read(plan, vector) for site, vector in parts.get(item.round, {}).items()}
    return SeenRound(item.stage, request[1], total, own)


def _read(plan: SumPlan, vector: ring.RingVector) -> Update:
    """Return a vector read as a contribution; NaN if it holds numbers out of range."""
    try:
        return decode(plan, vector)[0]
    except ProtocolAbort:
        fields = (each.field for each in plan.fields[:-1])
        return {field.name: np.full(field.shape, np.nan) for field in fields}


def _readable_parts(folder: RunFolder, planned: Planned) -> dict[int, dict[str, ring.RingVector]]:
    """Return by round and site what is in a frame to the coordinator and looks like numbers."""
    sites = set(folder.roster.with_role(Role.SITE))
    contributing = {phase.name for phase in planned.protocol.phases if phase.contributes}
    items = planned.plans.message_items(len(folder.roster.parties))
    stages = {item.round: item.stage for item in folder.sums}
    found: dict[int, dict[str, ring.RingVector]] = {}
    for message in folder.messages:
        if message.sender not in sites or message.phase not in contributing:
            continue
        plan = planned.plans.of(stages.get(message.round))
        vector = _vector_in(message, plan, folder, items)
        if vector is not None:
            found.setdefault(message.round, {})[message.sender] = vector
    return found


def _vector_in(
    message: Message, plan: SumPlan, folder: RunFolder, items: int
) -> ring.RingVector | None:
    """Return the numbers in a message. Raises `EvidenceError` if its signature is not valid."""
    try:
        body = read_frame(
            message.frame, folder.roster, message.recipient, folder.session_bytes, items
        ).body
    except PeerError as error:
        raise EvidenceError(MESSAGES_FILE, f"a message was changed: {error.what}") from None
    for value in body.values():
        if ring.is_vector(value, plan.length, plan.ring_bits):
            return value
    return None
