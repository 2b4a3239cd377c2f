"""`secagg audit`: processes, stored outcomes, views, pages, and folders of finished runs."""

import html
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.runs.audited import job, tables
from typer.testing import CliRunner

import secagg
from secagg.audits import audit as audits
from secagg.audits import folder_audit, outcomes
from secagg.audits.attacks.statistics.clear_contributions import ClearContributions
from secagg.audits.attacks.statistics.identified_share import IdentifiedShare
from secagg.audits.audit import audit_job, judged
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Attack, Finding, Limit, Truth, Verdict
from secagg.audits.folder_audit import audit_folder
from secagg.audits.outcomes import Outcome
from secagg.audits.views import View, Who
from secagg.cli.main import app
from secagg.errors import EvidenceError, PolicyRefusal, UsageError
from secagg.evidence.released_sums import SUMS_FILE
from secagg.evidence.transcript_file import MESSAGES_FILE

MOMENTS = {"name": "moments"}
JOB = """
title = "t"
[sites]
folder = "data"
max_rows = 100
[columns]
x0 = { type = "continuous", low = -4, high = 4 }
[method]
name = "moments"
[protocol]
name = "plain"
[release]
min_sites = 2
min_records = 5
"""
ATTACKS = ["clear_contributions", "identified_share"]


def found(*args: Any, **more: Any) -> list[tuple[str, Who, Verdict, float | None]]:
    audit = audit_job(job(MOMENTS, 2, *args), tables(3, 2), attacks=ATTACKS, **more)
    return [
        (a.attack.name, a.who, a.verdict, None if a.finding is None else a.finding.value)
        for a in audit.attacked
    ]


@pytest.mark.attack
def test_one_process_and_several_find_the_same() -> None:
    assert found(jobs=2) == found(jobs=1)


def test_stored_outcomes_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found(cache=tmp_path / "out" / "cache")
    with monkeypatch.context() as broken:
        broken.setattr(audits, "both_runs", lambda *_: pytest.fail("it runs the job again"))
        assert found(cache=tmp_path / "out" / "cache") == first
        limits = {"excess_share": Limit(-1.0)}  # limits judge stored outcomes, too
        judged = found(cache=tmp_path / "out" / "cache", limits=limits)
    # a number of 0 is beyond this limit, but no worse than a guess
    for audit, verdict in ((first, Verdict.NO_LEAK_FOUND), (judged, Verdict.INCONCLUSIVE)):
        assert {a[2] for a in audit if a[0] == "identified_share"} == {verdict}
    mode = (tmp_path / "out" / "cache").stat().st_mode & 0o777
    assert mode == 0o700 == (tmp_path / "out").stat().st_mode & 0o777
    changed = tables(3, 2)
    changed["s0"].iloc[0, 0] += 0.5
    monkeypatch.setattr(audits, "both_runs", lambda *_: 1 / 0)
    for data, seed in ((changed, 0), (tables(3, 2), 1)):  # computed again
        with pytest.raises(ZeroDivisionError):
            audit_job(
                job(MOMENTS, 2), data, attacks=ATTACKS, cache=tmp_path / "out" / "cache", seed=seed
            )


def test_an_attack_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> float:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(ClearContributions, "run", fails)
        audit_job(
            job(MOMENTS, 2), tables(3, 2), attacks=["clear_contributions"], cache=tmp_path / "c"
        )
    again = audit_job(
        job(MOMENTS, 2), tables(3, 2), attacks=["clear_contributions"], cache=tmp_path / "c"
    )
    assert again.attacked[0].verdict is Verdict.NO_LEAK_FOUND


def test_a_view_is_chosen() -> None:
    assert [a[1] for a in found(views=[Who.COALITION])] == [Who.COALITION]


def test_the_control_leaves_out_what_needs_noise() -> None:
    method = {
        "name": "gradient",
        "outcome": "x1",
        "predictors": ["x0"],
        "family": "gaussian",
        "clip": 1.0,
        "rounds": 2,
    }
    privacy = {"placement": "round", "epsilon": 4.0, "delta": 1e-5}
    noised = job(method, 2, privacy=privacy)
    audit = audit_job(noised, tables(3, 2, rows=200), attacks=["clear_contributions"])
    assert audit.attacked[0].verdict is Verdict.NO_LEAK_FOUND


class Fails(Attack):
    """An attack with a fault."""

    name: ClassVar[str] = "fails"
    metric: ClassVar[str] = "number"

    def why_not(self, view: View) -> str:
        return ""

    def limit(self, view: View) -> Limit:
        return Limit(0.0)

    def run(self, view: View, rng: np.random.Generator) -> None:
        raise ZeroDivisionError("it divides\nby zero")

    def score(self, guess: None, view: View, truth: Truth) -> Finding:
        return Finding.exact(0.0, 0.0)


