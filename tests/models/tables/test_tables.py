"""Counts of a site's records, the bound on one person's part, and runs of tables."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.contracts import PublicFacts, SiteRecords
from secagg.core.arrays import Array
from secagg.errors import JobError, PolicyRefusal
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.tables.cells import Tables
from secagg.models.tables.method import CountTables
from secagg.runs.run import run
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.session_ledgers import open_ledger

COLUMNS: dict[str, Any] = {
    "sex": {"type": "binary", "levels": ["f", "m"]},
    "ward": {"type": "categorical", "levels": ["a", "b", "c"]},
    "ill": {"type": "binary"},
    "age": {"type": "continuous", "low": 0, "high": 120},
    "dose": {"type": "continuous", "low": 1, "high": 1000, "transform": "log"},
    "visits": {"type": "count", "high": 60},
}
CUTS: dict[str, Any] = {"age": [40, 65], "dose": [10, 100], "visits": [1, 5]}
LEVELS = ("sex", "ward", "ill")
NOISE = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5, "expected_records": 1000}


def job(tables: list[list[str]], **more: Any) -> dict[str, Any]:
    used = {name for table in tables for name in table} & COLUMNS.keys()
    cuts = {name: CUTS[name] for name in CUTS if name in used}
    return {
        "title": "Tables",
        "sites": {"max_rows": 5000},
        "columns": {n: c for n, c in COLUMNS.items() if n in used or n == "ill"},
        "method": {"name": "tables", "columns": tables, **({"cut_points": cuts} if cuts else {})},
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
        **more,
    }


def records(seed: int, count: int) -> pd.DataFrame:
    rng = np.random.default_rng([3, seed])
    ages = rng.choice([39.0, 40.0, 41.5, 64.999, 65.0, 90.0], count)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], count),
            "ward": rng.choice(["a", "b", "c"], count, p=[0.5, 0.3, 0.2]),
            "ill": rng.integers(0, 2, count),
            "age": ages,
            "dose": rng.choice([1.0, 9.99, 10.0, 99.0, 100.0, 1000.0], count),
            "visits": rng.choice([0, 1, 4, 5, 60], count),
        }
    )


SITES = {f"s{k}": records(k, 300) for k in range(3)}


def planned(tables: list[list[str]], **more: Any) -> Planned:
    return plan_job(parse_job(job(tables, **more)), SITES)


def table_of(frame: pd.DataFrame, columns: list[str]) -> Array:
    """Return a table by pandas."""
    bins = {
        "age": [-1, 39.9999, 64.9999, 121],
        "dose": [0, 9.9999, 99.9999, 1001],
        "visits": [-1, 0, 4, 61],
    }
    keys = [
        pd.cut(frame[c], bins[c], labels=False)
        if c in bins
        else frame[c].astype(str).map({"0": 0, "1": 1, "f": 0, "m": 1, "a": 0, "b": 1, "c": 2})
        for c in columns
    ]
    found = np.zeros([2 if c in ("sex", "ill") else 3 for c in columns])
    np.add.at(found, tuple(k.to_numpy(dtype=int) for k in keys), 1)
    return found


EXACT = [["ward", "sex"], ["ill", "sex", "ward"], ["ill"], ["ward", "ill"]]


def test_exact_tables_are_the_pooled_records_under_each_protocol() -> None:
    """In the order of the columns that the job has; the margins of one table cost no sum."""
    plan = planned(EXACT)
    (field,) = plan.method.stages(plan.public)[0].spec
    assert field.size == 12
    found = []
    for protocol in ("masked", "paillier"):
        summary = run(job(EXACT) | {"protocol": {"name": protocol}}, SITES).result.summary
        found.append([table["counts"] for table in summary["tables"]])
    assert found[0] == found[1]
    pooled = pd.concat(SITES.values())
    for columns, counts in zip(EXACT, found[0], strict=True):
        np.testing.assert_array_equal(counts, table_of(pooled, columns))


def test_two_tables_of_which_none_has_all_columns_are_both_counted() -> None:
    tables = [["sex", "ill"], ["ward", "ill"]]
    summary = run(job(tables), SITES).result.summary
    for columns, table in zip(tables, summary["tables"], strict=True):
        np.testing.assert_array_equal(table["counts"], table_of(pd.concat(SITES.values()), columns))
        assert "std_error" not in table


def test_a_value_at_a_cut_point_counts_as_above_it() -> None:
    tables = [["age", "dose"], ["visits", "sex"]]
    plan = planned(tables, privacy=NOISE)
    rows = read_rows(plan.job.columns, SITES["s0"], plan.public, "s0")
    counts = Tables.of(tables, CUTS, plan.public).counts(rows)
    for columns, found in zip(tables, counts, strict=True):
        order = sorted(columns, key=list(COLUMNS).index)
        np.testing.assert_array_equal(found, table_of(SITES["s0"], order))


@pytest.mark.parametrize("field", ["counts", "persons"])
def test_a_small_cell_of_three_columns_ends_the_run(field: str) -> None:
    """All levels and pairs have enough records or persons; one combination of three has 9."""
    tables = {}
    for site, frame in SITES.items():
        rare = (frame["sex"] == "m") & (frame["ward"] == "c") & (frame["ill"] == 1)
        kept = frame.drop(frame.index[rare][3:]).reset_index(drop=True)
        if field == "persons":  # 12 records of 3 persons at each site
            few = kept[(kept["sex"] == "m") & (kept["ward"] == "c") & (kept["ill"] == 1)]
            kept = kept.assign(who=range(len(kept)))
            kept = pd.concat([kept, *[few.assign(who=few.index)] * 3], ignore_index=True)
        tables[site] = kept
    raw = job(EXACT)
    if field == "persons":
        raw["privacy"] = {"person": "who"}
    with pytest.raises(PolicyRefusal) as refused:
        run(raw, tables)
    assert "cells of the tables" in refused.value.what
    pairs = job([["ward", "sex"], ["ward", "ill"], ["ill", "sex"]]) | {
        key: raw[key] for key in ("privacy",) if key in raw
    }
    assert run(pairs, tables).result.summary["tables"]
    raw["release"]["min_cell_records"] = 9
    assert run(raw, tables).result.summary["tables"]


@pytest.mark.system
def test_a_policy_must_name_the_method_for_exact_tables_of_three_columns(tmp_path: Path) -> None:
    """A coordinator that goes on sees small cells of them. Those of two columns it has seen in the
    first sum already."""

    def asked(columns: list[str], policy: str, **more: Any) -> dict[str, Any]:
        folder = tmp_path / f"{len(columns)}{len(policy)}{len(more)}"
        folder.mkdir()
        for site, frame in SITES.items():
            frame.to_csv(folder / f"{site}.csv", index=False)
            (folder / f"{site}.policy.toml").write_text(
                f"min_sites = 3\nmin_records = 10\n{policy}"
            )
        raw = job([columns], **more)
        raw["sites"]["folder"] = str(folder)
        return run(raw).result.summary

    with pytest.raises(PolicyRefusal) as refused:
        asked(["sex", "ward", "ill"], "")
    assert "methods" in refused.value.what
    assert asked(["sex", "ward", "ill"], 'methods = ["tables"]\n')["tables"]
    assert asked(["sex", "ill"], "")["tables"]
    assert asked(["sex", "ward", "ill"], "profile = 10\n", privacy=NOISE)["tables"]


def test_a_cell_without_records_is_released() -> None:
    tables = {
        site: frame[(frame["sex"] == "f") | (frame["ward"] != "c") | (frame["ill"] == 0)]
        for site, frame in SITES.items()
    }
    counts = run(job(EXACT), tables).result.summary["tables"][1]["counts"]
    assert counts[1][1][2] == 0


# --- the bound on one person's part ---------------------------------------------------------------


def wild(rng: np.random.Generator, count: int, variables: int) -> SiteRecords:
    """Return records as no table gives them: any values, many at bounds, zero, or near 0."""
    values = rng.choice([-1.0, -0.5, 0.0, 2.0**-16, 0.5, 1.0], (count, variables))
    rows = rng.random(count) < 0.3
    values[rows] = rng.uniform(-1, 1, (int(rows.sum()), variables))
    return SiteRecords(values, 0, np.zeros(variables))


def random_job(rng: np.random.Generator) -> list[list[str]]:
    names = list(COLUMNS)
    tables = {
        frozenset(rng.choice(names, rng.integers(1, 4), replace=False).tolist())
        for _ in range(rng.integers(1, 5))
    }
    return [sorted(table) for table in sorted(tables, key=sorted)]


def parts_of(method: CountTables, rows: SiteRecords, public: PublicFacts) -> Array:
    update, _ = method.contribute("cells", rows, {}, {}, public, bytes)
    return update["parts"]


@pytest.mark.parametrize("part", range(6))
def test_no_person_moves_the_sums_by_more_than_claimed(part: int) -> None:
    """50 designs each: add or remove is attained by every record, replace by some pair. The sums
    of 20 records are at most 20 times as far, and those of three equal ones three times."""
    rng = np.random.default_rng([11, part])
    public = planned([list(COLUMNS)], privacy=NOISE).public
    for _ in range(50):
        tables = random_job(rng)
        used = {name for table in tables for name in table}
        method = CountTables(
            tuple(map(tuple, tables)), {name: CUTS[name] for name in CUTS.keys() & used}
        )
        (stage,) = method.stages(public)
        claim = stage.sensitivity
        assert claim is not None

        rows = wild(rng, 40, len(public.variables))
        alone = np.array([parts_of(method, rows.part(i, i + 1), public) for i in range(40)])
        assert np.abs(alone).max() <= stage.spec[0].bound / public.max_rows
        np.testing.assert_array_equal(
            parts_of(method, rows, public), alone.sum(axis=0)
        )  # without rounding
        parts = alone / np.sqrt(claim.weights)
        lengths = np.linalg.norm(parts, axis=1)
        assert 0.95 * claim.add <= lengths.min() and lengths.max() <= claim.add
        apart = np.linalg.norm(parts[:, None] - parts[None], axis=2)
        assert 0.95 * claim.replace <= apart.max() <= claim.replace
        assert np.linalg.norm(parts[:20].sum(axis=0)) <= 20 * claim.add
        assert np.linalg.norm(parts[[0, 0, 0]].sum(axis=0)) >= 0.95 * 3 * claim.add


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_the_noise_is_for_all_records_of_a_person(adjacency: str) -> None:
    """A person with m records moves sums m times as far; whoever chose the column of persons, twice
    for removing and replacing (`Sensitivity.of_chosen_persons`)."""

    def variance(**more: Any) -> int:
        privacy = NOISE | {"adjacency": adjacency, **more}
        return planned([["sex", "ill"], ["ward"]], privacy=privacy).public.noise["cells"].variance

    one = variance(person="who", person_pinned=True, records_per_person=1)
    several = variance(person="who", person_pinned=True, records_per_person=4)
    assert one == pytest.approx(variance(), rel=1e-9)
    assert several == pytest.approx(16 * one, rel=1e-9)
    assert variance(person="who", records_per_person=1) > 1.9 * one


# --- jobs that do not fit -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"columns": []}, "method.columns"),
        ({"columns": [[]]}, "method.columns"),
        ({"columns": [["sex", "sex"]]}, "method.columns"),
        ({"columns": [["sex", "ill"], ["ill", "sex"]]}, "method.columns"),
        ({"columns": [["ses"]]}, "method.columns"),
        ({"columns": [["age"]]}, "method.cut_points"),
        ({"columns": [["sex"]], "cut_points": {"age": [40]}}, "method.cut_points"),
        ({"columns": [["sex"]], "cut_points": {"sex": [0.5]}}, "method.cut_points"),
        ({"columns": [["age"]], "cut_points": {"age": [65, 40]}}, "method.cut_points"),
        ({"columns": [["age"]], "cut_points": {"age": [40, 40.0001]}}, "method.cut_points"),
        ({"columns": [["age"]], "cut_points": {"age": [0]}}, "method.cut_points"),
        ({"columns": [["dose"]], "cut_points": {"dose": [-3, 5]}}, "method.cut_points"),
    ],
)  # fmt: skip
def test_a_job_that_does_not_fit_names_the_setting(change: dict[str, Any], where: str) -> None:
    raw = job([["sex"]], privacy=NOISE)
    raw["columns"] = COLUMNS
    raw["method"] |= change
    with pytest.raises(JobError) as error:
        plan_job(parse_job(raw), SITES)
    assert error.value.where == where


def test_tables_that_are_too_large_are_refused() -> None:
    levels = {"type": "categorical", "levels": [str(i) for i in range(400)]}
    raw = job([["sex"]])
    raw["columns"] = {"one": levels, "two": levels, "sex": COLUMNS["sex"]}
    for tables in ([["one", "two"]], [["sex", "one"], ["two"]]):
        raw["method"]["columns"] = tables
        if tables[0][0] == "one":
            with pytest.raises(JobError) as error:
                plan_job(parse_job(raw), SITES)
            assert error.value.where == "method.columns"
        else:
            assert plan_job(parse_job(raw), SITES)


def test_numbers_need_noise() -> None:
    """Exact counts below 40 and below 40.1 would count the records between them."""
    with pytest.raises(JobError) as error:
        planned([["age", "sex"]])
    assert error.value.where == "method.cut_points"


def test_a_limit_of_norms_has_no_use() -> None:
    with pytest.raises(JobError) as error:
        planned([["sex"]], privacy=NOISE | {"record_norm": 0.1})
    assert error.value.where == "privacy.record_norm"


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("placement", ["sum", "site"])
def test_a_run_with_noise_states_its_errors(placement: str, tmp_path: Path) -> None:
    tables = [["sex", "ill"], ["ward", "ill"], ["age"]]
    raw = job(tables, privacy=NOISE | {"placement": placement, "epsilon": 4.0})
    done = run(raw, SITES, out=tmp_path / "run")
    pooled = pd.concat(SITES.values())
    for columns, table in zip(tables, done.result.summary["tables"], strict=True):
        far = (np.array(table["counts"]) - table_of(pooled, columns)) / table["std_error"]
        assert np.abs(far).max() < 5 and np.abs(far).max() > 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "ward by ill" in page and "40 to &lt; 65" in page
    errors = [each["error"] for each in done.facts["feasibility"]["tables"]]
    np.testing.assert_allclose(errors, [t["std_error"] for t in done.result.summary["tables"]])


@pytest.mark.system
def test_another_question_has_other_noise_at_the_sites(tmp_path: Path) -> None:
    """With one draw for two cut points, the difference of the counts between them was exact, and
    the second job cost nothing."""
    (data := tmp_path / "data").mkdir()
    for name, table in SITES.items():
        table.to_csv(data / f"{name}.csv", index=False)
    raw = job([["age"]], privacy=NOISE | {"placement": "site"})
    raw["sites"]["folder"] = str(data)

    def asked(number: int, cuts: list[float], **method: Any) -> tuple[Array, int]:
        raw["method"] |= {"cut_points": {"age": cuts}, **method}
        done = run(raw, out=tmp_path / str(number))
        with closing(open_ledger(data / "ledgers" / f"{min(SITES)}.ledger")) as ledger:
            entries = [e for e in ledger.history(min(SITES)) if e.kind == "entry"]
        return np.array(done.result.summary["tables"][0]["counts"]), len(entries)

    first, paid = asked(0, [40.5, 65])
    again, not_paid_again = asked(1, [40.5, 65])
    np.testing.assert_array_equal(first, again)
    assert not_paid_again == paid
    other, paid_again = asked(2, [41, 65])  # no record is between 40.5 and 41
    assert paid_again > paid and np.abs(other - first).min() > 0
    _, paid_once_more = asked(3, [41, 65], least="tables")
    assert paid_once_more > paid_again


@pytest.mark.statistical
@pytest.mark.parametrize("placement", ["sum", "site"])
@pytest.mark.parametrize("least", ["cells", "tables"])
def test_stated_errors_are_those_of_repeated_noise(placement: str, least: str) -> None:
    """300 runs with normal noise of the planned variance. The mean square of error / standard error
    over all cells is 1 within four of its Monte Carlo errors, which are about .03."""
    tables = [["sex", "ill"], ["ward", "ill", "age"], ["ward"]]
    raw = job(tables, privacy=NOISE | {"placement": placement})
    raw["method"]["least"] = least
    plan, rng = plan_job(parse_job(raw), SITES), np.random.default_rng(8)
    sites = [read_rows(plan.job.columns, SITES[s], plan.public, s) for s in SITES]
    exact = [table_of(pd.concat(SITES.values()), columns) for columns in tables]
    squares = []
    for _ in range(300):
        shown = run_on(plan, plan.public, sites, rng).summary["tables"]
        squares.append([
            float(np.mean((np.array(each["counts"]) - true) ** 2)) / each["std_error"] ** 2
            for each, true in zip(shown, exact, strict=True)
        ])  # fmt: skip
    mean, error = np.mean(squares, axis=0), np.std(squares, axis=0) / np.sqrt(300)
    assert error.max() < 0.1 and np.all(np.abs(mean - 1) < 4 * error)
