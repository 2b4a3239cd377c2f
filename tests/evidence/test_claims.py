"""Claims are worded once: plan, run report and compliance report show the same sentences."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runs.compliance import content
from support.runs.jobs import raw_job, tables
from support.runs.reports import Page, copied, noised_run, small_run, void_run

import secagg
from secagg.compliance.report_folder import write_report
from secagg.contracts import DisclosureKind
from secagg.evidence.claims.claim import Claim, Status, as_sentence
from secagg.evidence.claims.hazards import hazards
from secagg.evidence.claims.limitations import unprotected
from secagg.evidence.claims.privacy import PrivacyClaims, contribution_hidden
from secagg.evidence.run_folder import RunFolder

ROOT = Path(secagg.__file__).parent
ROOMS = ("cli", "compliance", "evidence", "reports", "runs", "privacy/accounting")
WORDS = 8
"""So many equal words in a row are the same statement."""


@pytest.mark.parametrize("placement", ["none", "sum"])
def test_plan_and_both_reports_show_the_same_claims(tmp_path: Path, placement: str) -> None:
    noise = {"placement": placement, "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    job = raw_job(protocol={"name": "masked"})
    if placement != "none":
        job |= {"privacy": noise}
    run = secagg.run(job, tables(60), out=tmp_path / "run")
    folder = RunFolder.open_finished(tmp_path / "run")
    page = Page((tmp_path / "run" / "report.html").read_text()).text
    write_report(tmp_path / "report", [tmp_path / "run"])
    sections = content(tmp_path / "report")["sections"]
    stated = {each["text"] for section in sections for each in section["statements"]}
    claims = folder.claims
    assert claims == PrivacyClaims.of(run.facts)
    shown = [claim.text for claim in unprotected(folder.run_facts, claims)]
    shown += [claims.sentence]
    if claims.noised:
        shown += [claim.text for claim in claims.plain_words()]
        shown += [claim.text for claim in hazards(claims, folder.result.summary)]
    for text in shown:
        assert text in page and text in stated
    first = content(tmp_path / "report")["first_page"]["guarantees"][0]["points"]
    assert [point["text"] for point in first][: len(claims.plain_words())] == [
        claim.text for claim in claims.plain_words()
    ]
    planned = secagg.plan(job, tables(60))
    assert planned["differential_privacy"]["sentence"] == claims.sentence


def literals(file: Path) -> Iterator[str]:
    """Yield the texts in a file that are no docstring; "@" stands for what is filled in."""
    parts = set[int]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Expr):
            parts.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "@" for v in node.values)
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            yield str(node.value)


def test_no_claim_is_worded_in_a_second_file() -> None:
    places = defaultdict[str, set[str]](set)
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for text in literals(file):
                words = re.findall(r"[\w@'’]+", text.lower())
                for i in range(len(words) - WORDS + 1):
                    if "@" not in (said := " ".join(words[i : i + WORDS])):
                        places[said].add(file.relative_to(ROOT).as_posix())
    twice = {said: found for said, found in places.items() if len(found) > 1}
    assert {s: f for s, f in twice.items() if any("claims/" in file for file in f)} == {}


@pytest.mark.parametrize("kind", DisclosureKind)
@pytest.mark.parametrize("engine", ["memory", "processes", "nvflare"])
def test_whether_a_contribution_is_hidden_depends_on_all_sums_and_on_the_computers(
    kind: DisclosureKind, engine: str
) -> None:
    facts, _ = copied(small_run("logistic", "additive"))
    facts["engine"]["name"] = engine
    if engine == "nvflare":
        facts["engine"]["pinned_roster"] = "ab"
    facts["method"]["disclosure"]["kind"] = kind.value
    found = contribution_hidden(facts, PrivacyClaims.of(facts))
    expected = {DisclosureKind.SITES: Status.PERSON, DisclosureKind.SOLVABLE: Status.MISSING}
    one_process = Status.PERSON if engine == "memory" else Status.ATTACHED
    assert found.status is expected.get(kind, one_process)
    facts["protocol"]["hides_from_coordinator"] = False
    assert contribution_hidden(facts, PrivacyClaims.of(facts)).status is Status.MISSING


def test_a_void_run_hides_nothing_and_is_void_in_every_claim() -> None:
    facts = void_run().facts
    claims = PrivacyClaims.of(facts)
    assert claims.void and not claims.holds and not claims.hides_sites
    assert contribution_hidden(facts, claims).where == "randomness"
    (only,) = claims.plain_words()
    assert (only.status, only.text) == (Status.MISSING, claims.sentence)
    assert not PrivacyClaims.of(noised_run("sum").facts).void


def test_the_short_form_of_a_claim_is_its_first_sentence() -> None:
    assert Claim("a", "One thing. Another.").in_short == "One thing."
    assert as_sentence("over NVFLARE") == "Over NVFLARE."
