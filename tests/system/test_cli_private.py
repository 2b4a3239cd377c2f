"""What the command line says of differential privacy: before a run, and after it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.jobs import write_job
from support.reports import (
    banners,
    copied,
    noised_run,
    private_job,
    small_run,
    tables,
    void_run,
)
from typer.testing import CliRunner

from secagg.cli import output
from secagg.cli.main import app
from secagg.cli.output import terminal
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.guarantee import sentence
from secagg.reports.numbers import counted
from secagg.reports.page import render
from secagg.runs.plan import plan_run
from secagg.runs.run import Run
from secagg.runtime.planned_job import plan_job

SETTINGS = '{placement="%s", epsilon=4, delta=1e-6%s}'


def call(*args: str | Path) -> str:
    """Return what `secagg ARGS` prints, with runs of blanks as one."""
    done = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def plan(placement: str = "sum", **terms: Any) -> dict[str, Any]:
    """Return what a plan of the small private job says of differential privacy."""
    job = parse_job(private_job(placement, **terms))
    promise: dict[str, Any] = plan_run(plan_job(job, tables(4, 150)))["differential_privacy"]
    return promise


def printed(finished: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what `secagg run` prints of a run, with runs of blanks as one."""
    recorded = Console(record=True, width=200, quiet=True)
    recorded.quiet = False
    monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
    output.show_run(finished)
    return " ".join(recorded.export_text().split())


