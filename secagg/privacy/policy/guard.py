"""The guard: all checks that a site makes before anything computed from its records leaves it.

For each contribution, `secagg.sessions.party` calls the functions of the guard in this order:

1. `admit`, before any record is read, applies the rules on public facts.
2. `check`, when the records have been read, applies the rules on the site's own records.
3. `record_release`, when the contribution has been computed, writes the release to the ledger on
   disk and returns the seed of the noise.
4. `opened`, before the site helps to open a sum, checks the cohort.

If a function raises `PolicyRefusal`, nothing leaves the site. The full text of every decision is
written to the site's ledger. Other parties receive only a code.

Before the first sum, each site is asked for its consent. For this, the party calls `admit`, then
`check` (only without noise, or if the records have been counted), and then `check_budget`, which
writes no release.

Without noise, the first sum of a stage already costs more than any budget. So only the first round
of each stage is written to the ledger. A site knows the cohort of the round that counts records
when it helps to open that sum. If the protocol does not need its help, the site knows the cohort in
the next round.

Not protected: see `secagg.privacy.policy.job_rules`, `secagg.privacy.ledger.ledger` and
`secagg.privacy.policy.differencing`. In particular, with the protocol `additive` the aggregators
open the first sum without any site's ledger, so only the coordinator's ledger covers this sum. From
the second sum on, the sites' ledgers are checked too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from secagg.contracts import Body, PublicFacts, SiteRecords, Spec
from secagg.contracts.noise import Placement
from secagg.core import canonical_encoding
from secagg.core.randomness import RandomBytes
from secagg.errors import PolicyRefusal, SecaggError
from secagg.privacy.accounting.calibration import EXACT, Calibrated
from secagg.privacy.accounting.composition import Cap, Cost
from secagg.privacy.ledger.answers import Answers
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.numbers import NumberCount
from secagg.privacy.ledger.records import RECORD, AskedQuestion, Cohort, Decision, Release
from secagg.privacy.policy import exact_numbers, job_rules, record_rules
from secagg.privacy.policy.answered_weights import AnsweredWeights, Weights
from secagg.privacy.policy.contribution import ContributionRequest, PlannedRelease, release_query
from secagg.privacy.policy.questions import Question
from secagg.privacy.policy.record_sets import ReadQuestion, compare_records
from secagg.privacy.policy.release_rules import check_invitation, check_records
from secagg.privacy.policy.site_policy import SitePolicy


@dataclass(eq=False)
class Guard:
    """One site's guard in one session.

    session: name of the session, in hexadecimal digits
    dataset: name of the site's records in the ledger
    policy: the site's rules
    template: the part of the policy request that is the same in every round
    query: digest of everything in the job that determines the computation and its records
    job: digest of the whole job
    reread: reads the site's records again, as an earlier exact job asked for them
    calibrated: the noise of each stage; None without noise
    open_ledger: opens the site's ledger; called on first use
    replayable: whether the noise comes from a known seed, so that others can compute it
    remarks: remarks about the site's records, which only the site sees
    """

    session: str
    dataset: str
    policy: SitePolicy
    template: job_rules.PolicyRequest
    calibrated: Calibrated | None
    open_ledger: Callable[[], Ledger]
    query: bytes
    job: bytes = b""
    replayable: bool = False
    reread: Callable[[Question], SiteRecords] | None = None
    remarks: list[str] = field(default_factory=list, repr=False)
    weights: AnsweredWeights = field(default_factory=AnsweredWeights, repr=False)
    _ledger: Ledger | None = field(default=None, init=False)
    _own: record_rules.OwnRecords | None = field(default=None, init=False, repr=False)
    _records: str = field(default="", init=False, repr=False)
    _recorded: set[Decision] = field(default_factory=set, init=False, repr=False)
    _answers: Answers | None = field(default=None, init=False, repr=False)
    _asked: tuple[AskedQuestion, ...] | None = field(default=None, init=False, repr=False)
    _on_questions: tuple[Decision, ...] | None = field(default=None, init=False, repr=False)
    # The facts that the rules allowed last. Every round has the same, and so the same decisions.
    _admitted: object = field(default=None, init=False, repr=False)
    _checked: object = field(default=None, init=False, repr=False)

    @property
    def ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = self.open_ledger()
        return self._ledger

    @property
    def placement(self) -> Placement:
        """The placement of the noise. It is known even if replayable noise leaves no terms."""
        return Placement.NONE if self.calibrated is None else self.calibrated.terms.placement

    @cached_property
    def _numbers(self) -> NumberCount:
        job = self.template.numbers
        return NumberCount(
            lambda: self.ledger, self.dataset, self.session, job.job, job.all, job.repeatable
        )

    def close(self) -> None:
        if self._ledger is not None:
            self._numbers.close()
            self._ledger.close()
            self._ledger = None

    def admit(self, request: ContributionRequest) -> None:
        """Apply the rules on public facts. Raises `PolicyRefusal`."""
        earlier = tuple(c.sites for c in self.ledger.cohorts(self.dataset))
        facts = (request.facts, earlier)
        if facts == self._admitted:
            return
        decisions = job_rules.before_data(self.policy, self._policy_request(request, earlier))
        self._write(request, decisions)
        site = self.template.site
        check_invitation(self.policy.release, site, request.cohort, request.total)
        job_rules.enforce(site, decisions)
        if self.calibrated is None:
            # Before the records are read: any answer reveals something about them.
            with self._write_refusal(request, "unreleased"):
                self.ledger.reserve_answer(
                    self.dataset, self.session, self._asks(request), self.policy.refusal_days,
                    self.policy.max_unreleased,
                )  # fmt: skip
        self._admitted = facts

    def check(self, request: ContributionRequest, rows: SiteRecords, public: PublicFacts) -> None:
        """Apply the rules on the site's own records. Raises `PolicyRefusal`.

        With noise there are none: see `secagg.privacy.policy.job_rules`.
        """
        if not self._records:
            self._records = canonical_encoding.digest(rows.held(public).whole).hex()
        self._note_share(rows.persons_count, request.total)
        if self.calibrated is not None or request.facts == self._checked:
            return
        if self._own is None:
            self._own = record_rules.own_records(rows, public)
        question = self.template.question
        if self._on_questions is None and question is not None:
            read = ReadQuestion(question, rows.held(public))
            self._on_questions = compare_records(
                read, self._questions(), self.reread, *self.policy.on_record_sets
            )
        policy_request = self._policy_request(request, ())
        decisions = (
            *record_rules.with_data(self.policy, policy_request, self._own),
            *(self._on_questions or ()),
        )
        self._write(request, decisions)
        check_records(self.policy.release, self.template.site, self._own.records)
        job_rules.enforce(self.template.site, decisions)
        self._checked = request.facts

    def check_weights(
        self, request: ContributionRequest, weights: Sequence[Weights], columns: Weights,
        rows: SiteRecords,
    ) -> None:  # fmt: skip
        """Check that a sum, and its difference to each earlier one, depends on enough persons.

        weights: of the site's records, in each part of the sum; columns: `weighted_columns` of the
            method's facts. Raises `PolicyRefusal`.
        """
        if self.calibrated is None:
            decisions = self.weights.judge(self.policy, weights, columns, rows.person_codes)
            self._write(request, decisions)
            job_rules.enforce(self.template.site, decisions)
            self.weights.add(weights)

    def count_numbers(self, request: ContributionRequest, spec: Spec, message: Body) -> None:
        """Write the exact numbers of a round to the ledger, unless they are moments.

        Raises `PolicyRefusal` if all rounds together would release too many.
        """
        template, total = self.template, request.total
        if template.question is None or not template.numbers.all or total is None:
            return
        limit = exact_numbers.most_in_rounds(
            self.policy.max_exact_share, self._jobs(template.question),
            0 if self._own is None else self._own.records, total,
            self.policy.min_sites or len(request.cohort),
        )  # fmt: skip
        answer = [self._records, list(request.cohort), release_query(self.query, spec, message)]
        try:
            self._numbers.add(answer, sum(field.size for field in spec), limit)
        except PolicyRefusal as error:
            decisions = (Decision("exact_numbers", False, f"{error.what} in rounds"),)
            self._write(request, decisions)
            job_rules.enforce(template.site, decisions)

    def _note_share(self, records: int, total: int | None) -> None:
        """Remark that this site has almost all records, so that a sum is almost its own data."""
        site = self.template.site
        if total and not self.remarks and (r := record_rules.share_remark(site, records, total)):
            self.remarks.append(r)

    def refused(self, request: ContributionRequest, error: SecaggError) -> None:
        """Write a refusal that depends on the records to the ledger, where such refusals count."""
        if self.calibrated is None:
            # In the count, the answer depends on the job alone. Later it also depends on the total
            # and on messages that the coordinator chooses, so every session asks something else.
            asked = self.job.hex() if request.counting else self.session
            self.ledger.record_refusal(self.dataset, self.session, asked, error.line())

    def check_budget(
        self, answers: Sequence[PlannedRelease], load: Callable[[], SiteRecords]
    ) -> None:
        """Raise `PolicyRefusal` if a run that begins with these answers exceeds the budget.

        This writes no release and reserves nothing, so another run may use the budget meanwhile.

        load: returns the records. With placement `site`, a contribution from the same records may
            use the noise of an earlier run again, which costs nothing
        """
        rest = self._rest(answers[-1].request)
        if self.placement is Placement.SITE and not self._records:
            with suppress(SecaggError):  # errors in the records are reported in the sum
                self._records = canonical_encoding.digest(load().whole).hex()
        with self._write_refusal(answers[0].request, "budget"):
            if self.placement is Placement.SITE and not self._records:  # then no noise is re-used
                costs, job = [*(self._cost(a.request.stage) for a in answers), *rest], self.template
                self.ledger.check_costs(self.dataset, costs, self._caps(), job.delta, job.adjacency)
            else:
                releases = [self._release(answer) for answer in answers]
                self.ledger.check_budget(releases, self._caps(), rest)

    def record_release(self, answer: PlannedRelease, random: RandomBytes) -> bytes:
        """Write the contribution to the ledger and return the seed of its noise.

        Raises `PolicyRefusal` if the contribution exceeds the budget or its cohort is not allowed.
        """
        request = answer.request
        noised = self.calibrated is not None and request.stage in self.calibrated.mechanisms
        if request.before and not noised:
            return b""
        if not request.counting:
            self._settle(request, request.cohort)
        with self._write_refusal(request, "budget"):
            release, rest = self._release(answer), self._rest(request)
            compare = None if release.question is None else self._check_meanwhile
            return self.ledger.record_release(release, self._caps(), rest, random, compare).seed

    def opened(self, round_: int, stage: str, counting: bool, contributors: Sequence[str]) -> None:
        """Check a sum that this site is asked to help open. Raises `PolicyRefusal`.

        contributors: the sites of the sum
        """
        if counting:  # known from the stage; the number of the round is the coordinator's choice
            request = ContributionRequest(round_, stage, tuple(contributors), None, 0)
            self._settle(request, request.cohort, round_)

    # --- inside ------------------------------------------------------------------------------

    def _asks(self, request: ContributionRequest) -> str:
        """Return a digest of what an exact job asks: after the count, also about the total."""
        if request.total is None:
            return self.job.hex()
        return canonical_encoding.digest([self.job, request.total]).hex()

    def _release(self, answer: PlannedRelease) -> Release:
        request = answer.request
        return Release(
            party=self.template.site,
            dataset=self.dataset,
            session=self.session,
            round=request.round,
            stage=request.stage,
            query=release_query(self.query, answer.spec, answer.message),
            placement=self.placement,
            cost=self._cost(request.stage),
            delta=self.template.delta,
            cohort=() if request.counting else request.cohort,
            # The digest of the records and not of the contribution. Otherwise two queries with
            # equal answers would get equal noise, which reveals that the answers are equal.
            records=self._records,
            variance=answer.variance,
            fraction_bits=answer.spec[0].fraction_bits,
            replayable=self.replayable,
            adjacency=self.template.adjacency,
            unit=RECORD if self.template.terms is None else self.template.terms.unit,
            question=self._plain_question(request),
        )

    def _plain_question(self, request: ContributionRequest) -> dict[str, Any] | None:
        """Return the question of the run's first release, which is the count, if it is exact."""
        question = self.template.question
        if question is None or not request.counting:
            return None
        records = 0 if self._own is None else self._own.rows
        return {**question.plain(), "records": records}

    def _check_meanwhile(self, _: Sequence[Cohort]) -> None:
        """Refuse if another exact run has released since `check`.

        Its records may be newer, because a patient was added in between. The records are not
        compared again, so that this refusal depends on public facts only.
        """
        asked = self.ledger.questions(self.dataset, self.session)
        if len(asked) > len(self._questions()):
            what = "another exact run on these records has begun meanwhile"
            raise PolicyRefusal(self.template.site, what, "Run again.")

    def _jobs(self, question: Question) -> list[Question]:
        """Return the questions of this job and of all earlier exact ones."""
        rows = 0 if self._own is None else self._own.rows
        earlier = (Question.of(each.question) for each in self._questions())
        return [replace(question, rows=rows), *earlier]

    def _caps(self) -> tuple[Cap, ...]:
        return self.policy.caps(exact=self.calibrated is None)

    def _questions(self) -> tuple[AskedQuestion, ...]:
        """Return the questions of earlier exact releases; with noise, none matter."""
        if self.calibrated is not None:
            return ()
        if self._asked is None:
            self._asked = self.ledger.questions(self.dataset, self.session)
        return self._asked

    def _policy_request(
        self, request: ContributionRequest, earlier: tuple[frozenset[str], ...]
    ) -> job_rules.PolicyRequest:
        if self._answers is None:  # once: a run that has begun is not ended by other runs
            days = self.policy.refusal_days
            self._answers = self.ledger.answers(self.dataset, days, self.session)
        return replace(
            self.template, cohort=request.cohort, earlier=earlier, total_records=request.total,
            counting=request.counting, refusals=len(self._answers.refused),
            unreleased=len(
                self._answers.unreleased - {self.job.hex(), self._asks(request)}
            ),
            asked=tuple(Question.of(each.question) for each in self._questions()),
            released_numbers=self._numbers.known.other_jobs(self.template.numbers.job),
        )  # fmt: skip

    def _write(self, request: ContributionRequest, decisions: Sequence[Decision]) -> None:
        """Write to the ledger the decisions that are new in this session, and every refusal."""
        new = [d for d in decisions if d not in self._recorded or not d.allowed]
        if new:
            self.ledger.decide(self.dataset, self.session, request.round, request.stage, new)
            self._recorded.update(new)

    def _cost(self, stage: str) -> Cost:
        if self.calibrated is None or self.replayable:  # others can subtract replayable noise
            return EXACT
        return self.calibrated.cost(stage)

    def _rest(self, request: ContributionRequest) -> list[Cost]:
        """Return the costs of the job's later rounds."""
        rest: list[Cost] = []
        mechanisms = {} if self.calibrated is None else self.calibrated.mechanisms
        if request.stage not in mechanisms:  # it reads no records, so none that follows does
            return rest
        for stage, mechanism in reversed(list(mechanisms.items())):
            done = request.before + 1 if stage == request.stage else 0
            rest += [mechanism.cost()] * (mechanism.rounds - done)
            if stage == request.stage:
                break
        return rest

    @contextmanager
    def _write_refusal(self, request: ContributionRequest, rule: str) -> Iterator[None]:
        """If the ledger refuses, record this as the site's decision and raise the site's error."""
        site = self.template.site
        try:
            yield
        except PolicyRefusal as error:
            text = error.what if error.where == site else f"{error.where}: {error.what}"
            self._write(request, [Decision(rule, False, text)])
            raise PolicyRefusal(site, text, error.advice) from None

    def _settle(
        self, request: ContributionRequest, cohort: tuple[str, ...], round_: int = 0
    ) -> None:
        """Record and check the final cohort of the sum that counts records."""
        site = self.template.site

        def compare(earlier: Sequence[Cohort]) -> None:
            known = tuple(release.sites for release in earlier)
            same = self.template.same_sites
            decisions = job_rules.on_cohorts(self.policy, known, cohort, same_sites=same)
            job_rules.enforce(site, decisions)

        with self._write_refusal(request, "cohorts"):
            self.ledger.settle(site, self.session, round_, cohort, compare)
