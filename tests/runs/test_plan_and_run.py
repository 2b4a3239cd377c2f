"""What a run refuses because of public facts, `secagg plan` refuses too, before any release."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledger_runs import FIVE, folder_with, noised
from support.runs.jobs import COLUMNS, raw_job

import secagg
from secagg.errors import DataError, PolicyRefusal, SecaggError, UsageError
from secagg.privacy.ledger.ledger import Ledger
from secagg.sessions.session_ledgers import open_ledger

Change = Callable[[Path], Any]

SITE = "min_sites = 3\nmin_records = 2\n"


def policy(text: str) -> Change:
    return lambda data: (data / "c.policy.toml").write_text(text)


def edited(old: str, new: str) -> Change:
    def change(data: Path) -> None:
        text = (data / "b.csv").read_text()
        (data / "b.csv").write_text(text.replace(old, new, 1))

    return change


def as_it_is(_: Path) -> None:
    """Change nothing."""


def release(**rules: int) -> dict[str, Any]:
    return {"release": {"min_sites": 3, "min_records": 2} | rules}


def ols(**settings: Any) -> dict[str, Any]:
    analysis = {"kind": "ols", "outcome": "age", "predictors": ["sex"]} | settings
    return {"method": {"name": "moments", "analyses": [analysis]}}


def declared(**column: Any) -> dict[str, Any]:
    return {"columns": COLUMNS | {"age": column}}


PERSON = {"privacy": noised(person="id")}

CASES: dict[str, tuple[Change, dict[str, Any], type[SecaggError]]] = {
    "a missing column": (edited("age", "years"), {}, UsageError),
    "a repeated column": (edited("age", "sex"), {}, UsageError),
    "no column of persons": (as_it_is, PERSON, UsageError),
    "an empty file": (lambda d: (d / "b.csv").write_text(""), {}, UsageError),
    "a file that is not UTF-8": (lambda d: (d / "b.csv").write_bytes(b"\xff,"), {}, UsageError),
    "a folder as a file": (lambda d: (d / "x.csv").mkdir(), {}, UsageError),
    "a name without a file": (as_it_is, {"sites": {"names": ["a", "b", "z"]}}, UsageError),
    "ledgers in a file": (as_it_is, {"sites": {"ledgers": "FOLDER/a.csv"}}, UsageError),
    "ledgers nowhere": (as_it_is, {"sites": {"ledgers": "FOLDER/x/y/z"}}, UsageError),
    "an undeclared predictor": (as_it_is, ols(predictors=["grades"]), UsageError),
    "an outcome with levels": (as_it_is, ols(outcome="grade"), UsageError),
    "bounds without width": (
        as_it_is, declared(type="continuous", low=5, high=5), UsageError
    ),
    "bounds of almost no width": (
        as_it_is, declared(type="continuous", low=1.0, high=1.0 + 1e-15), UsageError
    ),
    "one level": (as_it_is, declared(type="categorical", levels=["a"]), UsageError),
    "many levels": (
        as_it_is,
        declared(type="categorical", levels=[str(i) for i in range(50)]) | release(min_records=1),
        PolicyRefusal,
    ),
    "too few sites": (as_it_is, release(min_sites=6), PolicyRefusal),
    "too few named sites": (as_it_is, {"sites": {"names": ["a", "b"]}}, PolicyRefusal),
    "a rule that is not set": (as_it_is, {"release": {"min_sites": 3}}, PolicyRefusal),
    "records of a site": (as_it_is, release(min_records=101), PolicyRefusal),
    "records in total": (as_it_is, release(min_total_records=501), PolicyRefusal),
    "records with a level": (as_it_is, release(min_cell_records=501), PolicyRefusal),
    "a site's rule on sites": (policy("min_sites = 6\nmin_records = 2"), {}, PolicyRefusal),
    "a site's rule on records": (policy("min_sites = 3\nmin_records = 101"), {}, PolicyRefusal),
    "a site's rule on levels": (policy(SITE + "min_level_records = 101"), {}, PolicyRefusal),
    "the number of levels": (policy(SITE + "max_levels = 2"), {}, PolicyRefusal),
    "degrees of freedom": (policy(SITE + "min_residual_dof = 496"), {}, PolicyRefusal),
    "parameters": (policy(SITE + "max_parameters_ratio = 0.049"), {}, PolicyRefusal),
    "a method": (policy(SITE + 'methods = ["logistic"]'), {}, PolicyRefusal),
    "delta": (
        policy("min_sites = 3\nmin_records = 50"), {"privacy": noised(delta=1e-2)}, PolicyRefusal
    ),
}  # fmt: skip


def job_of(data: Path, changed: dict[str, Any]) -> dict[str, Any]:
    sites = {"folder": str(data), "max_rows": 100} | changed.get("sites", {})
    if "ledgers" in sites:
        sites["ledgers"] = sites["ledgers"].replace("FOLDER", str(data))
    return raw_job(**{"protocol": {"name": "additive"}} | changed | {"sites": sites})


def releases(data: Path) -> int:
    count = 0
    for file in (data / "ledgers").glob("*.ledger"):
        with closing(open_ledger(file)) as ledger:
            assert isinstance(ledger, Ledger)
            count += sum(ledger.spent(name).total() for name in ledger.datasets())
    return count


@pytest.mark.parametrize("case", CASES)
def test_plan_refuses_what_a_run_refuses(tmp_path: Path, case: str) -> None:
    change, changed, expected = CASES[case]
    data = folder_with(tmp_path)
    change(data)
    job = job_of(data, changed)
    if expected is PolicyRefusal:
        assert secagg.plan(job)["refusals"]
    else:
        with pytest.raises(expected):
            secagg.plan(job)
    with pytest.raises(expected):
        secagg.run(job)


FINE: dict[str, tuple[Change, dict[str, Any]]] = {
    "as it is": (as_it_is, {}),
    "a rule on the total": (as_it_is, release(min_total_records=150)),
    "a ledger folder to make": (as_it_is, {"sites": {"ledgers": "FOLDER/x"}}),
    "named sites": (edited("age", "years"), {"sites": {"names": ["a", "c", "d"]}}),
    "just enough": (policy(SITE + "max_parameters_ratio = 0.25\nmin_residual_dof = 100"), {}),
    "larger minimums": (as_it_is, release(min_records=10)),
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
def test_plan_passes_what_a_run_accepts(tmp_path: Path, case: str) -> None:
    change, changed = FINE[case]
    data = folder_with(tmp_path)
    change(data)
    job = job_of(data, changed)
    planned = secagg.plan(job)
    assert planned["refusals"] == planned["possible_refusals"] == []
    assert tuple(secagg.run(job).result.summary["cohort"]) == tuple(planned["sites"])


def test_a_wrong_header_stops_a_run_before_the_first_message(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    edited("age", "years")(data)
    events: list[Any] = []
    with pytest.raises(UsageError):
        secagg.run(job_of(data, {}), progress=events.append)
    assert events == [] and not (data / "ledgers").exists()


def test_a_run_names_its_sites_and_says_what_is_odd_about_files(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "b_backup.csv").write_bytes((data / "b.csv").read_bytes())
    (data / "f.xlsx").write_text("")
    events: list[Any] = []
    job = job_of(data, {"sites": {"names": ["b_backup", *FIVE]}})
    done = secagg.run(job, progress=events.append)
    kinds = [event["event"] for event in events[:5]]
    assert kinds == ["sites", "remark", "remark", "remark", "session"]
    assert events[0]["sites"] == sorted([*FIVE, "b_backup"])
    *said, ledgers = [event["text"] for event in events[1:4]]
    assert "f.xlsx" in said[0] and "b_backup.csv" in said[1] and "ledger" in ledgers
    assert list(done.remarks[:2]) == said
    logged = [event["event"] for event in done.events]
    assert "sites" not in logged and "remark" not in logged
    assert "xlsx" not in str(done.facts) and "backup.csv" not in str(done.facts)
    planned = secagg.plan(job)
    assert set(said) <= set(planned["warnings"])


def test_a_study_with_a_copied_file_can_go_on(tmp_path: Path) -> None:
    """The job listed the copy, or its records came later. Then the six files again, or three of the
    sites; not the five alone, with or without the file."""
    data = folder_with(tmp_path)
    copy = data / "b_backup.csv"
    copy.write_bytes((data / "b.csv").read_bytes())
    for attempt in (secagg.plan, secagg.run):
        with pytest.raises(DataError):
            attempt(job_of(data, {}))
    assert not (data / "ledgers").exists()
    secagg.run(job_of(data, {"sites": {"names": ["b_backup", *FIVE]}}))
    for names in (["b_backup", *FIVE], ["a", "b", "c"], ["b", "c", "b_backup"]):
        assert secagg.plan(job_of(data, {"sites": {"names": names}}))["refusals"] == []
    with pytest.raises(PolicyRefusal) as caught:
        secagg.run(job_of(data, {"sites": {"names": list(FIVE)}}))
    copy.unlink()
    assert secagg.plan(job_of(data, {}))["refusals"][0] == caught.value.line()
    assert "b_backup" in caught.value.what and "sites.names" in caught.value.advice
    secagg.run(job_of(data, {"sites": {"names": ["a", "b", "c"]}}))


def test_plan_refuses_another_question_about_the_same_records(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    secagg.run(job_of(data, {}))
    other = job_of(data, declared(type="continuous", low=0, high=90))
    refused = secagg.plan(other)["refusals"]
    assert [line.partition(",")[0] for line in refused] == list(FIVE)
    with pytest.raises(PolicyRefusal):
        secagg.run(other)
