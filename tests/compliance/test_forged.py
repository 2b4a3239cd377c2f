"""Forged audits, forms and PDFs: each is named, when it is read and when it is run again."""

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.crashes.consortium import Consortium, remote_job
from support.runs.compliance import content, experiment, statements
from support.runs.jobs import as_csv, tables, write_job
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.compliance import report_folder
from secagg.compliance.measured_folder import verify_measurement
from secagg.compliance.report_folder import verify_report, write_report
from secagg.compliance.signatures import digest_of, sign_report
from secagg.core.identity import COORDINATOR, Identity, Role
from secagg.core.randomness import system_random
from secagg.errors import EvidenceError, UsageError

pytestmark = pytest.mark.attack
Row = dict[str, Any]
Forge = Callable[[dict[str, Any]], object]


def row(audit: dict[str, Any], name: str) -> Row:
    return next(each for each in audit["attacks"] if each["name"] == name and "value" in each)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain run, whose contributions leak, and its audit."""
    place = tmp_path_factory.mktemp("forged")
    job = write_job(place)
    for site, columns in tables(80).items():
        (place / "data" / f"{site}.csv").write_text(as_csv(columns), encoding="utf-8")
    secagg.run(job, out=place / "run")
    names = ("clear_contributions", "identified_share", "rare_cell", "tracing")
    attacks = [part for name in names for part in ("--attack", name)]
    arguments = [str(job), *attacks, "--out", str(place / "audit"), "--jobs", "1"]
    done = CliRunner().invoke(app, ["audit", *arguments, "--set-aside", "0.5"])
    assert done.exit_code == 5, done.output
    return place


@pytest.fixture
def audit(place: Path, tmp_path: Path) -> Path:
    """A copy of the audit's folder, that a test may forge."""
    return Path(shutil.copytree(place / "audit", tmp_path / "audit"))


def forged(audit: Path, change: Forge) -> Path:
    whole = json.loads((audit / "audit.json").read_text())
    before = copy.deepcopy(whole)
    change(whole)
    assert whole != before
    (audit / "audit.json").write_text(json.dumps(whole))
    return audit


def no_leak(attack: Row, **changes: Any) -> None:
    attack.update({"verdict": "no leak found", "why": "", **changes})


