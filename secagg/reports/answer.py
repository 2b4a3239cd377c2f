"""The first three lines of a report: which data, which estimates, which guarantee.

The estimates are those of one analysis. If there are several, this is the first of: regression,
posterior of a regression, coefficients by site, graph, posterior of a graph, network, description,
tables of counts, other numbers (`_WORDS`). The sections below have all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from secagg.contracts import TableKind
from secagg.evidence import numbers as written
from secagg.evidence.claims.counts import records_of
from secagg.evidence.claims.disclosure import disclosure_kind, headline
from secagg.evidence.claims.guarantee import adjacency_in_words
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.reports import site_agreement
from secagg.reports.count_tables import count_tables
from secagg.reports.fedlin import differ_in_words
from secagg.reports.networks import edges_table
from secagg.reports.posterior import is_withheld, mean_and_interval, pairs_of
from secagg.reports.regression import effect, outcome_in_words
from secagg.reports.results import Block, Summary, statistics
from secagg.reports.svg import graph

Facts = Mapping[str, Any]
_SHOWN = 4  # estimates in a line


def answer(
    facts: Facts, summary: Summary, shown: Sequence[Block], claims: PrivacyClaims
) -> list[tuple[str, str]]:
    """Return three lines, each with its label."""
    return [
        ("Data", _data(facts, summary, claims)),
        ("Result", _result(shown, facts["job"]["columns"], claims)),
        ("Guarantee", _guarantee(facts, claims)),
    ]


def _data(facts: Facts, summary: Summary, claims: PrivacyClaims) -> str:
    sites = written.counted(len(facts["cohort"]), "site")
    if not claims.noised:
        data = f"{written.counted(summary['records'], 'complete record')} of {sites}"
        left_out = summary["incomplete_records"] or 0  # sites report small counts as 0
        return f"{data}; at least {written.count(left_out)} left out." if left_out else f"{data}."
    number, error = records_of(summary)
    about = f"about {written.count(number)} ± {written.deviation(error)}"
    return f"{about} complete records of {sites}; the number after ± is the noise."


def _guarantee(facts: Facts, claims: PrivacyClaims) -> str:
    if claims.void:
        return f"None. {claims.void}"
    sums = written.counted(len(facts["releases"]), "sum")
    sites = written.counted(len(facts["cohort"]), "site")
    seen = f"The coordinator saw {sums} over {sites}"
    if not claims.hides_sites:
        seen = "The coordinator saw each site's own contribution"
    if claims.holds:
        guarantee = claims.guarantee
        text = (
            f"{claims.epsilon_and_delta}, {adjacency_in_words(guarantee, guarantee['adjacency'])}"
        )
        text = f"Differential privacy with {text}. {seen}, with noise."
    elif claims.noised:
        text = f"No differential privacy is claimed, although the sites added noise. {seen}."
    else:
        text = (
            f"No differential privacy: the numbers are exact. {seen}{' only' * claims.hides_sites}."
        )
    warning = headline(disclosure_kind(facts), noised=claims.noised)
    return f"{text} {warning}." if warning else text


def _result(shown: Sequence[Block], columns: Mapping[str, Any], claims: PrivacyClaims) -> str:
    usable = [block for block in shown if block.usable]
    if not usable:
        return "None that may be used."
    block = min(usable, key=lambda block: _ORDER.index(block.kind))
    found = _WORDS[block.kind](block, columns)
    if block.kind is TableKind.NUMBERS:
        found = _numbers(block, noised=claims.noised)
    more = len(shown) - 1
    others = f" {written.counted(more, 'more analysis', 'more analyses')} below." if more else ""
    caution = " Read it with caution." if block.caution else ""
    return f"{found}{caution}{others}"


def _of_regression(block: Block, columns: Mapping[str, Any]) -> str:
    terms = [term for term in block.summary["terms"] if term["term"] != INTERCEPT]
    if all(term["statistic"] is not None for term in terms):
        terms.sort(key=lambda term: -abs(term["statistic"]))
        order = "the clearest first"
    else:
        terms, order = [term for term in terms if term["estimate"]], "those that are not 0"
    texts = []
    for term in terms[:_SHOWN]:
        _, estimate, interval = effect(term, block.effect)
        texts.append(f"{term['term']} {estimate}{f' ({interval})' if interval else ''}")
    what, unit = outcome_in_words(block, columns)["what"], outcome_in_words(block, columns)["unit"]
    kind = f"{block.effect_name.capitalize()}s"
    level = (
        f", {written.share(block.summary['level'])} intervals" if "level" in block.summary else ""
    )
    start = f"{kind} of {what}{f' in {unit}' if unit else ''}{level}, {order}"
    return f"{_line(start, texts, len(terms))} {site_agreement.in_short(block)}".strip()


def _of_posterior(block: Block, columns: Mapping[str, Any]) -> str:
    rows = sorted(block.summary["coefficients"], key=lambda row: -row["pip"])
    own = all("own_units" in row for row in rows)
    texts = []
    for row in rows[:_SHOWN]:
        mean, interval = mean_and_interval(row, in_own_units=own)
        texts.append(f"{row['term']} {mean} ({interval}), PIP {written.fixed(row['pip'], 2)}")
    unit = columns.get(block.summary["outcome"], {}).get("unit") if own else "standard deviations"
    start = f"Effects on {block.summary['outcome']}{f' in {unit}' if unit else ''}"
    level = f"{written.share(block.summary['level'])} intervals"
    return _line(f"{start}, {level}, the likeliest first", texts, len(rows))


def _of_sites(block: Block, columns: Mapping[str, Any]) -> str:
    summary, differ = block.summary, differ_in_words(block.summary)
    shared = [row for row in summary.get("shared", ()) if row["name"].startswith("mean of ")]
    if shared:
        rows = sorted(shared, key=lambda row: -abs(row["estimate"]) / (row["high"] - row["low"]))
        texts = []
        for row in rows[:_SHOWN]:
            low, high = (written.significant(row[end], 3) for end in ("low", "high"))
            estimate = written.significant(row["estimate"], 3)
            texts.append(f"{row['name'].removeprefix('mean of ')} {estimate} ({low} to {high})")
        level = f"{written.share(summary['level'])} intervals, the clearest first"
        start = f"Mean coefficients of {summary['outcome']}, {level}"
        return f"{_line(start, texts, len(rows))} {differ}".strip()
    rows = [row for row in summary["across_sites"] if row["term"] != INTERCEPT]
    rows.sort(key=lambda row: -abs(row["mean"]))
    texts = [
        f"{row['term']} {written.significant(row['mean'], 3)} ± {written.significant(row['sd'], 3)}"
        for row in rows[:_SHOWN]
    ]
    start = f"Mean ± standard deviation of the sites' coefficients of {summary['outcome']}"
    return f"{_line(f'{start}, the largest first', texts, len(rows))} {differ}".strip()


def _of_graph(block: Block, columns: Mapping[str, Any]) -> str:
    edges = [edge for edge in graph.judged(block.summary) if edge.verdict != "missing"]
    edges.sort(key=lambda edge: -abs(edge.weight or 0.0))
    names = [f"{e.source} {'→' if e.directed else '–'} {e.target}" for e in edges[:_SHOWN]]
    return _edges(names, len(edges), block.summary)


def _of_posterior_graph(block: Block, columns: Mapping[str, Any]) -> str:
    if is_withheld(block):
        return "The graph is not shown: its chains disagree."
    pairs = pairs_of(block.summary)
    edges, unclear = [pair for pair in pairs if pair.edge], sum(pair.undecided for pair in pairs)
    texts = [
        f"{pair.source} {'→' if pair.directed else '–'} {pair.target} (PIP "
        f"{written.fixed(pair.pip, 2)})"
        for pair in edges[:_SHOWN]
    ]
    answer = _edges(texts, len(edges), block.summary)
    if unclear:
        answer += f" {written.counted(unclear, 'pair')} undecided: no edge, but the interval "
        answer += "excludes 0."
    return answer


def _edges(texts: Sequence[str], number: int, summary: Summary) -> str:
    start = f"{written.counted(number, 'edge')} between {len(summary['names'])} variables"
    score = summary.get("score")
    if score is not None:
        start += f" (true edges found: {written.share(round(score['tpr'], 2))})"
    return _line(start, texts, number) if number else f"{start}."


def _of_network(block: Block, columns: Mapping[str, Any]) -> str:
    summary = block.summary
    if "edges" in summary:
        _, rows = edges_table(summary, 0)
        texts = [f"{a} – {b}" for a, b, _ in rows[:_SHOWN]]
        return _edges(texts, len(rows), summary)
    losses = summary.get("losses", ())
    trained = f"A network, trained in {written.counted(summary['rounds'], 'round')}"
    if losses:
        trained += f": loss {written.significant(losses[0])} in the first, "
        trained += f"{written.significant(losses[-1])} in the last"
    return f"{trained}."


def _of_description(block: Block, columns: Mapping[str, Any]) -> str:
    rows = block.summary["columns"]
    texts = []
    for row in rows[:_SHOWN]:
        mean, sd = (written.significant(row[key], 3) for key in ("mean", "sd"))
        texts.append(f"{row['column']} {mean} ({sd})")
    return _line("Means (standard deviations)", texts, len(rows))


def _of_counts(block: Block, columns: Mapping[str, Any]) -> str:
    shown = count_tables(block.summary)
    texts = [table.title for table in shown[:_SHOWN]]
    return _line("Tables of counts", texts, len(shown))


def _numbers(block: Block, *, noised: bool) -> str:
    lines = statistics(block, noised=noised)
    return _line(
        block.title, [f"{label} {value}" for label, value, _ in lines[:_SHOWN]], len(lines)
    )


def _line(start: str, texts: Sequence[str], number: int) -> str:
    more = f"; {number - len(texts)} more in the table" if number > len(texts) else ""
    return f"{start}: {'; '.join(texts) or 'none'}{more}."


_WORDS: Mapping[TableKind, Callable[[Block, Mapping[str, Any]], str]] = {
    TableKind.REGRESSION: _of_regression,
    TableKind.POSTERIOR: _of_posterior,
    TableKind.SITES: _of_sites,
    TableKind.GRAPH: _of_graph,
    TableKind.POSTERIOR_GRAPH: _of_posterior_graph,
    TableKind.NETWORK: _of_network,
    TableKind.DESCRIPTION: _of_description,
    TableKind.COUNTS: _of_counts,
    TableKind.NUMBERS: lambda block, _: block.title,
}
"""How each kind of table is worded. The first line of a report has the first kind in this order."""
_ORDER = list(_WORDS)
