"""What the exact sums of all jobs single out: sets of levels, leverage, records that were added."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from secagg.contracts import SiteRecords
from secagg.core import canonical_encoding
from secagg.privacy.ledger.records import AskedQuestion, bound
from secagg.privacy.policy.leverage import (
    GROUP_LEVERAGE,
    _leverages,
    group_leverage,
    groups_are_possible,
    largest_leverage,
    orthonormal,
)
from secagg.privacy.policy.questions import Question, conflict
from secagg.privacy.policy.record_sets import ReadQuestion, _columns, compare_records

NUMBER: dict[str, Any] = {"type": "continuous", "low": -1, "high": 1, "transform": "none"}
GRADE: dict[str, Any] = {"type": "categorical", "levels": ["a", "b", "c"]}
YES: dict[str, Any] = {"type": "binary", "levels": ["no", "yes"]}
SEED = bytes(32)


def read(columns: dict[str, Any], values: np.ndarray, complete: Any = None) -> ReadQuestion:
    """Return a question with its records; `values` has a row for each complete record."""
    mask = (
        np.ones(len(values), dtype=bool) if complete is None else np.asarray(complete, dtype=bool)
    )
    return ReadQuestion(
        Question(columns, 100, 3), SiteRecords(values, 0, np.zeros(0), complete=mask)
    )


def asked(before: ReadQuestion) -> AskedQuestion:
    """Return the question as the ledger keeps it after its release."""
    digest = canonical_encoding.digest(before.rows.values).hex()
    return AskedQuestion(
        before.question.plain(), len(before.rows.values), SEED, bound(SEED, digest)
    )


def decided(
    new: ReadQuestion, earlier: ReadQuestion, now: ReadQuestion, limit: float | None = None
) -> dict[str, bool]:
    """Return the decisions; now: the earlier question as it reads the records today."""
    decisions = compare_records(new, [asked(earlier)], lambda _: now.rows, 3, limit)
    return {each.rule: each.allowed for each in decisions}


@pytest.mark.parametrize("number", [NUMBER, {"type": "count", "high": 9}])
def test_each_level_is_a_set_also_the_first(number: dict[str, Any]) -> None:
    values = np.array([[1, -1, 0.5, 1], [-1, 1, 0.5, 1], [-1, -1, 0.1, -1.0]])
    question = read({"grade": GRADE, "x": number, "yes": YES}, values, [1, 0, 1, 1])
    assert {key: np.flatnonzero(mask).tolist() for key, mask in question.levels().items()} == {
        ("grade", 0): [0], ("grade", 1): [2], ("grade", -1): [3],
        ("x", 0): [0, 2], ("x", -1): [3],  # two values: binary, whatever the job declares
        ("yes", 0): [0, 2], ("yes", -1): [3],
    }  # fmt: skip


@pytest.mark.parametrize(("with_level", "allowed"), [(0, True), (2, False), (3, True)])
def test_a_difference_of_sets_may_not_have_few_records_with_a_level(
    with_level: int, allowed: bool
) -> None:
    """Six records lack a value of the second job; some of the six have the level."""
    rng = np.random.default_rng(1)
    yes = np.where(np.arange(40) % 2, 1.0, -1.0)
    lacking = [*range(0, 40, 2)[: 6 - with_level], *range(1, 40, 2)[:with_level]]
    complete = ~np.isin(np.arange(40), lacking)
    first = read({"yes": YES}, yes[:, None])
    both = np.column_stack([yes, rng.uniform(-1, 1, 40)])[complete]
    second = read({"yes": YES, "x": NUMBER}, both, complete)
    assert decided(second, first, first) == {"questions": allowed}
    assert decided(first, second, second) == {"questions": allowed}


@pytest.mark.parametrize(("of_level", "allowed"), [(0, True), (1, False), (2, False), (3, True)])
def test_added_records_may_not_have_few_with_a_level(of_level: int, allowed: bool) -> None:
    yes = np.where(np.arange(30) % 2, 1.0, -1.0)
    added = np.array([1.0] * of_level + [-1.0] * (6 - of_level))
    first, today = (read({"yes": YES}, v[:, None]) for v in (yes, np.concatenate([yes, added])))
    assert decided(today, first, today) == {"questions": allowed}


@pytest.mark.parametrize(("lacking", "allowed"), [(0, True), (2, False), (3, True)])
def test_added_records_are_judged_with_what_they_lack(lacking: int, allowed: bool) -> None:
    """Both jobs before and after ten records were added: `lacking` of the ten have no y."""
    x = np.random.default_rng(1).uniform(-1, 1, (40, 2))
    has_y = (np.arange(40) >= 5) & (np.arange(40) < 40 - lacking)
    few, many = {"x": NUMBER}, {"x": NUMBER, "y": NUMBER}

    def question(columns: dict[str, Any], rows: int) -> ReadQuestion:
        complete = np.ones(rows, dtype=bool) if len(columns) == 1 else has_y[:rows]
        return read(columns, x[:rows, : len(columns)][complete], complete)

    today = {Question(c, 100, 3).records: question(c, 40).rows for c in (few, many)}
    before = [asked(question(few, 30)), asked(question(many, 30)), asked(question(few, 40))]

    def reread(question: Question) -> SiteRecords:
        return today[question.records]

    (found,) = compare_records(question(many, 40), before, reread, 3, None)
    assert found.allowed is allowed


@pytest.mark.parametrize("change", ["corrected", "removed", "sorted", "added in front"])
def test_records_that_changed_otherwise_are_refused(change: str) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (40, 1))
    today = {
        "corrected": np.concatenate([x[:3], -x[3:4], x[4:], x[:10] / 2]),
        "removed": x[:20],
        "sorted": np.sort(x, axis=0),
        "added in front": np.concatenate([x[:10] / 2, x]),
    }[change]
    old, now = read({"x": NUMBER}, x), read({"x": NUMBER}, today)
    assert decided(now, old, now) == {"questions": False}
    appended = read({"x": NUMBER}, np.concatenate([x, x[:10] / 2]))
    assert decided(appended, old, appended) == {"questions": True}


def test_records_are_not_added_between_jobs_that_hold_out_records() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (40, 1))
    rows = read({"x": NUMBER}, x).rows
    holding = ReadQuestion(LAST, rows)
    old = ReadQuestion(LAST, rows).first(30)
    assert decided(holding, holding, holding) == {"questions": True}
    assert decided(holding, old, holding) == {"questions": False}
    assert decided(ReadQuestion(replace(LAST, held_out=0.0), rows), old, holding) == {
        "questions": True
    }


@pytest.mark.parametrize(("with_level", "allowed"), [(0, True), (2, False), (4, True)])
def test_held_out_records_are_a_set_too(with_level: int, allowed: bool) -> None:
    """A second job covers all records. The difference is the held-out ones: the last eight."""
    yes = np.where(np.arange(40) % 2, 1.0, -1.0)
    yes[-8:] = [1.0] * with_level + [-1.0] * (8 - with_level)
    everything = read({"yes": YES}, yes[:, None])
    held = replace(everything.question, held_out=0.2, held_out_rows="last")
    holding = ReadQuestion(held, everything.rows)
    assert decided(everything, holding, holding) == {"questions": allowed}
    assert decided(holding, everything, everything) == {"questions": allowed}
    (alone,) = compare_records(holding, [], lambda _: holding.rows, 3, None)
    assert alone.allowed is allowed  # its first sum counts all records


def test_a_record_added_between_a_job_with_held_out_records_and_another_is_refused() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (41, 1))
    today = read({"x": NUMBER}, x)
    old = replace(today.question, held_out=0.3, held_out_rows="last")
    holding = ReadQuestion(old, today.rows)
    assert decided(today, holding.first(40), holding) == {"questions": False}
    assert decided(holding, today.first(40), today) == {"questions": False}


def test_leverage_is_the_diagonal_of_the_hat_matrix() -> None:
    """Two questions over different sets; collinear columns and a constant one change nothing."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (25, 2))
    complete = rng.random(25) < 0.7
    columns = {"x": NUMBER, "y": NUMBER, "sum": NUMBER, "one": NUMBER}
    wide = np.column_stack([x, x.sum(axis=1) / 2, np.ones(25)])
    questions = [read(columns, wide), read({"y": NUMBER}, x[complete, 1:], complete)]
    z = np.column_stack([np.ones(25), x, complete, complete * x[:, 1]])
    hat = z @ np.linalg.pinv(z)
    assert largest_leverage(orthonormal(_columns(questions))) == pytest.approx(
        hat.diagonal().max(), abs=1e-10
    )