INCONSISTENT: dict[str, tuple[Forge, str]] = {
    "verdict": (lambda a: no_leak(row(a, "clear_contributions")), "verdict"),
    "verdict to inconclusive": (
        lambda a: row(a, "identified_share").update(verdict="inconclusive", why="few records"),
        "identified_share",
    ),
    "verdict to not applicable": (
        lambda a: row(a, "rare_cell").update(verdict="not applicable", why="for others"), "verdict",
    ),
    "a leak that is none": (lambda a: row(a, "tracing").update(verdict="leak"), "tracing"),
    "reason": (lambda a: row(a, "tracing").update(why="it is safe"), "why"),
    "number": (lambda a: row(a, "clear_contributions").update(value=0.0), "clear_contributions"),
    "number outside its interval": (
        lambda a: row(a, "tracing").update(value=0.99), "is not in",
    ),
    "interval": (
        lambda a: row(a, "identified_share").update(low=0.0, high=0.01), "identified_share",
    ),
    "interval that only closes": (
        lambda a: no_leak(row(a, "tracing"), low=0.5, high=0.5, value=0.5), "verdict",
    ),
    "control": (
        lambda a: row(a, "clear_contributions")["control"].update(value=9.0, low=0, high=0),
        "control",
    ),
    "limit": (lambda a: row(a, "clear_contributions").update(limit="<= 2"), "verdict"),
    "limit with its verdict": (
        lambda a: no_leak(row(a, "identified_share"), limit="<= 3"), "changed",
    ),
    "the program's limit": (
        lambda a: no_leak(row(a, "identified_share"), limit="<= 3", own_limit="<= 3", changed=""),
        "own_limit",
    ),
    "no limit of the program": (
        lambda a: [
            no_leak(row(a, "identified_share"), limit="<= 3"),
            row(a, "identified_share").pop("own_limit"),
        ], "malformed",
    ),
    "direction of the limit": (
        lambda a: no_leak(row(a, "clear_contributions"), limit=">= 0"), "clear_contributions",
    ),
    "title": (lambda a: a.update(title="Another study"), "title"),
    "protocol": (lambda a: a.update(protocol="masked"), "protocol"),
    "the job behind it": (lambda a: a["agreed"]["protocol"].update(name="masked"), "protocol"),
    "metric": (lambda a: row(a, "tracing").update(metric="tracing_error"), "tracing"),
    "label": (lambda a: row(a, "tracing").update(label="all attacks"), "label"),
    "an attack twice": (lambda a: a["attacks"].insert(0, a["attacks"][-1]), "twice"),
    "a number as text": (lambda a: row(a, "tracing").update(value="0.5"), "malformed"),
    "no number": (lambda a: row(a, "clear_contributions").pop("value"), "clear_contributions"),
    "no schema": (lambda a: a.pop("schema"), "has schema 1"),
    "an interval without ends": (
        lambda a: no_leak(row(a, "tracing"), low=None, high=None), "verdict",
    ),
    "an infinite number outside its interval": (
        lambda a: row(a, "tracing").update(value="-inf"), "is not in",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", INCONSISTENT)
def test_an_audit_that_contradicts_itself_is_refused_and_named(
    audit: Path, place: Path, tmp_path: Path, what: str
) -> None:
    change, named = INCONSISTENT[what]
    forged(audit, change)
    with pytest.raises(EvidenceError) as caught:
        write_report(tmp_path / "report", [place / "run"], [audit])
    assert "audits/1.json" in caught.value.line() and named in caught.value.line()
    assert caught.value.exit_code == 6 and not (tmp_path / "report").exists()
    done = CliRunner().invoke(app, ["verify", str(audit)])
    assert isinstance(done.exception, EvidenceError) and named in done.exception.line()


@pytest.mark.parametrize("what", INCONSISTENT)
def test_a_report_with_a_forged_audit_and_its_digest_is_named(
    audit: Path, place: Path, tmp_path: Path, what: str
) -> None:
    """The forger also writes the digest of the audit into report.json."""
    write_report(tmp_path / "report", [place / "run"], [place / "audit"])
    copied = tmp_path / "report" / "evidence" / "audits" / "1.json"
    change, named = INCONSISTENT[what]
    shutil.copyfile(forged(audit, change) / "audit.json", copied)
    rewrite_digest(tmp_path / "report", "audits/1.json")
    with pytest.raises(EvidenceError) as caught:
        verify_report(tmp_path / "report")
    assert "audits/1.json" in caught.value.line() and named in caught.value.line()


def rewrite_digest(report: Path, file: str) -> None:
    whole = content(report)
    whole["evidence"][file] = hashlib.sha256((report / "evidence" / file).read_bytes()).hexdigest()
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    (report / "report.json").write_text(text + "\n")


def _within(attack: Row) -> None:
    no_leak(attack, value=0.0, low=0.0, high=0.0)


CONSISTENT: dict[str, tuple[Forge, str]] = {
    "number with its verdict": (
        lambda a: _within(row(a, "clear_contributions")), "clear_contributions",
    ),
    "control": (
        lambda a: row(a, "identified_share")["control"].update(value=0.6, low=0.6, high=0.6),
        "control, value",
    ),
    "the control's limit": (
        lambda a: row(a, "identified_share")["control"].update(limit="<= 0.001"),
        "control, limit",
    ),
    "a guess": (lambda a: row(a, "clear_contributions").update(baseline=0.5), "baseline"),
    "an attack that was left out": (
        lambda a: a["attacks"].pop(next(
            i for i, each in enumerate(a["attacks"])
            if (each["name"], each["view"]) == ("identified_share", "coordinator")
        )),
        "is not in the file",
    ),
    "more records": (lambda a: a.update(records=100000), "records"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONSISTENT)
def test_numbers_that_fit_together_are_named_when_they_are_run_again(
    audit: Path, place: Path, tmp_path: Path, what: str
) -> None:
    change, named = CONSISTENT[what]
    forged(audit, change)
    write_report(tmp_path / "report", [place / "run"], [audit])
    verify_report(tmp_path / "report")  # it holds together
    found = statements(tmp_path / "report")["8.1"]
    assert found["status"] == "stated by a person" and "Not signed" in found["text"]
    with pytest.raises(EvidenceError) as caught:
        verify_report(tmp_path / "report", again=[])
    assert "audits/1.json" in caught.value.line() and named in caught.value.line()


def test_an_honest_audit_is_equal_when_run_again(place: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "report", [place / "run"], [place / "audit"])
    (line,) = verify_report(tmp_path / "report", again=[]).again
    assert "are equal" in line
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "report"), "--again"])
    assert done.exit_code == 0 and "run again" in done.output


