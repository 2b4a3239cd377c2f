"""Noise once at the site: one charge for all methods, and no method gets a record."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.privacy.ledger_runs import FIVE, folder_with, noised, run
from support.runs.jobs import as_csv, raw_job, table

from secagg.contracts import SiteRecords
from secagg.contracts.noise import SITE_MOMENTS, Adjacency
from secagg.core.randomness import replayable_random, seeded_random
from secagg.errors import CapabilityError, PolicyRefusal
from secagg.evidence.claims.ledgers import LedgerClaims
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.jobs.job import parse_job
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.models.sparse_bayes.normal_graph import NOT_DETERMINED
from secagg.privacy.accounting import calibration
from secagg.privacy.accounting.composition import Cap
from secagg.reports.summary import banners
from secagg.runs import budgets
from secagg.runs.checks.site_check import check_sites
from secagg.runs.plan import plan
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job
from secagg.sessions.site_moments import SiteMoments, count_variance, draw_site_moments

EPSILON = 4.0
SHORT = {"rounds": 12, "chains": 2, "warmup": 4}
METHODS: tuple[dict[str, Any], ...] = (
    {"name": "notears_admm", "rounds": 4},
    {"name": "local_graphs"},
    {"name": "fedavg", "outcome": "age", "rounds": 3},
    {"name": "fedlin_hm2", "outcome": "age", "rounds": 3},
    {"name": "fedlin_full", "outcome": "age", "draws": 100},
    {"name": "sparse_regression", "outcome": "age", **SHORT},
)


def once(**more: Any) -> dict[str, Any]:
    return noised(EPSILON, placement="site", **more)


def entries(data: Path, party: str) -> list[dict[str, Any]]:
    """Return the releases in a ledger's file, read with SQLite alone."""
    db = sqlite3.connect(data / f"ledgers/{party}.ledger")
    rows = db.execute("SELECT content FROM lines WHERE kind = 'entry' ORDER BY seq").fetchall()
    db.close()
    return [json.loads(content) for (content,) in rows]


def charged(data: Path, party: str) -> list[str]:
    """Return the stages of the releases that cost something."""
    return [e["stage"] for e in entries(data, party) if e["cost"]["add_remove"]["mu"] > 0]


def spent(data: Path, party: str) -> float:
    (row,) = [row for row in budgets.show(data / "ledgers") if row["party"] == party]
    return float(row["epsilon_add_remove"])


@pytest.mark.system
def test_ten_jobs_of_five_methods_are_charged_once(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=once(), method=METHODS[0])
    after_one = {party: spent(data, party) for party in (*FIVE, "coordinator")}
    for method in (*METHODS, *METHODS[1:]):
        run(data, privacy=once(), method=method)
    assert {party: spent(data, party) for party in after_one} == after_one
    assert {tuple(charged(data, site)) for site in FIVE} == {(SITE_MOMENTS,)}
    assert charged(data, "coordinator") == ["cohort"]
    assert EPSILON * 0.999 <= after_one["a"] <= EPSILON


@pytest.mark.parametrize(("counted", "rows"), [(-5.0, 1), (0.0, 1), (39.6, 40), (1e9, 100)])
def test_a_method_gets_at_least_one_record_and_at_most_the_largest_number(
    counted: float, rows: int
) -> None:
    """Whatever the noise makes of the number: after the charge, nothing may fail."""
    tables = {name: table(i, 40) for i, name in enumerate(FIVE)}
    planned = plan_job(parse_job(raw_job(privacy=once(), method=METHODS[1])), tables)
    records = read_records(planned, planned.sources["a"])
    drawn = draw_site_moments([records], planned.public, replayable_random(3))
    matrix = drawn.noisy.matrix.copy()
    matrix[0, 0] = counted
    public = replace(planned.public, max_rows=100)
    changed = replace(drawn, noisy=replace(drawn.noisy, matrix=matrix), public=public)
    assert len(changed.repaired.values) == rows


