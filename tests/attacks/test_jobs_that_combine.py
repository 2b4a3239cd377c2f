"""Exact jobs whose sums, combined, are the record of one patient although every count is large.

Each attack has a positive control: the same combination of sums that no rule holds back is compared
with the record.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.hospitals import HOSPITALS, LINEAR, ask, folder, moments_job

from secagg.core.randomness import system_random
from secagg.errors import SecaggError
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session import open_session

SITES = ("a", "b", "c")
PROFILE = 'profile = 10\nprotocols = ["any"]\n'  # `plain`: the sums are the same
AGE: dict[str, Any] = {"type": "continuous", "low": 0, "high": 120}
PRESSURE: dict[str, Any] = {"type": "continuous", "low": 50, "high": 250}
BINARY = {"type": "binary"}


def sites(place: Path, tables: dict[str, pd.DataFrame], policy: str = PROFILE) -> Path:
    place.mkdir(parents=True)
    for name, table in tables.items():
        table.to_csv(place / f"{name}.csv", index=False)
        if policy:
            (place / f"{name}.policy.toml").write_text(policy)
    return place


def patients(rng: np.random.Generator, size: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"age": rng.integers(30, 90, size), "pressure": rng.integers(90, 180, size)}
    )


def moments(job: dict[str, Any]) -> np.ndarray:
    """Return the sums of (1, x)(1, x)' that a job opens, in the columns' own units."""
    columns = job["columns"].values()
    p = len(columns) + 1
    scaled = np.zeros((p, p))
    scaled[np.triu_indices(p)] = ask(job).sums["moments"]["moments"]
    back = np.eye(p)
    for i, column in enumerate(columns, start=1):
        low, high = column.get("low", 0.0), column.get("high", 1.0)
        back[i, 0], back[i, i] = (low + high) / 2, (high - low) / 2
    full: np.ndarray = back @ (scaled + np.triu(scaled, 1).T) @ back.T
    return full


# --- 1. one job: a column is a combination of others, except in one record ------------------------


def cancers(patient: bool) -> tuple[pd.DataFrame, dict[str, Any], list[float]]:
    """Each patient with cancer has one of two kinds; `patient` has another."""
    table = patients(np.random.default_rng(1 + patient), 300)
    table["breast"], table["colon"] = np.repeat([[1, 0, 0], [0, 1, 0]], [40, 40, 220], axis=1)
    table["cancer"] = table["breast"] + table["colon"]
    if patient:
        table.loc[200, "cancer"] = 1
    columns = {"cancer": BINARY, "breast": BINARY, "colon": BINARY}
    return table, columns, [1, -1, -1]


def vessels(patient: bool) -> tuple[pd.DataFrame, dict[str, Any], list[float]]:
    """Each patient with the disease has one narrow vessel; `patient` has two."""
    table = patients(np.random.default_rng(1 + patient), 300)
    table["disease"] = table["vessels"] = np.repeat([1, 0], [60, 240])
    if patient:
        table.loc[7, "vessels"] = 2
    columns = {"vessels": {"type": "continuous", "low": -1, "high": 4}, "disease": BINARY}
    return table, columns, [1, -1]


@pytest.mark.parametrize(("study", "row"), [(cancers, 200), (vessels, 7)])
def test_a_column_that_is_others_except_in_one_record_is_refused(
    tmp_path: Path, study: Callable[[bool], Any], row: int
) -> None:
    tables = {name: study(name == "b")[0] for name in SITES}
    _, coded, weights = study(False)
    columns = coded | {"age": AGE, "pressure": PRESSURE}
    control = sites(tmp_path / "control", tables, PROFILE + "max_leverage = 1.0\n")
    sums = np.array([0, *weights, 0, 0]) @ moments(moments_job(control, columns))
    truth = tables["b"].loc[row]
    assert sums[[0, -2, -1]] == pytest.approx([1, truth["age"], truth["pressure"]], abs=1e-6)

    seen = ask(moments_job(sites(tmp_path / "attack", tables), columns))
    assert seen.sums == {} and seen.codes == {"b": "records"}


@pytest.mark.parametrize("rule", [{"min_cell_records": 1}, {"min_level_sites": 1}])
def test_a_job_cannot_set_a_rule_on_cells_aside(tmp_path: Path, rule: dict[str, int]) -> None:
    tables = {name: cancers(False)[0] for name in SITES}
    job = moments_job(sites(tmp_path / "data", tables), cancers(False)[1])
    assert "moments" in ask(job).sums
    seen = ask(job | {"release": job["release"] | rule})
    assert seen.sums == {} and set(seen.codes.values()) == {"policy"}


def test_a_continuous_column_that_names_the_site_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tables = {name: patients(rng, 200).assign(at_b=int(name == "b")) for name in SITES}
    columns = {"at_b": {"type": "continuous", "low": -1, "high": 1}, "age": AGE}
    control = sites(tmp_path / "control", tables, PROFILE + "min_level_sites = 1\n")
    sums = moments(moments_job(control, columns))
    assert sums[1, [0, 2]] == pytest.approx([200, tables["b"]["age"].sum()], rel=1e-9)
    seen = ask(moments_job(sites(tmp_path / "attack", tables), columns))
    assert seen.sums == {} and set(seen.codes.values()) == {"records"}


@pytest.mark.parametrize("high", [2.0, 2e9])
def test_wide_bounds_do_not_hide_a_combination(tmp_path: Path, high: float) -> None:
    """Scaled to its bounds, the column is nearly constant. The sums have 80 fraction bits."""
    tables = {name: cancers(name == "b")[0] for name in SITES}
    wide = {"type": "continuous", "low": 0, "high": high}
    columns = cancers(False)[1] | {"cancer": wide, "age": AGE, "pressure": PRESSURE}
    control = sites(tmp_path / "control", tables, PROFILE + "max_leverage = 1.0\n")
    sums = np.array([0, 1, -1, -1, 0, 0]) @ moments(moments_job(control, columns))
    truth = tables["b"].loc[200]
    assert sums[-2:] / sums[0] == pytest.approx([truth["age"], truth["pressure"]], rel=1e-3)

    seen = ask(moments_job(sites(tmp_path / "attack", tables), columns))
    assert seen.sums == {} and seen.codes == {"b": "records"}


@pytest.mark.parametrize("number", [2, 5])
@pytest.mark.parametrize("jobs", [1, 2])
def test_two_columns_that_differ_in_a_few_patients_are_refused(
    tmp_path: Path, number: int, jobs: int
) -> None:
    """The rule on pairs of levels sees levels of one job. The second column is declared a number,
    or stands in a second job."""
    rng = np.random.default_rng(1)
    tables = {name: patients(rng, 300) for name in SITES}
    for table in tables.values():
        table["first"] = table["second"] = (rng.random(300) < 0.3).astype(int)
    few = tables["b"].index[tables["b"]["first"] == 0][:number]
    tables["b"].loc[few, "second"] = 1
    rest = {"age": AGE, "pressure": PRESSURE}
    one, two = {"first": BINARY}, {"second": BINARY if jobs == 2 else AGE | {"high": 1}}
    asked = [one | rest, two | rest] if jobs == 2 else [one | two | rest]

    control = sites(tmp_path / "control", tables, PROFILE + "max_leverage = 1.0\n")
    sums = [moments(moments_job(control, columns)) for columns in asked]
    difference = (
        (sums[1][1] - sums[0][1])[[0, 2, 3]] if jobs == 2 else (sums[0][2] - sums[0][1])[[0, 3, 4]]
    )
    truth = tables["b"].loc[few, ["age", "pressure"]].sum()
    assert difference == pytest.approx([number, *truth], abs=1e-6)

    data = sites(tmp_path / "attack", tables)
    *allowed, last = [ask(moments_job(data, columns)) for columns in asked]
    assert all("moments" in seen.sums for seen in allowed)
    assert last.sums == {} and last.codes == {"b": "records"}


# --- 2. two jobs and more -------------------------------------------------------------------------


def test_two_jobs_do_not_show_the_one_patient_with_a_level_in_their_difference(
    tmp_path: Path,
) -> None:
    """One of twelve patients without a value has the rarer blood group."""
    rng = np.random.default_rng(2)
    tables = {
        name: patients(rng, 200).assign(
            blood=rng.choice(["A", "AB"], 200, p=[0.6, 0.4]), lipid=rng.normal(200, 30, 200)
        )
        for name in SITES
    }
    table = tables["b"]
    of_a, of_ab = (table.index[table["blood"] == group] for group in ("A", "AB"))
    table.loc[[*of_a[:11], of_ab[0]], "lipid"] = np.nan
    columns = {"blood": {**BINARY, "levels": ["A", "AB"]}, "age": AGE, "pressure": PRESSURE}
    more = columns | {"lipid": {"type": "continuous", "low": 50, "high": 500}}
    places = [sites(tmp_path / name, tables) for name in ("one", "two", "attack")]
    few, many = (
        moments(moments_job(place, each))
        for place, each in zip(places, (columns, more), strict=False)
    )
    difference = few[1, :4] - many[1, :4]  # the row of blood group AB
    truth = table.loc[of_ab[0]]
    assert difference == pytest.approx([1, 1, truth["age"], truth["pressure"]], abs=1e-6)

    assert "moments" in ask(moments_job(places[2], columns)).sums
    seen = ask(moments_job(places[2], more))
    assert seen.sums == {} and seen.codes == {"b": "records"}


def test_patients_added_between_jobs_do_not_show_by_what_they_lack(tmp_path: Path) -> None:
    """Two jobs before and after eleven patients were added: one of the eleven lacks a value."""
    rng = np.random.default_rng(2)
    before = {}
    for name in SITES:
        before[name] = patients(rng, 100).assign(lipid=rng.normal(200, 30, 100))
        before[name].loc[:19, "lipid"] = np.nan
    new = patients(rng, 11).assign(lipid=rng.normal(200, 30, 11))
    new.loc[4, "lipid"] = np.nan
    after = before | {"b": pd.concat([before["b"], new])}
    few = {"age": AGE, "pressure": PRESSURE}
    many = few | {"lipid": {"type": "continuous", "low": 50, "high": 500}}
    sums = {
        (state, len(columns)): moments(
            moments_job(sites(tmp_path / f"{state}{i}", tables), columns)
        )
        for state, tables in (("before", before), ("after", after))
        for i, columns in enumerate((few, many))
    }
    grown = [sums["after", k][0, :3] - sums["before", k][0, :3] for k in (2, 3)]
    truth = new.loc[4]
    assert grown[0] - grown[1] == pytest.approx([1, truth["age"], truth["pressure"]], abs=1e-6)

    data = sites(tmp_path / "attack", before)
    for columns in (few, many):
        assert "moments" in ask(moments_job(data, columns)).sums
    after["b"].to_csv(data / "b.csv", index=False)
    for columns in (few, many):
        seen = ask(moments_job(data, columns))
        assert seen.sums == {} and seen.codes == {"b": "records"}


def test_patients_added_between_equal_jobs_do_not_show_the_one_with_a_value(tmp_path: Path) -> None:
    """A month later ten patients were added. One of them was in intensive care."""
    rng = np.random.default_rng(4)
    before = {name: patients(rng, 300) for name in SITES}
    for table in before.values():
        table["days"] = rng.integers(1, 20, 300) * (rng.random(300) < 0.35)
    new = patients(rng, 10).assign(days=0)
    new.loc[3, "days"] = 7
    after = before | {"b": pd.concat([before["b"], new])}
    columns = {"days": AGE, "age": AGE, "pressure": PRESSURE}
    first, second = (
        moments(moments_job(sites(tmp_path / name, tables), columns))
        for name, tables in (("before", before), ("after", after))
    )
    grown = (second - first)[1]
    assert grown[1] / grown[0] == pytest.approx(7)
    truth = new.loc[3, ["age", "pressure"]].tolist()
    assert (grown / grown[0])[2:] == pytest.approx(truth, abs=1e-6)

    data = sites(tmp_path / "attack", before)
    assert "moments" in ask(moments_job(data, columns)).sums
    after["b"].to_csv(data / "b.csv", index=False)
    seen = ask(moments_job(data, columns))
    assert seen.sums == {} and seen.codes == {"b": "records"}
    year = pd.concat([before["b"], patients(rng, 300).assign(days=rng.integers(0, 9, 300))])
    year.to_csv(data / "b.csv", index=False)
    assert "moments" in ask(moments_job(data, columns)).sums


def test_a_session_held_open_does_not_show_a_patient_added_meanwhile(tmp_path: Path) -> None:
    """The first run has read its records; one patient is added; the second run is quicker."""
    data = folder(tmp_path)
    job = moments_job(data, LINEAR["columns"])
    session = open_session(plan_job(parse_job(job)), system_random)
    step = session.coordinator.start()
    step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    path = data / "hungary.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[7]]) + "\n")
    assert "moments" in ask(job).sums
    with pytest.raises(SecaggError):
        while not step.done:
            step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    assert step.state.total is None
    session.close()


def test_the_held_out_records_of_two_jobs_do_not_differ_by_one(tmp_path: Path) -> None:
    """The share of held-out records is a setting of the method, and so the coordinator's choice."""
    columns = {name: LINEAR["columns"][name] for name in ("age", "rest_bp", "max_heart_rate")}
    tables = {
        name: pd.read_csv(folder(tmp_path / name) / f"{name}.csv").dropna(subset=list(columns))
        for name in HOSPITALS
    }
    size = len(tables["cleveland"])

    def job(data: Path, share: float, least: int) -> dict[str, Any]:
        method = {
            "name": "fedlin_hm2", "outcome": "age", "predictors": ["rest_bp", "max_heart_rate"],
            "intercept": "modelled", "holdout": share, "holdout_rows": "last",
        }  # fmt: skip
        rules = {"release": {"min_sites": 3, "min_records": least}}
        return moments_job(data, columns, method=method) | rules

    shares = [(41 + side) / size for side in (-1e-3, 1e-3)]  # 40 or 41 records of Cleveland
    free = [
        ask(job(sites(tmp_path / f"free{i}", tables, ""), share, 1)).sums["records"]["records"]
        for i, share in enumerate(shares)
    ]
    assert free[0] - free[1] == pytest.approx(1)
    data = folder(tmp_path / "attack")
    assert "records" in ask(job(data, shares[0], 10)).sums
    seen = ask(job(data, shares[1], 10))
    assert seen.sums == {} and set(seen.codes.values()) == {"policy"}
    few = ask(job(folder(tmp_path / "few"), 0.03, 10))  # nine records at Cleveland
    assert few.sums == {} and set(few.codes.values()) == {"records"}