def test_an_attack_that_fails_shows_nothing_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audits, "make_attacks", lambda names: [Fails()])
    (attacked,) = audit_job(job(MOMENTS, 2), tables(3, 2)).attacked
    assert attacked.verdict is Verdict.INCONCLUSIVE
    assert "ZeroDivisionError" in attacked.why and "divides" not in attacked.why
    monkeypatch.setenv("SECAGG_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        audit_job(job(MOMENTS, 2), tables(3, 2))


def test_a_leak_stays_one_if_its_control_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = "clear_contributions"

    def broken(*_: Any) -> View:
        raise ZeroDivisionError

    monkeypatch.setattr(ClearContributions, "control", broken)
    (attacked,) = audit_job(job(MOMENTS, 2, "plain"), tables(3, 2), attacks=[attack]).attacked
    assert attacked.verdict is Verdict.LEAK
    (attacked,) = audit_job(job(MOMENTS, 2), tables(3, 2), attacks=[attack]).attacked
    assert attacked.verdict is Verdict.INCONCLUSIVE and "control" in attacked.why


@pytest.mark.attack
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_refused_job_is_refused_in_every_process(jobs: int) -> None:
    refused = job(MOMENTS, 2, release={"min_sites": 2, "min_records": 500})
    with pytest.raises(PolicyRefusal):
        audit_job(refused, tables(3, 2), attacks=ATTACKS, jobs=jobs)


def test_an_attack_has_no_way_to_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[View] = []

    def watched(self: ClearContributions, view: View, rng: np.random.Generator) -> float:
        seen.append(view)
        return 0.0

    monkeypatch.setattr(ClearContributions, "run", watched)
    audit_job(job(MOMENTS, 2), tables(3, 2), attacks=["clear_contributions"])
    assert seen and not any(view.planned.sources for view in seen)


@pytest.mark.parametrize("set_aside", [-0.1, 1.0])
def test_all_records_cannot_be_set_aside(set_aside: float) -> None:
    with pytest.raises(UsageError):
        audit_job(job(MOMENTS, 2), tables(3, 2), set_aside=set_aside)


def test_a_limit_in_the_wrong_direction_is_refused() -> None:
    limits = {"excess_share": Limit(0.5, errors=True)}
    with pytest.raises(UsageError) as caught:
        audit_job(job(MOMENTS, 2), tables(3, 2), attacks=["identified_share"], limits=limits)
    assert "<=" in caught.value.what


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        ({"value": 1.0}, Verdict.LEAK),
        ({"value": 0.0}, Verdict.NO_LEAK_FOUND),
        ({"value": 1.0, "bound": "an upper bound"}, Verdict.INCONCLUSIVE),
        ({"value": 0.0, "bound": "an upper bound"}, Verdict.NO_LEAK_FOUND),
        ({"value": 0.0, "failed": "the search failed"}, Verdict.INCONCLUSIVE),
        ({"value": 1.0, "failed": "the search failed"}, Verdict.LEAK),
        ({"value": 0.4, "high": 0.6}, Verdict.INCONCLUSIVE),
        ({"value": 0.8, "baseline": 0.9}, Verdict.INCONCLUSIVE),
        ({"value": np.nan}, Verdict.INCONCLUSIVE),
    ],
)
def test_verdicts(finding: dict[str, Any], verdict: Verdict) -> None:
    value = finding["value"]
    made = Finding(**({"low": value, "high": value, "baseline": 0.0} | finding))
    planted = Finding.exact(1.0, 0.0)
    outcome = Outcome("", made, Limit(0.5), planted, Limit(0.5))
    assert outcome.judged(None)[0] is verdict
    assert outcome.judged(Limit(-1.0))[0] is not Verdict.NO_LEAK_FOUND
    unknown = Outcome("", made, Limit(0.5), Finding.exact(0.4, 0.0), Limit(0.5))
    expected = Verdict.INCONCLUSIVE if verdict is Verdict.NO_LEAK_FOUND else verdict
    assert unknown.judged(None)[0] is expected


RATE = (0.1, 0.03, 0.2)