@pytest.mark.parametrize(("limit", "allowed"), [(0.9, False), (1.0, True), (None, None)])
def test_a_combination_that_is_one_record_is_refused(
    limit: float | None, allowed: bool | None
) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (60, 2)) / 2
    total = x.sum(axis=1)
    columns = {"x": NUMBER, "y": NUMBER, "sum": NUMBER}
    plain = read(columns, np.column_stack([x, total]))
    total[7] += 1e-3
    tampered = read(columns, np.column_stack([x, total]))
    assert largest_leverage(orthonormal(_columns([plain]))) < 0.5
    assert largest_leverage(orthonormal(_columns([tampered]))) == pytest.approx(1)
    decisions = compare_records(tampered, [], lambda _: tampered.rows, 3, limit)
    assert {each.rule: each.allowed for each in decisions}.get("max_leverage") is allowed


@pytest.mark.attack
@pytest.mark.parametrize("outlier", [0.95, 0.2])
def test_powers_of_a_column_are_judged_if_the_sums_are_over_them(outlier: float) -> None:
    """One dose is larger than all others: a line hides it, a polynomial does not."""
    x = np.concatenate([np.random.default_rng(3).uniform(-0.9, 0.2, 79), [outlier]])[:, None]
    linear = read({"dose": NUMBER}, x)
    cubic = replace(linear, question=replace(linear.question, powers={"dose": 6}))
    z = np.column_stack([x**k for k in range(7)])
    expected = float(np.max(np.diagonal(z @ np.linalg.pinv(z))))
    found = largest_leverage(orthonormal(_columns([cubic])))
    assert found == pytest.approx(expected, abs=1e-6)
    assert largest_leverage(orthonormal(_columns([linear]))) < 0.3
    assert (found > 0.9) is (outlier == 0.95)
    decisions = compare_records(cubic, [], lambda _: cubic.rows, 3, 0.9)
    assert [d.allowed for d in decisions] == [outlier != 0.95]
    # a later job without powers is judged with those of the earlier one, which the ledger keeps
    assert Question.of(cubic.question.plain()) == cubic.question
    assert decided(linear, cubic, cubic, 0.9)["max_leverage"] is (outlier != 0.95)


