"""`secagg audit`: what a coordinator that writes jobs learns, today and with a rule less."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import attacked, job, tables

from secagg.audits.attacks.questions import rare_cell
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.catalogue import ATTACKS
from secagg.audits.contract import Limit, Verdict
from secagg.audits.folder_audit import audit_folder
from secagg.audits.views import SeenRound, View, Who
from secagg.contracts import Result
from secagg.errors import PolicyRefusal
from secagg.jobs import data_sources
from secagg.jobs.job import parse_job
from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy import cell_counts, job_rules, record_sets
from secagg.reports.audits.page import remark
from secagg.runs.run import run
from secagg.sessions import coordinator
from secagg.sessions.planned_job import plan_job

MOMENTS = {"name": "moments"}
PRIVATE: dict[str, Any] = {
    "protocol": "additive",
    "privacy": {"placement": "sum", "epsilon": 1.0, "delta": 1e-5},
}
NUMBER = {"type": "continuous", "low": -4, "high": 4}


# --- two jobs that differ slightly ----------------------------------------------------------------


def with_missing() -> dict[str, pd.DataFrame]:
    """Three sites; at each, six records lack one column."""
    data = tables(3, 3, rows=100)
    for table in data.values():
        table.loc[[3, 7, 11, 21, 31, 41], "x2"] = np.nan
    return data


def test_no_second_job_isolates_few_records() -> None:
    found = attacked(with_missing(), "job_differencing", MOMENTS)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.details["refused"] > 0
    assert found.control is not None and found.control.value == 1  # a patient, from two sums


def test_without_the_rule_on_declarations_a_bound_isolates_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_rules, "conflict", lambda *_: None)
    found = attacked(tables(3, 2), "job_differencing", MOMENTS)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value == 1 and found.finding.details["by"].endswith("a bound")
    assert found.finding.details["answered"] < 15  # the attacker knows when to stop


@pytest.mark.attack
def test_where_many_share_the_largest_value_a_lower_bound_isolates_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_rules, "conflict", lambda *_: None)
    data = tables(3, 1, rows=60)
    for table in data.values():
        table["x0"] = table["x0"].clip(None, 0.0)  # about half of the records
    found = attacked(data, "job_differencing", MOMENTS)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value == 1 and found.finding.details["by"] == "x0: a bound"


@pytest.mark.attack
def test_without_the_rule_on_sets_of_records_a_column_less_isolates_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = {"min_sites": 2, "min_records": 20}
    monkeypatch.setattr(record_sets, "isolates", lambda *_: False)
    allowed = Decision("max_leverage", True, "")  # that rule finds the set, too
    monkeypatch.setattr(record_sets, "on_leverage", lambda *_: allowed)
    found = attacked(with_missing(), "job_differencing", MOMENTS, release=release)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value < 20 and found.finding.details["by"] == "x2: left out"


@pytest.mark.attack
def test_noised_sums_isolate_no_record() -> None:
    found = attacked(tables(3, 2), "job_differencing", MOMENTS, **PRIVATE)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.details["answered"] > 10
    assert found.finding.value == found.finding.baseline


# --- small counts ---------------------------------------------------------------------------------


def coded(few: int = 0) -> dict[str, pd.DataFrame]:
    """Three sites with levels, of which D is that of a few records."""
    rng, data = np.random.default_rng(5), {}
    for k in range(3):
        data[f"s{k}"] = pd.DataFrame(
            {
                "group": rng.choice(["A", "B", "C"], 100, p=[0.5, 0.3, 0.2]),
                "sex": rng.choice(["0", "1"], 100),
                "ill": rng.choice(["0", "1"], 100, p=[0.6, 0.4]),
                "x": rng.normal(size=100).clip(-4, 4),
            }
        )
    data["s1"].loc[: few - 1, "group"] = "D"
    return data


def columns(levels: str = "ABC") -> dict[str, Any]:
    binary = {"type": "binary"}
    group = {"type": "categorical", "levels": list(levels)}
    return {"columns": {"group": group, "sex": binary, "ill": binary, "x": NUMBER}}


@pytest.mark.parametrize(
    "method",
    [MOMENTS, {"name": "logistic", "outcome": "ill", "predictors": ["group", "sex", "x"]}],
)
def test_sums_count_the_records_of_every_cell(method: dict[str, Any]) -> None:
    found = attacked(coded(), "rare_cell", method, **columns())
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    details = found.finding.details
    assert details["claimed"] == details["counted"] == details["cells"] == 7 + 3 * 2 * 2 + 2 * 2
    assert 5 <= found.finding.value < found.finding.baseline
    assert found.control is not None and found.control.value == 1


def test_a_rare_level_is_found_if_the_rule_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"release": {"min_sites": 2, "min_records": 5, "min_level_sites": 1}} | columns("ABCD")
    monkeypatch.setattr(cell_counts, "check_cells", lambda *_: None)
    found = attacked(coded(few=4), "rare_cell", MOMENTS, **few)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value < 5 and "group=D" in found.finding.details["smallest"]


def test_tables_of_three_columns_count_small_cells_if_the_rule_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Levels and pairs have enough records. Tables of pairs tell no combination of three."""
    data = coded()
    few = [(each["group"] == "B") & (each["sex"] == "1") & (each["ill"] == "1")
           for each in data.values()]  # fmt: skip
    for (name, each), rare in zip(data.items(), few, strict=True):
        data[name] = each.drop(each.index[rare][1:]).reset_index(drop=True)

    def asked(*tables: list[str]) -> Attacked:
        method = {"name": "tables", "columns": list(tables)}
        return attacked(data, "rare_cell", method, **columns())

    with pytest.raises(PolicyRefusal):
        asked(["group", "sex", "ill"])
    monkeypatch.setattr(coordinator, "check_table_cells", lambda *_: None)
    found = asked(["group", "sex", "ill"])
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert 0 < found.finding.value < 5
    assert found.finding.details["smallest"] == "group=B and sex and ill"
    pairs = asked(["group", "sex"], ["group", "ill"], ["sex", "ill"])
    assert pairs.verdict is Verdict.NO_LEAK_FOUND and pairs.finding is not None
    assert pairs.finding.details["counted"] == 7 + 3 * 2 * 2 + 2 * 2


