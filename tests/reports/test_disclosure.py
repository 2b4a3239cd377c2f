"""What all sums of a run tell together: on the page, on the terminal, and before the run."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.methods import noisy_mlp
from support.methods.all_methods import CASES, planned_of
from support.methods.playing import rows_of
from support.methods.regressions import REGRESSIONS
from support.privacy.ledger_runs import folder_with
from support.runs.jobs import raw_job
from support.runs.reports import (
    NAMES,
    NEURAL,
    TRUTH,
    Page,
    banners,
    copied,
    job,
    noised_run,
    page_of,
    small_run,
    statuses,
    tables,
    written,
)
from typer.testing import CliRunner

from secagg.cli import output
from secagg.cli.main import app
from secagg.cli.output import terminal
from secagg.contracts import Disclosure, DisclosureKind, SiteRecords, State, Update
from secagg.core.randomness import system_random
from secagg.evidence.claims.disclosure import MAY_REVEAL, SOLVABLE, headline, record_counts
from secagg.evidence.claims.ledgers import NO_BOUND, counting
from secagg.evidence.planned_facts import method_facts
from secagg.jobs.job import Named, parse_job
from secagg.jobs.registry import METHODS, make_method
from secagg.models.notears_admm.mlp_private import GRADIENT, UNITS
from secagg.reports.page import render
from secagg.runs.plan import plan_run
from secagg.runs.run import Run, run
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

HIDDEN = "Is a single site's contribution hidden from the coordinator?"


@functools.cache
def graph_run() -> Run:
    """Return a run of NOTEARS-ADMM over four sites; not to be changed."""
    method = {"name": "notears_admm", "variables": NAMES, "truth": TRUTH, "rounds": 40}
    return written(job("moments", "masked") | {"method": method}, tables(4))


def totals(name: str, parts: list[np.ndarray[Any, Any]]) -> list[Update]:
    """Return the sums of every round over sites that have these records."""
    method, public = planned_of(name).method, planned_of(name).public
    state, memories = method.initial_state(public), [State() for _ in parts]
    found: list[Update] = []
    while (asked := method.next_request(state)) is not None:
        stage, message = asked
        sent = []
        for k, part in enumerate(parts):
            rows = SiteRecords(part, 0, np.zeros(len(public.columns)))
            update, memories[k] = method.contribute(
                stage, rows, message, memories[k], public, system_random
            )
            sent.append(update)
        found.append({key: np.sum([update[key] for update in sent], axis=0) for key in sent[0]})
        state = method.aggregate(state, found[-1], len(parts))
    return found


def kind_of(name: str) -> DisclosureKind:
    """Return what a method declares."""
    named = Named.model_validate({"name": name, **CASES[name]})
    return make_method(named).disclosure.kind


def test_only_pooled_methods_have_no_disclosure_headline() -> None:
    assert {kind for kind in DisclosureKind if not headline(kind)} == {DisclosureKind.POOLED}
    pooled = {name for name in METHODS if kind_of(name) is DisclosureKind.POOLED}
    assert pooled == {
        "moments",
        "gradient",
        "one_step",
        "tables",
        "torch_module",
        "fedngm",
        "fedngr",
        *REGRESSIONS,
    }


def test_gradient_sums_of_networks_with_noise_are_pooled_as_declared() -> None:
    """The same records at other sites give the same sums, at any networks; the noise is apart."""
    plan = plan_job(parse_job(noisy_mlp.job(sampling_rate=1.0)), noisy_mlp.tables())
    assert plan.method.disclosure.under_noise().kind is DisclosureKind.POOLED
    assert method_facts(plan)["disclosure"]["kind"] == DisclosureKind.POOLED
    rng = np.random.default_rng(3)
    values = rng.uniform(-1, 1, (60, 3))
    W = rng.normal(size=plan.method.initial_state(plan.public)["W"].shape)
    message = {"W": W, "centre": rng.uniform(-1, 1, 3), "scale": np.full(3, 2.0)}
    for stage, body in ((UNITS, {}), (GRADIENT, message)):
        sums = []
        for ends in ((20, 40), (2, 50)):
            parts = [
                plan.method.contribute(
                    stage, rows_of(part), body, State(), plan.public, system_random
                )[0]
                for part in np.split(values, ends)
            ]
            sums.append({key: sum(part[key] for part in parts) for key in parts[0]})
        for key, total in sums[0].items():
            np.testing.assert_allclose(total, sums[1][key], atol=1e-3)
            assert np.any(np.abs(total) > 0.1)


def test_under_noise_a_method_can_declare_other_sums() -> None:
    given = Disclosure(DisclosureKind.SOLVABLE, "exact", "", attacks=("admm_sums",))
    assert given.under_noise() == given
    text = replace(given, text_noised="noisy").under_noise()
    assert (text.kind, text.text, text.attacks) == (given.kind, "noisy", given.attacks)
    other = replace(given, kind_noised=DisclosureKind.POOLED).under_noise()
    assert (other.kind, other.text, other.attacks) == (DisclosureKind.POOLED, "exact", ())
    for kind in DisclosureKind:
        assert headline(kind, noised=True).startswith(headline(kind))
        assert (headline(kind, noised=True) == headline(kind)) == (kind is DisclosureKind.POOLED)


@pytest.mark.parametrize(
    "name", [pytest.param(m, marks=pytest.mark.neural if m in NEURAL else ()) for m in METHODS]
)
def test_sums_called_pooled_do_not_depend_on_the_division_of_records(name: str) -> None:
    """The same records at other sites: equal to rounding, in every round, or not at all."""
    planned = planned_of(name)
    rows = [read_records(planned, source) for source in planned.sources.values()]
    values = np.concatenate([each.values for each in rows])
    values[60:, 1] *= -1  # so that a graph depends on which records a site has
    one = totals(name, [values[:40], values[40:80], values[80:]])
    other = totals(name, [values[:60], values[60:90], values[90:]])
    apart = max(
        float(np.max(np.abs(a[key] - b[key]), initial=0.0))
        for a, b in zip(one, other, strict=False)
        for key in a.keys() & b.keys()  # numbers of rounds may differ, too
    )
    # Sums of 123 numbers below 1 err by 1e-14; Newton's method and 20 gradient steps hand that on.
    pooled = kind_of(name) is DisclosureKind.POOLED
    assert (apart < 1e-9) if pooled else (apart > 1e-4)


class TestReport:
    def test_disclosure_by_all_sums_is_stated_in_three_places(self) -> None:
        page = page_of(graph_run())
        assert statuses(page)[HIDDEN] == "evidence missing"
        assert (False, SOLVABLE) in banners(page)
        text = graph_run().facts["method"]["disclosure"]["text"]
        assert Page(page).text.count(text) == 3  # first page, who saw what, what is not protected
        assert f"All sums together The method's sums together determine: {text}" in Page(page).text

    @pytest.mark.parametrize(
        ("settings", "said", "status"),
        [
            ({"name": "fedlin_hm1", "rounds": 2}, SOLVABLE, "evidence missing"),
            ({"name": "fedlin_hm2", "rounds": 2, "draws": 100, "points": 64}, SOLVABLE,
             "evidence missing"),
            ({"name": "fedlin_hm2", "rounds": 2, "draws": 100}, MAY_REVEAL, "needs a person"),
            ({"name": "fedavg", "rounds": 2}, MAY_REVEAL, "needs a person"),
            ({"name": "notears_admm", "rounds": 2}, SOLVABLE, "evidence missing"),
            ({"name": "notears_mlp_admm", "rounds": 2}, MAY_REVEAL, "needs a person"),
        ],
    )  # fmt: skip
    def test_sums_that_determine_site_results_are_reported_as_such(
        self, settings: dict[str, Any], said: str, status: str
    ) -> None:
        """On the page, and in the plan: where who only looks has single sites' regressions."""
        regression = {"outcome": "y", "predictors": ["x", "z"]}
        method = settings | ({} if "notears" in settings["name"] else regression)
        raw = job("moments", "masked") | {"method": method, "simulation": {"site_alone": False}}
        finished = written(raw, tables(3))
        page = page_of(finished)
        assert (False, said) in banners(page)
        assert len({MAY_REVEAL, SOLVABLE} & {title for _, title in banners(page)}) == 1
        assert statuses(page)[HIDDEN] == status
        assert said in plan_run(plan_job(parse_job(raw), tables(3)))["warnings"]
        text = finished.facts["method"]["disclosure"]["text"]
        assert ("can be solved for every single site's" in text) == (said == SOLVABLE)

    def test_pooled_sums_of_separate_processes_count_as_evidence(self) -> None:
        for method in ("logistic", "moments"):
            facts, result = copied(small_run(method, "additive"))
            assert facts["engine"]["name"] == "memory"  # one process had all keys and records
            assert statuses(render(facts, result))[HIDDEN] == "needs a person"
            facts |= {"engine": {"name": "processes", "processes": 6, "resumed": 0}, "sites": None}
            page = render(facts, result)
            assert statuses(page)[HIDDEN] == "evidence attached"
            assert MAY_REVEAL not in page

    def test_the_report_has_one_claim_on_record_counts(self) -> None:
        for finished, depends, shown in (
            (graph_run(), True, False),
            (small_run("logistic", "additive"), False, True),
        ):
            words = record_counts(finished.facts, single_sites=shown)
            text = Page(page_of(finished)).text
            assert words in text
            assert ("what all sums together determine depends" in words) == depends
            assert ("(n)" in words) == shown == ("n = " in text)
        noised = Page(page_of(noised_run("sum"))).text
        assert "how many records each site has." in noised and "(n)" not in noised

    def test_rounds_with_equal_decisions_share_one_line(self) -> None:
        facts = graph_run().facts
        text = Page(page_of(graph_run())).text
        rounds = [r["round"] for r in facts["releases"] if r["stage"] == "consensus"]
        lines = [r["seq"] + 1 for r in facts["releases"] if r["stage"] == "consensus"]
        assert len(rounds) > 20
        assert (
            f"{rounds[0]} to {rounds[-1]} consensus 4 3 {len(rounds)} sums opened "
            f"{lines[0]} to {lines[-1]} "
        ) in text
        assert f"0 cohort 4 3 opened {facts['releases'][0]['seq'] + 1} " in text

    def test_total_numbers_agree_with_the_rows(self) -> None:
        facts = graph_run().facts
        stages = {s["stage"]: sum(f["values"] for f in s["fields"]) for s in facts["plan"]}
        numbers = sum(stages[release["stage"]] for release in facts["releases"])
        assert f"In total {numbers:,} numbers" in Page(page_of(graph_run())).text


