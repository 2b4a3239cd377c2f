"""A compliance report: what it says."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.runs.checkout import ROOT
from support.runs.compliance import content, experiment, statements
from support.runs.jobs import raw_job, tables

import secagg
from secagg.compliance.evidence import AllEvidence
from secagg.compliance.report_folder import verify_report, write_report
from secagg.core.randomness import replayable_random
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.claims.guarantee import collusion
from secagg.evidence.numbers import typeset
from secagg.evidence.run_files import job_digest, json_bytes

STATUSES = {"evidence attached", "stated by a person", "evidence missing", "needs a person"}


def test_every_statement_has_a_status_and_those_with_evidence_a_place_that_exists(
    written: Path,
) -> None:
    for each in statements(written).values():
        assert each["status"] in STATUSES
        assert each["evidence"] or each["status"] not in ("evidence attached", "stated by a person")
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
    assert found["purpose"]["status"] == "stated by a person"
    assert found["retention"]["status"] == "evidence missing"
    assert content(written)["first_page"]["permit"] == "EK 12/2026"


def test_the_claim_of_the_first_page_is_that_of_the_run(written: Path, folders: Path) -> None:
    claim = content(written)["first_page"]["claim"]
    assert "e⁴" in claim and "10⁻⁵" in claim
    page = (written / "report.html").read_text()
    assert typeset(claim) in page and "To plan beds." in page


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
    audit["attacks"][0]["control"]["value"] = audit["attacks"][0]["control"]["low"] = 0.0
    why = "the attack does not find the planted leak either"
    audit["attacks"][0] |= {"verdict": "inconclusive", "why": why}
    audit["title"] = audit["agreed"]["title"] = "Another job"
    audit["job"] = job_digest(audit["agreed"])
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    write_report(tmp_path / "report", [folders / "exact"], [tmp_path / "audit.json"])
    tried = content(tmp_path / "report")["first_page"]["tried"]
    (found,) = tried["audits"]
    assert found["found"][0]["verdict"].startswith("inconclusive")
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
    assert "basic.data_curators.data_curator_type" in entry["to_fill_in"]
    assert "implementation.utility" in entry["to_fill_in"]
    assert "basic.intended_use" not in entry["to_fill_in"]


def test_an_entry_whose_form_is_filled_in_lacks_nothing(folders: Path, tmp_path: Path) -> None:
    form = re.search(r"```toml\n(.*?)```", (ROOT / "docs/how-to/report.md").read_text(), re.S)
    assert form is not None
    (tmp_path / "form.toml").write_text(form[1])
    write_report(tmp_path / "r", [folders / "private"], form=tmp_path / "form.toml")
    (entry,) = content(tmp_path / "r")["registry"]
    assert entry["to_fill_in"] == []
    assert content(tmp_path / "r")["first_page"]["open"]["form"] == []


def test_an_intact_report_is_verified(written: Path) -> None:
    checked = verify_report(written)
    assert checked.runs == 1 and checked.signed == ()
    assert checked.statements == len(statements(written))


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


HALF, HUGE = '"\\ud800"', "1" + "0" * 400


@pytest.mark.parametrize(
    ("where", "bad"),
    [('"title": "A small job"', HALF), ('"records": 144', "1e999"), ('"low": 0.2', "NaN"),
     ('"low": 0.2', HUGE)],
)  # fmt: skip
def test_values_that_no_report_can_have_are_named_in_a_line(
    folders: Path, tmp_path: Path, where: str, bad: str
) -> None:
    """Half a character, and numbers that are infinite or too large for a computer's."""
    kind, file = ("audits", "audit/audit.json")
    if "low" in where:
        kind, file = "experiments", "experiment/summary.json"
    text = (folders / file).read_text()
    assert where in text
    (tmp_path / "bad.json").write_text(text.replace(where, f"{where.partition(':')[0]}: {bad}", 1))
    with pytest.raises((EvidenceError, UsageError)) as caught:
        write_report(tmp_path / "r", [folders / "exact"], **{kind: [tmp_path / "bad.json"]})
    assert "json" in caught.value.line() and [*tmp_path.iterdir()] == [tmp_path / "bad.json"]


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
    assert (own["status"], other["status"]) == ("stated by a person", "evidence missing")
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
    assert "ε 6 and δ 2 × 10⁻⁵" in content(tmp_path / "r")["first_page"]["claim"]


