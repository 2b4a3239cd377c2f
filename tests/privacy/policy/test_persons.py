"""Every rule of an exact job, with patients who have many records: they count once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.core import canonical_encoding
from secagg.privacy.ledger.records import AskedQuestion, Decision, bound
from secagg.privacy.policy.answered_weights import AnsweredWeights
from secagg.privacy.policy.cell_counts import (
    check_cells,
    level_counts,
    person_level_counts,
    with_references,
)
from secagg.privacy.policy.job_rules import PolicyRequest
from secagg.privacy.policy.leverage import group_leverage, groups_are_possible, largest_leverage
from secagg.privacy.policy.policy_tables import Dominance
from secagg.privacy.policy.questions import Question
from secagg.privacy.policy.record_rules import own_records, with_data
from secagg.privacy.policy.record_sets import ReadQuestion, compare_records, isolates
from secagg.privacy.policy.site_policy import SitePolicy

N, EACH = 20, 6
"""The patients of a site, and their records, which lie together or one patient after another."""
DAY = {"type": "continuous", "low": -1, "high": 1, "transform": "none"}
POLICY = SitePolicy(
    person="pid", min_sites=3, min_records=10, max_leverage=0.9, max_site_share=0.5,
    max_parameters_ratio=0.33, max_exact_share=None,
    dominance=Dominance(largest=2, share=0.5, remainder=0.5),
)  # fmt: skip
UNNAMED = POLICY.model_copy(update={"person": None})
REQUEST = PolicyRequest(
    site="a", coordinator_key=b"", method="moments", columns={"day": DAY}, protocol="masked",
    parameters=3, cohort=("a", "b", "c"), counting=False, total_records=3 * N, person="pid",
    question=Question({"day": DAY}, 1000, 10, person="pid"),
)  # fmt: skip


def site(persons: int = N, order: str = "together") -> tuple[SiteRecords, NDArray[np.int64]]:
    """Return records in whose column all values differ, and the person of each."""
    rng = np.random.default_rng(persons)
    of = np.repeat(np.arange(persons), EACH)
    if order == "mixed":
        of = rng.permutation(of)
    values = rng.uniform(0.2, 0.6, (len(of), 1))
    whole = np.ones(len(of), dtype=np.bool_)
    return SiteRecords(values, 0, np.zeros(1), complete=whole, persons=of), of


def public(*, indicator: bool = False) -> PublicFacts:
    return PublicFacts((Variable("day", "day", 0.0, 1.0, indicator),), ("day",), 1000, ("a",))


def rules(
    rows: SiteRecords, request: PolicyRequest = REQUEST, policy: SitePolicy = POLICY, **more: Any
) -> dict[str, Decision]:
    return {d.rule: d for d in with_data(policy, request, own_records(rows, public(**more)))}


def changed(rows: SiteRecords, which: NDArray[np.bool_], value: float) -> SiteRecords:
    return replace(rows, values=np.where(which[:, None], value, rows.values))


@pytest.mark.attack
@pytest.mark.parametrize("order", ["together", "mixed"])
def test_a_rule_refuses_few_patients_however_many_records_they_have(order: str) -> None:
    """The contract of all rules on numbers of records: each case is one that rows would pass."""
    rows, of = site(order=order)
    assert all(d.allowed for d in rules(rows).values())  # 20 patients with 6 records each
    one, nine, odd = of == 0, of < 9, np.arange(len(of)) % 2 > 0
    half = replace(REQUEST, question=Question({"day": DAY}, 1000, 10, 0.3, "last", "pid"))
    some = replace(REQUEST, question=Question({"day": DAY}, 1000, 10, 0.3, "random", "pid"))
    last_two, _ = site()
    cases: dict[str, list[Any]] = {
        "min_records": [site(9, order)[0]],
        "max_parameters_ratio": [(site(10, order)[0], replace(REQUEST, parameters=4))],
        "max_site_share": [(rows, replace(REQUEST, total_records=2 * N - 1))],
        "min_level_records": [
            changed(replace(rows, values=-np.ones((len(of), 1))), nine, 1.0),
            changed(replace(rows, values=np.ones((len(of), 1))), nine & odd, -1.0),
        ],
        "constant_columns": [replace(rows, values=np.where(of[:, None] < 2, rows.values, 0.3))],
        "dominance": [
            replace(rows, values=np.where(one[:, None], 1.0, 0.02 + rows.values / 99))
        ],
        "held_out": [(last_two, half), (rows, some)],
        "batch": [(rows, replace(REQUEST, few_records=10 * EACH - EACH))],
    }  # fmt: skip
    for rule, attacks in cases.items():
        for attack in attacks:
            found = rules(*attack) if isinstance(attack, tuple) else rules(attack)
            assert not found[rule].allowed, (rule, found[rule])
            records, request = attack if isinstance(attack, tuple) else (attack, REQUEST)
            rows_in_all = replace(request, total_records=3 * len(records.values), person=None)
            alone = rules(replace(records, persons=of[:0]), rows_in_all)
            assert rule not in alone or alone[rule].allowed, rule  # rows alone would pass


def test_a_batch_of_records_is_allowed_if_it_is_of_enough_patients() -> None:
    rows, _ = site()
    enough = rules(rows, replace(REQUEST, few_records=9 * EACH + 1))
    assert enough["batch"].allowed


@pytest.mark.attack
def test_a_patient_has_both_levels_if_the_records_have() -> None:
    """Half of one patient's records have a level, and all others none: one patient, not three."""
    rows, of = site()
    level = (of == 0) & (np.arange(len(of)) % 2 == 0)
    coded = replace(rows, values=np.where(level, 1.0, -1.0)[:, None])
    own = own_records(coded, public(indicator=True))
    assert (own.levels["day"], own.others["day"]) == (1, N)
    assert not rules(coded, indicator=True)["min_level_records"].allowed


