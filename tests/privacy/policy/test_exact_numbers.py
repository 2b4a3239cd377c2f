"""The count of exact numbers: the rule's table, row by row, and the lines in the ledger."""

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.contracts import Field, Kind, MomentsOnly, SingleRecords, Stage
from secagg.errors import PolicyRefusal
from secagg.jobs.registry import Named, make_method
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.numbers import NumberCount
from secagg.privacy.policy.exact_numbers import (
    FEWEST_ROUNDS,
    PlannedNumbers,
    columns_of,
    fewest_records,
    moment_numbers,
    most_in_rounds,
    most_numbers,
)
from secagg.privacy.policy.questions import Question

REAL = {"type": "continuous", "low": 0.0, "high": 1.0, "transform": "none"}
BINARY = {"type": "binary", "levels": ["0", "1"]}


def category(levels: int) -> dict[str, Any]:
    return {"type": "categorical", "levels": [str(i) for i in range(levels)]}


def asked(*columns: dict[str, Any], rows: int = 50) -> list[Question]:
    """Return jobs over these columns, each of the same records."""
    return [Question(each, 100, 10, rows=rows) for each in columns]


def rank_of_moments(columns: dict[str, dict[str, Any]]) -> int:
    """Oracle: the dimension of the space of functions 1, z_j, z_j z_k on many random records."""
    rng = np.random.default_rng(3)
    variables: list[np.ndarray[Any, Any]] = []
    for declared in columns.values():
        if "levels" not in declared:
            variables.append(rng.normal(size=500))
        else:
            drawn = rng.integers(0, len(declared["levels"]), 500)
            variables += [(drawn == level) * 1.0 for level in range(1, len(declared["levels"]))]
    z = np.column_stack([np.ones(500), *variables])
    products = [z[:, i] * z[:, j] for i in range(z.shape[1]) for j in range(i + 1)]
    return int(np.linalg.matrix_rank(np.column_stack(products)))


@pytest.mark.parametrize(
    "columns",
    [
        {"a": REAL}, {"a": BINARY}, {"a": category(4)}, {"a": REAL, "b": BINARY},
        {"a": {"type": "count", "high": 9}, "b": BINARY},
        {"a": REAL, "b": REAL, "c": category(3), "d": BINARY, "e": category(5)},
    ],
)  # fmt: skip
def test_moments_are_as_many_as_there_are_independent_products(columns: dict[str, Any]) -> None:
    assert moment_numbers(asked(columns)) == rank_of_moments(columns)


def test_moments_asked_again_are_no_new_numbers() -> None:
    first = {"a": REAL, "b": REAL}
    assert moment_numbers(asked(first, first)) == moment_numbers(asked(first)) == 6
    assert moment_numbers(asked(first, {"b": REAL, "a": REAL})) == 6
    # c, its square, and its product with b; the product with a was never in one job
    assert moment_numbers(asked(first, {"b": REAL, "c": REAL})) == 9
    assert moment_numbers(asked({**first, "c": REAL})) == 10
    assert columns_of(asked(first, {"b": REAL, "c": REAL})) == 3


def test_moments_over_other_records_are_new_numbers() -> None:
    first = {"a": REAL, "b": REAL}
    before, after = asked(first)[0], asked(first, rows=60)[0]
    assert moment_numbers([before, after]) == 12
    assert moment_numbers([before, after, after]) == 12
    planned = asked(first, rows=0)[0]  # before data is read, the number is not known
    assert moment_numbers([planned]) == 6
    assert moment_numbers([planned, before, after]) == 12
    assert moment_numbers([asked({"a": REAL}, rows=0)[0], before]) == 6
    assert moment_numbers([asked({"c": REAL}, rows=0)[0], before]) == 8


@given(
    st.floats(0.01, 10), st.integers(1, 50), st.integers(1, 1000), st.integers(2, 9),
    st.integers(0, 10**6),
)  # fmt: skip
def test_the_fewest_records_are_those_from_which_on_the_numbers_are_allowed(
    share: float, columns: int, own: int, sites: int, numbers: int
) -> None:
    needed = fewest_records(numbers, share, columns, sites)
    assert most_numbers(share, columns, needed, sites * needed, sites) >= numbers
    if needed > 0:
        assert most_numbers(share, columns, needed - 1, sites * needed, sites) < numbers