def test_the_audit_of_a_run_needs_only_the_run(place: Path, tmp_path: Path) -> None:
    arguments = [str(place / "run"), "--out", str(tmp_path / "of-run")]
    done = CliRunner().invoke(app, ["audit", *arguments, "--attack", "clear_contributions"])
    assert done.exit_code == 5
    audit = tmp_path / "of-run"
    write_report(tmp_path / "good", [place / "run"], [audit])
    (line,) = verify_report(tmp_path / "good", again=[]).again
    assert "are equal" in line
    forged(audit, lambda a: row(a, "clear_contributions").update(value=0.5, low=0.5, high=0.5))
    write_report(tmp_path / "bad", [place / "run"], [audit])
    with pytest.raises(EvidenceError, match="clear_contributions"):
        verify_report(tmp_path / "bad", again=[])


def test_records_that_are_elsewhere_are_said_not_to_be_here(
    audit: Path, place: Path, tmp_path: Path
) -> None:
    forged(audit, lambda a: a["local"].update(folder="nowhere"))
    write_report(tmp_path / "report", [place / "run"], [audit])
    (line,) = verify_report(tmp_path / "report", again=[]).again
    assert "not run again" in line
    (line,) = verify_report(tmp_path / "report", again=[place / "job.toml"]).again
    assert "are equal" in line


def test_a_changed_limit_is_said_to_be_changed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text('readable_share = "<= 5"\n')
    arguments = [str(place / "job.toml"), "--limits", str(tmp_path / "limits.toml"), "--jobs", "1"]
    out = tmp_path / "audit"
    done = CliRunner().invoke(
        app, ["audit", *arguments, "--attack", "clear_contributions", "--out", str(out)]
    )
    assert done.exit_code == 0 and "program's own limit is ≤ 0" in done.output
    assert "is the program's" in (out / "audit.html").read_text()
    write_report(tmp_path / "report", [place / "run"], [out])
    found = statements(tmp_path / "report")["8.2"]
    assert "This limit was changed: the program's is <= 0." in found["text"]
    assert found["status"] == "needs a person"
    assert "are equal" in verify_report(tmp_path / "report", again=[]).again[0]


