"""A compliance report: what it says, and that every single change in its folder is found."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.consortium import Consortium, remote_job
from support.jobs import raw_job, tables

import secagg
from secagg.audits.audit import audit_job
from secagg.cli.output.audit import as_plain
from secagg.compliance.evidence import AllEvidence
from secagg.compliance.report_folder import verify_report, write_report
from secagg.compliance.signatures import sign_report
from secagg.core.identity import COORDINATOR, Identity, Role
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import EvidenceError, UsageError
from secagg.jobs.job import parse_job
from secagg.runs.run_files import json_bytes

FORM = """[purpose]
purpose = "To plan beds."
permit = "EK 12/2026"
controller = "North Hospital"
[judgement]
epsilon = "The board decided on 4."
"""
STATUSES = {"evidence attached", "evidence missing", "needs a person"}


def experiment() -> dict[str, Any]:
    """Return the summary of an experiment, as far as a report reads it."""
    mean = {"mean": 0.25, "low": 0.2, "high": 0.3, "runs": 20}
    points = [{"across": 4.0, "metrics": {"error": mean}, "runs": 20}]
    return {
        "title": "A sweep", "repeat": 20, "public": True, "across": "privacy.epsilon",
        "curves": [{"line": "sum", "points": points}], "baselines": {}, "baseline_curves": [],
        "job": {"title": "A job", "method": "moments"},
        "goal": {"metric": "error", "below": 0.5, "share": 0.9, "confidence": 0.9},
        "recommendations": [{"line": "sum", "smallest": 3.5, "limits": [[4.0, 0.4]]}],
    }  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without noise, one with noise, an audit, an experiment, a form."""
    place = tmp_path_factory.mktemp("evidence")
    data, job = tables(60), raw_job(protocol={"name": "masked"})
    secagg.run(job, data, out=place / "exact")
    private = {"placement": "sum", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    secagg.run({**job, "privacy": private}, data, out=place / "private")
    audit = audit_job(
        parse_job({**job, "privacy": private}),
        data,
        attacks=["clear_contributions", "identified_share"],
    )
    (place / "audit").mkdir()
    (place / "audit" / "audit.json").write_text(json.dumps(as_plain(audit)))
    (place / "experiment").mkdir()
    (place / "experiment" / "summary.json").write_text(json.dumps(experiment()))
    (place / "form.toml").write_text(FORM)
    return place


@pytest.fixture(scope="module")
def written(folders: Path) -> Path:
    write_report(
        folders / "report", [folders / "private"], [folders / "audit"], [folders / "experiment"],
        form=folders / "form.toml",
    )  # fmt: skip
    return folders / "report"


@pytest.fixture
def report(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(written, tmp_path / "report")
    return tmp_path / "report"


def content(report: Path) -> Any:
    return json.loads((report / "report.json").read_text())


def statements(report: Path) -> dict[str, Any]:
    return {s["id"]: s for section in content(report)["sections"] for s in section["statements"]}


def test_every_statement_has_a_status_and_those_with_evidence_a_place_that_exists(
    written: Path,
) -> None:
    for each in statements(written).values():
        assert each["status"] in STATUSES
        for place in each["evidence"]:
            path = written / "evidence" / place["file"]
            assert path.is_file(), place
            assert resolves(path, place["where"]), place
    assert "complian" not in " ".join(s["text"] for s in statements(written).values())


def resolves(path: Path, where: str) -> bool:
    """Whether a place in a file exists."""
    if not where:
        return True
    if where.startswith("line "):
        return len(path.read_text().splitlines()) >= int(where.removeprefix("line "))
    found: Any = (
        json.loads(path.read_text()) if path.suffix == ".json" else tomllib.loads(path.read_text())
    )
    for key in where.split("/"):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return True


def test_the_form_is_quoted_and_open_questions_are_flagged(written: Path) -> None:
    found = {s["topic"]: s for s in statements(written).values()}
    assert found["purpose"]["text"] == "To plan beds."
    assert found["purpose"]["status"] == "evidence attached"
    assert found["retention"]["status"] == "needs a person"
    assert content(written)["first_page"]["permit"] == "EK 12/2026"


def test_the_claim_of_the_first_page_is_that_of_the_run(written: Path, folders: Path) -> None:
    claim = content(written)["first_page"]["claim"]
    assert "e^4" in claim and "1e-05" in claim
    page = (written / "report.html").read_text()
    assert claim in page and "To plan beds." in page


def test_a_report_without_noise_audit_and_form_claims_nothing_of_them(
    folders: Path, tmp_path: Path
) -> None:
    write_report(tmp_path / "bare", [folders / "exact"])
    verify_report(tmp_path / "bare")
    found = statements(tmp_path / "bare")
    assert found["8.1"]["status"] == found["9.2"]["status"] == "evidence missing"
    assert not content(tmp_path / "bare")["registry"]
    assert "exact" in content(tmp_path / "bare")["first_page"]["claim"]


def test_several_runs_are_in_one_report(folders: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "two", [folders / "exact", folders / "private"])
    assert verify_report(tmp_path / "two").runs == 2
    assert "1 of 2 runs" in content(tmp_path / "two")["first_page"]["claim"]
    with pytest.raises(UsageError):
        write_report(tmp_path / "same", [folders / "exact", folders / "exact"])


def test_the_first_page_has_the_gaps_of_the_weakest_run_first(
    folders: Path, tmp_path: Path
) -> None:
    write_report(
        tmp_path / "two", [folders / "private", folders / "exact"], [folders / "audit"]
    )  # fmt: skip
    page = content(tmp_path / "two")["first_page"]
    private, exact = (each["run"] for each in page["runs"])
    if not page["runs"][0]["records"].startswith("about"):
        private, exact = exact, private
    assert [each["runs"] for each in page["guarantees"]] == [[exact], [private]]
    (record,) = (gap for gap in page["not_protected"] if gap["topic"] == "One record")
    assert [each["runs"] for each in record["texts"]] == [[exact], [private]]
    assert page["tried"]["not_attacked"] == [exact]
    asked = {each["text"] for each in page["open"]["judge"]}
    assert "May sums without noise be released for this purpose?" in asked
    assert statements(tmp_path / "two").keys() >= {each["id"] for each in page["open"]["judge"]}


def test_an_inconclusive_attack_is_named_on_the_first_page(folders: Path, tmp_path: Path) -> None:
    audit = json.loads((folders / "audit" / "audit.json").read_text())
    audit["attacks"][0]["verdict"] = "inconclusive"
    audit["title"] = "Another job"
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    write_report(tmp_path / "report", [folders / "exact"], [tmp_path / "audit.json"])
    tried = content(tmp_path / "report")["first_page"]["tried"]
    (found,) = tried["audits"]
    assert found["found"][0]["verdict"].startswith("Inconclusive")
    assert found["runs"] == [] and len(tried["not_attacked"]) == 1
    assert "a job that is not in this report" in (tmp_path / "report/report.html").read_text()


def test_an_answer_of_the_form_replaces_the_question(written: Path) -> None:
    still = content(written)["first_page"]["open"]
    assert "Is the guarantee strong enough for these records?" not in {
        each["text"] for each in still["judge"]
    }
    assert still["answers"] == 4 and "retention" in still["form"]


def test_the_registry_entry_says_what_a_person_must_fill_in(written: Path) -> None:
    (entry,) = content(written)["registry"]
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {
        "epsilon": 4.0, "delta": 1e-5,
    }  # fmt: skip
    assert entry["deployment"]["administrative"]["tier"] == 3
    assert "implementation.utility" in entry["to_fill_in"]
    assert "basic.intended_use" not in entry["to_fill_in"]


def test_an_intact_report_is_verified(written: Path) -> None:
    checked = verify_report(written)
    assert checked.runs == 1 and checked.signed == ()
    assert checked.statements == len(statements(written))


# --- one change -----------------------------------------------------------------------------------

Change = Callable[[Path], None]


def in_json(*keys: Any, value: Any) -> Change:
    """Set a value in report.json."""

    def change(report: Path) -> None:
        whole = found = content(report)
        for key in keys[:-1]:
            found = found[key]
        assert found[keys[-1]] != value
        found[keys[-1]] = value
        text = json.dumps(whole, indent=1, ensure_ascii=False)
        (report / "report.json").write_text(text + "\n")

    return change


def text_in(file: str, old: str, new: str) -> Change:
    """Replace the first occurrence of a text in a file."""

    def change(report: Path) -> None:
        (path,) = report.glob(file)
        before = path.read_text()
        assert old in before, file
        path.write_text(before.replace(old, new, 1))

    return change


def removed(file: str) -> Change:
    def change(report: Path) -> None:
        (path,) = report.glob(file)
        path.unlink()

    return change


def added(file: str) -> Change:
    return lambda report: (report / file).write_text("{}") and None


RUN = "evidence/runs/*"
CHANGES: dict[str, tuple[Change, str]] = {
    "a status": (in_json("sections", 4, "statements", 0, "status", value="x"), "5.1"),
    "a claim": (in_json("first_page", "claim", value="None."), "claim"),
    "a text": (in_json("sections", 6, "statements", 0, "text", value="ok"), "7.1"),
    "a topic": (in_json("sections", 2, "statements", 5, "topic", value="ok"), "3.6"),
    "a place": (in_json("sections", 4, "statements", 0, "evidence", 0, "where", value=""), "5.1"),
    "a run's name": (in_json("sections", 4, "statements", 0, "run", value="ab"), "5.1"),
    "a table's cell": (in_json("sections", 1, "tables", 0, "rows", 0, 2, value="0"), "rows"),
    "a head": (in_json("sections", 1, "tables", 0, "head", 0, value="Y"), "head"),
    "a total": (in_json("first_page", "total", "evidence missing", value=0), "total"),
    "what was tried": (in_json("first_page", "tried", "not_attacked", value=["x"]), "tried"),
    "a gap": (
        in_json("first_page", "not_protected", 0, "texts", 0, "text", value="."), "not_protected",
    ),
    "a light": (in_json("first_page", "statuses", "Data", value={}), "Data"),
    "epsilon of the entry": (
        in_json("registry", 0, "deployment", "privacy_loss", "privacy_parameters", "epsilon",
                value=1.0), "registry",
    ),
    "a component": (in_json("components", "components", 0, "version", value="9"), "components"),
    "the version": (in_json("secagg", value="9.9"), "secagg"),
    "a digest": (in_json("evidence", "form.toml", value="00"), "form.toml"),
    "a missing statement": (in_json("sections", 7, "statements", value=[]), "8"),
    "the page's claim": (text_in("report.html", "e^4", "e^1"), "report.html"),
    "the page's status": (text_in("report.html", "needs a person", "done"), "report.html"),
    "a line of the page": (text_in("report.html", "</main>", "<p>ok</p>\n</main>"), "report.html"),
    "the end of the page": (text_in("report.html", "</html>\n", ""), "report.html"),
    "the form": (text_in("evidence/form.toml", "beds", "nothing"), "form.toml"),
    "an audit's number": (
        text_in("evidence/audits/1.json", '"verdict": "no leak found"', '"verdict": "leak"'),
        "audits/1.json",
    ),
    "an experiment": (text_in("evidence/experiments/1.json", "3.5", "0.5"), "experiments/1.json"),
    "a line of the log": (text_in(f"{RUN}/log.jsonl", '"round":0', '"round":9'), "log.jsonl"),
    "the facts": (text_in(f"{RUN}/run.json", '"epsilon": 4.0', '"epsilon": 1.0'), "run.json"),
    "the result": (text_in(f"{RUN}/result.json", '"n"', '"m"'), "result.json"),
    "the run's report": (text_in(f"{RUN}/report.html", "secagg", "Secagg"), "report.html"),
    "a file of evidence is gone": (removed("evidence/experiments/1.json"), "experiments/1.json"),
    "a further audit": (added("evidence/audits/2.json"), "audits/2.json"),
    "a further file": (added("notes.txt"), "notes.txt"),
    "the page is gone": (removed("report.html"), "report.html"),
    "ends of lines": (
        lambda report: (report / "report.html").write_text(
            (report / "report.html").read_text().replace("\n", "\u2028")) and None,
        "report.html",
    ),
    "a link": (
        lambda report: (report / "report.pdf").symlink_to(report / "report.html"), "report.pdf",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_every_single_change_is_found_and_named(report: Path, what: str) -> None:
    change, named = CHANGES[what]
    change(report)
    with pytest.raises(EvidenceError) as caught:
        verify_report(report)
    assert named in caught.value.line()


def test_a_report_written_again_over_changed_evidence_still_needs_the_run_intact(
    report: Path, folders: Path, tmp_path: Path
) -> None:
    """The runs' own evidence is checked when a report is written, too."""
    bad = tmp_path / "bad"
    shutil.copytree(folders / "private", bad)
    (bad / "result.json").write_text((bad / "result.json").read_text().replace('"n"', '"m"'))
    with pytest.raises(EvidenceError):
        write_report(tmp_path / "new", [bad])
    assert not (tmp_path / "new").exists()


# --- what other people wrote ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["audits", "experiments"])
@pytest.mark.parametrize("bad", [[], {}, {"attacks": [{"verdict": "x", "value": 1}]}])
def test_malformed_evidence_is_named_in_a_line(
    folders: Path, tmp_path: Path, kind: str, bad: Any
) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    with pytest.raises(EvidenceError) as caught:
        write_report(tmp_path / "r", [folders / "exact"], **{kind: [tmp_path / "bad.json"]})
    assert f"{kind}/1.json" in caught.value.line()


def test_a_form_that_cannot_be_read_is_a_usage_error(folders: Path, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError):
            write_report(tmp_path / "r", [folders / "exact"], form=path)


def test_a_run_cannot_lead_the_copy_out_of_the_report(folders: Path, tmp_path: Path) -> None:
    bad = tmp_path / "in" / "bad"
    shutil.copytree(folders / "exact", bad)
    facts = json.loads((bad / "run.json").read_text())
    facts["session"] = "../../../../out"
    (bad / "run.json").write_bytes(json_bytes(facts))
    before = set(tmp_path.rglob("*"))
    with pytest.raises(EvidenceError):
        write_report(tmp_path / "in" / "r", [bad])
    assert set(tmp_path.rglob("*")) == before


def test_the_unfinished_run_of_the_same_name_is_left_alone(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "r.partial").mkdir()
    write_report(tmp_path / "r", [folders / "exact"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r", "r.partial"]


def test_an_audit_of_another_job_is_not_said_to_be_of_the_run(
    folders: Path, tmp_path: Path
) -> None:
    write_report(tmp_path / "own", [folders / "private"], [folders / "audit"])
    write_report(tmp_path / "other", [folders / "exact"], [folders / "audit"])
    own, other = statements(tmp_path / "own")["8.1"], statements(tmp_path / "other")["8.1"]
    assert (own["status"], other["status"]) == ("evidence attached", "evidence missing")
    tried = [content(tmp_path / name)["first_page"]["tried"] for name in ("own", "other")]
    assert [bool(each["audits"][0]["runs"]) for each in tried] == [True, False]
    assert [bool(each["not_attacked"]) for each in tried] == [False, True]


def test_an_experiment_of_another_job_is_not_said_to_be_of_the_run(written: Path) -> None:
    found = {s["topic"]: s for s in statements(written).values()}
    assert found["job of the experiment"]["status"] == "evidence missing"


def test_runs_whose_noise_is_void_are_not_called_exact(folders: Path, tmp_path: Path) -> None:
    private = {"placement": "sum", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    job = {**raw_job(protocol={"name": "masked"}), "privacy": private}
    secagg.run(job, tables(60), out=tmp_path / "void", random=replayable_random(1))
    write_report(tmp_path / "r", [folders / "private", tmp_path / "void"])
    claim = content(tmp_path / "r")["first_page"]["claim"]
    assert "1 of 2 runs claims no differential privacy" in claim and "exact" not in claim


def test_deltas_of_several_runs_add_up_too(folders: Path, tmp_path: Path) -> None:
    private = {"placement": "sum", "epsilon": 2, "delta": 1e-5, "record_norm": 1.5}
    job = {**raw_job(protocol={"name": "masked"}), "privacy": private}
    secagg.run(job, tables(60), out=tmp_path / "second")
    write_report(tmp_path / "r", [folders / "private", tmp_path / "second"])
    assert "ε 6.000 and δ 2 × 10⁻⁵" in content(tmp_path / "r")["first_page"]["claim"]


def test_exact_releases_in_the_ledgers_are_counted(folders: Path, tmp_path: Path) -> None:
    job = raw_job(
        protocol={"name": "masked"}, sites={"max_rows": 100, "ledgers": str(tmp_path / "ledgers")}
    )
    secagg.run(job, tables(60), out=tmp_path / "run")
    write_report(tmp_path / "r", [tmp_path / "run"], ledgers=tmp_path / "ledgers")
    found = [s for s in statements(tmp_path / "r").values() if "ledger of" in s["topic"]]
    assert found and all("no ε bounds them" in s["text"] for s in found)
    assert "Infinity" not in (tmp_path / "r" / "evidence" / "ledgers.json").read_text()
    write_report(tmp_path / "q", [folders / "exact"], ledgers=tmp_path / "ledgers")
    topics = {s["topic"]: s["status"] for s in statements(tmp_path / "q").values()}
    assert topics["runs without a line"] == "evidence missing"


def test_a_run_of_an_earlier_version_has_no_line_of_some_events(written: Path) -> None:
    (run,) = AllEvidence.read(written).runs
    assert run.line("countersigned").where.startswith("line ")
    assert run.line("of a later version").where == ""


def test_what_nothing_checks_is_named(report: Path) -> None:
    (report / "report.pdf").write_text("another report")
    assert verify_report(report).unchecked == ("report.pdf",)


# --- signatures -----------------------------------------------------------------------------------


def test_a_site_of_the_run_signs_with_the_key_of_the_roster(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path / "c", remote_job(release={"min_sites": 2, "min_records": 2}))
    made.lead()
    run = made.homes[COORDINATOR].folder / "runs" / "run"
    write_report(tmp_path / "report", [run])
    sign_report(tmp_path / "report", made.homes["north"].identity)
    stranger = Identity.generate("eve", Role.SITE, system_random)
    sign_report(tmp_path / "report", stranger)
    signed = {each.name: each.known for each in verify_report(tmp_path / "report").signed}
    assert signed == {"north": True, "eve": False}


def test_a_signature_of_another_report_is_refused(report: Path, written: Path) -> None:
    eve = Identity.generate("eve", Role.SITE, system_random)
    path = sign_report(report, eve)
    verify_report(report)
    path.write_text(path.read_text().replace('"name": "eve"', '"name": "ada"'))
    with pytest.raises(EvidenceError):
        verify_report(report)
    path.unlink()
    other = sign_report(report, eve)
    changed = json.loads(other.read_text())
    changed["signature"] = eve.sign(b"report").hex()
    other.write_text(json.dumps(changed))
    with pytest.raises(EvidenceError) as caught:
        verify_report(report)
    assert caught.value.where == "signatures/eve.json"


@pytest.mark.parametrize("key", ["role", "report", "comment", "key"])
def test_nothing_in_the_file_of_a_signature_can_be_changed(report: Path, key: str) -> None:
    path = sign_report(report, Identity.generate("eve", Role.SITE, system_random))
    changed = json.loads(path.read_text())
    changed[key] = {"role": "coordinator", "key": changed["key"].upper()}.get(key, "approved")
    path.write_text(json.dumps(changed, indent=1) + "\n")
    with pytest.raises(EvidenceError):
        verify_report(report)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[purpose", ""), ("[purposes]\n", "purpose"), ("[purpose]\nperm = 1", "permit"),
        ("[purpose]\npermit = 1", "permit"),
    ],
)  # fmt: skip
def test_a_wrong_form_is_refused_by_a_line_that_names_the_key(
    folders: Path, tmp_path: Path, text: str, named: str
) -> None:
    (tmp_path / "form.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        write_report(tmp_path / "r", [folders / "exact"], form=tmp_path / "form.toml")
    assert named in caught.value.line()
    assert [path.name for path in tmp_path.iterdir()] == ["form.toml"]