def rare(level_of: int, of: int = 40) -> ReadQuestion:
    """Return records of which `level_of` have a level."""
    rng = np.random.default_rng(4)
    x, yes = rng.uniform(-1, 1, of), np.full(of, -1.0)
    yes[:level_of] = 1.0
    return read({"x": NUMBER, "yes": YES}, np.column_stack([x, yes]))


@pytest.mark.parametrize(("records", "alone", "all_sites"), [
    (0, True, True), (1, False, True), (2, False, True), (3, True, True),
    (38, False, True), (39, False, True), (40, True, True),
])  # fmt: skip
def test_a_rare_level_is_no_reason_where_the_counts_of_all_sites_decide(
    records: int, alone: bool, all_sites: bool
) -> None:
    new = rare(records)
    for without_policy, expected in ((False, alone), (True, all_sites)):
        (found,) = compare_records(new, [], lambda _: new.rows, 3, 0.9, without_policy)
        assert found.allowed is expected


@pytest.mark.parametrize(("differs", "allowed"), [(0.0, True), (0.3, False)])
def test_a_rare_level_hides_no_combination_of_other_columns(differs: float, allowed: bool) -> None:
    """The only patient with the level is the one whose copy of a column differs."""
    x, grades = np.random.default_rng(4).uniform(-1, 1, 40), np.full((40, 2), -1.0)
    grades[:20, 0], grades[39, 1] = 1.0, 1.0  # 19 have the first level, one the third
    copy = x.copy()
    copy[39] += differs
    columns = {"x": NUMBER, "copy": NUMBER, "grade": GRADE}
    new = read(columns, np.column_stack([x, copy, grades]))
    (found,) = compare_records(new, [], lambda _: new.rows, 3, 0.9, True)
    assert found.allowed is allowed


