"""The page of an audit: one self-contained file, a table with a row for each attack and view.

Leaks come first, the worst of them before others, as in the terminal.
The page is a function of the audit's plain data (audit.json): same input, same bytes. It makes no
request and runs no script. It shows what was measured, and gives no verdict beyond the limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from secagg.contracts.findings import Limit
from secagg.evidence.numbers import integer, percent, significant
from secagg.reports.page import environment, style_of
from secagg.reports.svg.xy_chart import Axis, Points, xy_picture

_SIGNS = {"leak": "✕", "no leak found": "✓", "inconclusive": "?", "not applicable": "–"}
_ORDER = ("leak", "inconclusive", "no leak found", "not applicable")
_VIEWS = {
    "coordinator": "the coordinator",
    "dishonest": "a dishonest coordinator",
    "coalition": "the coordinator with some sites",
    "outsider": "an outsider with the result",
}
_FLOOR = 1e-3  # of an axis of rates
_STATISTICS = ("means", "covariances")
_NONE = 1e-3  # at most: a share of the means that a sum within sites determines, by rounding


def audit_page(audit: Mapping[str, Any]) -> str:
    """Return the page of an audit, or of the audit of a run's folder."""
    shown = sorted((each for each in audit["attacks"] if "value" in each), key=_place)
    found = {v: sum(each["verdict"] == v for each in audit["attacks"]) for v in _SIGNS}
    style, digest = style_of("audit.css", "")
    page = (
        environment()
        .get_template("audit.html")
        .render(
            audit=audit,
            of_run="session" in audit,
            found=found,
            tried=len({each["name"] for each in audit["attacks"]}),
            leaks=[_leak(each) for each in shown if each["verdict"] == "leak"],
            rows=list(map(_row, shown)),
            attacked=list({each["name"]: each for each in shown}.values()),
            pictures=[picture for each in shown for picture in _pictures(each)],
            left_out=_left_out(audit["attacks"]),
            style=Markup(style),  # noqa: S704  # from this package; must not be escaped
            style_hash=digest,
        )
    )
    return page + "\n"


def _place(each: Mapping[str, Any]) -> tuple[int, float]:
    """Return what rows are sorted by: leaks first, the worst of them before others."""
    place, control = _ORDER.index(each["verdict"]), each.get("control")
    if each["verdict"] != "leak":
        return place, 0.0
    planted = None if control is None else float(control["value"])
    return place, -Limit.of_text(each["limit"]).severity(float(each["value"]), planted)


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    control = each.get("control")
    return {
        **each,
        "sign": _SIGNS[each["verdict"]],
        "number": interval(each),
        "guess": number(each["baseline"]),
        "planted": "" if control is None else interval(control),
        "remark": remark(each),
        "limit": limit_in_words(each["limit"]),
    }


def _leak(each: Mapping[str, Any]) -> str:
    """Return a leak in a sentence."""
    who = _VIEWS.get(each["view"], each["view"])
    return (
        f"{each['title']}, for {who}: {interval(each)} ({each['meaning']}); the limit is "
        f"{limit_in_words(each['limit'])}. {remark(each)}"
    ).strip()


def limit_in_words(limit: str | None) -> str:
    """Return a limit with the signs of mathematics."""
    return "–" if limit is None else limit.replace("<=", "≤").replace(">=", "≥")


_SHOWN_SITES = 4


def remark(found: Mapping[str, Any]) -> str:
    """Return what a finding says beside its number, in a sentence; or ""."""
    if by_site := found["details"].get("by_site"):
        return _by_site(by_site)
    if smallest := found["details"].get("smallest"):
        return _smallest_cell(smallest, found["details"].get("allowed"))
    reference = found["details"].get("one_sum_of_moments")
    if not reference:
        return ""
    what = "One sum of moments"
    shares = [f"{percent(reference[name])} of their {name}" for name in _STATISTICS]
    if reference["means"] < _NONE:
        what, shares = f"{what} within sites", ["none of their means", *shares[1:]]
    return (
        f"{what}, which every linear analysis needs, already determines {' and '.join(shares)}, "
        "on average over the sites; the number is what this run adds to that."
    )


def _smallest_cell(smallest: str, allowed: int | None) -> str:
    text = f"The smallest: {smallest}."
    if allowed is None:
        return text
    return (
        f"{text} The job allows this, with release.min_cell_records = {allowed}, below the limit "
        "of an audit. Raise it, merge levels, or state why such counts may be known."
    )


def _by_site(sites: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the relative errors of the sites that are known best, and how well the first is."""
    best = sorted(sites, key=lambda site: (sites[site]["relative_error"], site))
    parts = [
        f"{site} ({number(float(sites[site]['records']))} records) "
        f"{number(sites[site]['relative_error'])}" + (", leak" if sites[site]["leak"] else "")
        for site in best[:_SHOWN_SITES]
    ]
    rest = len(best) - len(parts)
    text = f"By site: {'; '.join(parts)}{f'; {rest} more' if rest else ''}."
    first = sites[best[0]]
    if "error" in first:
        error, guess = (number(first[which]["means"]) for which in ("error", "guess"))
        text += (
            f" The means of {best[0]} are those of all records to {error} standard deviations, and "
            f"those of the other sites to {guess}."
        )
    return text


def interval(found: Mapping[str, Any]) -> str:
    """Return a number with its interval, if it is an estimate."""
    low, value, high = (number(found[name]) for name in ("low", "value", "high"))
    return value if found["low"] == found["high"] else f"{value} ({low} to {high})"


def number(value: float | str | None) -> str:
    """Return a number with three digits; a whole one as it is. A text: "inf" or "-inf" of JSON"""
    value = float(value) if isinstance(value, str) else value
    if value is not None and math.isfinite(value) and float(value).is_integer():
        return integer(int(value))
    return significant(value, 3)


def _left_out(attacks: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the reasons why attacks have no number, each with the attacks."""
    reasons: dict[str, list[str]] = {}
    for each in attacks:
        if "value" not in each:
            reasons.setdefault(each["why"], []).append(f"{each['name']} ({each['view']})")
    return reasons


# --- pictures -------------------------------------------------------------------------------------


def _pictures(each: Mapping[str, Any]) -> list[tuple[str, Markup]]:
    """Return the pictures of an attack's details, with captions."""
    name, details = f"{each['name']}, {each['view']}", each["details"]
    found = []
    if len(rounds := details.get("mean_shares", {})) > 1:
        found.append((f"{name}: share identified after each number of rounds", _shares(rounds)))
    if len(roc := details.get("roc", ())) > 1:
        found.append((f"{name}: receiver operating characteristic", _roc(roc)))
    return found


def _shares(rounds: Mapping[str, Mapping[str, float]]) -> Markup:
    numbers = sorted(map(int, rounds))
    lines = [
        (group, [(float(r), rounds[str(r)][group]) for r in numbers])
        for group in rounds[str(numbers[0])]
    ]
    x = Axis("rounds observed", 1.0, float(numbers[-1]), log=True)
    return xy_picture("Identified share", lines, x, Axis("identified share", 0.0, 1.0))


def _roc(points: Points) -> Markup:
    seen = [(max(a, _FLOOR), max(b, _FLOOR)) for a, b in points if math.isfinite(a + b)]
    x = Axis("false positive rate", _FLOOR, 1.0, log=True)
    y = Axis("true positive rate", _FLOOR, 1.0, log=True)
    return xy_picture("Receiver operating characteristic", [("attack", seen)], x, y, diagonal=True)
