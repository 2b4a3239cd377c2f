"""What ledgers say is in the report: what a run cost, what it repeated, what all cost together."""

import itertools
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.runs.reports import (
    Page,
    banners,
    copied,
    job,
    noised_run,
    page_of,
    private_job,
    small_run,
    statuses,
    tables,
)

from secagg.contracts.noise import Placement
from secagg.evidence.claims.ledgers import NO_BOUND
from secagg.evidence.claims.warnings import EXACT_BEFORE
from secagg.evidence.numbers import significant, typeset
from secagg.privacy.accounting.composition import Cost
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Release
from secagg.reports.page import render
from secagg.runs import facts as run_facts
from secagg.runs.ledger_facts import repeated
from secagg.runs.run import Run, run
from secagg.sessions.session import Session
from secagg.sessions.session_ledgers import ALL_SITES

ADDED_UP = "Are all releases of these records added up?"
STANDING = {
    "dataset": "all sites", "releases": 12, "exact": 0, "delta": 1e-6,
    "epsilon_add_remove": 6.125, "epsilon_replace": 8.5,
    "caps": [{"words": "epsilon 10 at delta 10⁻⁶ for ever (replace)", "left": 3.2589}],
}  # fmt: skip
SPENT = {
    "runs": 3, "releases": 12, "repeated": [], "delta": 1e-6,
    "before": {"add_remove": 3.5, "replace": 4.5}, "after": {"add_remove": 6.125, "replace": 8.5},
}  # fmt: skip
ENDLESS = SPENT | {"after": {"add_remove": math.inf, "replace": None}}
POLICY = """
min_sites = 4
min_records = 7
dataset = "register of the north"
noise = "required"
[budget]
period_epsilon = 15
period_delta = 1e-6
adjacency = ["add_remove"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the records of four sites, one of which has rules of its own."""
    path = tmp_path_factory.mktemp("records")
    for name, table in tables(4, 150).items():
        table.to_csv(path / f"{name}.csv", index=False)
    (path / "site 1.policy.toml").write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Four runs on these records, in this order: the second asks what the first did."""
    out = tmp_path_factory.mktemp("runs")
    sites = {"folder": str(folder), "max_rows": 200}
    numbered = itertools.count()

    def played(placement: str, **changed: Any) -> Run:
        raw = private_job(placement, epsilon=3.0) | {"sites": sites} | changed
        return run(raw, out=out / str(next(numbered)))

    return {
        "first": played("site"),
        "again": played("site"),
        "other": played("sum"),
        "further": played("sum"),
    }


def text_of(finished: Run) -> str:
    return Page(page_of(finished)).text


class TestRepeats:
    def test_a_repeated_release_is_reported_to_cost_nothing(self, runs: dict[str, Run]) -> None:
        first, again = runs["first"].facts, runs["again"].facts
        assert first["ledger"]["spent"]["repeated"] == []
        repeated = again["ledger"]["spent"]["repeated"]
        assert [(r["round"], r["stage"]) for r in repeated] == [(0, "cohort"), (1, "moments")]
        assert {r["session"] for r in repeated} == {first["session"]}
        text = text_of(runs["again"])
        earlier = first["session"][:8]
        words = f"Both releases repeat releases of session {earlier} "
        assert text.count(words) == 3  # the first page, the guarantee, the ledgers
        assert text.count(f"with the same noise as in session {earlier}, without add") == 2
        assert " repeat " not in text_of(runs["first"])

    def test_a_repeated_release_does_not_change_the_total(self, runs: dict[str, Run]) -> None:
        spent = runs["again"].facts["ledger"]["spent"]
        assert spent["before"] == spent["after"] == runs["first"].facts["ledger"]["spent"]["after"]
        assert (spent["runs"], spent["releases"]) == (2, 2)

    def test_fresh_noise_is_not_reported_as_a_repeat(self, runs: dict[str, Run]) -> None:
        spent = runs["further"].facts["ledger"]["spent"]
        assert spent["repeated"] == []
        assert spent["after"]["add_remove"] > spent["before"]["add_remove"] > 0

    def test_a_retry_within_a_session_is_not_reported_as_a_repeat(self) -> None:
        mu = Gaussian(0.5)
        asked = Release(
            "coordinator", ALL_SITES, "aa", 1, "moments", "01", Placement.SITE, Cost(mu, mu), 1e-6,
            records="02",
        )  # fmt: skip
        with Ledger.in_memory(lambda: datetime.now(UTC)) as ledger:
            ledger.record_release(asked)
            ledger.record_release(asked)
            assert repeated(ledger, ALL_SITES, "aa") == []
            ledger.record_release(replace(asked, session="bb"))
            ledger.record_release(replace(asked, session="bb"))
            (again,) = repeated(ledger, ALL_SITES, "bb")
            assert (again["round"], again["stage"], again["session"]) == (1, "moments", "aa")

    def test_partly_repeated_releases_are_reported(self, runs: dict[str, Run]) -> None:
        facts, result = copied(runs["other"])
        assert facts["ledger"]["spent"]["repeated"] == []
        facts["ledger"]["spent"]["repeated"] = [
            {"round": 1, "stage": "moments", "session": "ab" * 16, "time": "2030-01-31T12:00:00Z"}
        ]
        text = Page(render(facts, result)).text
        assert "1 of the 2 releases repeat releases of session abababab" in text
        assert text.count("the same sum with the same noise as in") == 1


class TestTotals:
    def test_all_runs_compose_at_the_jobs_delta(self, runs: dict[str, Run]) -> None:
        facts = runs["further"].facts
        guarantees = [runs[name].facts["privacy"] for name in ("first", "other", "further")]
        together = gaussian_epsilon(math.hypot(*(p["mu"] for p in guarantees)), 1e-6)
        spent = facts["ledger"]["spent"]
        # a guarantee's mu and the ledger's costs are the same numbers, rounded up in another order
        assert spent["after"]["add_remove"] == pytest.approx(together, rel=1e-9)
        assert (spent["runs"], spent["releases"], spent["delta"]) == (4, 6, 1e-6)
        before, after = (f"ε {significant(spent[k]['add_remove'])}" for k in ("before", "after"))
        text = text_of(runs["further"])
        assert f"one record added or removed {before} at δ 10⁻⁶ {after} at δ 10⁻⁶" in text
        assert f"4 runs on these records, including this one, cost {after} at δ 10⁻⁶" in text
        assert f"In permanent ledgers: 4 runs, {after} at δ 10⁻⁶ together." in text

    @pytest.mark.parametrize(
        ("ledger", "status", "shown"),
        [
            (None, "evidence missing", ["This run only.", "nothing compares"]),
            ({"kept": False}, "evidence missing", ["This run only.", "nothing compares"]),
            ({"kept": True, "coordinator": None}, "evidence attached", ["Ledgers compare the"]),
            ({"kept": True, "coordinator": STANDING, "spent": SPENT}, "evidence attached",
             ["contains 12 releases.", "ε 6.125 at δ 10⁻⁶", "ε 8.500 at δ 10⁻⁶",
              "3 runs on these records, including this one, cost ε 6.125 at δ 10⁻⁶ together",
              "Cap: epsilon 10 at delta 10⁻⁶ for ever (replace) left: ε 3.25"]),
            ({"kept": True, "coordinator": STANDING | {"exact": 2}, "spent": ENDLESS},
             "evidence missing",
             ["12 releases, 2 of them exact.", f"ε 3.500 at δ 10⁻⁶ {NO_BOUND}",
              "no ε bounds the 3 runs together", "contains such a release already."]),
        ],
    )  # fmt: skip
    def test_the_status_of_the_ledger_is_reported(
        self, ledger: Any, status: str, shown: list[str]
    ) -> None:
        facts, result = copied(noised_run("sum"))
        facts.pop("ledger", None)
        if ledger is not None:
            facts["ledger"] = ledger
        page = render(facts, result)
        assert statuses(page)[ADDED_UP] == status
        text = Page(page).text
        assert [words for words in shown if words not in text] == []

    def test_exact_sums_released_before_are_on_the_first_page(self) -> None:
        for exact, warned in ((0, False), (2, True)):
            facts, result = copied(noised_run("sum"))
            facts["ledger"] = {"kept": True, "coordinator": STANDING | {"exact": exact}}
            page = render(facts, result)
            assert ((False, EXACT_BEFORE) in banners(page)) is warned
            assert ("Read the warnings first." in page) is warned


class TestSites:
    def test_data_sets_rules_and_remaining_budgets_are_shown(self, runs: dict[str, Run]) -> None:
        rows = {site["name"]: site for site in runs["again"].facts["sites"]}
        assert list(rows) == [f"site {i}" for i in range(4)]
        assert rows["site 0"]["rules"] is None and rows["site 0"]["caps"] == []
        own = rows["site 1"]
        assert own["dataset"] == "register of the north"
        (cap,) = own["caps"]
        assert 0 < cap["left"] < 15
        text = text_of(runs["again"])
        assert "site 0 site 0 the job's rules only 2 releases in 2 runs; this run" in text
        assert "site 1 register of the north" in text
        for words in ("min_sites 4", "min_records 7", "noise required", "budget.period_epsilon 15"):
            assert words in text
        (left,) = re.findall(rf"{re.escape(typeset(cap['words']))}: left: ε (\d+\.\d+)", text)
        assert cap["left"] - 0.01 <= float(left) <= cap["left"]  # never more than there is

    def test_seeds_never_leave_a_ledger(self, runs: dict[str, Run], folder: Path) -> None:
        seeds = re.compile("seed|bound")
        for site in runs["again"].facts["sites"]:
            assert not [key for key in site["spent"] if seeds.search(key)]
        assert (folder / "ledgers").is_dir()

    def test_rules_of_a_site_in_another_process_are_not_shown(self) -> None:
        session = cast("Session", SimpleNamespace(engine=object()))
        assert run_facts.site_facts(session) is None
        facts, result = copied(noised_run("sum"))
        facts["sites"] = None
        text = Page(render(facts, result)).text
        assert "policy and ledger stay at the site" in text and "its rules only" not in text

    def test_tables_from_python_have_no_ledger_in_the_report(self) -> None:
        text = text_of(small_run("moments", "additive"))
        assert "site 0 site 0 the job's rules only no ledger – no cap" in text

    def test_the_report_shows_consent_and_the_coordinators_key(self, runs: dict[str, Run]) -> None:
        facts = runs["first"].facts
        (key,) = [p["verify_key"] for p in facts["roster"] if p["role"] == "coordinator"]
        text = text_of(runs["first"])
        assert f" {key} " in text
        assert facts["consented"] == ["site 0", "site 1", "site 2", "site 3"]


def test_exact_sums_before_a_noised_run_are_reported(tmp_path: Path) -> None:
    for name, table in tables(4).items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    sites = {"folder": str(tmp_path), "max_rows": 200}
    raw = job("moments", "additive", sites=sites, simulation={})
    raw["method"] = {"name": "moments"}
    exact = run(raw, out=tmp_path / "exact")
    assert "delta" not in exact.facts["ledger"]["spent"]
    assert "2 releases in 1 run" in text_of(exact)
    noised = run(private_job("sum") | {"sites": sites}, out=tmp_path / "noised")
    spent = noised.facts["ledger"]["spent"]
    assert spent["before"]["replace"] == spent["after"]["add_remove"] == math.inf
    page = page_of(noised)
    assert (False, EXACT_BEFORE) in banners(page)
    assert statuses(page)[ADDED_UP] == "evidence missing"
    assert "no ε bounds the 2 runs together" in Page(page).text
    assert "cost no privacy budget" not in Page(page).text  # ∞ before and after is not free
    (tmp_path / "ledgers/coordinator.ledger").unlink()  # then the sites' own ledgers tell
    (tmp_path / "ledgers/site 2.ledger").unlink()
    page = page_of(run(private_job("sum") | {"sites": sites}, out=tmp_path / "again"))
    assert (False, EXACT_BEFORE) in banners(page)
    assert statuses(page)[ADDED_UP] == "evidence missing"
    assert "The ledgers of site 0, site 1 and site 3 contain exact sums." in Page(page).text
