"""`secagg audit` begins with its answer: leaks by name, a refusal, and numbers of verdicts."""

import html
import re
from dataclasses import replace

import pytest
from support.runs.audited import job

from secagg.audits.audit import Attacked, Audit
from secagg.audits.audit_file import as_plain
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Finding, Limit, Verdict
from secagg.audits.outcomes import Outcome
from secagg.audits.views import Who
from secagg.cli.output import audit as output
from secagg.cli.output.terminal import SafeConsole
from secagg.jobs.job import parse_job
from secagg.reports.audits.page import audit_page

LIMIT, PLANTED = Limit(0.1), Finding.exact(1.1, 0.0)


def attacked(name: str, number: float, who: Who, control: Finding | None = PLANTED) -> Attacked:
    (attack,) = make_attacks([name])
    limit = None if control is None else LIMIT
    outcome = Outcome("", Finding.exact(number, 0.0), LIMIT, control, limit)
    return Attacked(attack, who, outcome, LIMIT)


def audit(*found: Attacked, refusals: tuple[str, ...] = ()) -> Audit:
    made = parse_job(job({"name": "moments"}, 2))
    return Audit(made, ("a", "b", "c"), 90, 20, 0.2, 0, found, refusals)


def shown(found: Audit, width: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Return the lines of the answer, and the others."""
    console = SafeConsole(record=True, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "standard_output", lambda: console)
    output.show(found, None)
    first, _, rest = console.export_text().partition("\n\n")
    return [line.rstrip() for line in first.splitlines()], rest.splitlines()


SMALL = attacked("identified_share", 0.2, Who.COORDINATOR)
LARGE = attacked("tracing", 0.9, Who.COORDINATOR)
NONE = attacked("rare_cell", 0.0, Who.COORDINATOR)
UNCLEAR = attacked("admm_sums", 0.0, Who.COORDINATOR, control=Finding.exact(0.0, 0.0))


def test_leaks_come_first_and_the_worst_of_them_before_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [SMALL.severity, LARGE.severity] == pytest.approx([0.1, 0.8])
    answer, rest = shown(audit(NONE, UNCLEAR, SMALL, LARGE), 120, monkeypatch)
    assert answer == [
        "2 leaks, worst first: tracing (coordinator), identified_share (coordinator)",
        "inconclusive 1, no leak found 1",
    ]
    names = [each.attack.name for each in (LARGE, SMALL, UNCLEAR, NONE)]
    rows = [line.split()[0] for line in rest if re.match(r"\w+ +coordinator ", line)]
    assert rows == names
    page = html.unescape(audit_page(as_plain(audit(NONE, UNCLEAR, SMALL, LARGE))))
    banner, table = page.split('class="banner void"')[1].split("<table")[:2]
    assert banner.index(LARGE.attack.title) < banner.index(SMALL.attack.title)
    assert re.findall(r'href="#(\w+)"', table) == names


def test_without_a_control_or_limits_a_leak_counts_as_the_worst() -> None:
    alone = attacked("rare_cell", 0.11, Who.OUTSIDER, control=None)
    assert alone.verdict is Verdict.LEAK and alone.severity == 1
    beyond = replace(PLANTED, value=float("inf"))
    assert attacked("rare_cell", float("inf"), Who.OUTSIDER, control=beyond).severity == 1
    error = Attacked(alone.attack, Who.OUTSIDER, Outcome(
        "", Finding.exact(0.2, 1.0), Limit(0.5, errors=True), Finding.exact(0.0, 1.0),
        Limit(0.5, errors=True)), Limit(0.5, errors=True))  # fmt: skip
    assert error.severity == pytest.approx(0.6)


def test_the_answer_has_at_most_six_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [attacked(a.name, 1.0, who) for a in make_attacks() for who in a.views]
    refusals = ("north, by its rules: " + "a long reason " * 40, "south, by its rules: another")
    answer, _ = shown(audit(*every, NONE, refusals=refusals), 80, monkeypatch)
    assert len(answer) <= 6 and max(map(len, answer)) <= 80
    text = " ".join(map(str.strip, answer))
    assert f"{len(every)} leaks, worst first" in text and "(and 1 more)" in text
    assert "no leak found 1" in text


def test_no_leak_is_said_of_limits_and_not_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit that finds nothing either way must not sound like one that found no leak."""
    answer, rest = shown(audit(UNCLEAR), 80, monkeypatch)
    assert answer == ["no limit is exceeded: inconclusive 1"]
    assert any("planted leak" in line for line in rest)
