"""The steps of a site, from its rules to its contribution.

The order is the same for every method and protocol: rules that need no record; rules on the
records, which are read here for the first time; the method's contribution, encoded; the ledger
entry; noise. `secagg.sessions.party_transitions` defines what a refusal at each step changes.

Consent covers the rules and the budget only. It costs no budget, because the site computes nothing,
writes nothing to the ledger and sends no data. Consent must not reveal anything about the records
either. Under differential privacy, a site therefore applies the rules on its records only when it
contributes to the count, which spends budget; and after the count the site consents to each stage
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    Body,
    Method,
    MethodFacts,
    PublicFacts,
    SiteRecords,
    Stage,
    State,
    Update,
    facts_of,
)
from secagg.contracts.noise import SITE_MOMENTS
from secagg.core.frames import MAX_COUNT, is_whole
from secagg.core.identity import Role, Roster
from secagg.core.randomness import RandomBytes, seeded_random, system_random
from secagg.core.ring import RingVector
from secagg.core.threads import single_threaded_blas
from secagg.errors import InternalError, PeerError, PolicyRefusal, SecaggError
from secagg.privacy.policy.contribution import ContributionRequest, PlannedRelease
from secagg.privacy.policy.guard import Guard
from secagg.privacy.policy.release_rules import ReleasePolicy, check_invitation, check_records
from secagg.privacy.policy.sum_rules import check_sum
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.sessions.attestations import digest_request
from secagg.sessions.fixed_point import add_noise, encode, encode_cut_sum
from secagg.sessions.party_state import Attempt, PartyState
from secagg.sessions.party_transitions import Step
from secagg.sessions.rounds import COHORT, StagePlans, cohort_update
from secagg.sessions.site_moments import (
    SiteMoments,
    draw_site_moments,
    site_moments_facts,
    site_moments_spec,
)


@dataclass(frozen=True)
class SiteContext:
    """What only a site has: its records (read when first needed), the method and the guard."""

    method: Method
    public: PublicFacts
    load: Callable[[], SiteRecords]
    guard: Guard | None = None
    """policy and ledger; None in a dry run, which releases nothing"""
    random: RandomBytes = system_random
    """for the draws of the method; the protocol draws from a separate stream"""
    drawn: list[SiteMoments] = field(default_factory=list, repr=False)
    """under noise once at the site: the moments that replace its records, once they are drawn"""

    @cached_property
    def rows(self) -> SiteRecords:
        """The site's records."""
        return self.load()

    @cached_property
    def facts(self) -> MethodFacts:
        """The facts of the method."""
        return facts_of(self.method)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks about the records so far, which only the site sees; () if they are not read."""
        rows = vars(self).get("rows")
        of_guard = () if self.guard is None else tuple(self.guard.remarks)
        return (*(() if rows is None else rows.remarks), *of_guard)


@dataclass(frozen=True)
class SiteRequest:
    """A request to contribute.

    records: the total number of records, None before the count
    message: the method's; before: digest of the requests to which the site has contributed
    """

    round: int
    stage: str
    cohort: list[str]
    records: int | None
    message: Body
    before: bytes

    @cached_property
    def digest(self) -> bytes:
        """The digest that the site signs."""
        return digest_request(self.stage, self.cohort, self.records, self.message, self.before)

    def for_guard(self, before: int) -> ContributionRequest:
        """Return the request for the guard; `before` counts earlier contributions to the stage."""
        cohort = tuple(sorted(self.cohort))
        return ContributionRequest(self.round, self.stage, cohort, self.records, before)


@dataclass(frozen=True)
class SiteSteps:
    """The steps of one site; all fields are constant."""

    me: str
    roster: Roster
    plans: StagePlans
    policy: ReleasePolicy
    random: RandomBytes
    context: SiteContext

    def read_request(self, round_: int, body: Body, before: bytes) -> SiteRequest:
        """Return the request, if it is valid. Raises `PeerError` or `PolicyRefusal`."""
        self.plans.of(body.get("stage"))
        match body:
            case {
                "stage": str(stage),
                "cohort": list(cohort),
                "records": records,
                "message": dict(message),
            } if are_names(cohort) and (records is None or is_whole(records, MAX_COUNT)):
                pass
            case _:
                raise PeerError(self.roster.coordinator, "malformed request to contribute")
        if (records is None) != (stage == COHORT):
            raise PolicyRefusal(
                self.me, "the total number of records is missing, or was sent too early"
            )
        if self.me not in cohort or not set(cohort) <= set(self.roster.with_role(Role.SITE)):
            raise PeerError(self.roster.coordinator, "names an invalid cohort for this site")
        return SiteRequest(round_, stage, cohort, records, message, before)

    # --- consent -------------------------------------------------------------------------------

    def consent(self, attempt: Attempt, request: SiteRequest, state: PartyState) -> PartyState:
        """Decide whether to take part. The state that it returns holds the consent."""
        guard, counting = self.context.guard, request.stage == COHORT
        self._check_standing(attempt, request)
        contribution = request.for_guard(before=0)
        with attempt.step(Step.FACTS):
            self._check_facts(contribution)
        if not counting or guard is None or guard.calibrated is None:
            state = self._check_records(attempt, contribution, state)
        if guard is not None:
            with attempt.step(Step.BUDGET):
                releases = self._planned_releases(contribution, request.message)
                guard.check_budget(releases, lambda: self.context.rows)
        if not counting:
            state = replace(state, consented=(*state.consented, request.stage))
        return state

    def _planned_releases(
        self, contribution: ContributionRequest, message: Body
    ) -> list[PlannedRelease]:
        """Return the release of this contribution; for the count, also that of the next round.

        Under noise once at the site: that of its moments.
        """
        if self.context.public.site_moments:
            return [self._moments_release(contribution)]
        releases = [self._planned_release(contribution, message)]
        if contribution.stage == COHORT:
            method, public = self.context.method, self.context.public
            with single_threaded_blas():
                first = method.next_request(method.initial_state(public))
            if first is not None:
                stage, first_message = first
                following = replace(
                    contribution, round=contribution.round + 1, stage=stage, total=0
                )
                releases.append(self._planned_release(following, first_message))
        return releases

    # --- contribution --------------------------------------------------------------------------

    def contribute(
        self, attempt: Attempt, request: SiteRequest, state: PartyState
    ) -> tuple[PartyState, RingVector]:
        """Apply the site's rules; then compute and encode its contribution, and add noise."""
        contribution = request.for_guard(state.contributed.get(request.stage, 0))
        with attempt.step(Step.FACTS):
            self._check_facts(contribution)
            self._check_standing(attempt, request)
            state = state.contributing(request.stage)
            if request.stage != COHORT:
                state = self._same_cohort(contribution, state)
        state = self._check_records(attempt, contribution, state)
        if self.context.public.site_moments:
            with attempt.step(Step.LEDGER):
                self._draw_moments(contribution)
        if self._trains(request.stage):
            with attempt.step(Step.LEDGER):
                seed = self._recorded(contribution, request.message)
            with attempt.step(Step.METHOD), self._counted(contribution):
                vector, memory = self._train(request, contribution, state.method, seed)
            return replace(state, method=memory), vector
        with attempt.step(Step.METHOD), self._counted(contribution):
            vector, memory = self._compute(request, state.method)
            if (site := self.context).guard is not None and request.stage != COHORT:
                spec, message = self.plans.stages[request.stage].spec, request.message
                answered = check_sum(
                    site.guard, site.facts, site.rows, site.public, contribution, spec, message,
                    state.answered,
                )  # fmt: skip
                state = replace(state, answered=answered)
        with attempt.step(Step.LEDGER):
            self._release(contribution, request.message, vector)
        return state if memory is state.method else replace(state, method=memory), vector

    def _same_cohort(self, contribution: ContributionRequest, state: PartyState) -> PartyState:
        """Refuse a changed cohort: two sums would show what the sites in only one of them sent."""
        if state.cohort is None:
            return replace(state, cohort=contribution.cohort)
        if contribution.cohort != state.cohort:
            raise PolicyRefusal(self.me, "the sites changed after the first release")
        return state

    def _compute(self, request: SiteRequest, memory: State) -> tuple[RingVector, State]:
        """Return the encoded contribution, and the new state of the method."""
        site, plan = self.context, self.plans.of(request.stage)
        if request.stage == COHORT and site.drawn:
            return encode(plan, site.drawn[0].counts), memory
        if request.stage == COHORT:
            spec, minimum = self.plans.stages[request.stage].spec, self.policy.min_records or 0
            counts = cohort_update(site.rows, site.public, spec, minimum)
            return encode(plan, counts), memory
        with self._any_error(), single_threaded_blas():
            updates: list[Update] = []
            for rows in self._readable(self.plans.stages[request.stage]):
                update, memory = site.method.contribute(
                    request.stage, rows, request.message, memory, site.public, site.random
                )
                updates.append(update)
            if len(updates) == 1:
                return encode(plan, updates[0]), memory
            return encode_cut_sum(plan, updates), memory

    def _trains(self, stage: str) -> bool:
        """Return whether the site trains alone in this stage, with noise of its own."""
        training = self.plans.stages[stage].training
        return training is not None and stage in self.context.public.noise

    def _train(
        self, request: SiteRequest, contribution: ContributionRequest, memory: State, seed: bytes
    ) -> tuple[RingVector, State]:
        """Return the contribution of a training with the noise of this seed, and the memory."""
        site, plan = self.context, self.plans.of(request.stage)
        train = site.facts.train
        assert train is not None  # a method that declares `Stage.training` has it
        variance = self._planned_release(contribution, request.message).variance
        random = seeded_random(seed)
        noise = partial(self._own_noise, variance, seeded_random(random(32)))
        with self._any_error(), single_threaded_blas():
            update, memory = train(
                request.stage, site.rows, request.message, memory, site.public, random, noise
            )
            return encode(plan, update), memory

    def _own_noise(self, variance: int, random: RandomBytes, numbers: int) -> NDArray[np.int64]:
        """Return the noise of one step of a training."""
        return sample_weighted(variance, (), numbers, random)

    @contextmanager
    def _any_error(self) -> Iterator[None]:
        """Turn any other error into one of ours: the message may have caused it."""
        try:
            yield
        except SecaggError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            advice = "This is an internal error. Set SECAGG_TRACEBACK=1 and report the output."
            raise InternalError(self.me, what, advice) from error

    def _readable(self, stage: Stage) -> list[SiteRecords]:
        """Return the records that the method may read in a stage, in parts.

        In a stage that reads no records, there are none; or under noise once at the site, those
        that its noisy moments stand for.
        """
        if self.context.public.site_moments:
            return [self.context.drawn[0].repaired]
        parts = self._parts()
        return parts if stage.reads_records else [parts[0].part(0, 0)]

    def _parts(self) -> list[SiteRecords]:
        """Return the records, split if they are more than `max_rows`; only under noise they can be.

        With noise, a contribution is a sum over records (`Stage.sensitivity`). Each part is small
        enough for exact sums, and `encode_cut_sum` cuts their total.
        """
        rows, limit = self.context.rows, self.context.public.max_rows
        starts = range(0, max(len(rows.values), 1), limit)
        return [rows.part(i, i + limit) for i in starts]

    def _draw_moments(self, contribution: ContributionRequest) -> None:
        """Record the draw of the site's noisy moments in the ledger, and draw them, once."""
        site, guard = self.context, self.context.guard
        if not site.drawn:
            release = self._moments_release(contribution)
            seed = self.random(32) if guard is None else guard.record_release(release, self.random)
            site.drawn.append(draw_site_moments(self._parts(), site.public, seeded_random(seed)))

    def _moments_release(self, contribution: ContributionRequest) -> PlannedRelease:
        """Return the release of the site's moments, which no stage and no message changes."""
        public, of_moments = self.context.public, replace(contribution, stage=SITE_MOMENTS)
        variance = public.noise[SITE_MOMENTS].variance
        facts = site_moments_facts(public)
        return PlannedRelease(of_moments, site_moments_spec(public), facts, variance)

    def _release(
        self, contribution: ContributionRequest, message: Body, vector: RingVector
    ) -> None:
        """Record the contribution in the ledger and add its noise; then it may leave the site."""
        plan, noise = self.plans.of(contribution.stage), self.context.public.noise
        seed = self._recorded(contribution, message)
        if contribution.stage in noise:
            random = seeded_random(seed)
            variance = self._planned_release(contribution, message).variance
            weights = noise[contribution.stage].weights
            add_noise(plan, vector, sample_weighted(variance, weights, plan.noised, random))

    def _recorded(self, contribution: ContributionRequest, message: Body) -> bytes:
        """Record the contribution in the ledger and return the seed of its noise."""
        guard, release = self.context.guard, self._planned_release(contribution, message)
        return self.random(32) if guard is None else guard.record_release(release, self.random)

    # --- checks of consent and contribution ----------------------------------------------------

    def _check_standing(self, attempt: Attempt, request: SiteRequest) -> None:
        rounds = self.plans.stages[request.stage].max_rounds
        attempt.check_standing(self.me, self.roster.coordinator, request.stage, rounds)

    def _check_facts(self, contribution: ContributionRequest) -> None:
        """Apply the rules that need no record."""
        guard = self.context.guard
        if guard is None:
            check_invitation(self.policy, self.me, contribution.cohort, contribution.total)
        else:
            guard.admit(contribution)

    def _check_records(
        self, attempt: Attempt, contribution: ContributionRequest, state: PartyState
    ) -> PartyState:
        """Read the records, if that is still to do, and apply the rules on them."""
        site, total = self.context, contribution.total
        if total is not None and state.records not in (None, total):
            raise PolicyRefusal(self.me, "the total number of records has changed")
        with attempt.step(Step.RECORDS), self._counted(contribution):
            if site.guard is None:
                check_records(self.policy, self.me, site.rows.persons_count)
            else:
                site.guard.check(contribution, site.rows, site.public)
        return state.with_records(total)

    @contextmanager
    def _counted(self, contribution: ContributionRequest) -> Iterator[None]:
        """Count an error as a refusal that depends on the records."""
        try:
            yield
        except SecaggError as error:
            if self.context.guard is not None:
                self.context.guard.refused(contribution, error)
            raise

    def _planned_release(self, contribution: ContributionRequest, message: Body) -> PlannedRelease:
        """Return the release of a contribution, as the ledger records it."""
        noise, variance = self.context.public.noise.get(contribution.stage), 0
        if noise is not None:
            # The first sum may lose sites, down to min_sites. A later sum covers its whole cohort.
            sharing = noise.min_sites if contribution.stage == COHORT else len(contribution.cohort)
            variance = noise.site_variance(sharing)
        return PlannedRelease(
            contribution, self.plans.stages[contribution.stage].spec, message, variance
        )


def are_names(values: Sequence[object]) -> bool:
    """Return whether all values are strings."""
    return all(isinstance(value, str) for value in values)
