"""Whether an exact job may follow earlier ones: the table of `questions`, and brute force."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.privacy.policy.questions import LARGEST_MINIMUM, Question, conflict
from secagg.privacy.policy.record_sets import isolates

AGE = {"type": "continuous", "low": 18.0, "high": 100.0, "transform": "none"}
SEX = {"type": "binary", "levels": ["f", "m"]}
FIRST = Question({"age": AGE, "sex": SEX}, 1000, 10)


def question(max_rows: int = 1000, min_records: int = 10, **columns: Any) -> Question:
    return Question(columns or FIRST.columns, max_rows, min_records)


@pytest.mark.parametrize(
    ("new", "allowed"),
    [
        (FIRST, True),
        (question(sex=SEX, age=AGE), True),
        (question(age=AGE), True),
        (question(age=AGE, weight=AGE), True),
        (question(age=AGE | {"high": 99.0}), False),
        (question(age=AGE | {"low": 17.0}), False),
        (question(age=AGE | {"transform": "log"}), False),
        (question(age={"type": "count", "high": 100}), False),
        (question(age={"type": "binary", "levels": ["0", "1"]}), False),
        (question(sex=SEX | {"levels": ["m", "f"]}), False),
        (question(sex=SEX | {"levels": ["f", "m", "x"]}), False),
        (question(max_rows=999), False),
        (question(max_rows=1001), True),
        (question(min_records=LARGEST_MINIMUM), True),
        (question(min_records=LARGEST_MINIMUM + 1), False),
        (question(min_records=2), True),
    ],
)
def test_a_question_may_not_conflict_with_an_earlier_one(new: Question, allowed: bool) -> None:
    assert (conflict([FIRST], new) is None) is allowed
    assert (conflict([Question({}, 1, 1), FIRST], new) is None) is allowed
    assert conflict([], new) is None


def test_a_question_is_read_back_from_the_ledger() -> None:
    """The order of columns stays: records are compared by their values in this order."""
    again = Question.of(FIRST.plain())
    assert again == FIRST and again.records == FIRST.records
    assert question(sex=SEX, age=AGE).records != FIRST.records


def smallest_combination(members: np.ndarray) -> int:
    """Return the fewest records that a combination with weights of -2 to 2 covers, by brute force.

    For two or three sets of 0/1 these weights suffice: the minors are at most 2.
    """
    best = members.shape[1] + 1
    for weights in itertools.product(range(-2, 3), repeat=len(members)):
        covered = int(np.count_nonzero(np.array(weights) @ members))
        best = min(best, covered or best)
    return best


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=3),
       st.integers(1, 5))  # fmt: skip
def test_isolated_records_are_found_as_by_brute_force(sets: list[list[bool]], minimum: int) -> None:
    """If earlier sets isolate nobody, the answer is that of all combinations."""
    members = np.array(sets)
    if len(sets) > 1 and smallest_combination(members[:-1].astype(int)) < minimum:
        return
    alone = smallest_combination(members.astype(int)) < minimum
    assert isolates([*members[:-1]], members[-1], minimum) is alone


def test_many_records_are_compared_quickly() -> None:
    rng = np.random.default_rng(1)
    first = rng.random(200_000) < 0.9
    second = first.copy()
    second[np.flatnonzero(~first)[:9]] = True
    assert isolates([first], second, 10) and not isolates([first], second, 9)


@pytest.mark.parametrize(("levels", "named"), [(["a", "b"], True), (None, False)])
def test_a_refusal_of_other_levels_says_how_to_use_some_of_the_declared_ones(
    levels: list[str] | None, named: bool
) -> None:
    before: dict[str, Any] = {"type": "continuous", "low": 0, "high": 1, "transform": "none"}
    if levels is not None:
        before = {"type": "categorical", "levels": levels}
    first = Question({"w": before}, 10, 1)
    changed = {**before, **({"levels": ["a"]} if levels else {"high": 2.0})}
    why = conflict([first], Question({"w": changed}, 10, 1))
    assert why is not None and ("'w=LEVEL'" in why) is named