@pytest.mark.parametrize("few", [1, 2])
def test_the_first_level_can_be_the_rare_one(few: int) -> None:
    grades = np.full((40, 2), -1.0)
    grades[few:30, 0], grades[30:, 1] = 1.0, 1.0
    new = read({"grade": GRADE}, grades)
    for without_policy in (False, True):
        (found,) = compare_records(new, [], lambda _: new.rows, 3, 0.9, without_policy)
        assert found.allowed is without_policy


@pytest.mark.parametrize("by_person", [False, True])
def test_a_search_is_left_out_only_where_no_group_can_exist(by_person: bool) -> None:
    """Both bounds, against all groups of three: also where one of them is just above the limit."""
    rng = np.random.default_rng(6)
    left_out = 0
    for _ in range(60):
        rows = 24 if by_person else 12
        persons = np.arange(rows) % 12
        basis = np.linalg.qr(rng.normal(size=(rows, 3)) ** 3)[0]
        groups = [np.isin(persons, group) for group in combinations(range(12), 3)]
        largest = max(np.linalg.norm(basis[rows], 2) ** 2 for rows in groups)
        scaled = basis * np.sqrt(rng.uniform(0.5, 1.3) / largest)  # leverages on both sides of 1
        possible = groups_are_possible(scaled, 3, persons if by_person else None)
        reached = max(np.linalg.norm(scaled[rows], 2) ** 2 for rows in groups) > GROUP_LEVERAGE
        assert possible or not reached
        left_out += not possible
    assert left_out > 0


def test_a_group_of_equal_records_reaches_both_bounds() -> None:
    """Each of the four has a leverage of 1/4, and so has each pair of them."""
    basis = np.zeros((30, 1))
    basis[3:7] = 0.5
    assert groups_are_possible(basis, 4) and not groups_are_possible(basis, 3)
    assert groups_are_possible(np.repeat(basis, 2, axis=0) / np.sqrt(2), 4, np.arange(60) // 2)


@pytest.mark.parametrize("rows", [3, 9])
def test_leverages_of_many_groups_are_squared_singular_values(rows: int) -> None:
    """With fewer rows than columns, and with more."""
    groups = np.random.default_rng(8).normal(size=(5, rows, 4))
    found, leading = _leverages(groups)
    for group, value, direction in zip(groups, found, leading, strict=True):
        _, singular, right = np.linalg.svd(group)
        assert value == pytest.approx(singular[0] ** 2)
        assert abs(direction @ right[0]) == pytest.approx(np.linalg.norm(direction))


def test_few_of_many_rows_and_columns_are_ruled_out_without_a_search() -> None:
    """The trace does not rule them out: 10 leverages of a quarter add up to more than 1."""
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(800, 160)))[0]
    assert np.sort((basis**2).sum(axis=1))[-10:].sum() > 2
    assert not groups_are_possible(basis, 9)
    assert not groups_are_possible(basis, 9, np.arange(800))


def test_the_leverage_of_a_group_is_found() -> None:
    """Two columns that differ in four records: their difference is zero elsewhere."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 6))
    copy = x[:, 0].copy()
    copy[[3, 50, 51, 199]] += rng.normal(size=4)
    columns = {f"x{i}": NUMBER for i in range(7)}
    z = _columns([read(columns, np.column_stack([x, copy]))])
    other = _columns([read(columns, rng.normal(size=(200, 7)))])
    assert group_leverage(orthonormal(z), z, 4) == pytest.approx(1)
    assert group_leverage(orthonormal(z), z, 9) == pytest.approx(1)
    assert group_leverage(orthonormal(z), z, 3) < 1 - 1e-6
    assert group_leverage(orthonormal(other), other, 9) < 0.7


def test_two_nearly_equal_columns_are_found_among_many() -> None:
    """From the differences of columns: the combinations of single records miss 3 of the 8."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(100, 60))
        copy = x[:, 0].copy()
        copy[:9] += rng.normal(size=9)
        z = np.column_stack([np.ones(100), x, copy])
        assert group_leverage(orthonormal(z), z, 9) > GROUP_LEVERAGE