@pytest.mark.parametrize("setting", [{"batch": 1}, {"participation": 0.34}])
def test_rounds_that_depend_on_few_records_or_sites_are_refused(
    tmp_path: Path, setting: dict[str, Any]
) -> None:
    """A step with a batch of one record moves along this record: its values are ratios."""
    columns = {"age": AGE, "pressure": PRESSURE}
    method = {
        "name": "fedavg", "outcome": "age", "predictors": ["pressure"], "intercept": "modelled",
        "steps": 1, "rounds": 2, **setting,
    }  # fmt: skip
    rng = np.random.default_rng(1)
    tables = {name: patients(rng, 150) for name in SITES}
    free = ask(moments_job(sites(tmp_path / "free", tables, ""), columns, method=method))
    assert "fit" in free.sums
    seen = ask(moments_job(sites(tmp_path / "attack", tables), columns, method=method))
    assert seen.sums == {} and set(seen.codes.values()) == {"policy"}


def test_held_out_records_and_a_second_job_do_not_show_one_patient(tmp_path: Path) -> None:
    """One of the held-out records has a rarer value. The second job covers all records."""
    rng = np.random.default_rng(1)
    tables = {name: patients(rng, 150) for name in SITES}
    for table in tables.values():
        table["days"] = rng.integers(0, 20, 150) * (rng.random(150) < 0.4)
        table.loc[138:, "days"] = 0
    tables["b"].loc[145, "days"] = 9
    columns = {"age": AGE, "pressure": PRESSURE, "days": AGE}
    method = {
        "name": "fedlin_hm2", "outcome": "age", "predictors": ["pressure", "days"],
        "intercept": "modelled", "holdout": 12.5 / 150, "holdout_rows": "last",
    }  # fmt: skip
    data = sites(tmp_path / "attack", tables)
    assert "records" in ask(moments_job(data, columns, method=method)).sums
    seen = ask(moments_job(data, columns))
    assert seen.sums == {} and seen.codes["b"] == "records"
