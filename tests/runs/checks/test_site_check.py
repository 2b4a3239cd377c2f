"""`secagg site check`: what a site finds out about itself before a run."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.runs.hospitals import LINEAR, ask, folder, moments_job
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.cli.output.site_check import show_site_checks
from secagg.errors import JobError, PolicyRefusal, UsageError
from secagg.jobs.design_matrix import declarations
from secagg.jobs.job import parse_job
from secagg.privacy.policy.site_policy import read_policy
from secagg.runs.checks.site_check import SiteCheck, check_sites, draft_policy
from secagg.runs.plan import plan_run
from secagg.runs.run import run
from secagg.sessions.planned_job import plan_job


def check(data: Path, columns: dict[str, Any], **more: Any) -> SiteCheck:
    (found,) = check_sites(plan_job(parse_job(moments_job(data, columns, **more))), "hungary")
    return found


def rules(found: SiteCheck) -> list[str]:
    return [line.partition(":")[0] for line in found.refusals]


def test_a_site_that_fits_would_take_part(tmp_path: Path) -> None:
    found = check(folder(tmp_path), LINEAR["columns"])
    assert found.passes and (found.rows, found.complete) == (294, 293)
    (missing,) = [c.missing for c in found.columns if c.name == "rest_bp"]
    assert missing == 1 and not any(c.unreadable or c.outside or c.constant for c in found.columns)


def test_quartiles_of_the_values_and_counts_of_levels_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "rest_bp": {"type": "continuous", "low": 8, "high": 25},  # kPa, and the file has mmHg
        "sex": {"type": "binary", "levels": ["female", "male"]},
    }
    show_site_checks([check(folder(tmp_path), columns)], None, None)
    pressure, sex, *_ = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(columns))
    )
    assert "120, 130, 140" in pressure and "293 (100 %)" in pressure
    assert "female=81, male=213" in sex


def test_wrong_bounds_are_found_before_anything_is_sent(tmp_path: Path) -> None:
    data = folder(tmp_path)
    high = {"rest_bp": LINEAR["columns"]["rest_bp"] | {"low": 500, "high": 600}}
    found = check(data, high)
    (column,) = found.columns
    assert column.outside == 1 and rules(found) == ["max_clipped_share"]
    assert not (data / "ledgers").exists()
    assert ask(moments_job(data, high)).codes["hungary"] == "records"  # a run refuses too


def test_what_a_run_refuses_by_the_ledger_is_found(tmp_path: Path) -> None:
    data = folder(tmp_path)
    assert "moments" in ask(moments_job(data, LINEAR["columns"])).sums
    sugar = LINEAR["columns"] | {"fasting_sugar_high": {"type": "binary"}}
    found = check(data, sugar)
    assert rules(found) == ["questions", "max_leverage"]  # few records lack the new column
    narrow = LINEAR["columns"] | {"rest_bp": LINEAR["columns"]["rest_bp"] | {"high": 250}}
    assert rules(check(data, narrow)) == ["questions"]
    before = (data / "ledgers" / "hungary.ledger").read_bytes()
    check(data, sugar)
    assert (data / "ledgers" / "hungary.ledger").read_bytes() == before


def test_refusals_and_jobs_without_a_release_are_counted(tmp_path: Path) -> None:
    """Nothing else tells a site how near it is to the limits."""
    data = folder(tmp_path)
    wrong = {"rest_bp": LINEAR["columns"]["rest_bp"] | {"low": 500, "high": 600}}
    ask(moments_job(data, wrong))
    ask(moments_job(data, LINEAR["columns"]), consent_only=True)
    (remark,) = check(data, {"age": LINEAR["columns"]["age"]}).remarks
    assert "1 of at most 5 exact jobs" in remark and "2 of at most 10 ended" in remark
    with_noise = {"placement": "site", "epsilon": 2.0, "delta": 1e-5}
    assert not check(data, {"age": LINEAR["columns"]["age"]}, privacy=with_noise).remarks


def test_unreadable_cells_are_a_problem_without_noise_and_a_remark_with_noise(
    tmp_path: Path,
) -> None:
    data = folder(tmp_path)
    columns = {"chest_pain": {"type": "categorical", "levels": ["asymptomatic", "non-anginal"]}}
    found = check(data, columns)
    assert found.problem and not found.passes and found.columns[0].unreadable > 100
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6}
    noised = check(data, columns, privacy=privacy, protocol={"name": "additive"})
    assert noised.mistakes == (found.problem,) and not noised.passes and noised.remarks
    assert not noised.problem and not noised.refusals  # a run would go on


WITH_NOISE = {
    "privacy": {"placement": "sum", "epsilon": 1.0, "delta": 1e-6}, "protocol": {"name": "additive"}
}  # fmt: skip


def damage(data: Path, kind: str) -> None:
    path = data / "hungary.csv"
    head, first, *rest = path.read_text().splitlines()
    lines = {
        "damaged line": [first, f'"{rest[0]}', *rest[1:]],
        "no complete record": [",".join("" for _ in first.split(","))] * 3,
    }[kind]
    path.write_text("\n".join([head, *lines]) + "\n")


@pytest.mark.parametrize("kind", ["damaged line", "no complete record"])
def test_what_spoils_records_is_a_mistake_with_noise_as_it_stops_a_run_without(
    tmp_path: Path, kind: str
) -> None:
    data = folder(tmp_path)
    assert check(data, LINEAR["columns"], **WITH_NOISE).mistakes == ()
    damage(data, kind)
    assert not check(data, LINEAR["columns"]).passes
    assert len(check(data, LINEAR["columns"], **WITH_NOISE).mistakes) == 1


def test_a_wrong_unit_is_a_mistake_with_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(tmp_path)
    high = {"rest_bp": LINEAR["columns"]["rest_bp"] | {"low": 500, "high": 600}}
    found, exact = check(data, high, **WITH_NOISE), check(data, high)
    (mistake,) = found.mistakes
    assert exact.refusals == (f"max_clipped_share: {mistake}",)
    show_site_checks([found], None, None)
    assert "would go on" in " ".join(capsys.readouterr().out.split())


def test_all_faults_of_a_header_are_named_with_similar_names(tmp_path: Path) -> None:
    data = folder(tmp_path)
    columns = {
        "AGE": LINEAR["columns"]["age"], "Rest_BP": LINEAR["columns"]["rest_bp"],
        "bmi": {"type": "continuous", "low": 10, "high": 60},
    }  # fmt: skip
    for noise in ({}, WITH_NOISE):
        found = check(data, columns, **noise)
        assert "'age'" in found.problem and "'rest_bp'" in found.problem
        assert "'bmi' is missing" in found.problem and "Every CSV" in found.problem
        sites = {"folder": data, "max_rows": 1000, "names": ["cleveland", "hungary"]}
        assert "Every CSV" not in check(data, columns, sites=sites, **noise).problem


def test_surplus_records_of_a_person_are_not_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(tmp_path)
    path = data / "hungary.csv"
    head, *lines = path.read_text().splitlines()
    people = ["", *("abcd"[i // 3] if i < 12 else f"p{i}" for i in range(1, len(lines)))]
    rows = [f"{line},{name}" for line, name in zip(lines, people, strict=True)]
    path.write_text("\n".join([f"{head},who", *rows]) + "\n")
    privacy = {"placement": "site", "epsilon": 1.0, "delta": 1e-6, "person": "who"}
    incomplete = check(data, LINEAR["columns"], privacy=privacy | {"records_per_person": 3})
    assert (incomplete.complete, incomplete.surplus) == (292, 0)  # one value, one name missing
    found = check(data, LINEAR["columns"], privacy=privacy | {"records_per_person": 2})
    assert (found.rows, found.complete, found.surplus) == (294, 292, 3)  # "a" has no third row
    assert len(found.remarks) == len(check(data, LINEAR["columns"]).remarks) + 1  # no name
    assert found.plain()["surplus"] == 3
    shown = []
    for each in (incomplete, found):
        show_site_checks([each], None, None)
        shown.append([line for line in capsys.readouterr().out.splitlines() if "surplus" in line])
    assert shown[0] == [] and [line.split()[0] for line in shown[1]] == ["3"]


def test_a_constant_column_is_named(tmp_path: Path) -> None:
    data = folder(tmp_path)
    path = data / "hungary.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{head},unit", *(f"{line},7" for line in lines)]) + "\n")
    found = check(data, {"unit": {"type": "continuous", "low": 0, "high": 9}})
    assert [c.constant for c in found.columns] == [True]


def test_one_bad_cell_leaves_the_other_records_counted(tmp_path: Path) -> None:
    data = folder(tmp_path)
    path = data / "hungary.csv"
    head, *lines = path.read_text().splitlines()
    at = head.split(",").index("rest_bp")
    cells = lines[3].split(",")
    lines[3] = ",".join([*cells[:at], "abc", *cells[at + 1 :]])
    path.write_text("\n".join([head, *lines]) + "\n")
    found = check(data, LINEAR["columns"])
    assert not found.passes and (found.rows, found.complete) == (294, 292)
    assert "line 5 of hungary.csv" in found.problem and "'abc'" in found.problem


def test_values_outside_are_told_to_the_site_and_not_to_the_coordinator(tmp_path: Path) -> None:
    """The coordinator's count stays 0, because it is below min_records at each site."""
    data = folder(tmp_path)
    narrow = {"rest_bp": LINEAR["columns"]["rest_bp"] | {"high": 185}}
    found = check(data, narrow)
    assert found.passes and 0 < found.columns[0].values_outside < 10
    assert any(f"rest_bp {found.columns[0].values_outside} (" in r for r in found.remarks)
    events: list[Any] = []
    told = run(moments_job(data, narrow), out=tmp_path / "run", progress=events.append)
    (remark,) = [r for r in told.remarks if r.startswith("hungary")]
    assert "rest_bp" in remark  # the person at the site reads it once:
    assert [e.get("text") for e in events].count(remark) == 1
    files = [path.read_bytes() for path in (tmp_path / "run").glob("*.*")]
    assert files and not any(remark.encode() in content for content in files)
    assert told.result.summary["values_outside_bounds"] == {"rest_bp": 0}
    assert ask(moments_job(data, narrow)).sums["cohort"]["outside"].tolist() == [0]