def test_the_search_goes_on_from_the_best_combination_of_a_group() -> None:
    """The largest leverage of all groups is found in 23 of 30 tables; in one step it would be 7."""
    rng, found = np.random.default_rng(3), 0
    for _ in range(30):
        basis = orthonormal(rng.normal(size=(14, 5)) ** 3)
        groups = (basis[list(group)] for group in combinations(range(14), 4))
        largest = max(np.linalg.norm(rows, 2) ** 2 for rows in groups)
        found += group_leverage(basis, basis, 4) > largest - 1e-9
    assert found >= 18


def test_the_largest_leverage_of_a_person_is_found_among_all_persons() -> None:
    """Also where single records of others have more, or where a person's add up to more."""
    rng = np.random.default_rng(4)
    for _ in range(30):
        persons = np.sort(np.concatenate([np.arange(8), rng.integers(0, 8, 8)]))
        basis = orthonormal(rng.normal(size=(16, 4)) ** 3)
        expected = max(np.linalg.norm(basis[persons == p], 2) ** 2 for p in range(8))
        assert largest_leverage(basis, persons) == pytest.approx(expected)


def test_two_coded_columns_that_are_nearly_equal_are_found() -> None:
    """Three records have the first code only, five the second only."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        first = (rng.random(24) < 0.5).astype(float)
        second = first.copy()
        second[rng.choice(np.flatnonzero(first), 3, replace=False)] = 0
        second[rng.choice(np.flatnonzero(first == 0), 5, replace=False)] = 1
        values = np.column_stack([rng.normal(size=(24, 2)), first, second])
        z = _columns([read({f"x{i}": NUMBER for i in range(4)}, values)])
        assert group_leverage(orthonormal(z), z, 9) > 1 - 1e-9


def test_a_groups_leverage_agrees_with_all_groups_of_a_small_table() -> None:
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(14, 3)) ** 3)[0]
    largest = max(
        np.linalg.norm(basis[list(group)], 2) ** 2 for group in combinations(range(14), 3)
    )
    assert 0.9 * largest < group_leverage(basis, basis, 3) <= largest * (1 + 1e-12)


@pytest.mark.parametrize("high", [1.0, 1e6, 1e12])
def test_wide_bounds_do_not_hide_a_combination(high: float) -> None:
    """The job scales a column to almost nothing; the sums are still exact enough."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, (2, 60)).astype(float)
    total = a + b
    total[7] += 1
    values = np.column_stack([a, b, -1 + total / high])
    found = largest_leverage(
        orthonormal(_columns([read({"a": NUMBER, "b": NUMBER, "sum": NUMBER}, values)]))
    )
    assert found == pytest.approx(1, abs=1e-3)


LAST = Question({"x": NUMBER}, 100, 3, 0.2, "last")
RANDOM = Question({"x": NUMBER}, 100, 3, 0.2, "random")


@pytest.mark.parametrize(
    ("earlier", "new", "allowed"),
    [
        (LAST, LAST, True),
        (LAST, Question({"x": NUMBER}, 100, 3), True),
        (LAST, Question({"x": NUMBER}, 100, 3, 0.3, "last"), False),
        (LAST, RANDOM, False),
        (RANDOM, RANDOM, False),
        (RANDOM, Question({"x": NUMBER}, 100, 3), False),
        (Question({"x": NUMBER}, 100, 3), RANDOM, False),
        (LAST, Question({"y": NUMBER}, 100, 3), False),
        (Question({"x": NUMBER, "y": NUMBER}, 100, 3), RANDOM, False),
    ],
)
def test_held_out_records_are_the_same_in_all_jobs(
    earlier: Question, new: Question, allowed: bool
) -> None:
    assert (conflict([Question.of(earlier.plain())], new) is None) is allowed