def test_a_draw_of_sites_with_too_many_records_is_charged_to_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their counts are cut, but not their noise: another draw gives another sum."""
    monkeypatch.setattr("secagg.jobs.design_matrix.MIN_ROWS_UNDER_NOISE", 20)
    above = property(lambda drawn: {"records": np.array([25 + drawn.noisy.matrix[1, 1] % 1])})
    monkeypatch.setattr(SiteMoments, "counts", above)
    data = folder_with(tmp_path)
    sites = {"max_rows": 20, "folder": str(data)}
    for change in range(3):
        for i, site in enumerate(FIVE):
            rows = table(i, 40)
            rows["age"][0] += change
            (data / f"{site}.csv").write_text(as_csv(rows), encoding="utf-8")
        run(data, privacy=once(), method=METHODS[0], sites=sites)
        assert len(charged(data, "a")) == len(charged(data, "coordinator")) == change + 1
    noise = entries(data, "a")[0]["variance"]
    assert noise > 0 and entries(data, "coordinator")[0]["variance"] == noise


def test_a_check_and_a_plan_know_a_budget_that_is_spent(tmp_path: Path) -> None:
    """A new draw is certain to be refused; one that was drawn before may still be repeated."""
    data = folder_with(tmp_path)
    run(data, privacy=once(), method=METHODS[0])
    budgets.set_cap(data / "ledgers", "a", None, Cap(EPSILON, 1e-5))
    for epsilon, new in ((EPSILON, False), (EPSILON / 2, True)):
        privacy = noised(epsilon, placement="site")
        sites = {"folder": data, "max_rows": 100}
        job = parse_job(raw_job(privacy=privacy, method=METHODS[2], sites=sites))
        told = plan(job)
        certain, possible = told["refusals"], told["possible_refusals"]
        assert len(certain if new else possible) == 1 and not (possible if new else certain)
        (check,) = check_sites(plan_job(job), "a")
        assert check.passes is not new
        assert len(check.refusals if new else check.remarks) == 1


@pytest.mark.system
@pytest.mark.parametrize("changed", ["epsilon", "clip", "bounds", "record"])
def test_what_changes_the_noisy_moments_is_charged_again(tmp_path: Path, changed: str) -> None:
    data, more = folder_with(tmp_path), dict[str, Any]()
    run(data, privacy=once(), method=METHODS[0])
    privacy, columns = once(), raw_job()["columns"]
    if changed == "epsilon":
        privacy["epsilon"] = 3.9
    elif changed == "clip":
        privacy["record_norm"] = 1.2
    elif changed == "bounds":
        columns["age"]["high"] = 101
    else:
        rows = table(0, 40)
        rows["age"][0] += 1
        (data / "a.csv").write_text(as_csv(rows), encoding="utf-8")
    run(data, privacy=privacy, method=METHODS[0], columns=columns, **more)
    assert charged(data, "a") == [SITE_MOMENTS] * 2
    assert charged(data, "b") == [SITE_MOMENTS] * (1 if changed == "record" else 2)


def test_of_rounds_that_cost_nothing_the_ledger_has_the_first(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data, privacy=once(), method=METHODS[0])
    for party in ("a", "coordinator"):
        stages = [
            entry["stage"] for entry in entries(data, party) if entry["stage"] != SITE_MOMENTS
        ]
        assert stages == ["cohort", "records", "consensus"]


@pytest.mark.system
@pytest.mark.parametrize(("method", "narrow"), [(METHODS[2], False), (METHODS[3], False),
                                                (METHODS[4], True)])  # fmt: skip
def test_intervals_that_ignore_the_noise_are_a_caution_of_the_result(
    tmp_path: Path, method: dict[str, Any], narrow: bool
) -> None:
    """The first line of report and terminal; `fedavg` has none, `fedlin_hm2` knows the noise."""
    found = run(folder_with(tmp_path), privacy=once(), method=method)
    assert ("caution" in found.result.summary) == narrow
    titles = [banner.title for banner in banners(found.facts, found.result.summary,
                                                 PrivacyClaims.of(found.facts))]  # fmt: skip
    assert ("Read the result with caution" in titles) == narrow


def test_results_differ_in_the_method_only_not_in_the_noise(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    first, again = (run(data, privacy=once(), method=METHODS[0]).result for _ in range(2))
    assert first.summary == again.summary
    assert all(np.array_equal(first.arrays[n], again.arrays[n]) for n in first.arrays)


@pytest.mark.system
def test_a_budget_refuses_a_second_draw_but_not_a_second_job(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    (data / "c.policy.toml").write_text(
        "min_sites = 3\nmin_records = 2\n[budget]\nperiod_epsilon = 4.5\nperiod_delta = 1e-6\n"
        'adjacency = ["add_remove"]\n'
    )
    for method in METHODS[:3]:
        run(data, privacy=once(), method=method)
    with pytest.raises(PolicyRefusal) as caught:
        run(data, privacy=once(record_norm=1.2), method=METHODS[0])
    assert caught.value.where == "c"
    assert charged(data, "a") == [SITE_MOMENTS]


@pytest.mark.system
def test_a_job_without_cost_passes_a_cap_below_what_is_spent_and_says_that_it_was_free(
    tmp_path: Path,
) -> None:
    data = folder_with(tmp_path)
    first = run(data, privacy=once(), method=METHODS[0])
    for party in ("a", "coordinator"):
        cap = Cap(EPSILON / 2, 1e-6, None, Adjacency.ADD_REMOVE)
        budgets.set_cap(data / "ledgers", party, None, cap)
    again = run(data, privacy=once(), method=METHODS[2])
    assert LedgerClaims.of(first.facts).repeats == ""
    assert "cost no privacy budget" in LedgerClaims.of(again.facts).repeats


def test_a_method_gets_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets rows with the noisy moments. No value of any record is among them."""
    data, seen = folder_with(tmp_path), list[SiteRecords]()
    contribute = NotearsAdmm.contribute

    def watched(self: NotearsAdmm, stage: str, rows: SiteRecords, *more: Any) -> Any:
        seen.append(rows)
        return contribute(self, stage, rows, *more)

    monkeypatch.setattr(NotearsAdmm, "contribute", watched)
    run(data, privacy=once(), method=METHODS[0])
    ages = {(age - 50) / 50 for i in range(len(FIVE)) for age in table(i, 40)["age"]}
    assert seen and not any(ages & set(rows.values.ravel().tolist()) for rows in seen)
    assert all(rows.incomplete == 0 and not len(rows.complete) for rows in seen)
    assert len({rows.values.tobytes() for rows in seen}) == len(FIVE)


