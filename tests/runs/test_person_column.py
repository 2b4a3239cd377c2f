"""A job names a column that is no patient's id as `person`: one row's removal lets another in.

Each row is a patient. The change of a sum is held against the change that the noise was made for.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.contracts.noise import SITE_MOMENTS
from secagg.errors import JobError
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT, upper_moments
from secagg.sessions.planned_job import Planned, plan_job

COLUMNS = {
    "lactate": {"type": "continuous", "low": 0, "high": 20},
    "creatinine": {"type": "continuous", "low": 0, "high": 10},
    "icu": {"type": "binary"},
}
FAR = [(0.0, 0.0, 0), (20.0, 10.0, 1), (0.0, 10.0, 1), (20.0, 0.0, 0), (10.0, 5.0, 1)]
"""Records at the corners of the bounds, and one in the middle."""
MOMENTS: dict[str, Any] = {"name": "moments", "analyses": [{"kind": "describe"}]}


def gradient(family: str) -> dict[str, Any]:
    outcome, predictors = ("icu", ["lactate", "creatinine"])
    if family == "gaussian":
        outcome, predictors = "creatinine", ["lactate"]
    return {"name": "gradient", "family": family, "outcome": outcome, "predictors": predictors,
            "rounds": 2}  # fmt: skip


def planned_with(method: dict[str, Any], **privacy: Any) -> Planned:
    job = parse_job({
        "title": "wards", "sites": {"max_rows": 512}, "columns": COLUMNS, "method": method,
        "protocol": {"name": "masked"}, "release": {"min_sites": 3, "min_records": 2},
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "person": "ward"} | privacy,
    })  # fmt: skip
    row = {"lactate": [1.0], "creatinine": [1.0], "icu": [1], "ward": ["x"]}
    return plan_job(job, {site: pd.DataFrame(row) for site in "abc"})


def contributions(planned: Planned, table: pd.DataFrame) -> Iterator[np.ndarray]:
    """Yield the site's contribution to a round, for some messages, in units of equal noise."""
    privacy = planned.job.privacy
    rows = read_rows(
        planned.job.columns, table, planned.public, "a", privacy.person, privacy.records_per_person
    )
    mechanisms = planned.private.mechanisms if planned.private else {}
    noise = [*mechanisms.values()][-1].noise
    if SITE_MOMENTS in mechanisms:
        moments = upper_moments(rows.values, CONSTANT)
        yield np.concatenate([[len(rows.values)], moments]) / np.sqrt(noise.weights)
        return
    stage = [*planned.plans.stages.values()][-1]
    first = planned.method.next_request(planned.method.initial_state(planned.public))
    assert first is not None
    messages = [first[1]]
    if "beta" in first[1]:
        size = len(first[1]["beta"])
        messages += [{"beta": np.array(b)} for b in itertools.product((-30.0, 30.0), repeat=size)]
    for message in messages:
        update, _ = planned.method.contribute(stage.name, rows, message, {}, planned.public, bytes)
        sent = np.concatenate([np.ravel(update[field.name]) for field in stage.spec])
        yield sent / np.sqrt(np.array(noise.weights or [1.0] * len(sent)))


def largest_change(planned: Planned, tables: list[tuple[pd.DataFrame, pd.DataFrame]]) -> float:
    pairs = (
        zip(contributions(planned, one), contributions(planned, other), strict=True)
        for one, other in tables
    )
    return max(float(np.linalg.norm(a - b)) for pair in pairs for a, b in pair)


def paid_for(planned: Planned, adjacency: str) -> float:
    """Return the change that the cost of one release, as the ledger has it, belongs to."""
    assert planned.private is not None
    mechanism = [*planned.private.mechanisms.values()][-1]
    noise = mechanism.noise
    sigma = math.sqrt(noise.variance) * 2.0**-noise.fraction_bits
    return (mechanism.add if adjacency == "add" else mechanism.replace) * sigma


def frame(rows: tuple[Any, ...], wards: tuple[Any, ...]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=[*COLUMNS])
    return table.assign(ward=pd.Series(wards, dtype=object))