@pytest.mark.parametrize(
    ("rate", "control", "limit", "verdict"),
    [
        (RATE, (0.5, 0.4, 0.6), 0.02, Verdict.LEAK),
        ((0.1, 0.005, 0.2), (0.5, 0.4, 0.6), 0.02, Verdict.INCONCLUSIVE),  # 0.01 is a guess
        (RATE, (0.5, 0.4, 0.6), 0.15, Verdict.INCONCLUSIVE),  # the interval goes beyond
        (RATE, (0.5, 0.4, 0.6), 0.3, Verdict.NO_LEAK_FOUND),
        (RATE, (0.5, 0.2, 0.6), 0.3, Verdict.INCONCLUSIVE),  # nor is the control beyond it
        ((0.008, 0.001, 0.02), (0.5, 0.4, 0.6), 0.001, Verdict.INCONCLUSIVE),
        (None, (0.5, 0.4, 0.6), 0.02, Verdict.INCONCLUSIVE),  # too few records
    ],
)
def test_a_limit_of_a_rate_has_a_row_of_its_own(
    rate: tuple[float, ...] | None, control: tuple[float, ...], limit: float, verdict: Verdict
) -> None:
    (attack,) = make_attacks(["tracing"])
    details = {} if rate is None else {"tpr_at_1pct": rate}
    made = Finding.exact(0.5, 0.5, **details)
    planted = Finding.exact(0.9, 0.5, tpr_at_1pct=control)
    outcome = Outcome("", made, Limit(0.6), planted, Limit(0.6))
    main, row = judged(attack, Who.COORDINATOR, outcome, {"tpr_at_1pct": Limit(limit)})
    assert main.verdict is Verdict.NO_LEAK_FOUND and main.metric == "tracing_auc"
    assert row.verdict is verdict and row.metric == "tpr_at_1pct"
    assert (row.finding is None) == (rate is None) and bool(row.why) == (
        verdict not in {Verdict.LEAK, Verdict.NO_LEAK_FOUND}
    )


def test_without_a_limit_a_rate_has_no_row() -> None:
    (attack,) = make_attacks(["tracing"])
    outcome = Outcome(finding=Finding.exact(0.5, 0.5, tpr_at_1pct=RATE), limit=Limit(0.6))
    assert len(judged(attack, Who.COORDINATOR, outcome, {})) == 1


def test_details_are_stored_as_plain_data() -> None:
    details = {"a": np.float64(1.5), 2: (np.int64(3), np.arange(2))}
    assert outcomes.plain(details) == {"a": 1.5, "2": [3, [0, 1]]}


# --- folders of finished runs ---------------------------------------------------------------------


def test_a_folder_that_is_no_run_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        audit_folder(tmp_path)
    assert str(tmp_path) in caught.value.where


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    secagg.run(job(MOMENTS, 2, "plain"), tables(3, 2), out=tmp_path / "run", transcript=True)
    return tmp_path / "run"


def call(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["audit", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr


def test_a_plain_run_shows_its_contributions_without_the_records(finished: Path) -> None:
    code, out, err = call(finished, "--attack", "clear_contributions")
    assert code == 5 and "leak" in out and "clear_contributions" in err
    by_name = {a.attack.name: a for a in audit_folder(finished, attacks=ATTACKS).attacked}
    assert by_name["identified_share"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.attack
def test_what_is_not_found_in_a_folder_is_inconclusive(tmp_path: Path) -> None:
    secagg.run(job(MOMENTS, 2), tables(3, 2), out=tmp_path / "run", transcript=True)
    code, out, _ = call(tmp_path / "run", "--json")
    attacks = json.loads(out)["attacks"]
    assert code == 0 and json.loads(out)["with_messages"]
    assert {a["verdict"] for a in attacks} == {"inconclusive", "not applicable"}


def test_without_a_transcript_no_message_is_read(tmp_path: Path) -> None:
    secagg.run(job(MOMENTS, 2, "plain"), tables(3, 2), out=tmp_path / "run")
    audit = audit_folder(tmp_path / "run", attacks=["clear_contributions"])
    assert not audit.with_messages and audit.attacked[0].verdict is Verdict.LEAK


def test_a_tampered_transcript_is_refused(finished: Path) -> None:
    content = bytearray((finished / MESSAGES_FILE).read_bytes())
    content[-1] ^= 1
    (finished / MESSAGES_FILE).write_bytes(content)
    with pytest.raises(EvidenceError) as caught:
        audit_folder(finished)
    assert caught.value.where == MESSAGES_FILE and caught.value.exit_code == 6


@pytest.mark.attack
def test_every_changed_byte_of_the_sums_is_detected(finished: Path) -> None:
    path = finished / SUMS_FILE
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 3]) + content[at + 1 :])
        with pytest.raises(EvidenceError):
            audit_folder(finished, attacks=["rare_cell"])
    path.write_bytes(b"")
    with pytest.raises(EvidenceError):
        audit_folder(finished, attacks=["rare_cell"])