def test_a_limit_of_a_rate_follows_from_the_details(place: Path, tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text('tpr_at_1pct = "<= 0.9"\n')
    arguments = [str(place / "job.toml"), "--limits", str(tmp_path / "limits.toml"), "--jobs", "1"]
    out = tmp_path / "audit"
    options = ["--attack", "tracing", "--set-aside", "0.5", "--out", str(out)]
    assert CliRunner().invoke(app, ["audit", *arguments, *options]).exit_code == 0
    assert CliRunner().invoke(app, ["verify", str(out), "--again"]).exit_code == 0
    forged(out, lambda a: a["attacks"][1].update(value=0.0, low=0.0, high=0.0))
    done = CliRunner().invoke(app, ["verify", str(out)])
    assert isinstance(done.exception, EvidenceError) and "follows" in done.exception.what


def test_a_view_that_was_left_out_is_named(audit: Path, place: Path, tmp_path: Path) -> None:
    def leave_out(whole: dict[str, Any]) -> None:
        rows = whole["attacks"]
        views = {(each["name"], each["view"]) for each in rows}
        names = [name for name, _ in views]
        gone.append(next(pair for pair in sorted(views) if names.count(pair[0]) > 1))
        whole["attacks"] = [each for each in rows if (each["name"], each["view"]) != gone[0]]

    gone: list[tuple[str, str]] = []
    forged(audit, leave_out)
    write_report(tmp_path / "report", [place / "run"], [audit])
    text = statements(tmp_path / "report")["8.1"]["text"]
    (name, view), *_ = gone
    assert f"It lacks 1 view of these attacks: {name} ({view})." in text


# --- who stands for it ----------------------------------------------------------------------------


def signed_audit(audit: Path, identity: Identity) -> None:
    sign_report(audit, bytes.fromhex(verify_measurement(audit).digest), identity)


def test_an_audit_is_stated_by_who_the_form_names_unless_a_party_signed(
    audit: Path, place: Path, tmp_path: Path
) -> None:
    form = tmp_path / "form.toml"
    form.write_text('[trust]\ntested = "The trust centre."\n')
    write_report(tmp_path / "a", [place / "run"], [audit], form=form)
    found = statements(tmp_path / "a")["8.1"]
    assert "Stated by The trust centre. Not signed." in found["text"]
    assert found["status"] == "stated by a person"
    signed_audit(audit, Identity.generate("eve", Role.SITE, system_random))
    write_report(tmp_path / "b", [place / "run"], [audit], form=form)
    found = statements(tmp_path / "b")["8.1"]
    assert "Signed as eve" in found["text"] and "in no roster" in found["text"]
    assert found["status"] == "stated by a person"
    verify_report(tmp_path / "b")
    forged(audit, lambda a: row(a, "clear_contributions").update(baseline=0.25))
    with pytest.raises(EvidenceError, match=r"eve\.json: is not a signature"):
        write_report(tmp_path / "c", [place / "run"], [audit], form=form)


def test_an_audit_that_a_site_of_the_run_signed_is_attached_evidence(tmp_path: Path) -> None:
    rules = {"min_sites": 2, "min_records": 2}
    made = Consortium.of(tmp_path / "c", remote_job(release=rules, protocol={"name": "masked"}))
    made.lead()
    run, audit = made.homes[COORDINATOR].folder / "runs" / "run", tmp_path / "audit"
    arguments = [str(run), "--attack", "rare_cell", "--attack", "refusal_oracle"]
    done = CliRunner().invoke(app, ["audit", *arguments, "--out", str(audit)])
    assert done.exit_code in (0, 5), done.output
    home = made.homes["north"]
    done = CliRunner().invoke(app, ["sign", str(audit), "--home", str(home.folder)])
    assert done.exit_code == 0, done.output
    assert "signed as north" in CliRunner().invoke(app, ["verify", str(audit)]).output
    write_report(tmp_path / "report", [run], [audit])
    found = statements(tmp_path / "report")["8.1"]
    assert "Signed by north (key " in found["text"] and found["status"] == "evidence attached"
    (tmp_path / "report" / "evidence" / "signatures" / "audits-1" / "north.json").unlink()
    with pytest.raises(EvidenceError, match="north"):
        verify_report(tmp_path / "report")


@pytest.mark.parametrize("kind", ["audit.html", "audit.json"])
def test_the_page_of_an_audit_is_drawn_again(audit: Path, kind: str) -> None:
    path = audit / kind
    path.write_text(path.read_text().replace("no leak found", "leak found", 1))
    done = CliRunner().invoke(app, ["verify", str(audit)])
    assert isinstance(done.exception, EvidenceError)
    assert done.exception.where.startswith("audit.")


# --- the PDF --------------------------------------------------------------------------------------


@pytest.fixture
def printed(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report with a PDF, which no browser drew."""

    def print_pdf(page: Path, out: Path) -> None:
        out.write_bytes(b"%PDF-1.4 " + hashlib.sha256(page.read_bytes()).digest())
        out.chmod(0o644)

    monkeypatch.setattr(report_folder, "print_pdf", print_pdf)
    write_report(tmp_path / "printed", [place / "run"], pdf=True)
    return tmp_path / "printed"


def test_a_pdf_is_verified_and_has_the_modes_of_the_folder(printed: Path) -> None:
    verify_report(printed)
    modes = {path.stat().st_mode & 0o777 for path in printed.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in printed.rglob("*") if path.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})


@pytest.mark.parametrize("what", ["changed", "gone", "added"])
def test_a_pdf_that_was_changed_is_named(
    printed: Path, place: Path, tmp_path: Path, what: str
) -> None:
    report = printed
    if what == "changed":
        (report / "report.pdf").write_bytes(b"%PDF-1.4 no leak")
    elif what == "gone":
        (report / "report.pdf").unlink()
    else:
        report = tmp_path / "bare"
        write_report(report, [place / "run"])
        shutil.copyfile(printed / "report.pdf", report / "report.pdf")
    with pytest.raises(EvidenceError) as caught:
        verify_report(report)
    assert caught.value.where == "report.pdf"


def test_a_signature_covers_the_pdf(printed: Path) -> None:
    eve = Identity.generate("eve", Role.SITE, system_random)
    sign_report(printed, digest_of(printed), eve)
    assert [each.name for each in verify_report(printed).signed] == ["eve"]
    (printed / "report.pdf").write_bytes(b"%PDF-1.4 no leak")
    whole = content(printed)
    whole["pdf"] = hashlib.sha256((printed / "report.pdf").read_bytes()).hexdigest()
    (printed / "report.json").write_bytes(report_folder.as_bytes(whole))
    with pytest.raises(EvidenceError) as caught:
        verify_report(printed)
    assert caught.value.where == "signatures/eve.json"


# --- the form -------------------------------------------------------------------------------------


def test_a_form_exchanged_with_its_digest_is_named(place: Path, tmp_path: Path) -> None:
    (tmp_path / "form.toml").write_text('[purpose]\npermit = "A 17"\n')
    write_report(tmp_path / "report", [place / "run"], form=tmp_path / "form.toml")
    copied = tmp_path / "report" / "evidence" / "form.toml"
    copied.write_text('[purpose]\npermit = "B 99"\n')
    with pytest.raises(EvidenceError, match=r"form\.toml"):
        verify_report(tmp_path / "report")
    rewrite_digest(tmp_path / "report", "form.toml")
    with pytest.raises(EvidenceError, match="permit"):
        verify_report(tmp_path / "report")


def test_again_is_for_measurements(place: Path) -> None:
    done = CliRunner().invoke(app, ["verify", str(place / "run"), "--again"])
    assert isinstance(done.exception, UsageError)
    done = CliRunner().invoke(app, ["verify", str(place / "run"), "--records", "a.toml"])
    assert isinstance(done.exception, UsageError)


# --- experiments ----------------------------------------------------------------------------------


def _below(summary: dict[str, Any]) -> None:
    summary["recommendations"][0]["points"][0]["limit"] = 0.6


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: s["recommendations"][0].update(smallest=0.1), "recommends 0.1"),
        (lambda s: s["recommendations"][0].update(smallest=None), "recommends None"),
        (_below, "follows from its limits"),
        (lambda s: s["goal"].update(below=0.3), "follows from its limits"),
        (lambda s: s["recommendations"][0]["points"][0].update(reached=21), "reached the goal"),
        (lambda s: s["curves"][0]["points"][0]["metrics"]["error"].update(mean=0.01), "is not in"),
        (lambda s: s["recommendations"].clear(), "other curves or points"),
        (lambda s: s["recommendations"][0]["points"].pop(0), "other curves or points"),
        (lambda s: s["curves"].pop(), "other curves or points"),
    ],
)
def test_an_experiment_that_contradicts_itself_is_refused_and_named(
    place: Path, tmp_path: Path, change: Forge, named: str
) -> None:
    summary = experiment()
    change(summary)
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(EvidenceError) as caught:
        write_report(tmp_path / "report", [place / "run"], experiments=[tmp_path])
    assert "experiments/1.json" in caught.value.line() and named in caught.value.line()


def test_an_experiment_is_stated_by_a_person(place: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(experiment()))
    write_report(tmp_path / "report", [place / "run"], experiments=[tmp_path])
    (found,) = [s for s in statements(tmp_path / "report").values() if s["topic"] == "experiment"]
    assert found["status"] == "stated by a person"
    (line,) = verify_report(tmp_path / "report", again=[]).again
    assert "not run again" in line
