"""A combination of columns that is zero in all records but a few: the attack, and the rule."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Verdict
from secagg.audits.folder_audit import audit_folder
from secagg.errors import PolicyRefusal
from secagg.runs.run import run

Tables = dict[str, pd.DataFrame]
Study = Callable[[bool], tuple[Tables, dict[str, Any]]]
YES_NO = {"type": "binary", "levels": ["0", "1"]}
NO_RULE = {"min_sites": 3, "min_records": 1, "min_cell_records": 1, "min_level_sites": 1}


def number(low: float, high: float) -> dict[str, Any]:
    return {"type": "continuous", "low": low, "high": high}


def clinics(make: Callable[[np.random.Generator], dict[str, Any]]) -> Tables:
    """Return three sites of 60 to 120 patients, each with sex and age."""
    found = {}
    for k, n in enumerate((120, 60, 90)):
        rng = np.random.default_rng([k, 5])
        rows = {"sex": rng.permutation(n) % 2, "age": np.round(rng.uniform(20, 90, n), 1)}
        found[f"clinic{k}"] = pd.DataFrame(rows | {c: v[:n] for c, v in make(rng).items()})
    return found


ALWAYS = {"sex": YES_NO, "age": number(0, 120)}


def difference(patient: bool) -> tuple[Tables, dict[str, Any]]:
    """Pulse pressure is systolic less diastolic pressure; it was measured in one patient."""

    def make(rng: np.random.Generator) -> dict[str, Any]:
        high, low = np.rint(rng.normal(130, 15, 120)), np.rint(rng.normal(80, 9, 120))
        return {"high": high, "low": low, "pulse": high - low}

    tables = clinics(make)
    if patient:
        tables["clinic1"].loc[17, "pulse"] += 9
    return tables, {"high": number(60, 220), "low": number(30, 140), "pulse": number(0, 150)}


def units(patient: bool) -> tuple[Tables, dict[str, Any]]:
    """Age in months and in years; one patient's date was corrected in one column only."""
    tables = clinics(lambda rng: {})
    for table in tables.values():
        table["months"] = 12 * table["age"]
    if patient:
        tables["clinic2"].loc[80, "months"] -= 7
    return tables, {"months": number(0, 1440)}


def score(patient: bool) -> tuple[Tables, dict[str, Any]]:
    """A score adds points, and a constant that nobody knows."""

    def make(rng: np.random.Generator) -> dict[str, Any]:
        a, b = rng.integers(0, 2, (2, 120))
        return {"a": a, "b": b, "score": 2 * a + 3 * b + 1.37}

    tables = clinics(make)
    if patient:
        tables["clinic0"].loc[3, "score"] = 8.0
    return tables, {"a": YES_NO, "b": YES_NO, "score": number(0, 10)}


def cost(patient: bool) -> tuple[Tables, dict[str, Any]]:
    """No combination: one cost is far larger than all others."""
    tables = clinics(lambda rng: {"cost": rng.normal(1000, 30, 120)})
    if patient:
        tables["clinic2"].loc[5, "cost"] = 90_000
    return tables, {"cost": number(0, 100_000)}


STUDIES: list[Study] = [difference, units, score, cost]


def job(columns: dict[str, Any], rules: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "title": "A column that is others", "sites": {"max_rows": 500},
        "columns": ALWAYS | columns, "method": {"name": "moments"},
        "protocol": {"name": "masked"}, "release": rules,
    } | more  # fmt: skip


def attacked(tables: Tables, raw: dict[str, Any]) -> Attacked:
    (found,) = audit_job(raw, tables, attacks=["null_combination"], set_aside=0).attacked
    assert found.finding is not None
    return found


@pytest.mark.attack
@pytest.mark.parametrize("study", STUDIES)
def test_the_record_is_found_where_no_rule_applies(study: Study) -> None:
    tables, columns = study(True)
    found = attacked(tables, job(columns, NO_RULE))
    assert found.verdict is Verdict.LEAK and found.finding.value == 1
    details = found.finding.details
    if study is not cost:  # whose other records are not exactly equal
        assert details["confirmed"] and details["row_error"] < 1e-6
    assert details["row_error"] < 0.2  # of bounds at -1 and 1


@pytest.mark.attack
@pytest.mark.parametrize("study", STUDIES)
def test_without_such_a_record_none_is_found(study: Study) -> None:
    tables, columns = study(False)
    found = attacked(tables, job(columns, NO_RULE))
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding.value >= 50
    assert found.control is not None and found.control.value == 1