@pytest.mark.attack
def test_the_weights_of_a_patients_records_add_up() -> None:
    rows, of = site()
    weights = np.where(of < 5, 1.0, 1e-6)
    ones = np.ones((len(of), 1))
    by_row, *_ = AnsweredWeights().judge(POLICY, [weights], ones)
    by_person, *_ = AnsweredWeights().judge(POLICY, [weights], ones, rows.person_codes)
    assert by_row.allowed and not by_person.allowed
    answered = AnsweredWeights()  # and so do the changes of weights between two messages
    answered.add([np.ones(len(of))])
    moved = 1 + np.where(of < 5, np.where(np.arange(len(of)) % 2, 0.5, -0.5), 0.0)
    by_row, *_ = answered.judge(POLICY, [moved], ones)
    by_person, *_ = answered.judge(POLICY, [moved], ones, rows.person_codes)
    assert by_row.allowed and not by_person.allowed


@pytest.mark.parametrize("seed", range(20))
def test_counting_persons_never_allows_what_counting_rows_refuses(seed: int) -> None:
    """The job may choose the column, so a badly chosen one must not help it."""
    rng = np.random.default_rng(seed)
    refused = 0
    for _ in range(20):
        count = int(rng.integers(10, 60))
        values = rng.choice([0.0, 0.5, 0.9, 0.95], count, p=rng.dirichlet([0.3] * 4))
        values = values if rng.random() < 0.5 else values + rng.uniform(0, 0.05, count)
        plain = SiteRecords(values[:, None], 0, np.zeros(1))
        named = replace(plain, persons=rng.integers(0, rng.integers(1, count), count))
        held = Question({"day": DAY}, 1000, 10, 0.3, str(rng.choice(["last", "random"])))
        request = replace(REQUEST, question=held, total_records=3 * count)
        before, after = rules(plain, request, UNNAMED), rules(named, request, UNNAMED)
        wrong = [r for r, d in before.items() if not d.allowed and after[r].allowed]
        assert wrong == []
        refused += sum(not d.allowed for d in before.values())
        each = rules(replace(plain, persons=rng.permutation(count)), request, UNNAMED)
        assert {r: d.allowed for r, d in each.items()} == {r: d.allowed for r, d in before.items()}
    assert refused > 5


# --- cells over all sites ------------------------------------------------------------------------

GRADES = ("grade=2", "grade=3", "sex")
VARIABLES = tuple(
    Variable(name, column, 0.5, 0.5, indicator=True)
    for name, column in zip(GRADES, ("grade", "grade", "sex"), strict=True)
)


def test_cells_count_the_persons_with_a_record_in_them() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        grade, sex = rng.integers(0, 3, 40), rng.integers(0, 2, 40)
        persons = np.unique(rng.integers(0, 12, 40), return_inverse=True)[1]
        indicators = np.column_stack([grade == 1, grade == 2, sex == 1])
        levels = with_references(indicators, ["grade", "grade", "sex"])
        counts = person_level_counts(levels, persons)
        rows, columns = np.triu_indices(5)
        known = [grade == 1, grade == 2, sex == 1, grade == 0, sex == 0]
        for i, j, number in zip(rows, columns, counts, strict=True):
            assert number == len(set(persons[known[i] & known[j]]))
    assert not person_level_counts(np.zeros((0, 5), dtype=bool), np.zeros(0, dtype=int)).any()


@pytest.mark.attack
def test_a_cell_with_many_records_of_one_patient_ends_the_run() -> None:
    grade, persons = np.repeat([0, 1, 2], 20), np.arange(60)
    sex = np.arange(60) % 2
    persons[20:40] = 20 + persons[20:40] % 3  # three patients have all records of grade 2
    indicators = np.column_stack([grade == 1, grade == 2, sex == 1])
    check_cells("coordinator", 10, VARIABLES, 60, level_counts(indicators))
    codes = np.unique(persons, return_inverse=True)[1]
    counts = person_level_counts(with_references(indicators, ["grade", "grade", "sex"]), codes)
    with pytest.raises(Exception, match="fewer than 10 persons"):
        check_cells("coordinator", 10, VARIABLES, 60, counts)


# --- combinations of jobs ------------------------------------------------------------------------