@pytest.mark.statistical
def test_the_noisy_moments_have_the_stated_errors() -> None:
    """Of 2000 draws: no bias, at five standard errors; variances to 5 standard errors, 16 %."""
    tables = {name: table(i, 40) for i, name in enumerate(FIVE)}
    planned = plan_job(parse_job(raw_job(privacy=once(), method=METHODS[1])), tables)
    public, rows = planned.public, read_records(planned, planned.sources["a"])
    random = replayable_random(3)
    drawn = [
        draw_site_moments([rows], public, seeded_random(random(32))).noisy for _ in range(2000)
    ]
    z = np.column_stack([np.ones(40), rows.values])
    errors = np.array([noisy.matrix - z.T @ z for noisy in drawn])
    stated = drawn[0].variance
    assert stated[0, 0] == pytest.approx(count_variance(public.noise[SITE_MOMENTS], public.clip))
    assert np.all(np.abs(errors.mean(axis=0)) <= 5 * np.sqrt(stated / len(drawn)))
    assert errors.var(axis=0) / stated == pytest.approx(np.ones_like(stated), abs=0.16)


@pytest.mark.system
@pytest.mark.parametrize("ordered", [False, True])
def test_directed_graphs_with_normal_errors_account_for_the_noise(
    tmp_path: Path, ordered: bool
) -> None:
    data = folder_with(tmp_path)
    method = {"name": "sparse_directed", "errors": "gaussian", "ordered": ordered, **SHORT}
    ran = run(data, privacy=once(), method=method)
    found, own = ran.result.summary, ran.own["a"].summary["privacy"]
    assert own["note"] in found["notes"] and "include this noise" in own["note"]
    assert (own["placement"], own["epsilon"], own["unit"]) == ("site", once()["epsilon"], "record")
    assert ("arrows" in found) == ordered and (NOT_DETERMINED in found["notes"]) == (not ordered)
    assert charged(data, "a") == [SITE_MOMENTS]


