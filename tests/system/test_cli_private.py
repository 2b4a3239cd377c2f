"""What the command line says of differential privacy: before a run, and after it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.runs.jobs import write_job
from support.runs.reports import (
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
from secagg.evidence.claims.guarantee import sentence
from secagg.evidence.claims.noise import noise_exhausted
from secagg.evidence.claims.warnings import EXACT_BEFORE
from secagg.evidence.numbers import significant, typeset
from secagg.jobs.job import parse_job
from secagg.reports.page import render
from secagg.runs.plan import plan_run
from secagg.runs.run import Run
from secagg.sessions.planned_job import plan_job

SETTINGS = '{placement="%s", epsilon=4, delta=1e-6%s}'


def call(*args: str | Path) -> str:
    """Return what `secagg ARGS` prints, with runs of blanks as one."""
    done = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def plan(placement: str = "sum", **terms: Any) -> dict[str, Any]:
    """Return the guarantee in a plan of the small private job."""
    job = parse_job(private_job(placement, **terms))
    guarantee: dict[str, Any] = plan_run(plan_job(job, tables(4, 150)))["differential_privacy"]
    return guarantee


def printed(finished: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what `secagg run` prints of a run, with runs of blanks as one."""
    recorded = Console(record=True, width=200, quiet=True)
    recorded.quiet = False
    monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
    output.show_run(finished)
    return " ".join(recorded.export_text().split())