@pytest.mark.attack
@pytest.mark.parametrize("study", STUDIES)
def test_sites_without_a_policy_refuse_it(study: Study) -> None:
    rules = {"min_sites": 3, "min_records": 5}
    tables, columns = study(False)
    run(job(columns, rules), tables)
    tables, columns = study(True)
    with pytest.raises(PolicyRefusal, match="max_leverage"):
        run(job(columns, rules), tables)


@pytest.mark.attack
@pytest.mark.parametrize("few", [2, 4])
def test_a_few_records_are_found_and_refused(few: int) -> None:
    """Two codings of the same diagnosis differ in a few patients of one site."""
    tables = clinics(lambda rng: {"old": rng.integers(0, 2, 120)})
    for table in tables.values():
        table["new"] = table["old"]
    at = np.flatnonzero(tables["clinic0"]["old"] == 0)[:few]
    tables["clinic0"].loc[at, "new"] = 1
    columns = {"old": YES_NO, "new": YES_NO}
    found = attacked(tables, job(columns, NO_RULE))
    assert found.verdict is Verdict.LEAK and found.finding.value == few
    assert found.finding.details["row_error"] < 1e-6
    with pytest.raises(PolicyRefusal, match=r"max_leverage.*fewer than 5 records"):
        run(job(columns, {"min_sites": 3, "min_records": 5, "min_cell_records": 1}), tables)


@pytest.mark.attack
def test_a_logistic_regression_shows_it_in_its_first_sum() -> None:
    tables, columns = difference(True)
    method = {"name": "logistic", "outcome": "sex", "predictors": ["high", "low", "pulse"]}
    found = attacked(tables, job(columns, NO_RULE, method=method))
    assert found.verdict is Verdict.LEAK and found.finding.value == 1
    assert found.finding.details["row_error"] < 1e-6
    assert found.control is not None and found.control.value == 1
    with pytest.raises(PolicyRefusal, match="max_leverage"):
        run(job(columns, {"min_sites": 3, "min_records": 5}, method=method), tables)


@pytest.mark.attack
@pytest.mark.parametrize("patient", [True, False])
def test_a_finished_run_shows_that_the_record_is_confirmed(tmp_path: Path, patient: bool) -> None:
    tables, columns = difference(patient)
    run(job(columns, NO_RULE), tables, out=tmp_path / "run")
    (found,) = audit_folder(tmp_path / "run", attacks=["null_combination"]).attacked
    expected = Verdict.LEAK if patient else Verdict.INCONCLUSIVE
    assert found.verdict is expected and found.finding is not None
    if patient:
        assert found.finding.value == 1
        (text,) = {
            t.replace("+", "").replace("-", "") for t in found.finding.details["combinations"]
        }
        assert sorted(text.split()) == ["1", "1", "1", "high", "low", "pulse"]


def test_noise_is_not_subject_to_the_rule() -> None:
    tables, columns = difference(True)
    private = {"placement": "site", "epsilon": 5.0, "delta": 1e-6, "record_norm": 1.0}
    raw = job(columns, {"min_sites": 3, "min_records": 5}, privacy=private)
    assert run(raw, tables).result.summary


@pytest.mark.attack
@pytest.mark.parametrize("name", ["fedavg", "fedlin_hm1", "fedlin_hm2"])
@pytest.mark.parametrize(("largest", "degree"), [(0.99, 1), (0.3, 5), (0.99, 5)])
def test_powers_of_a_column_are_judged_with_the_column(
    name: str, largest: float, degree: int
) -> None:
    """One dose is far from all others. A polynomial that is 0 there is not 0 at this dose."""
    tables = clinics(
        lambda rng: {"dose": np.concatenate([[largest], rng.uniform(0, 0.3, 119)]),
                     "y": rng.normal(size=120).clip(-4, 4)}
    )  # fmt: skip
    columns = {"dose": number(0, 1), "y": number(-5, 5)}
    method = {"name": name, "outcome": "y", "predictors": ["dose"], "degree": degree, "rounds": 2}
    raw = job(columns, {"min_sites": 3, "min_records": 5}, method=method)
    if (largest, degree) != (0.99, 5):
        run(raw, tables)
        return
    with pytest.raises(PolicyRefusal, match="max_leverage"):
        run(raw, tables)