def removals(size: int) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Return tables of so many patients on one ward and one elsewhere, with and without the first.

    The ward's name is written in four ways.
    """
    names = ("7", 7, "007", " 7.0 ", 7.0)
    found = []
    for rows in itertools.product(FAR, repeat=size):
        table = frame((*rows, FAR[4]), (*names[:size], "12"))
        found.append((table, table.drop(index=0)))
    return found


METHODS = [
    pytest.param(MOMENTS, {"placement": "sum"}, id="moments in the sum"),
    pytest.param(MOMENTS, {"placement": "site"}, id="moments at the site"),
    pytest.param(MOMENTS, {"placement": "sum", "record_norm": 0.8}, id="record_norm"),
    pytest.param(gradient("binomial"), {"placement": "round"}, id="binomial"),
    pytest.param(gradient("gaussian"), {"placement": "round"}, id="gaussian"),
]


@pytest.mark.attack
@pytest.mark.parametrize(("method", "privacy"), METHODS)
@pytest.mark.parametrize("most", [1, 2])
def test_no_removal_moves_a_sum_by_more_than_was_paid_for(
    method: dict[str, Any], privacy: dict[str, Any], most: int
) -> None:
    planned = planned_with(method, records_per_person=most, **privacy)
    change = largest_change(planned, removals(most + 1))
    assert change <= paid_for(planned, "add") * (1 + 1e-12)


@pytest.mark.attack
@pytest.mark.parametrize("placement", ["sum", "site"])
@pytest.mark.parametrize("norm", [0.3, 0.9])
def test_nor_with_a_limit_for_the_records_of_a_value_together(placement: str, norm: float) -> None:
    """Removing one row lets another in, and changes the factor of all others."""
    planned = planned_with(MOMENTS, placement=placement, records_per_person=2, person_norm=norm)
    change = largest_change(planned, [*removals(2), *removals(3)])
    assert change <= paid_for(planned, "add") * (1 + 1e-12)


@pytest.mark.attack
@pytest.mark.parametrize(("method", "privacy"), METHODS)
def test_nor_does_the_replacement_of_a_row_that_changes_its_ward(
    method: dict[str, Any], privacy: dict[str, Any]
) -> None:
    """One ward lets a record in, the other loses one: twice what replacing a person moves."""
    planned = planned_with(method, adjacency="replace", **privacy)
    tables = []
    for old, new, let_in, lost in itertools.product(FAR[:4], repeat=4):
        one = frame((old, let_in, lost), ("north", "north", "south"))
        other = frame((new, let_in, lost), ("south", "north", "south"))
        tables.append((one, other))
    change = largest_change(planned, tables)
    assert change <= paid_for(planned, "replace") * (1 + 1e-12)
    assert change > 1.2 * paid_for(planned, "replace") / 2  # so once would be too little


@pytest.mark.parametrize(("method", "privacy"), METHODS)
def test_a_removal_of_a_true_person_costs_less_if_the_policies_name_the_column(
    method: dict[str, Any], privacy: dict[str, Any]
) -> None:
    """The cost is that of adding a record, and the change of one whole person stays within."""
    trusted = planned_with(method, person_pinned=True, **privacy)
    assert paid_for(trusted, "add") < paid_for(planned_with(method, **privacy), "add")
    whole = [(table, table[table["ward"] == "12"]) for table, _ in removals(2)]
    assert largest_change(trusted, whole) <= paid_for(trusted, "add") * (1 + 1e-12)
    with pytest.raises(AssertionError):  # and this is what the attack would reach
        assert largest_change(trusted, removals(2)) <= paid_for(trusted, "add") * (1 + 1e-12)


@pytest.mark.neural
def test_samples_of_records_need_a_column_that_the_policies_name() -> None:
    network = {
        "name": "torch_module", "outcome": "icu", "predictors": ["lactate", "creatinine"],
        "sampling_rate": 0.1, "rounds": 2,
    }  # fmt: skip
    planned_with(network, placement="round", person_pinned=True)
    with pytest.raises(JobError, match="every site must name this column"):
        planned_with(network, placement="round")
    with pytest.raises(JobError, match="person_pinned requires person"):
        planned_with(MOMENTS, placement="sum", person=None, person_pinned=True)
