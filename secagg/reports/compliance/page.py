"""The page of a compliance report, drawn from its plain data (report.json) and nothing else.

The page makes no request and runs no script. The same data gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from secagg.reports.page import environment, style_of

_LIGHTS = {
    "evidence attached": "", "stated by a person": " stated", "evidence missing": " missing",
    "needs a person": " person",
}  # fmt: skip
_SHOWN = 4  # attacks of one verdict on the first page; section 8 has all
_SIGN_OFF = ("Decision and conditions", "Name and role", "Date and signature")

GLOSSARY: Mapping[str, str] = {
    "coordinator": "the party that runs the method; it sees only sums over sites",
    "site": "a party with records, for example a hospital; its records never leave it",
    "aggregator": "a party that adds up shares of contributions, each of which is random alone",
    "contribution": "the numbers that a site computes from its records and sends; never a record",
    "mask": "a random number that hides a contribution; all masks cancel in the sum",
    "share": "one of several random parts of a number; only enough of them together give it",
    "collude": "to work together against the others, for example by telling them secrets",
    "cohort": "the sites whose contributions are in a sum",
    "sum": "the total of the sites' contributions; nobody sees a single one",
    "release": "the moment at which a sum becomes readable",
    "round": "one sum that the method asks for",
    "ε (epsilon)": "the strength of a guarantee of differential privacy: how much one record can "
    "change the probability of any result; smaller is stronger, 0 would be perfect",
    "δ (delta)": "a small probability that may come on top of ε",
    "noise": "random numbers that are added on purpose, so that no result depends much on one "
    "record",
    "moments": "counts, means, and sums of squares and products of columns",
    "bounds": "the smallest and largest value of a column, declared in public; a site clips values "
    "outside, that is, moves them to the bound",
    "ledger": "the file in which a party writes down every release before it happens",
    "log": "the lines that a run wrote, each with a digest of all lines before it",
    "countersigned": "a site signed the end of the log, so that nobody can change it unnoticed",
    "audit": "attacks on a copy of the job by somebody who knows the true records",
    "control": "the same attack where the leak is certain: it shows that the attack works",
}
"""Words of the report, for readers without special knowledge."""


def compliance_page(report: Mapping[str, Any]) -> str:
    """Return the page. report: as `secagg.compliance.document.build` returns"""
    style, digest = style_of("compliance.css", "")
    runs = [each["run"] for each in report["first_page"]["runs"]]
    page = (
        environment()
        .get_template("compliance.html")
        .render(
            report=report,
            first=report["first_page"],
            numbers={name: i for i, name in enumerate(runs, start=1)},
            several=len(runs) > 1,
            shown=_SHOWN,
            lights=_LIGHTS,
            sign_off=_SIGN_OFF,
            glossary=GLOSSARY,
            style=Markup(style),  # noqa: S704  # from this package; must not be escaped
            style_hash=digest,
        )
    )
    return page + "\n"
