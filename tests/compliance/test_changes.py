"""Every single change in the folder of a report is found and named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.compliance import content

from secagg.compliance.report_folder import verify_report, write_report
from secagg.errors import EvidenceError

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
    "the page's claim": (text_in("report.html", "e⁴", "e¹"), "report.html"),
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
    "an empty folder": (lambda report: (report / "evidence/notes").mkdir(), "evidence/notes"),
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
    "a pipe": (lambda report: os.mkfifo(report / "evidence" / "audits" / "2.json"), "2.json"),
    "a file in place of signatures": (added("signatures"), "signatures"),
    "a PDF": (added("report.pdf"), "report.pdf"),
    "the PDF's digest": (in_json("pdf", value="0" * 64), "report.pdf"),
    "who states it": (
        in_json("first_page", "tried", "audits", 0, "stated", value="Signed."), "tried",
    ),
    "no digests": (in_json("evidence", value=["a"]), "report.json"),
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


def test_what_nothing_checks_is_named(report: Path) -> None:
    (report / "timestamp.tsr").write_text("of an authority")
    assert verify_report(report).unchecked == ("timestamp.tsr",)