def test_a_false_total_gains_at_most_the_factor_of_sites() -> None:
    assert most_numbers(1 / 3, 5, 100, 10**9, 3) == 5 * 100
    assert most_numbers(1 / 3, 5, 100, 200, 3) == math.floor(5 * 200 / 3)
    assert most_numbers(1.0, 5, 100, -7, 3) == 500
    assert most_in_rounds(None, asked({"a": REAL}), 100, 300, 3) is None
    assert most_in_rounds(1.0, asked({"a": REAL}), 100, 300, 3) == 300 - 3


def stage(size: int, rounds: int) -> Stage:
    spec = (Field("x", (size,), 1.0, 20, Kind.BOUNDED), Field("n", (1,), 1.0, 0, Kind.COUNT))
    return Stage("s", spec, rounds, "a sum")


def test_planned_numbers_are_those_of_all_rounds_unless_moments_are_all() -> None:
    named = Named(name="logistic", outcome="y", predictors=["x"])
    facts = make_method(named).facts
    assert isinstance(facts.reads, SingleRecords)
    found = PlannedNumbers.of(facts, [stage(3, 60), stage(9, 1)], "j")
    assert found == PlannedNumbers(4 * FEWEST_ROUNDS + 10, 4 * 60 + 10, repeatable=True, job="j")
    moments = make_method(Named(name="moments")).facts
    assert isinstance(moments.reads, MomentsOnly)
    assert PlannedNumbers.of(moments, [stage(3, 60)], "j") == PlannedNumbers()


# --- the ledger ----------------------------------------------------------------------------------


@pytest.fixture
def ledger() -> Ledger:
    return Ledger.in_memory(lambda: datetime(2026, 1, 1, tzinfo=UTC))


def count(ledger: Ledger, session: str, job: str = "j", *, repeatable: bool = True) -> NumberCount:
    return NumberCount(lambda: ledger, "d", session, job, 1000, repeatable)


def released(ledger: Ledger) -> int:
    return ledger.numbers("d", "").others("")


def lines(ledger: Ledger) -> int:
    return len(ledger.history("d"))


def answer(number: int, records: str = "r") -> list[Any]:
    return [records, ["a", "b"], f"message {number}"]


def test_numbers_are_reserved_before_they_leave_and_settled_at_the_end(ledger: Ledger) -> None:
    run = count(ledger, "s")
    for number in range(20):
        run.add(answer(number), 7, None)
        assert released(ledger) >= 7 * (number + 1)
    assert lines(ledger) <= 6  # 14, 42, 98, 210: twice what is used
    run.close()
    assert released(ledger) == 140
    run.close()
    assert released(ledger) == 140


def test_a_repeated_run_releases_nothing_new(ledger: Ledger) -> None:
    for session in ("s", "t", "u"):
        run = count(ledger, session)
        for number in range(9):
            run.add(answer(number), 5, 45)
        run.close()
    assert released(ledger) == 45


@pytest.mark.parametrize("change", ["message", "records", "job"])
def test_from_the_first_change_on_all_rounds_count(ledger: Ledger, change: str) -> None:
    for session in ("s", "t"):
        again = session == "t"
        run = count(ledger, session, "k" if again and change == "job" else "j")
        for number in range(9):
            records = "q" if again and change == "records" else "r"
            sent = 99 if again and change == "message" and number == 4 else number
            run.add(answer(sent, records), 5, None)
        run.close()
    assert released(ledger) == 45 + (5 * 5 if change == "message" else 45)


def test_rounds_with_random_numbers_always_count(ledger: Ledger) -> None:
    for session in ("s", "t"):
        run = count(ledger, session, repeatable=False)
        run.add(answer(0), 5, None)
        run.close()
    assert released(ledger) == 10


def test_the_limit_is_over_all_sessions_and_a_refused_round_does_not_count(ledger: Ledger) -> None:
    first = count(ledger, "s")
    first.add(answer(0), 6, 10)
    first.close()
    second = count(ledger, "t", "k")
    second.add(answer(1), 4, 10)
    with pytest.raises(PolicyRefusal):
        second.add(answer(2), 1, 10)
    second.close()
    assert released(ledger) == 10


def test_after_a_kill_all_that_was_reserved_counts(ledger: Ledger) -> None:
    killed = count(ledger, "s")
    for number in range(5):
        killed.add(answer(number), 10, None)  # 20 are reserved, then 60
    assert released(ledger) == 60
    resumed = count(ledger, "s")
    resumed.add(answer(5), 10, None)
    resumed.close()
    assert released(ledger) == 70


def test_a_process_for_every_round_counts_the_same(ledger: Ledger) -> None:
    for session in ("s", "t"):
        for number in range(6):
            run = count(ledger, session)
            run.add(answer(number), 5, None)
            run.close()
    assert released(ledger) == 30
