"""What the exact sums of all jobs single out: sets of levels, leverage, records that were added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from secagg.contracts import SiteRecords
from secagg.core import encoding
from secagg.privacy.ledger.records import AskedQuestion, bound
from secagg.privacy.policy.questions import Question, conflict
from secagg.privacy.policy.record_sets import ReadQuestion, compare_records, largest_leverage

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
    plain = before.question.plain() | {"levels": before.level_counts()}
    digest = encoding.digest(before.rows.values).hex()
    return AskedQuestion(plain, len(before.rows.values), SEED, bound(SEED, digest))


def decided(
    new: ReadQuestion, earlier: ReadQuestion, now: ReadQuestion, limit: float | None = None
) -> dict[str, bool]:
    """Return the decisions; now: the earlier question as it reads the records today."""
    decisions = compare_records(new, [asked(earlier)], lambda _: now.rows, 3, limit)
    return {each.rule: each.allowed for each in decisions}


def test_each_level_is_a_set_also_the_first() -> None:
    values = np.array([[1, -1, 0.5, 1], [-1, 1, 0.5, 1], [-1, -1, 0.1, -1.0]])
    question = read({"grade": GRADE, "x": NUMBER, "yes": YES}, values, [1, 0, 1, 1])
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


def test_after_records_were_added_the_same_incomplete_ones_are_left_out() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (40, 2))
    old = read({"x": NUMBER}, x[:30, :1])
    today = read({"x": NUMBER}, x[:, :1])
    other = read({"x": NUMBER, "y": NUMBER}, x)
    assert decided(other, old, today) == {"questions": True}
    lacking = np.arange(40) >= 5
    fewer = read({"x": NUMBER, "y": NUMBER}, x[lacking], lacking)
    assert decided(fewer, old, today) == {"questions": False}
    assert decided(fewer, today, today) == {"questions": True}  # nothing was added


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
    assert largest_leverage(questions) == pytest.approx(hat.diagonal().max(), abs=1e-10)


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
    assert largest_leverage([plain]) < 0.5
    assert largest_leverage([tampered]) == pytest.approx(1)
    decisions = compare_records(tampered, [], lambda _: tampered.rows, 3, limit)
    assert {each.rule: each.allowed for each in decisions}.get("max_leverage") is allowed


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
        (RANDOM, Question({"x": NUMBER}, 100, 3), True),
        (LAST, Question({"y": NUMBER}, 100, 3), False),
        (Question({"x": NUMBER, "y": NUMBER}, 100, 3), RANDOM, False),
    ],
)
def test_held_out_records_are_the_same_in_all_jobs(
    earlier: Question, new: Question, allowed: bool
) -> None:
    assert (conflict([Question.of(earlier.plain())], new) is None) is allowed