def asked_with(mask: NDArray[np.bool_], values: NDArray[np.float64], persons: Any) -> ReadQuestion:
    columns = {f"x{i}": DAY for i in range(values.shape[1])}
    named = persons[mask] if len(persons) else persons
    rows = SiteRecords(values[mask], 0, np.zeros(0), complete=mask, persons=named)
    return ReadQuestion(Question(columns, 1000, 10, person="pid"), rows)


def compared(new: ReadQuestion, old: ReadQuestion) -> dict[str, bool]:
    seed, digest = bytes(32), canonical_encoding.digest(old.rows.values).hex()
    asked = AskedQuestion(old.question.plain(), len(old.rows.values), seed, bound(seed, digest))
    found = compare_records(new, [asked], lambda _: old.rows, 10, 0.95)
    return {decision.rule: decision.allowed for decision in found}


@pytest.mark.attack
def test_jobs_that_differ_in_many_records_of_few_patients_are_refused() -> None:
    """Another column is missing in all twelve visits of two patients."""
    rng = np.random.default_rng(1)
    persons = np.repeat(np.arange(40), 6)
    values = rng.uniform(-1, 1, (240, 2))
    for patients, allowed in ((2, False), (9, False), (10, True)):
        lacks = persons < patients
        first, second = (
            asked_with(~lacks, values, persons),
            asked_with(lacks | True, values[:, :1], persons),
        )
        assert compared(second, first)["questions"] is allowed
    few = asked_with(persons >= 2, values, persons[:0])  # rows alone: 12 records, enough
    assert compared(asked_with(persons >= 0, values[:, :1], persons[:0]), few)["questions"]


@pytest.mark.parametrize("seed", range(8))
def test_no_combination_covers_fewer_persons_than_allowed(seed: int) -> None:
    """Against all combinations with small weights; a person can be in several parts."""
    rng = np.random.default_rng(seed)
    missed = exact = 0
    for _ in range(60):
        persons = rng.integers(0, 8, 24)
        sets = [rng.random(24) < rng.uniform(0.3, 0.9) for _ in range(int(rng.integers(1, 4)))]
        weights = np.array(np.meshgrid(*[range(-2, 3)] * len(sets))).reshape(len(sets), -1).T
        covered = [np.abs(w @ np.array(sets, dtype=int)) > 0 for w in weights if w[-1]]
        fewest = min(len(set(persons[mask])) or 99 for mask in covered)
        minimum = int(rng.integers(2, 7))
        found = isolates(sets[:-1], sets[-1], minimum, persons)
        before = isolates(sets[:-2], sets[-2], minimum, persons) if len(sets) > 1 else False
        assert found or before or fewest >= minimum
        alone = rng.permutation(24)
        assert isolates(sets[:-1], sets[-1], minimum, alone) == isolates(
            sets[:-1], sets[-1], minimum
        )
        missed += found and fewest >= minimum
        exact += found and fewest < minimum
    assert exact > 0


@pytest.mark.attack
def test_the_leverage_of_a_patient_is_that_of_all_records_together() -> None:
    """z = x + y but in one patient's records: none of them stands out, the patient does."""
    rng = np.random.default_rng(0)
    persons = np.repeat(np.arange(60), 5)
    x, y = rng.uniform(-1, 1, (2, 300))
    z = (x + y) / 2
    z[persons == 7] += rng.uniform(-0.1, 0.1, 5)
    values = np.column_stack([x, y, z])
    everyone = np.ones(300, dtype=bool)
    named, rows = asked_with(everyone, values, persons), asked_with(everyone, values, persons[:0])
    (by_row,) = compare_records(rows, [], lambda _: rows.rows, 3, 0.9)
    (by_person,) = compare_records(named, [], lambda _: named.rows, 3, 0.9)
    assert by_row.allowed and not by_person.allowed
    assert "of a person is 1" in by_person.text


@pytest.mark.parametrize("seed", range(5))
def test_leverages_of_persons_are_eigenvalues_of_the_hat_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z = rng.standard_t(2, (60, 4))
    basis = np.linalg.qr(z)[0]
    persons = np.unique(rng.integers(0, 15, 60), return_inverse=True)[1]
    hat = basis @ basis.T
    every = [
        np.linalg.eigvalsh(hat[np.ix_(persons == p, persons == p)])[-1] for p in np.unique(persons)
    ]
    assert largest_leverage(basis, persons) == pytest.approx(max(every))
    pairs = [
        np.linalg.eigvalsh(hat[np.ix_(two, two)])[-1]
        for p in range(14) for q in range(p + 1, 15)
        for two in [(persons == p) | (persons == q)]
    ]  # fmt: skip
    found = group_leverage(basis, z, 2, persons)
    assert 0.9 * max(pairs) < found <= max(pairs) * (1 + 1e-12)
    assert groups_are_possible(basis, 2, persons) or max(pairs) < 1 - 1e-9
    alone = np.arange(60)
    assert group_leverage(basis, z, 3, alone) == pytest.approx(group_leverage(basis, z, 3))
    assert largest_leverage(basis, alone) == pytest.approx(largest_leverage(basis))