@pytest.mark.parametrize(
    ("method", "explained"),
    [({"name": "logistic", "outcome": "sex", "predictors": ["age"]}, True),
     ({"name": "moments"}, False)],
)  # fmt: skip
def test_entries_of_ledgers_and_sums_are_reconciled(
    tmp_path: Path, method: dict[str, Any], explained: bool
) -> None:
    settings = {"sites": {"folder": folder_with(tmp_path), "max_rows": 100}, "method": method}
    finished = run(raw_job(**settings), out=tmp_path / "run")
    own = finished.facts["sites"][0]["spent"]["releases"]
    assert own == finished.facts["ledger"]["coordinator"]["releases"] == 2
    assert (own < len(finished.facts["releases"])) == explained
    text = Page(page_of(finished)).text
    assert bool(counting(finished.facts)) == explained and counting(finished.facts) in text
    assert f"{NO_BOUND} no cap" in text


class TestTerminal:
    def printed(self, finished: Run, monkeypatch: pytest.MonkeyPatch) -> str:
        recorded = Console(record=True, width=1000, quiet=True)
        recorded.quiet = False
        monkeypatch.setattr(terminal, "standard_output", lambda: recorded)
        output.show_run(finished)
        return recorded.export_text()

    def test_disclosure_is_printed_after_a_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = self.printed(graph_run(), monkeypatch)
        text = graph_run().facts["method"]["disclosure"]["text"]
        assert f"The method's sums together determine: {text}" in out
        assert f"\n! {SOLVABLE}\n" in out
        pooled = self.printed(small_run("moments", "additive"), monkeypatch)
        assert "The method's sums together determine: The number of records" in pooled
        assert MAY_REVEAL not in pooled and SOLVABLE not in pooled
        assert "determine, up to their noise: " in self.printed(noised_run("sum"), monkeypatch)

    def test_disclosure_is_printed_before_a_run(self) -> None:
        file = str(Path(__file__).parents[2] / "examples" / "heart-disease" / "logistic.toml")
        as_graph = 'method={name="notears_admm", variables=["age", "rest_bp"]}'
        for change, told in ([], False), (["--set", as_graph], True):
            done = CliRunner().invoke(app, ["plan", file, *change])
            assert done.exit_code == 0, done.output
            assert "The method's sums together determine: " in done.output
            assert (f"! {SOLVABLE}" in done.output) == told
            planned = json.loads(CliRunner().invoke(app, ["plan", file, *change, "--json"]).output)
            assert planned["disclosure"]["text"] and (SOLVABLE in planned["warnings"]) == told
