"""What a site does with a request, from its rules to its contribution.

The order is the same for every method and protocol: rules that need no record; rules on the
records, which are read for this; the method's contribution, encoded; the entry in the ledger;
noise. Which of these steps leaves something behind when it refuses is in
`secagg.runtime.party_transitions`.

Consent asks for the rules and the budget only. Nothing is computed, entered or sent, so that it
costs no budget. It must not be a way to ask about records either: with noise, the records are
looked at when the count is paid for, and no stage is consented to after that count but once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from secagg.contracts import Body, Method, PublicFacts, SiteRecords, State
from secagg.core.frames import MAX_COUNT, is_whole
from secagg.core.identity import Role, Roster
from secagg.core.randomness import RandomBytes, seeded_random, system_random
from secagg.core.ring import RingVector
from secagg.core.threads import single_threaded_blas
from secagg.errors import InternalError, PeerError, PolicyRefusal, SecaggError
from secagg.privacy.policy.guard import ContributionRequest, Guard, PlannedRelease
from secagg.privacy.policy.release_rules import ReleasePolicy, check_invitation, check_records
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.runtime.attestations import digest_request
from secagg.runtime.fixed_point import add_noise, encode
from secagg.runtime.party_state import Attempt, PartyState
from secagg.runtime.party_transitions import Step
from secagg.runtime.rounds import COHORT, StagePlans, cohort_update


@dataclass(frozen=True)
class SiteContext:
    """What only a site has: its records (read when first needed) and the method to run on them."""

    method: Method
    public: PublicFacts
    load: Callable[[], SiteRecords]
    guard: Guard | None = None
    """policy and ledger; None where nothing of this can be released: a dry run"""
    random: RandomBytes = system_random
    """for the method's own draws, a stream apart from the protocol's"""

    @cached_property
    def rows(self) -> SiteRecords:
        """The site's records."""
        return self.load()