class TestPlan:
    def test_promises_what_the_run_will(self) -> None:
        planned, facts = plan(), noised_run("sum").facts["privacy"]
        assert {key: planned[key] for key in facts} == facts
        assert planned["sentence"] == sentence(facts)

    def test_says_that_nothing_is_promised(self, tmp_path: Path) -> None:
        job = write_job(tmp_path)
        planned = json.loads(call("plan", job, "--json"))["differential_privacy"]
        assert planned["placement"] == "none" and "feasibility" not in planned
        assert "No differential privacy: no noise is added" in call("plan", job)
        assert "usable?" not in call("plan", job)

    @pytest.mark.parametrize("placement", ["sum", "site"])
    def test_prints_it(self, tmp_path: Path, placement: str) -> None:
        job, terms = write_job(tmp_path), ["--set", f"privacy={SETTINGS % (placement, '')}"]
        out = call("plan", job, "--protocol", "additive", *terms)
        planned = json.loads(call("plan", job, "--protocol", "additive", *terms, "--json"))
        promise = planned["differential_privacy"]
        assert promise["sentence"] in out
        assert "usable? not judged: set privacy.expected_records" in out
        for part in promise["mechanisms"]:
            assert f"{part['stage']} │ 1 │ {part['numbers']} │ " in out
            assert output.number(part["sigma_in_the_sum"]) in out
        rows = [f"{number} │ {output.number(e)} │" for number, e in promise["if_more_collude"]]
        assert len(rows) == (0 if placement == "site" else 3)
        assert all(row in out for row in rows)
        assert ("if more sites collude" in out) == bool(rows)

    @pytest.mark.parametrize(
        ("protocol", "sites", "said"),
        [("masked", 1, True), ("paillier", 0, True), ("additive", 4, False)],
    )
    def test_says_why_the_table_jumps(
        self, protocol: str, sites: int, said: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raw = private_job("sum", protocol, colluding=min(sites, 1))
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        promise = planned["differential_privacy"]
        rows = dict(promise["if_more_collude"])
        stays = [number for number in range(1, 4) if rows[number] == rows[3] and number > sites]
        assert (stays == list(range(sites + 1, 4))) or not said
        recorded = Console(record=True, width=300, quiet=True)
        recorded.quiet = False
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_plan(planned)
        out = recorded.export_text()
        assert ("no longer hides a single site's contribution" in out) is said
        if said:
            assert f"From {counted(stays[0], 'colluding site')} on, protocol {protocol} no" in out

    def test_warns_of_exact_sums(self, tmp_path: Path) -> None:
        """Before they are released, and, for a job with noise, once they have been."""
        job, terms = write_job(tmp_path), ["--set", f"privacy={SETTINGS % ('sum', '')}"]
        noised = ["--protocol", "additive", *terms]
        for_ever = "! Exact sums spend every budget of differential privacy on these records"
        assert for_ever in call("plan", job)
        assert "! " not in call("plan", job, *noised)
        call("run", job, *noised, "--out", tmp_path / "noised")
        assert "! " not in call("plan", job, *noised)
        call("run", job, "--out", tmp_path / "exact")
        before = "! Exact sums of these sites were released before, by the ledger of"
        assert f"{before} north, south, west, coordinator " in call("plan", job, *noised)
        (tmp_path / "data/ledgers/coordinator.ledger").unlink()
        (tmp_path / "data/ledgers/south.ledger").unlink()
        (warning,) = json.loads(call("plan", job, *noised, "--json"))["warnings"]
        assert f"! {warning}" == f"{before} north, west"

    def test_noise_does_not_disturb_the_dry_run(self, tmp_path: Path) -> None:
        # so much noise that zeros would look like no records in about half of the dry runs
        job, terms = write_job(tmp_path), SETTINGS.replace("4", "0.1") % ("sum", "")
        for _ in range(8):
            assert "moments" in call(
                "plan", job, "--protocol", "additive", "--set", f"privacy={terms}"
            )

    @pytest.mark.parametrize(
        ("placement", "records", "verdict"),
        [("sum", 100_000, "green"), ("sum", 60, "red"), ("site", 60, "red"),
         ("round", 100_000, "red")],
    )  # fmt: skip
    def test_judges_by_the_expected_number(
        self, placement: str, records: int, verdict: str
    ) -> None:
        judged = plan(placement, expected_records=records)["feasibility"]
        assert judged["verdict"] == verdict
        assert judged["words"].startswith(f"{verdict}: expected coefficient error")

    def test_more_noise_means_more_error(self) -> None:
        errors = [
            plan(placement, expected_records=2000, **terms)["feasibility"]["error"]
            for placement, terms in (
                ("sum", {"colluding": 0}), ("sum", {"colluding": 2}), ("site", {}),
                ("site", {"adjacency": "replace"}), ("site", {"count_share": 0.5}),
            )
        ]  # fmt: skip
        sum_0, sum_2, site, replace, counted = errors
        assert sum_0 < sum_2 and sum_0 < site < replace and site < counted

    def test_a_single_variable_has_no_regression(self) -> None:
        raw = private_job("sum", expected_records=600)
        raw["columns"] = {"x": raw["columns"]["x"]}
        raw["method"] = {"name": "moments"}
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        judged = planned["differential_privacy"]["feasibility"]
        assert judged["verdict"] is None
        assert judged["words"] == "not judged: there is no regression on one variable"

    @pytest.mark.parametrize(
        ("verdict", "colour"), [("green", "32"), ("amber", "33"), ("red", "1;31")]
    )
    def test_in_colour(self, verdict: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
        recorded = Console(record=True, force_terminal=True, color_system="standard", width=200)
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        promise = plan() | {"feasibility": {"verdict": verdict, "words": f"{verdict}: so"}}
        raw = private_job("sum")
        whole = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        output.show_plan(whole | {"differential_privacy": promise})
        assert f"\x1b[{colour}musable? {verdict}: so\x1b[0m" in recorded.export_text(styles=True)


class TestRun:
    def test_says_about_how_many_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        finished = noised_run("sum", epsilon=1.0)
        summary = finished.result.summary
        out = printed(finished, monkeypatch)
        error = f"{summary['n_error']:.0f}"
        assert f"about {summary['n']} +- {error} complete records at 4 sites" in out
        assert "incomplete left out" not in out

    def test_says_the_same_number_as_the_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts, result = copied(noised_run("sum"))
        result.summary.update(n=597, n_error=3.2, records=640, records_error=24.0)
        out = printed(Run(result, facts, [], None, []), monkeypatch)
        assert "about 597 +- 3 complete records" in out and "about 640" not in out
        del result.summary["n_error"]
        out = printed(Run(result, facts, [], None, []), monkeypatch)
        assert "about 640 +- 24 complete records" in out

    def test_the_banners_of_the_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts, result = copied(noised_run("sum"))
        judged = {"verdict": "red", "error": 0.9, "least_epsilon": None, "least_records": None}
        facts["feasibility"] |= judged
        facts["job"]["privacy"]["expected_records"] = 5000
        facts["ledger"] = {"kept": True, "coordinator": {"releases": 4, "exact": 2}}
        result.summary["analyses"][1].update(converged=False, notes=["[b]no"])
        wanted = [title for _, title in banners(render(facts, result))]
        assert len(wanted) == 4
        recorded = Console(record=True, width=40, quiet=True)
        recorded.quiet = False
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_run(Run(result, facts, [], None, []))
        lines = recorded.export_text().splitlines()
        assert [line.rstrip() for line in lines if line.startswith("!")] == [
            "! Linear regression (least squares): do",  # not rely on this result
            *(f"! {title}" for title in wanted),
        ]

    def test_nothing_to_warn_of(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "!" not in printed(noised_run("sum"), monkeypatch)

    @pytest.mark.parametrize(("void", "style"), [(True, "1;31"), (False, "1;33")])
    def test_warnings_are_seen(
        self, void: bool, style: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded = Console(record=True, force_terminal=True, color_system="standard", width=200)
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_run(void_run() if void else small_run("logistic", "additive"))
        assert f"\x1b[{style}m! " in recorded.export_text(styles=True)

    def test_notes_stand_under_their_analysis(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(noised_run("sum"), monkeypatch)
        least_squares = "Linear regression (least squares)"
        parts = (
            "means and standard",
            "notes on Means, spread and correlations: - Computed from moments",
            f"{least_squares} of y: coefficient",
            f"notes on {least_squares}: - Intervals cover",
        )
        assert sorted(parts, key=out.index) == list(parts)

    def test_says_epsilon_and_what_it_means(self, monkeypatch: pytest.MonkeyPatch) -> None:
        finished = noised_run("site")
        out = printed(finished, monkeypatch)
        assert "epsilon 12, delta 1e-06 (add_remove, placement site)" in out
        assert sentence(finished.facts["privacy"]) in out

    def test_void_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(void_run(), monkeypatch)
        assert "Privacy: void." in out and "changes the probability" not in out

    def test_plain_has_only_noise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(noised_run("site", "plain"), monkeypatch)
        assert "protocol plain hides no site: all that protects is noise" in out
        assert "protects nothing" not in out

    def test_without_noise_nothing_is_said_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(small_run("logistic", "additive"), monkeypatch)
        assert "incomplete left out" in out
        assert not re.search(r"epsilon|\+-|[Pp]rivacy", out)