def test_changed_sums_are_detected(finished: Path) -> None:
    path = finished / SUMS_FILE
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(EvidenceError):
        audit_folder(finished, attacks=["rare_cell"])


@pytest.mark.parametrize("what", ["run", "files", "another", "file"])
def test_an_audit_overwrites_nothing_else(tmp_path: Path, finished: Path, what: str) -> None:
    """Only the audit of the same job, which it may go on with."""
    job_file, out = tmp_path / "job.toml", tmp_path / "out"
    job_file.write_text(JOB)
    if what == "run":
        out = finished / "audit"
    elif what == "files":
        out.mkdir()
        (out / "a.csv").write_text("x0\n1\n")
    elif what == "another":
        out.mkdir()
        (out / "audit.json").write_text('{"about": "another"}')
    else:
        out.write_text("")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["audit", str(job_file), "--out", str(out)])
    assert isinstance(done.exception, UsageError) and done.exception.where == "--out"
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_view_that_no_attack_has_is_named(finished: Path) -> None:
    with pytest.raises(UsageError) as caught:
        audit_folder(finished, attacks=["tracing"], views=[Who.OUTSIDER])
    assert "coordinator" in caught.value.what
    done = CliRunner().invoke(app, ["audit", str(finished), "--view", "coalition"])
    assert isinstance(done.exception, UsageError)


def test_an_audit_is_not_written_into_the_run(finished: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(finished), "--out", str(finished / "audit")])
    assert isinstance(done.exception, UsageError) and not (finished / "audit").exists()


def test_an_attack_that_fails_does_not_end_the_audit_of_a_folder(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_audit, "make_attacks", lambda names: [Fails()])
    (attacked,) = audit_folder(finished).attacked
    assert attacked.verdict is Verdict.INCONCLUSIVE and "ZeroDivisionError" in attacked.why


def test_settings_are_for_jobs(finished: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(finished), "--protocol", "masked"])
    assert isinstance(done.exception, UsageError)


def test_an_unknown_view_is_named(finished: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(finished), "--view", "coordinater"])
    assert isinstance(done.exception, UsageError) and "coordinator" in done.exception.advice


# --- the page -------------------------------------------------------------------------------------


def test_the_page_and_its_data_are_private_and_escape_titles(
    finished: Path, tmp_path: Path
) -> None:
    call(finished, "--attack", "clear_contributions", "--out", tmp_path / "audit")
    page = (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")
    assert "clear_contributions" in page and "<script" not in page
    for name in ("audit.html", "audit.json"):
        assert (tmp_path / "audit" / name).stat().st_mode & 0o777 == 0o600
    data = json.loads((tmp_path / "audit" / "audit.json").read_text(encoding="utf-8"))
    from secagg.reports.audits.page import audit_page

    assert audit_page(data) == page
    (attack,) = data["attacks"]
    sure = attack | {"verdict": "leak", "value": 1, "low": 1, "high": 1, "limit": "<= 0"}
    other = sure | {"verdict": "no leak found", "name": "tracing", "title": "Another"}
    leaking = html.unescape(audit_page(data | {"attacks": [other, sure]}))
    banner = leaking[leaking.index('class="banner void"') : leaking.index("<table")]
    assert attack["title"] in banner and "≤ 0" in banner and "Another" not in banner
    table = leaking[leaking.index("<table") : leaking.index("</table>")]
    assert table.index(attack["title"]) < table.index("Another")  # leaks first
    assert attack["meaning"] in table and "<=" not in leaking
    assert "<b>" not in audit_page(data | {"title": "<b>"})


@pytest.mark.attack
def test_pictures_show_rounds_and_rates() -> None:
    from secagg.audits.audit_file import as_plain
    from secagg.reports.audits.page import audit_page

    wide = tables(3, 2, rows=200)
    method = {"name": "notears_admm", "rounds": 6}
    audit = audit_job(job(method, 2), wide, attacks=[IdentifiedShare.name], views=[Who.COORDINATOR])
    page = audit_page(as_plain(audit))
    assert page.count("<svg") == 1 and "rounds observed" in page
    sampler = {"name": "sparse_regression", "outcome": "x1", "predictors": ["x0"],
               "rounds": 20, "warmup": 4, "chains": 2}  # fmt: skip
    sampled = audit_job(job(sampler, 2), tables(3, 2), attacks=["gibbs_sums"])
    assert "cross products" in audit_page(as_plain(sampled))
    traced = as_plain(audit_job(job(MOMENTS, 2), wide, attacks=["tracing"]))
    assert "false positive rate" in audit_page(traced)