@dataclass(frozen=True)
class Asked:
    """What a site is asked to contribute to.

    records: the number of records in all, None before they are counted
    message: the method's, for this round
    """

    round: int
    stage: str
    cohort: list[str]
    records: int | None
    message: Body

    @property
    def digest(self) -> bytes:
        """The digest that the site signs."""
        return digest_request(self.stage, self.cohort, self.records, self.message)

    def occasion(self, before: int) -> ContributionRequest:
        """Return the request as rules and ledger know it; `before`: contributions so far."""
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

    def read_request(self, round_: int, body: Body) -> Asked:
        """Return what is asked, once it makes sense. Raises `PeerError` or `PolicyRefusal`."""
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
            raise PolicyRefusal(self.me, "the number of records in all is not known")
        if self.me not in cohort or not set(cohort) <= set(self.roster.with_role(Role.SITE)):
            raise PeerError(self.roster.coordinator, "names a cohort that is not of these sites")
        return Asked(round_, stage, cohort, records, message)

    # --- consent -------------------------------------------------------------------------------

    def consent(self, attempt: Attempt, asked: Asked, state: PartyState) -> PartyState:
        """Decide whether to take part, as far as that is known before anybody contributes."""
        guard, counting = self.context.guard, asked.stage == COHORT
        self._check_standing(attempt, asked)
        occasion = asked.occasion(before=0)
        with attempt.step(Step.FACTS):
            self._check_facts(occasion)
        if not counting or guard is None or guard.calibrated is None:
            state = self._check_records(attempt, occasion, state)
        if guard is not None:
            with attempt.step(Step.BUDGET):
                answers = self._planned(occasion, asked.message)
                guard.check_budget(answers, lambda: self.context.rows)
        if not counting:
            state = replace(state, consented=(*state.consented, asked.stage))
        return state

    def _planned(self, occasion: ContributionRequest, message: Body) -> list[PlannedRelease]:
        """Return what the ledger has to know of this contribution, and of one after the count."""
        answers = [self._planned_release(occasion, message)]
        if occasion.stage == COHORT:
            method, public = self.context.method, self.context.public
            with single_threaded_blas():
                first = method.next_request(method.initial_state(public))
            if first is not None:
                stage, sent = first
                after = replace(occasion, round=occasion.round + 1, stage=stage, total=0)
                answers.append(self._planned_release(after, sent))
        return answers

    # --- contribution --------------------------------------------------------------------------

    def contribute(
        self, attempt: Attempt, asked: Asked, state: PartyState
    ) -> tuple[PartyState, RingVector]:
        """Apply the site's rules, then compute, encode and noise its contribution."""
        occasion = asked.occasion(state.contributed.get(asked.stage, 0))
        with attempt.step(Step.FACTS):
            self._check_facts(occasion)
            self._check_standing(attempt, asked)
            state = state.contributing(asked.stage)
            if asked.stage != COHORT:
                state = self._same_cohort(occasion, state)
        state = self._check_records(attempt, occasion, state)
        with attempt.step(Step.METHOD):
            vector, memory = self._compute(asked, state.method)
        with attempt.step(Step.LEDGER):
            self._release(occasion, asked.message, vector)
        return replace(state, method=memory), vector

    def _same_cohort(self, occasion: ContributionRequest, state: PartyState) -> PartyState:
        """Refuse other sites than before: two sums would differ by the sites between."""
        first = state.cohort or occasion.cohort
        if occasion.cohort != first:
            raise PolicyRefusal(self.me, "the sites changed after the first release")
        return replace(state, cohort=first)

    def _compute(self, asked: Asked, memory: State) -> tuple[RingVector, State]:
        """Return the contribution, encoded, and what the method remembers."""
        site, plan = self.context, self.plans.of(asked.stage)
        if asked.stage == COHORT:
            counts = cohort_update(site.rows, self.plans.stages[asked.stage].spec)
            return encode(plan, counts), memory
        try:
            with single_threaded_blas():
                update, memory = site.method.contribute(
                    asked.stage, site.rows, asked.message, memory, site.public, site.random
                )
            return encode(plan, update), memory
        except SecaggError:
            raise
        except Exception as error:  # whatever it is, the message may have brought it about
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            advice = "This is an internal error. Set SECAGG_TRACEBACK=1 and report what is printed."
            raise InternalError(self.me, what, advice) from error

    def _release(self, occasion: ContributionRequest, message: Body, vector: RingVector) -> None:
        """Enter the contribution in the ledger, and add its noise. From here on it may leave."""
        plan, guard = self.plans.of(occasion.stage), self.context.guard
        noise = self.context.public.noise.get(occasion.stage)
        answer = self._planned_release(occasion, message)
        seed = self.random(32) if guard is None else guard.record_release(answer, self.random)
        if noise is not None:
            random = seeded_random(seed)
            drawn = sample_weighted(answer.variance, noise.weights, plan.noised, random)
            add_noise(plan, vector, drawn)

    # --- of both -------------------------------------------------------------------------------

    def _check_standing(self, attempt: Attempt, asked: Asked) -> None:
        rounds = self.plans.stages[asked.stage].max_rounds
        attempt.check_standing(self.me, self.roster.coordinator, asked.stage, rounds)

    def _check_facts(self, occasion: ContributionRequest) -> None:
        """Apply the rules that need no record."""
        guard = self.context.guard
        if guard is None:
            check_invitation(self.policy, self.me, occasion.cohort, occasion.total)
        else:
            guard.admit(occasion)

    def _check_records(
        self, attempt: Attempt, occasion: ContributionRequest, state: PartyState
    ) -> PartyState:
        """Read the records, the first time, and apply the rules on them."""
        site, told = self.context, occasion.total
        if told is not None and state.records not in (None, told):
            raise PolicyRefusal(self.me, "the number of records in all has changed")
        with attempt.step(Step.RECORDS):
            if site.guard is None:
                check_records(self.policy, self.me, len(site.rows.values))
            else:
                site.guard.check(occasion, site.rows, site.public)
        return state.told(told)

    def _planned_release(self, occasion: ContributionRequest, message: Body) -> PlannedRelease:
        """Return what the ledger has to know of a contribution."""
        noise, variance = self.context.public.noise.get(occasion.stage), 0
        if noise is not None:
            # The first sum may lose sites, down to `least`; later sums are over these or none.
            sharing = noise.min_sites if occasion.stage == COHORT else len(occasion.cohort)
            variance = noise.site_variance(sharing)
        return PlannedRelease(occasion, self.plans.stages[occasion.stage].spec, message, variance)


def are_names(values: Sequence[object]) -> bool:
    """Return whether all of these are texts."""
    return all(isinstance(value, str) for value in values)