def test_a_run_of_an_earlier_version_has_no_line_of_some_events(written: Path) -> None:
    (run,) = AllEvidence.read(written).runs
    assert run.line("countersigned").where.startswith("line ")
    assert run.line("of a later version").where == ""


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


def test_how_to_read_the_guesses_follows_from_the_guarantees(tmp_path: Path) -> None:
    """With one unit and adjacency for all runs, and with two; for two sites, one is the other."""
    private = {"placement": "site", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    rules = {"min_sites": 2, "min_records": 2}
    data = {site: table for site, table in tables(60).items() if site != "west"}
    for table in data.values():
        table["who"] = [f"p{i}" for i in range(60)]  # type: ignore[assignment]
    for name, changes in (("a", {"adjacency": "replace"}), ("b", {"person": "who"})):
        job = raw_job(release=rules, privacy=private | changes)
        secagg.run(job, data, out=tmp_path / name)
    write_report(tmp_path / "r", [tmp_path / "a", tmp_path / "b"])
    page = content(tmp_path / "r")["first_page"]
    assert (
        "all others guesses whether one person is in the data or which of two records is"
        in (page["how_to_read"])
    )
    assert page["how_to_read"] in (tmp_path / "r" / "report.html").read_text()
    assert "They protect different things" in page["claim"]
    gaps = {gap["topic"]: gap["texts"][0]["text"] for gap in page["not_protected"]}
    assert "the other site can subtract its own contributions" in gaps["Colluding sites"]
    write_report(tmp_path / "s", [tmp_path / "b"])
    assert content(tmp_path / "s")["first_page"]["how_to_read"] == ""


def test_noise_that_every_site_knows_a_share_of_does_not_protect_against_sites(
    tmp_path: Path,
) -> None:
    private = {"placement": "sum", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    for name, colluding in (("a", 0), ("b", 1)):
        job = raw_job(protocol={"name": "masked"}, privacy={**private, "colluding": colluding})
        secagg.run(job, tables(60), out=tmp_path / name)
    write_report(tmp_path / "r", [tmp_path / "a", tmp_path / "b"])
    rows = content(tmp_path / "r")["first_page"]["guarantees"]
    against = {each["points"][2]["text"] for each in rows}
    assert against == {
        f"everybody who sees the result, {collusion({'placement': 'sum', 'colluding': number})}"
        for number in (0, 1)
    }


def test_a_run_on_one_computer_contradicts_parties_that_are_apart(
    folders: Path, tmp_path: Path
) -> None:
    (tmp_path / "form.toml").write_text('[trust]\nseparate = "No common administrator."\n')
    write_report(tmp_path / "r", [folders / "exact"], form=tmp_path / "form.toml")
    (each,) = [s for s in statements(tmp_path / "r").values() if s["topic"] == "separate"]
    assert each["status"] == "needs a person" and "ran on one computer" in each["text"]


@pytest.mark.parametrize(("at", "limit", "said"), [(4.5, 0.4, 1), (3.9, 0.4, 0), (4.5, 0.6, 0)])
def test_an_epsilon_below_all_that_the_experiment_recommends_is_named(
    folders: Path, tmp_path: Path, at: float, limit: float, said: int
) -> None:
    found = experiment(at, limit)
    columns = list(json.loads((folders / "private/run.json").read_text())["job"]["columns"])
    found["job"] = {"title": "Another title", "method": "moments", "columns": columns}
    (tmp_path / "summary.json").write_text(json.dumps(found))
    write_report(tmp_path / "r", [folders / "private"], experiments=[tmp_path])
    by_topic = [s["topic"] for s in statements(tmp_path / "r").values()]
    assert by_topic.count("ε against the experiment") == said
    (job,) = [
        s for s in statements(tmp_path / "r").values() if s["topic"] == "job of the experiment"
    ]
    assert job["status"] == "needs a person"