def test_a_lax_rule_of_the_job_does_not_make_a_small_cell_pass() -> None:
    lax = {"min_sites": 2, "min_records": 5, "min_cell_records": 1, "min_level_sites": 1}
    levels = {"type": "categorical", "levels": list("ABCD")}
    one = {"columns": {"group": levels, "x": NUMBER}}
    found = attacked(coded(few=4), "rare_cell", MOMENTS, release=lax, **one)
    assert found.limit == Limit(5, errors=True)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert 2 <= found.finding.value < 5
    assert "min_cell_records = 1" in remark(vars(found.finding))  # the page says why


def test_a_stricter_rule_of_the_job_is_the_limit() -> None:
    strict = {"min_sites": 2, "min_records": 5, "min_cell_records": 7}
    found = attacked(coded(), "rare_cell", MOMENTS, release=strict, **columns())
    assert found.limit == Limit(7, errors=True) and found.finding is not None
    assert "min_cell_records" not in remark(vars(found.finding))


@pytest.mark.parametrize(
    ("protocol", "verdict"),
    [("plain", Verdict.LEAK), ("masked", Verdict.NOT_APPLICABLE)],
)
def test_without_a_transcript_the_protocol_says_whether_contributions_are_hidden(
    protocol: str, verdict: Verdict, tmp_path: Path
) -> None:
    run(parse_job(job(MOMENTS, 2, protocol)), tables(3, 2), out=tmp_path / "run")
    (found,) = audit_folder(tmp_path / "run", attacks=["clear_contributions"]).attacked
    assert found.verdict is verdict
    if found.finding is not None:
        assert found.finding.value == 1
        assert found.finding.details["known_by"].startswith("protocol 'plain' declares")
    else:
        assert "transcript" in found.why


def test_a_run_folder_alone_shows_the_counts(tmp_path: Path) -> None:
    data = coded()
    run(parse_job(job(MOMENTS, 0, **columns())), data, out=tmp_path / "run")
    (found,) = audit_folder(tmp_path / "run", attacks=["rare_cell"]).attacked
    together = pd.concat(data.values())
    assert found.finding is not None
    assert found.finding.value == pd.crosstab(together["group"], together["ill"]).min().min()
    assert found.finding.details["smallest"] == "group=C and ill"


def test_noised_sums_count_no_cell() -> None:
    found = attacked(coded(few=4), "rare_cell", MOMENTS, **PRIVATE, **columns("ABCD"))
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.details["claimed"] == 0
    assert found.finding.value == found.finding.baseline


