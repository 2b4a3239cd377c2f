"""What a guard enters in the ledger for a contribution. Whole runs are in tests/sessions."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.privacy.ledgers import Clock

from secagg.contracts import Field, Kind, PublicFacts, SiteRecords, Stage, Variable
from secagg.contracts.noise import Adjacency, Placement, Sensitivity
from secagg.core.randomness import system_random
from secagg.errors import DataError, PolicyRefusal
from secagg.privacy.accounting.calibration import EXACT, calibrate
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.policy.contribution import ContributionRequest, PlannedRelease
from secagg.privacy.policy.guard import Guard
from secagg.privacy.policy.job_rules import PolicyRequest
from secagg.privacy.policy.questions import Question
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.privacy.policy.site_policy import SitePolicy, policy_of

ABC = ("a", "b", "c")
SPEC = (Field("g", (4,), 1e3, 32, Kind.BOUNDED),)
COUNT = Stage("cohort", (Field("n", (1,), 1e3, 32, Kind.COUNT),), 1, "", Sensitivity(1.0, 1.0))
ROUNDS = Stage("gradient", SPEC, 3, "", Sensitivity(1.0, 2.0))
TERMS = Terms(Placement.ROUND, 1.0, 1e-6, Adjacency.ADD_REMOVE, 1, 0.05)
CALIBRATED = calibrate(TERMS, (COUNT, ROUNDS), 3, 100, hides=True)


def guard_of(ledger: Ledger, private: bool = True, replayable: bool = False) -> Guard:
    template = PolicyRequest(
        site="a", coordinator_key=bytes(32), method="gradient", columns={}, protocol="masked",
        parameters=4, cohort=ABC, counting=False,
    )  # fmt: skip
    return Guard(
        "5e55", "heart", policy_of(ReleasePolicy(3, 1)), template,
        CALIBRATED if private else None, lambda: ledger, b"", b"", replayable,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("private", "replayable", "rounds"), [(True, False, 3), (True, True, 3), (False, False, 1)]
)
def test_the_guard_charges_each_contribution_its_cost(
    private: bool, replayable: bool, rounds: int
) -> None:
    """Noise that others can draw again costs as much as none; of exact sums the first suffices."""
    with Ledger.in_memory(Clock()) as ledger:
        guard = guard_of(ledger, private, replayable)
        first = PlannedRelease(ContributionRequest(0, "cohort", ABC, None, 0), COUNT.spec, {}, 1)
        guard.record_release(first, system_random)
        assert ledger.cohorts("heart") == ()  # sites may still drop out
        for before in range(3):
            request = ContributionRequest(1 + before, "gradient", ABC, 100, before)
            seed = guard.record_release(PlannedRelease(request, SPEC, {}, 1), system_random)
            assert bool(seed) == (before < rounds)
        exact = not private or replayable
        count, each = (CALIBRATED.mechanisms[name].cost() for name in ("cohort", "gradient"))
        spent = {EXACT: 1 + rounds} if exact else {count: 1, each: 3}
        assert ledger.spent("heart") == spent
        cohorts = ledger.cohorts("heart")  # that of the count is settled by the round after it
        assert [(c.round, c.sites) for c in cohorts] == [(n, {*ABC}) for n in range(1 + rounds)]


def test_every_refusal_is_recorded_and_each_approval_once() -> None:
    with Ledger.in_memory(Clock()) as ledger:
        guard = guard_of(ledger)
        for _ in range(2):
            with pytest.raises(PolicyRefusal):
                guard.admit(ContributionRequest(0, "cohort", ("a", "b"), None, 0))
        rules = Counter(
            (line.content["rule"], line.content["allowed"]) for line in ledger.history("heart")
        )
        assert rules == {("min_sites", False): 2, ("cohorts", False): 2}
        guard.admit(ContributionRequest(0, "cohort", ABC, None, 0))
        guard.admit(ContributionRequest(0, "cohort", ABC, None, 0))
        assert len(ledger.history("heart")) == 6


def test_a_release_of_another_run_meanwhile_is_seen_in_the_next_round() -> None:
    """Rounds with the same facts are decided once, but the ledger may have changed."""
    with Ledger.in_memory(Clock()) as ledger:
        guard, other = guard_of(ledger), replace(guard_of(ledger), session="0123")
        requests = [ContributionRequest(1 + n, "gradient", ABC, 100, n) for n in range(3)]
        guard.admit(requests[0])
        written = len(ledger.history("heart"))
        guard.admit(requests[1])
        assert len(ledger.history("heart")) == written
        others = ContributionRequest(1, "gradient", ("a", "b", "c", "d"), 100, 0)
        counted = PlannedRelease(ContributionRequest(0, "cohort", ABC, None, 0), COUNT.spec, {}, 1)
        other.record_release(counted, system_random)
        other.record_release(PlannedRelease(others, SPEC, {}, 1), system_random)
        with pytest.raises(PolicyRefusal):  # the difference of the two sums is site d
            guard.admit(requests[2])


def test_another_total_is_decided_anew() -> None:
    with Ledger.in_memory(Clock()) as ledger:
        guard = guard_of(ledger)
        guard.admit(ContributionRequest(1, "gradient", ABC, 100, 0))
        with pytest.raises(PolicyRefusal):
            guard.admit(ContributionRequest(2, "gradient", ABC, 2, 1))


# --- exact questions ------------------------------------------------------------------------------

AGE = {"age": {"type": "continuous", "low": 0.0, "high": 9.0, "transform": "none"}}
PUBLIC = PublicFacts((), (), 100, ABC)
AGES = PublicFacts((Variable("age", "age", 4.5, 4.5),), ("age",), 100, ABC)
COUNTING = ContributionRequest(0, "cohort", ABC, None, 0)


def exact_guard(ledger: Ledger, session: str, question: Question, records: int = 20) -> Guard:
    """Return the guard of an exact job over a table with `records` complete rows."""
    values = np.linspace(-1, 1, 30)[:records, None]
    rows = SiteRecords(values, 0, np.zeros(0), complete=np.arange(30) < records)
    guard = guard_of(ledger, private=False)
    template = replace(guard.template, question=question, min_cell_records=10, min_level_sites=3)
    return replace(guard, session=session, template=template, reread=lambda _: rows)


def released(guard: Guard) -> None:
    assert guard.reread is not None
    guard.admit(COUNTING)
    guard.check(COUNTING, guard.reread(AGE), AGES)
    guard.record_release(PlannedRelease(COUNTING, COUNT.spec, {}, 0), system_random)


@pytest.mark.parametrize(
    "question",
    [
        Question(AGE, 100, 1),
        Question({"sex": {"type": "binary", "levels": ["0", "1"]}}, 100, 1),
        Question({"age": AGE["age"] | {"high": 8.0}}, 100, 1),
    ],
)
def test_of_exact_runs_that_overlap_one_releases(question: Question) -> None:
    """Both pass `check` before either is recorded, and the records may change in between."""
    with Ledger.in_memory(Clock()) as ledger:
        first = exact_guard(ledger, "01", Question(AGE, 100, 1))
        second = exact_guard(ledger, "02", question)
        for guard in (first, second):
            guard.admit(COUNTING)
            guard.check(COUNTING, guard.reread(AGE), AGES)  # type: ignore[misc]
        answer = PlannedRelease(COUNTING, COUNT.spec, {}, 0)
        first.record_release(answer, system_random)
        with pytest.raises(PolicyRefusal):
            second.record_release(answer, system_random)
        assert len(ledger.questions("heart", "")) == 1


def test_the_question_of_an_own_session_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.in_memory(Clock()) as ledger:
        guard = exact_guard(ledger, "01", Question(AGE, 100, 1))
        released(guard)
        later = ContributionRequest(1, "gradient", ABC, 60, 0)
        monkeypatch.setattr(guard, "_asked", None)  # as after a restart
        guard.admit(later)
        guard.check(later, guard.reread(AGE), AGES)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("records", "allowed"), [(20, True), (21, False), (22, False), (23, True), (18, False)]
)
def test_added_records_must_be_more_than_the_columns(records: int, allowed: bool) -> None:
    """min_records is 2. Two records are solved from n, the sum and the sum of squares."""
    with Ledger.in_memory(Clock()) as ledger:
        question = Question(AGE, 100, 2)
        policy = SitePolicy(min_sites=3, min_records=2)
        released(replace(exact_guard(ledger, "01", question), policy=policy))
        again = replace(exact_guard(ledger, "02", question, records), policy=policy)
        with nullcontext() if allowed else pytest.raises(PolicyRefusal):
            released(again)


def test_refusals_because_of_records_end_exact_jobs_but_not_noisy_ones() -> None:
    """Equal jobs count once; another message or total counts again; after the period, none does."""
    clock = Clock()
    with Ledger.in_memory(clock) as ledger:
        error = DataError("a", "no")
        question = Question(AGE, 100, 1)
        for i in range(5):
            guard = replace(exact_guard(ledger, f"{i:02}", question), job=bytes([i % 2]))
            guard.admit(COUNTING)
            guard.refused(COUNTING, error)
        assert len(ledger.answers("heart", 30).refused) == 2
        later = ContributionRequest(1, "gradient", ABC, 60, 0)
        for i in range(3):
            guard = exact_guard(ledger, f"session {i}", question)
            guard.refused(later, error)
        assert len(ledger.answers("heart", 30).refused) == 5
        with pytest.raises(PolicyRefusal):
            exact_guard(ledger, "99", question).admit(COUNTING)
        guard_of(ledger).admit(COUNTING)  # with noise
        guard_of(ledger).refused(COUNTING, error)
        assert len(ledger.answers("heart", 30).refused) == 5
        clock.time += timedelta(days=31)
        exact_guard(ledger, "99", question).admit(COUNTING)


def test_a_job_that_is_repeated_while_records_change_counts_each_time() -> None:
    """Otherwise its refusals tell each day, without limit, whether the records changed."""
    with Ledger.in_memory(Clock()) as ledger:
        question = Question(AGE, 100, 2)
        policy = SitePolicy(min_sites=3, min_records=2)
        released(replace(exact_guard(ledger, "00", question), policy=policy))
        for i, records in enumerate((21, 21, 19, 18, 17), start=1):
            guard = replace(exact_guard(ledger, f"{i:02}", question, records), policy=policy)
            with pytest.raises(PolicyRefusal) as refused:
                released(guard)
            guard.refused(COUNTING, refused.value)
        assert len(ledger.answers("heart", 30).refused) == 5
        assert len(ledger.answers("heart", 30).unreleased) == 1
        with pytest.raises(PolicyRefusal):
            exact_guard(ledger, "99", question).admit(COUNTING)


def test_jobs_that_release_nothing_end_other_exact_jobs_but_not_noisy_ones() -> None:
    with Ledger.in_memory(Clock()) as ledger:
        question = Question(AGE, 100, 1)
        for i in range(10):
            replace(exact_guard(ledger, f"{i:02}", question), job=bytes([i])).admit(COUNTING)
        replace(exact_guard(ledger, "10", question), job=bytes([9])).admit(COUNTING)
        other = replace(exact_guard(ledger, "11", question), job=bytes([10]))
        with pytest.raises(PolicyRefusal):
            other.admit(COUNTING)
        guard_of(ledger).admit(COUNTING)  # with noise
        assert len(ledger.answers("heart", 30).unreleased) == 10


def test_each_announced_total_is_a_job_of_its_own() -> None:
    """Also if the coordinator skips the count. Otherwise it could search by `max_site_share`."""
    with Ledger.in_memory(Clock()) as ledger:
        for i in range(10):
            guard = exact_guard(ledger, f"{i:02}", Question(AGE, 100, 1))
            guard.admit(ContributionRequest(1, "gradient", ABC, 60 + i, 0))
        with pytest.raises(PolicyRefusal):
            exact_guard(ledger, "10", Question(AGE, 100, 1)).admit(
                ContributionRequest(1, "gradient", ABC, 70, 0)
            )
        again = exact_guard(ledger, "11", Question(AGE, 100, 1))
        again.admit(ContributionRequest(1, "gradient", ABC, 69, 0))


@pytest.mark.parametrize(("records", "private"), [(91, True), (91, False), (90, True), (90, False)])
def test_a_site_with_almost_all_records_gets_one_remark(records: int, private: bool) -> None:
    rows = SiteRecords(np.zeros((records, 0)), 0, np.zeros(0))
    with Ledger.in_memory(Clock()) as ledger:
        guard = guard_of(ledger, private)
        for _ in range(2):
            guard.check(ContributionRequest(1, "gradient", ABC, 100, 0), rows, PUBLIC)
        assert len(guard.remarks) == (records > 90)
