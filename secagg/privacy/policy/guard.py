"""What stands between a site's records and the wire: its policy, its ledger, its noise.

`secagg.runtime.party` asks the guard at each step of a contribution, in this order: `admit`, before
any record is read; `check`, once they are; `record_release`, when the contribution is computed,
which puts it on the disk and returns the noise's seed; and `opened`, before the site helps to open
a sum. Each of them raises `PolicyRefusal`, and nothing leaves then. For the site's consent, which
comes before, `admit` is asked, `check` where that is paid for or nothing is noised
(`secagg.runtime.party`), and then `check_budget`, which enters nothing. What the rules decided is
in the ledger, in full; what crosses the wire is a code.

Exact sums cost more than any budget from the first one on, so that for each stage only the first
round is entered. The cohort of the round that counts records is known to a site when it is asked to
open it, if its protocol has sites do that, and otherwise in the round after it.

Not protected: see `secagg.privacy.policy.evaluation`, `ledger`, `differencing`. In particular,
aggregators of `additive` open the first sum without asking a ledger of any site: there the
coordinator's own has to do, and the sites' from the second sum on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from secagg.contracts import Body, PublicFacts, SiteRecords, Spec
from secagg.contracts.noise import Placement
from secagg.core import encoding
from secagg.core.randomness import RandomBytes
from secagg.errors import PolicyRefusal, SecaggError
from secagg.privacy.accounting.budget import Cap, Cost
from secagg.privacy.accounting.calibration import EXACT, Calibrated
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Cohort, Decision, Release
from secagg.privacy.policy import evaluation, record_rules
from secagg.privacy.policy.release_rules import check_invitation, check_records
from secagg.privacy.policy.site_policy import SitePolicy


@dataclass(frozen=True)
class ContributionRequest:
    """One request to contribute.

    cohort: the sites asked; total: records in all, None in the round that counts them
    before: how many rounds of its stage this session has had
    """

    round: int
    stage: str
    cohort: tuple[str, ...]
    total: int | None
    before: int

    @property
    def counting(self) -> bool:
        """Whether this is the round that counts records; only later is the cohort certain."""
        return self.total is None


@dataclass(frozen=True)
class PlannedRelease:
    """A contribution as the ledger knows it.

    message: what it answers; variance: of the noise to be added, 0 for none
    """

    occasion: ContributionRequest
    spec: Spec
    message: Body
    variance: int


@dataclass(eq=False)
class Guard:
    """One site's guard in one session.

    asked: what the coordinator asks for, the same in every round; the rest is filled in
    question: digest of all in the job that decides what is computed of which records
    calibrated: the mechanisms, under differential privacy
    open_ledger: opens the site's ledger; called when it is first needed
    replayable: whether whoever knows a number can draw the noise again
    """

    session: str
    dataset: str
    policy: SitePolicy
    asked: evaluation.PolicyRequest
    calibrated: Calibrated | None
    open_ledger: Callable[[], Ledger]
    question: bytes
    replayable: bool = False
    _ledger: Ledger | None = field(default=None, init=False)
    _own: record_rules.OwnRecords | None = field(default=None, init=False, repr=False)
    _records: str = field(default="", init=False, repr=False)
    _said: set[evaluation.Decision] = field(default_factory=set, init=False, repr=False)

    @property
    def ledger(self) -> Ledger:
        """The site's ledger, open."""
        if self._ledger is None:
            self._ledger = self.open_ledger()
        return self._ledger

    @property
    def placement(self) -> Placement:
        """Where the noise goes; `asked` has none where the noise can be drawn again by others."""
        return Placement.NONE if self.calibrated is None else self.calibrated.terms.placement

    def close(self) -> None:
        """Let the ledger go."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def admit(self, occasion: ContributionRequest) -> None:
        """Decide on public facts. Raises `PolicyRefusal`."""
        earlier = tuple(c.sites for c in self.ledger.cohorts(self.dataset))
        request = self._request(occasion, earlier)
        decisions = evaluation.before_data(self.policy, request)
        self._write(occasion, decisions)
        check_invitation(self.policy.release, request.site, occasion.cohort, occasion.total)
        evaluation.enforce(request.site, decisions)

    def check(self, occasion: ContributionRequest, rows: SiteRecords, public: PublicFacts) -> None:
        """Decide on the site's own records. Raises `PolicyRefusal`."""
        if self._own is None:
            self._own = record_rules.own_records(rows, public)
            self._records = encoding.digest(rows.values).hex()
        request = self._request(occasion, ())
        decisions = record_rules.with_data(self.policy, request, self._own)
        self._write(occasion, decisions)
        check_records(self.policy.release, request.site, self._own.records)
        evaluation.enforce(request.site, decisions)

    def check_budget(
        self, answers: Sequence[PlannedRelease], load: Callable[[], SiteRecords]
    ) -> None:
        """Decide whether a run that begins with these answers fits the budget; enter nothing.

        load: returns the records: noise of placement `site` that was drawn before is free
        Raises `PolicyRefusal`. Another run may still take what is left before this one does.
        """
        rest = self._rest(answers[-1].occasion)
        if self.placement is Placement.SITE and not self._records:
            with suppress(SecaggError):  # what is wrong with them is for the sum to say
                self._records = encoding.digest(load().values).hex()
        with self._on_record(answers[0].occasion, "budget"):
            if self.placement is Placement.SITE and not self._records:  # so all of it is new
                costs = [*(self._cost(answer.occasion.stage) for answer in answers), *rest]
                self.ledger.check_costs(
                    self.dataset, costs, self._caps(), self.asked.delta, self.asked.adjacency
                )
            else:
                releases = [self._release(answer) for answer in answers]
                self.ledger.check_budget(releases, self._caps(), rest)

    def record_release(self, answer: PlannedRelease, random: RandomBytes) -> bytes:
        """Put the contribution in the ledger, and return the seed of its noise.

        Raises `PolicyRefusal` where it does not fit the budget.
        """
        occasion = answer.occasion
        if self.calibrated is None and occasion.before:
            return b""
        if not occasion.counting:
            self._settle(occasion, occasion.cohort)
        with self._on_record(occasion, "budget"):
            release, rest = self._release(answer), self._rest(occasion)
            return self.ledger.record_release(release, self._caps(), rest, random).seed

    def opened(self, round_: int, stage: str, counting: bool, contributors: Sequence[str]) -> None:
        """Decide on a sum that this site is asked to help open. Raises `PolicyRefusal`."""
        if counting:  # told by the stage: the round's number is the coordinator's choice
            cohort = tuple(contributors)
            self._settle(ContributionRequest(round_, stage, cohort, None, 0), cohort, round_)

    # --- inside ------------------------------------------------------------------------------

    def _release(self, answer: PlannedRelease) -> Release:
        occasion = answer.occasion
        return Release(
            party=self.asked.site,
            dataset=self.dataset,
            session=self.session,
            round=occasion.round,
            stage=occasion.stage,
            query=encoding.digest([self.question, _plain(answer.spec), answer.message]).hex(),
            placement=self.placement,
            cost=self._cost(occasion.stage),
            delta=self.asked.delta,
            cohort=() if occasion.counting else occasion.cohort,
            # Not of the contribution: two questions whose answers happen to be equal would get
            # equal noise, and so tell that they are equal.
            records=self._records,
            variance=answer.variance,
            fraction_bits=answer.spec[0].fraction_bits,
            replayable=self.replayable,
            adjacency=self.asked.adjacency,
        )

    def _caps(self) -> tuple[Cap, ...]:
        return () if self.policy.budget is None else self.policy.budget.caps

    def _request(
        self, occasion: ContributionRequest, earlier: tuple[frozenset[str], ...]
    ) -> evaluation.PolicyRequest:
        return replace(
            self.asked, cohort=occasion.cohort, earlier=earlier, total_records=occasion.total,
            counting=occasion.counting,
        )  # fmt: skip

    def _write(
        self, occasion: ContributionRequest, decisions: Sequence[evaluation.Decision]
    ) -> None:
        """Write down what was not said before in this session, and every refusal."""
        new = [made for made in decisions if made not in self._said or not made.allowed]
        if new:
            self.ledger.decide(*(
                Decision(self.dataset, self.session, occasion.round, occasion.stage, made.rule,
                         made.allowed, made.text)
                for made in new
            ))  # fmt: skip
            self._said.update(new)

    def _cost(self, stage: str) -> Cost:
        if self.calibrated is None or self.replayable:  # noise that can be taken away is none
            return EXACT
        return self.calibrated.mechanisms[stage].cost()

    def _rest(self, occasion: ContributionRequest) -> list[Cost]:
        """Return the costs of the rounds that the job has still to come."""
        rest: list[Cost] = []
        mechanisms = {} if self.calibrated is None else self.calibrated.mechanisms
        for stage, mechanism in reversed(list(mechanisms.items())):
            done = occasion.before + 1 if stage == occasion.stage else 0
            rest += [mechanism.cost()] * (mechanism.rounds - done)
            if stage == occasion.stage:
                break
        return rest

    @contextmanager
    def _on_record(self, occasion: ContributionRequest, rule: str) -> Iterator[None]:
        """Write down a refusal that the ledger itself makes, as this site's."""
        try:
            yield
        except PolicyRefusal as error:
            said = error.what if error.where == self.asked.site else f"{error.where}: {error.what}"
            self._write(occasion, [evaluation.Decision(rule, False, said)])
            raise PolicyRefusal(self.asked.site, said, error.advice) from None

    def _settle(
        self, occasion: ContributionRequest, cohort: tuple[str, ...], round_: int = 0
    ) -> None:
        """Put down whose records were counted, once that is certain; check it like any cohort."""
        with self._on_record(occasion, "cohorts"):
            self.ledger.settle(self.asked.site, self.session, round_, cohort, self._compare(cohort))

    def _compare(self, cohort: tuple[str, ...]) -> Callable[[Sequence[Cohort]], None]:
        """Return what checks a cohort against earlier ones, for the ledger's transaction."""

        def compare(earlier: Sequence[Cohort]) -> None:
            sites = tuple(known.sites for known in earlier)
            evaluation.enforce(self.asked.site, evaluation.on_cohorts(self.policy, sites, cohort))

        return compare


def _plain(spec: Spec) -> list[list[object]]:
    return [[f.name, list(f.shape), f.bound, f.fraction_bits, f.kind.value] for f in spec]
