"""Differential privacy for persons with several records: what it costs, and what moves the sums."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.short_chains import short_chains
from support.runs.jobs import raw_job, table, tables

import secagg
from secagg.core import canonical_encoding
from secagg.errors import JobError
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT, upper_moments
from secagg.models.common.noisy_moments import REPEATED_NOTE
from secagg.runs.plan import plan_run
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session_ledgers import query_digest

__all__ = ["short_chains"]  # a fixture


def private(placement: str = "sum", **changed: Any) -> dict[str, Any]:
    """Return a small job of moments under differential privacy."""
    settings = {"placement": placement, "epsilon": 8.0, "delta": 1e-6} | changed
    return raw_job(privacy=settings, protocol={"name": "additive"})


def test_records_beyond_the_limit_for_a_person_are_left_out() -> None:
    """With everybody's records under four names, four records of each site are left."""
    same = {name: columns | {"id": list("wxyz") * 3} for name, columns in tables().items()}
    own = {name: columns | {"id": list(range(12))} for name, columns in tables().items()}
    raw = private("site", person="id", epsilon=8.0, count_share=0.5)
    raw["release"] = {"min_sites": 3, "min_records": 1}
    few, many = (secagg.run(raw, data).result.summary["records"] for data in (same, own))
    assert few < 24 < many  # 12 and 36, with noise of 1.6


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize("most", [1, 3])
def test_intervals_of_several_records_of_a_person_come_with_a_warning(most: int) -> None:
    ids = {n: {**table(i, 60), "id": np.arange(60) // 3} for i, n in enumerate("abc")}
    ols = [{"kind": "ols", "outcome": "age", "predictors": ["sex"]}]
    raw = private("site", person="id", records_per_person=most, epsilon=20.0)
    found = secagg.run(parse_job(raw | {"method": {"name": "moments", "analyses": ols}}), ids)
    (fit,) = found.result.summary["analyses"]
    assert (REPEATED_NOTE in fit["notes"]) == (most == 3)


def test_a_guarantee_for_persons_needs_more_noise() -> None:
    one, three = (
        plan_job(parse_job(private(person="id", records_per_person=m)), tables()) for m in (1, 3)
    )
    ratio = three.public.noise["moments"].variance / one.public.noise["moments"].variance
    assert ratio == pytest.approx(9.0, rel=1e-9)


def of_persons(records: int = 3, **more: Any) -> dict[str, Any]:
    return private("site", person="id", records_per_person=records, **more)


def test_a_limit_for_a_persons_records_means_less_noise() -> None:
    """In proportion to m (c^2 + Q): the squared norm of a record is at most 2.25 by its bounds."""
    sd = {
        limit: plan_job(parse_job(of_persons(person_norm=limit)), tables())
        .public.noise["moments"].variance ** 0.5
        for limit in (None, 1.5)
    }  # fmt: skip
    squared = sum(
        v.max_abs**2 for v in plan_job(parse_job(of_persons()), tables()).public.variables
    )
    assert sd[1.5] / sd[None] == pytest.approx((0.25 + 1.5**2 / 3) / (0.25 + squared), rel=1e-6)


@pytest.mark.parametrize(("records", "record_norm"), [(3, None), (3, 1.0), (1, 1.0)])
def test_a_limit_without_effect_is_refused(records: int, record_norm: float | None) -> None:
    """It would be another question with the same noise, so it would be charged again."""
    more = {} if record_norm is None else {"record_norm": record_norm}
    clip = plan_job(parse_job(of_persons(records, **more)), tables()).public.clip
    assert clip is not None
    largest = math.sqrt(records * clip.squared_norm)
    assert plan_job(parse_job(of_persons(records, person_norm=largest * 0.999, **more)), tables())
    for limit in (largest * (1 + 1e-12), 9.0):
        with pytest.raises(JobError) as caught:
            plan_job(parse_job(of_persons(records, person_norm=limit, **more)), tables())
        assert caught.value.where == "privacy.person_norm"


@pytest.mark.parametrize("placement", ["sum", "site"])
def test_no_persons_records_move_the_moments_by_more_than_the_noise_allows(placement: str) -> None:
    """Rows of the person lie between others; equal records of full norm come within 1e-3."""
    raw = private(placement, person="id", records_per_person=3, person_norm=1.2, person_pinned=True)
    planned = plan_job(parse_job(raw), tables())
    mechanism = planned.private.mechanisms["moments"] if planned.private else None
    assert mechanism is not None
    noise = mechanism.noise
    sigma = math.sqrt(noise.variance) * 2.0**-noise.fraction_bits

    def moments(frame: pd.DataFrame) -> np.ndarray:
        rows = read_rows(
            planned.job.columns,
            frame,
            planned.public,
            "a",
            "id",
            planned.job.privacy.records_per_person,
        )
        return upper_moments(rows.values, CONSTANT) / np.sqrt(noise.weights)

    others = pd.DataFrame(table(0)).assign(id=[f"p{i // 2}" for i in range(12)])
    moved = []
    for age, sex, grade in itertools.product((0, 50, 90, 100), ("female", "male"), ("low", "high")):
        own = pd.DataFrame({"age": [age] * 5, "sex": sex, "grade": grade, "id": "me"})
        for placed in (range(5), (0, 3, 6, 9, 11), (12, 13, 14, 15, 16)):
            both = others.copy()
            for at, (_, row) in zip(placed, own.iterrows(), strict=True):
                both = pd.concat([both[:at], row.to_frame().T, both[at:]], ignore_index=True)
            moved.append(float(np.linalg.norm(moments(both) - moments(others))))
    assert max(moved) <= mechanism.add * sigma * (1 + 1e-12)
    assert max(moved) == pytest.approx(mechanism.add * sigma, rel=1e-3)


def test_a_limit_for_a_persons_records_is_stated() -> None:
    data = {name: columns | {"id": list(range(12))} for name, columns in tables().items()}
    facts = plan_run(plan_job(parse_job(of_persons(person_norm=1.5)), data))["differential_privacy"]
    assert facts["person_norm"] == 1.5
    assert "sum of their squared norms exceeds 1.5" in facts["sentence"]
    without = plan_run(plan_job(parse_job(of_persons()), data))["differential_privacy"]
    assert without["person_norm"] is None and "squared norms" not in without["sentence"]


def test_a_limit_for_a_person_needs_persons_and_moments() -> None:
    with pytest.raises(JobError, match="person_norm requires person"):
        parse_job(private(person_norm=1.0))
    raw = private("round", person="id", person_norm=1.0)
    raw["method"] = {"name": "gradient", "family": "gaussian", "outcome": "age",
                     "predictors": ["sex"], "rounds": 2}  # fmt: skip
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(raw), tables())
    assert caught.value.where == "privacy.person_norm"


def test_the_key_of_a_draw_has_the_limit_for_a_person() -> None:
    """A draw of before this setting has its old key."""

    def digest(**limit: float) -> bytes:
        plan = plan_job(parse_job(of_persons(**limit)), tables())
        return query_digest(plan.job, plan.facts, plan.private)

    assert len({digest(), digest(person_norm=1.0), digest(person_norm=1.5)}) == 3
    job = parse_job(of_persons())
    columns = [
        [name, column.model_dump(mode="json", exclude={"unit"})]
        for name, column in job.columns.items()
    ]
    assert digest() == canonical_encoding.digest(["moments", columns, [None, "id", 3]])
