"""Which records of a person are used, and what the others have to do with it: nothing."""

import itertools
import math
from typing import Any

import pandas as pd
import pytest
from support.runs.jobs import raw_job

from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import parse_job

REAL = {"type": "continuous", "low": 10, "high": 30}


def kept(people: list[Any], values: list[float], most: int) -> list[float]:
    """Return the values of `x` of the records that are used, unscaled."""
    job = parse_job(raw_job(columns={"x": REAL}))
    table = pd.DataFrame({"x": values, "who": pd.Series(people, dtype=object)})
    known = public_facts(job, ("a", "b"))
    read = read_rows(job.columns, table, known, "north", "who", most)
    assert read.incomplete == sum(who in ("", " ", None, "NA", math.nan) for who in people)
    assert read.surplus == len(values) - read.incomplete - len(read.values)
    return [20.0 + 10.0 * x for x in read.values[:, 0]]


def test_a_record_without_a_person_is_incomplete() -> None:
    people = ["a", "", "b", None, "NA", "b", " ", math.nan]
    assert kept(people, [10, 11, 12, 13, 14, 15, 16, 17], 1) == pytest.approx([10, 12])
    assert kept(people, [10, 11, 12, 13, 14, 15, 16, 17], 2) == pytest.approx([10, 12, 15])


def test_incomplete_records_are_not_surplus() -> None:
    """A record without a value does not count towards a person's number."""
    table = pd.DataFrame({"x": [10, 11, None, None, 14, 15], "who": ["a", "a", "a", "", "b", ""]})
    job = parse_job(raw_job(columns={"x": REAL}))
    read = read_rows(job.columns, table, public_facts(job, ("a", "b")), "north", "who", 1)
    assert (read.incomplete, read.surplus, len(read.values)) == (3, 1, 2)
    assert list(read.complete) == [True, False, False, False, True, False]


def test_removing_a_person_or_an_unnamed_record_moves_no_other_record_in() -> None:
    """By brute force: every table of four records, every unit of it removed."""
    for people in itertools.product(("a", "b", ""), repeat=4):
        for most in (1, 2):
            numbers = [11.0, 12.0, 13.0, 14.0]
            before = kept(list(people), numbers, most)
            units = [[i] for i in range(4) if not people[i]]
            units += [[i for i in range(4) if people[i] == name] for name in set(people) - {""}]
            for unit in units:
                rest = [i for i in range(4) if i not in unit]
                after = kept([people[i] for i in rest], [numbers[i] for i in rest], most)
                assert len(set(before) - set(after)) <= most and set(after) <= set(before)


def test_a_persons_records_are_scaled_down_together_whatever_lies_between_them() -> None:
    """As in a table of this person alone; records that are not used have no part in it."""
    privacy = {
        "placement": "sum", "epsilon": 1.0, "delta": 1e-6, "person": "who",
        "records_per_person": 2, "person_norm": 0.75,
    }  # fmt: skip
    job = parse_job(raw_job(columns={"x": REAL}, privacy=privacy))
    known = public_facts(job, ("a", "b"))
    people = ["a", "b", "", "a", "b", "c", "a", "b", "a", "c"]
    values = [28.0, 26.0, 11.0, None, 21.0, 30.0, 14.0, 30.0, 10.0, 30.0]  # None: incomplete

    def read(rows: list[int]) -> list[float]:
        table = pd.DataFrame({"x": [values[i] for i in rows], "who": [people[i] for i in rows]})
        found = read_rows(job.columns, table, known, "north", "who", 2)
        return [float(x) for x in found.values[:, 0]]

    alone = {name: read([i for i in range(10) if people[i] == name]) for name in "abc"}
    together = iter(read(list(range(10))))
    used = {0: "a", 1: "b", 4: "b", 5: "c", 6: "a", 9: "c"}
    assert [next(together) for _ in used] == [alone[name].pop(0) for name in used.values()]
    squares = {name: sum(x**2 for x in read([i for i in range(10) if people[i] == name]))
               for name in "abc"}  # fmt: skip
    assert squares["a"] == pytest.approx(0.75**2, abs=2e-4)
    assert squares["b"] == pytest.approx(0.6**2 + 0.1**2, abs=2e-4)  # below the limit
    assert squares["c"] == pytest.approx(0.75**2, abs=2e-4)
    assert max(squares.values()) <= 0.75**2