REFUSED: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (METHODS[0], {"placement": "sum"}),
    (METHODS[3], {"placement": "round"}),
    ({**METHODS[2], "batch": 5}, {}),
    ({**METHODS[3], "holdout": 0.2}, {}),
    ({"name": "local_graphs", "learner": "notears_mlp"}, {}),
    ({"name": "sparse_directed", **SHORT}, {}),
    ({"name": "logistic", "outcome": "sex", "predictors": ["age"]}, {}),
)


@pytest.mark.parametrize(("method", "changed"), REFUSED, ids=lambda v: str(v)[:60])
def test_where_noise_at_the_site_is_not_enough_the_job_is_refused(
    method: dict[str, Any], changed: dict[str, Any]
) -> None:
    job = parse_job(raw_job(privacy={**once(), **changed}, method=method))
    with pytest.raises(CapabilityError) as caught:
        plan_job(job, {name: table(i, 40) for i, name in enumerate(FIVE)})
    assert caught.value.where == "privacy.placement"


def test_under_replacement_the_noise_is_root_two_times_as_large() -> None:
    def sd(adjacency: Adjacency) -> float:
        job = parse_job(raw_job(privacy=once(adjacency=adjacency.value), method=METHODS[3]))
        planned = plan_job(job, {name: table(i, 40) for i, name in enumerate(FIVE)})
        assert isinstance(planned.method, FedLinHm2)
        return float(np.sqrt(planned.public.noise[SITE_MOMENTS].variance))

    added, replaced = sd(Adjacency.ADD_REMOVE), sd(Adjacency.REPLACE)
    assert replaced == pytest.approx(np.sqrt(2) * added, rel=1e-6)


def test_the_plan_says_which_sites_have_drawn_the_noise(tmp_path: Path) -> None:
    data = folder_with(tmp_path)

    def drawn(privacy: dict[str, Any], method: dict[str, Any], high: int = 100) -> list[str]:
        job = raw_job(sites={"folder": data, "max_rows": 100}, privacy=privacy, method=method)
        job["columns"]["age"]["high"] = high
        planned = plan(job)
        found: list[str] = planned["moments_drawn_before"]
        free = {row["party"] for row in planned["totals"] if row["repeats"]}
        assert free == ({*found, "coordinator"} if found else set())
        assert not any(row["at_most"] for row in planned["totals"])  # for certain, new or not
        return found

    assert drawn(once(), METHODS[0]) == []
    run(data, privacy=once(), method=METHODS[0])
    assert drawn(once(), METHODS[2]) == list(FIVE)
    assert drawn(once(record_norm=1.2), METHODS[2]) == drawn(once(), METHODS[2], 101) == []


@pytest.mark.system
def test_noise_of_another_count_share_is_drawn_with_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if variance and cost are the same: a job can choose a share and a norm for that."""
    data, mechanism, first = folder_with(tmp_path), calibration._mechanism, list[Any]()

    def same(*of: Any) -> Any:
        made = mechanism(*of)
        first.append(made)
        return replace(first[0], noise=replace(first[0].noise, weights=made.noise.weights))

    monkeypatch.setattr(calibration, "_mechanism", same)
    for share in (0.05, 0.5):
        run(data, privacy=once(count_share=share), method=METHODS[1])
    assert charged(data, "a") == [SITE_MOMENTS] * 2