def test_a_draft_comes_from_the_job_and_fits_it(tmp_path: Path) -> None:
    data = folder(tmp_path)
    (data / "hungary.csv").write_text("no,records\n")  # they are not read
    job = parse_job(moments_job(data, LINEAR["columns"]))
    source = plan_job(job).sources["hungary"]
    path = draft_policy(job, source)
    pinned = tomllib.loads(path.read_text())["columns"]
    assert list(pinned) == list(LINEAR["columns"])
    policy = read_policy(path)
    plain = declarations(job.columns)
    assert not any(policy.forbids(name, declared) for name, declared in plain.items())
    assert policy.forbids("age", plain["age"] | {"high": 99.0})
    with pytest.raises(JobError):
        draft_policy(job, source)  # never over an existing policy


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_a_draft_for_a_job_with_noise_allows_one_run_of_it(tmp_path: Path, adjacency: str) -> None:
    privacy = {"placement": "sum", "epsilon": 1.5, "delta": 1e-5, "adjacency": adjacency}
    changed = {"privacy": privacy, "protocol": {"name": "masked"}}
    raw = moments_job(folder(tmp_path), LINEAR["columns"]) | changed
    draft_policy(parse_job(raw), plan_job(parse_job(raw)).sources["hungary"])
    assert plan_run(plan_job(parse_job(raw)))["refusals"] == []
    run(raw)
    with pytest.raises(PolicyRefusal, match="the total with this job would be"):
        run(raw)