def test_many_levels_are_searched_without_many_gigabytes() -> None:
    """There are 19,200 cells and 70 made-up records: each is 1.3 MB in bytes, and 11 MB as float64.

    Of the cells, the sums count one alone: all records.
    """
    levels = {"type": "categorical", "levels": list("ABCDEFGHIJ")}
    asked = job({"name": "logistic", "outcome": "ill", "predictors": ["x"]}, 0) | {
        "columns": columns()["columns"] | {f"c{i}": levels for i in range(20)}
    }
    planned = plan_job(parse_job(asked), {name: pd.DataFrame() for name in ("s0", "s1")})
    method, public = planned.method, planned.public
    request = method.next_request(method.initial_state(public))
    assert request is not None
    stage, message = request
    total = {p.field.name: np.zeros(p.field.shape) for p in planned.plans.of(stage).fields[:-1]}
    seen = SeenRound(stage, message, total, {})
    view = View(Who.COORDINATOR, planned, ("s0", "s1"), (seen,), Result({}))
    tracemalloc.start()
    found = rare_cell.RareCell().run(view, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None and rare_cell.ALL in found
    assert peak < 4e6


@pytest.mark.attack
def test_rounds_of_admm_are_no_sums_over_records() -> None:
    method = {"name": "notears_admm", "rounds": 2}
    found = attacked(coded(), "rare_cell", method, **columns())
    assert found.verdict is Verdict.NOT_APPLICABLE and "no sums" in found.why


# --- refusals -------------------------------------------------------------------------------------


def many_levels() -> dict[str, pd.DataFrame]:
    """Two sites with some of twenty levels, and one with all of them."""
    rng, found = np.random.default_rng(5), {}
    for k in range(3):
        own = rng.choice(20, 13, replace=False) if k < 2 else np.arange(20)
        levels = [f"level {i}" for i in np.concatenate([np.repeat(own, 3), rng.choice(own, 100)])]
        found[f"s{k}"] = pd.DataFrame(
            {"kind": levels, "x": rng.normal(size=len(levels)).clip(-4, 4)}
        )
    return found


def levels_job(**more: Any) -> dict[str, Any]:
    kind = {"type": "categorical", "levels": [f"level {i}" for i in range(20)]}
    release = {"min_sites": 2, "min_records": 5, "min_cell_records": 1, "min_level_sites": 1}
    return {"columns": {"kind": kind, "x": NUMBER}, "release": release} | more


def test_refusals_end_before_they_list_the_levels_of_a_site() -> None:
    found = attacked(many_levels(), "refusal_oracle", MOMENTS, **levels_job())
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.details["refused"] <= 5 and found.finding.value <= 15
    assert found.finding.details["share_of_level_bits"] < 0.75
    assert found.control is not None and found.control.details["share_of_level_bits"] == 1


@pytest.mark.attack
def test_without_the_lock_refusals_tell_all_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    real = data_sources.policy_of

    def unlimited(*args: Any) -> Any:
        return real(*args).model_copy(update={"max_refusals": 1000, "max_unreleased": 1000})

    monkeypatch.setattr(data_sources, "policy_of", unlimited)
    found = attacked(many_levels(), "refusal_oracle", MOMENTS, **levels_job())
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.details["share_of_level_bits"] == 1


@pytest.mark.attack
def test_under_privacy_refusals_tell_nothing() -> None:
    more = levels_job() | PRIVATE
    found = attacked(many_levels(), "refusal_oracle", MOMENTS, **more)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value == 0 and found.finding.details["refused"] == 0
    assert found.limit == Limit(0)  # every bit would be a leak
    assert found.control is not None and found.control.value > 15


@pytest.mark.attack
def test_bisections_find_the_rows_and_medians_only_of_sites_that_forget() -> None:
    found = attacked(tables(3, 2), "refusal_oracle", MOMENTS)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value <= 5
    assert found.control is not None
    assert found.control.details["row_bits"] == pytest.approx(np.log2(2000))
    assert found.control.details["median_bits"] > 10


@pytest.mark.attack
def test_if_a_larger_site_refuses_too_the_rows_of_another_are_nearly_counted() -> None:
    """No job is released, so ten consents and five refusals are told: more than log2(2000)."""
    data = tables(3, 2, rows=40) | {"s0": tables(1, 2, rows=900)["s0"]}
    data["s1"] = tables(2, 2, rows=2000)["s1"]
    found = attacked(data, "refusal_oracle", MOMENTS)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert 9 < found.finding.details["row_bits"] < np.log2(2000)
    assert found.finding.value <= 15 and found.finding.details["refused"] <= 5


@pytest.mark.parametrize("placement", ["sum", "site"])
def test_every_attack_knows_records_of_typical_ranges(placement: str) -> None:
    """The constant of such a record is shortened with it."""
    rng = np.random.default_rng(1)
    columns = {"x": NUMBER | {"typical": [-1, 1]}, "case": {"type": "binary", "typical": 0.5}}
    whole = {
        "title": "Typical ranges", "sites": {"max_rows": 100}, "method": MOMENTS,
        "columns": columns, "release": {"min_sites": 3, "min_records": 1},
        "privacy": {"placement": placement, "epsilon": 4.0, "delta": 1e-6},
    }  # fmt: skip
    data = {
        site: pd.DataFrame({"x": rng.normal(size=80).clip(-4, 4), "case": rng.integers(2, size=80)})
        for site in "abc"
    }
    slow = {"many_run_epsilon", "noise_self_test"}  # tested in tests/statistical
    for found in audit_job(whole, data, attacks=sorted(ATTACKS.keys() - slow)).attacked:
        assert "error" not in found.why, (found.attack.name, found.why)