class TestPlan:
    def test_the_plan_states_the_guarantee_of_the_run(self) -> None:
        planned, facts = plan(), noised_run("sum").facts["privacy"]
        assert {key: planned[key] for key in facts} == facts
        assert planned["sentence"] == sentence(facts)

    def test_a_plan_without_noise_has_no_guarantee(self, tmp_path: Path) -> None:
        job = write_job(tmp_path)
        planned = json.loads(call("plan", job, "--json"))["differential_privacy"]
        assert planned["placement"] == "none" and "feasibility" not in planned
        assert planned["sentence"] in call("plan", job) and "usable?" not in call("plan", job)

    @pytest.mark.parametrize("placement", ["sum", "site"])
    def test_the_plan_prints_the_guarantee(self, tmp_path: Path, placement: str) -> None:
        job, terms = write_job(tmp_path), ["--set", f"privacy={SETTINGS % (placement, '')}"]
        out = call("plan", job, "--protocol", "additive", *terms)
        planned = json.loads(call("plan", job, "--protocol", "additive", *terms, "--json"))
        guarantee = planned["differential_privacy"]
        assert typeset(guarantee["sentence"]) in out and guarantee["feasibility"]["words"] in out
        for part in guarantee["mechanisms"]:
            assert f"{part['stage']} 1 {part['numbers']} " in out
            assert significant(part["sigma_in_the_sum"]) in out
        rows = [f"{number} {significant(e)} " for number, e in guarantee["if_more_collude"]]
        assert len(rows) == (0 if placement == "site" else 3)
        assert all(row in out for row in rows)
        assert ("if more sites collude" in out) == bool(rows)

    @pytest.mark.parametrize(
        ("protocol", "sites", "said"),
        [("masked", 1, True), ("paillier", 0, True), ("additive", 4, False)],
    )
    def test_the_plan_explains_a_jump_in_the_colluders_table(
        self, protocol: str, sites: int, said: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raw = private_job("sum", protocol, colluding=min(sites, 1))
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        guarantee = planned["differential_privacy"]
        rows = dict(guarantee["if_more_collude"])
        stays = [number for number in range(1, 4) if rows[number] == rows[3] and number > sites]
        assert (stays == list(range(sites + 1, 4))) or not said
        recorded = Console(record=True, width=300, quiet=True)
        recorded.quiet = False
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_plan(planned)
        words = noise_exhausted(guarantee, protocol)
        assert bool(words) is said and words in " ".join(recorded.export_text().split())
        assert words.startswith(f"From {stays[0]} " if said else "")

    def test_the_plan_warns_of_exact_sums(self, tmp_path: Path) -> None:
        """Before they are released, and, for a job with noise, once they have been."""
        job, terms = write_job(tmp_path), ["--set", f"privacy={SETTINGS % ('sum', '')}"]
        noised = ["--protocol", "additive", *terms]
        assert "! " in call("plan", job)
        assert "! " not in call("plan", job, *noised)
        call("run", job, *noised, "--out", tmp_path / "noised")
        assert "! " not in call("plan", job, *noised)
        call("run", job, "--out", tmp_path / "exact")
        printed = call("plan", job, *noised)
        assert f"! {EXACT_BEFORE}" in printed and " north, south, west, coordinator " in printed
        (tmp_path / "data/ledgers/coordinator.ledger").unlink()
        (tmp_path / "data/ledgers/south.ledger").unlink()
        (warning,) = json.loads(call("plan", job, *noised, "--json"))["warnings"]
        assert warning.startswith(EXACT_BEFORE) and warning.endswith(" north, west")

    def test_planning_works_under_overwhelming_noise(self, tmp_path: Path) -> None:
        # so much noise that zeros would look like no records in about half of the dry runs
        job, terms = write_job(tmp_path), SETTINGS.replace("4", "0.1") % ("sum", "")
        for _ in range(8):
            call("plan", job, "--protocol", "additive", "--set", f"privacy={terms}")

    @pytest.mark.parametrize(
        ("placement", "records", "verdict"),
        [("sum", 100_000, "green"), ("sum", 60, "red"), ("site", 60, "red"),
         ("round", 100_000, "red")],
    )  # fmt: skip
    def test_the_verdict_uses_the_expected_number_of_records(
        self, placement: str, records: int, verdict: str
    ) -> None:
        judged = plan(placement, expected_records=records)["feasibility"]
        assert judged["verdict"] == verdict and judged["words"].startswith(f"{verdict}: ")

    def test_the_plan_prints_what_the_verdict_assumes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raw = private_job("sum", expected_records=600)
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        assumes = planned["differential_privacy"]["feasibility"]["assumes"]
        recorded = Console(record=True, width=200, quiet=True)
        recorded.quiet = False
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_plan(planned)
        assert assumes in " ".join(recorded.export_text().split())

    def test_a_single_variable_has_no_verdict_on_a_regression(self) -> None:
        raw = private_job("sum", expected_records=600)
        raw["columns"] = {"x": raw["columns"]["x"]}
        raw["method"] = {"name": "moments"}
        planned = plan_run(plan_job(parse_job(raw), tables(4, 150)))
        judged = planned["differential_privacy"]["feasibility"]
        assert judged["verdict"] is None

    @pytest.mark.parametrize(
        ("verdict", "colour"), [("green", "32"), ("amber", "33"), ("red", "1;31")]
    )
    def test_verdicts_are_printed_in_colour(
        self, verdict: str, colour: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded = Console(record=True, force_terminal=True, color_system="standard", width=200)
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        planned = plan_run(plan_job(parse_job(private_job("sum")), tables(4, 150)))
        judged = {"feasibility": {"verdict": verdict, "words": f"{verdict}: so"}}
        planned["differential_privacy"] |= judged
        output.show_plan(planned)
        assert f"\x1b[{colour}musable? {verdict}: so\x1b[0m" in recorded.export_text(styles=True)

    def test_the_mechanisms_and_the_lines_to_change_are_printed_as_they_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also `[method]`, which the terminal's markup would take for a style."""
        recorded = Console(record=True, width=200)
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        planned = plan_run(plan_job(parse_job(private_job("sum")), tables(4, 150)))
        row = {
            "method": "one_step", "placement": "round", "settings": "", "own": False, "jobs": 2,
            "epsilon": 0.7, "error": 0.11, "if_narrow": 0.12, "if_wide": 0.13, "widened": 1.4,
            "intervals": True, "verdict": "green",
        }  # fmt: skip
        other = row | {"method": "gradient", "own": True, "jobs": 1, "intervals": False}
        change = ["[method]", 'name = "one_step"']
        planned["differential_privacy"]["compared"] = {
            "rows": [other, row], "best": 1, "words": "best: one_step", "change": change,
            "hint": "state it",
        }  # fmt: skip
        output.show_plan(planned)
        lines = [" ".join(line.split()) for line in recorded.export_text().splitlines()]
        assert "one_step round 2 jobs, epsilon 0.7 each 11 % 12 % 13 % 1.4 times green" in lines
        assert "gradient round this job 11 % 12 % 13 % none green" in lines
        place = lines.index("[method]")
        assert lines[place + 1] == change[1] and lines[place - 2] == "best: one_step"
        assert lines[place + 2] == "state it"


class TestRun:
    def test_the_terminal_and_the_report_show_the_same_record_count(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts, result = copied(noised_run("sum"))
        result.summary.update(n=597, n_error=3.2, records=640, records_error=24.0)
        out = printed(Run(result, facts, [], None, []), monkeypatch)
        assert "about 597 ± 3 complete records" in out and "about 640" not in out
        del result.summary["n_error"]
        out = printed(Run(result, facts, [], None, []), monkeypatch)
        assert "about 640 ± 24 complete records" in out

    def test_the_terminal_shows_the_banners_of_the_report(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts, result = copied(noised_run("sum"))
        judged = {"verdict": "red", "error": 0.9, "least_epsilon": None, "least_records": None}
        facts["feasibility"] |= judged
        facts["job"]["privacy"]["expected_records"] = 5000
        facts["ledger"] = {"kept": True, "coordinator": {"releases": 4, "exact": 2}}
        result.summary["analyses"][1].update(converged=False, notes=["[b]no"])
        expected = [title for _, title in banners(render(facts, result))]
        assert len(expected) == 4
        recorded = Console(record=True, width=80, quiet=True)
        recorded.quiet = False
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_run(Run(result, facts, [], None, []))
        lines = recorded.export_text().splitlines()
        mistrust, *warnings = [line.rstrip() for line in lines if line.startswith("!")]
        assert mistrust.startswith("! Linear regression")
        assert warnings == [f"! {title}" for title in expected]

    def test_a_run_without_warnings_prints_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "!" not in printed(noised_run("sum"), monkeypatch)

    @pytest.mark.parametrize(("void", "style"), [(True, "1;31"), (False, "1;33")])
    def test_warnings_are_printed(
        self, void: bool, style: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded = Console(record=True, force_terminal=True, color_system="standard", width=200)
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_run(void_run() if void else small_run("logistic", "additive"))
        assert f"\x1b[{style}m! " in recorded.export_text(styles=True)

    def test_notes_are_printed_under_their_analysis(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(noised_run("sum"), monkeypatch)
        least_squares = "Linear regression (least squares)"
        parts = (
            "means and standard", "notes on Means, spread and correlations: - ",
            f"{least_squares} of y: coefficient", f"notes on {least_squares}: - ",
        )  # fmt: skip
        assert sorted(parts, key=out.index) == list(parts)

    def test_the_run_states_epsilon_and_its_meaning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        finished = noised_run("site")
        out = printed(finished, monkeypatch)
        assert "ε 12 at δ 10⁻⁶ (add_remove, placement site)" in out
        assert typeset(sentence(finished.facts["privacy"])) in out

    def test_a_void_guarantee_is_stated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(void_run(), monkeypatch)
        assert "Privacy: void." in out and "changes the probability" not in out

    def test_under_plain_only_noise_is_said_to_protect(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = printed(noised_run("site", "plain"), monkeypatch)
        assert "! Only noise protects" in out
        assert "protects nothing" not in out

    def test_without_noise_no_guarantee_is_printed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = printed(small_run("logistic", "additive"), monkeypatch)
        assert "incomplete left out" in out
        assert not re.search(r"[Ee]psilon|ε|±|[Pp]rivacy", out)