@pytest.mark.parametrize("name", ["größe", "no\nbreak", 'a "b"', "😀", "tab\there", "\x7f", "a.b"])
def test_a_draft_reads_back_odd_names(tmp_path: Path, name: str) -> None:
    data = folder(tmp_path)
    columns = {name: {"type": "binary", "levels": ["no", f"yes {name}"]}}
    job = parse_job(moments_job(data, columns) | {"title": f"About {name}"})
    path = draft_policy(job, plan_job(job).sources["hungary"])
    assert tomllib.loads(path.read_text(encoding="utf-8"))["columns"].keys() == {name}
    assert read_policy(path).forbids(name, {"type": "binary", "levels": ["no", "yes"]})


def test_an_unknown_site_is_refused(tmp_path: Path) -> None:
    planned = plan_job(parse_job(moments_job(folder(tmp_path), LINEAR["columns"])))
    with pytest.raises(UsageError):
        check_sites(planned, "atlantis")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (["columns.age.high=100"], 0),
        (["columns.age.high=19"], 3),
        (["columns.age.high=100", "privacy={epsilon=1, delta=1e-6}"], 0),
        (["columns.age.high=19", "privacy={epsilon=1, delta=1e-6}"], 2),
    ],
)
def test_the_exit_code_says_whether_the_sites_would_take_part(
    tmp_path: Path, change: list[str], code: int
) -> None:
    folder(tmp_path)
    job = tmp_path / "job.toml"
    job.write_text(
        'title = "T"\n[sites]\nfolder = "data"\nmax_rows = 1000\n[columns]\n'
        'age = { type = "continuous", low = 18, high = 100 }\n[method]\nname = "moments"\n'
        "[release]\nmin_sites = 3\nmin_records = 10\n"
    )
    settings = [text for each in change for text in ("--set", each)]
    done = CliRunner().invoke(app, ["site", "check", str(job), *settings, "--json"])
    assert done.exit_code == code, done.output
