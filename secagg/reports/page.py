"""The run report: one self-contained page for a data protection officer and a statistician.

The page is a function of the facts of a run and its result: same input, same bytes. It makes no
request and runs no script, and its content policy forbids both. The template engine or the element
tree escapes every name in it. It gives no verdict: see `secagg.reports.summary`.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape

from secagg.contracts import Result, TableKind
from secagg.evidence import numbers as written
from secagg.evidence.claims import guarantee as guarantees
from secagg.evidence.claims import ledgers, limitations, parties, rules
from secagg.evidence.claims import noise as noise_claims
from secagg.evidence.claims.counts import at_least, not_counted, records_of
from secagg.evidence.claims.disclosure import determined, record_counts
from secagg.evidence.claims.hazards import hazards
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.reports import (
    count_tables,
    expected_utility,
    fedlin,
    networks,
    posterior,
    regression,
    results,
    site_agreement,
    tables,
)
from secagg.reports import summary as summary_sections
from secagg.reports.answer import answer
from secagg.reports.names import shown_columns
from secagg.reports.svg import forest_plot, graph
from secagg.reports.svg.xy_chart import curve_picture

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
"""Control characters, marks of direction and characters without width: no page needs them."""
_KEY = re.compile(r"`([\w.]+)`")
_SECTIONS = {
    "result": "Result",
    "questions": "Questions and sign-off",
    "seen": "Who saw what",
    "privacy": "Differential privacy",
    "bounds": "Bounds and bits",
    "releases": "Release decisions",
    "unprotected": "What is not protected",
    "job": "Job as run",
    "integrity": "Integrity",
}


@cache
def _visible(value: Any) -> Any:
    """Return a text with its invisible characters written out, so that none can turn others round.

    Column names and titles are from the job, which somebody else may have written. In a text of the
    package, a key between backticks is set as code.
    """
    if not isinstance(value, str):
        return value
    text = type(value)(_INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], value))
    if isinstance(text, Markup) or not _KEY.search(text):
        return text
    return Markup(_KEY.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  # \1 has no markup


def environment() -> jinja2.Environment:
    """Return the templates with all filters."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("secagg.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    formats = (
        at_least, written.any_setting, written.count, written.counted, written.declared,
        written.deviation, written.field_kind, written.fixed, written.listing, written.moment,
        written.power_of_two, written.probability, written.seconds, written.share,
        written.significant, written.size, written.typeset,
    )  # fmt: skip
    made.filters |= {function.__name__: function for function in formats}
    return made


def style_of(template: str, session: str) -> tuple[str, str]:
    """Return a page's style, and its digest for the content policy."""
    session = "".join(filter(str.isalnum, session))  # it stands in a string of the style
    style = environment().get_template(template).render(session=session)
    return style, base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def render(facts: Mapping[str, Any], result: Result) -> str:
    """Return the page.

    facts: as `secagg.runs.facts.facts` returns, with `log` = {lines, head}
    result: only its summary is read
    """
    style, style_hash = style_of("report.css", facts["session"])
    summary = result.summary
    claims = PrivacyClaims.of(facts)
    blocks, stages = results.blocks(facts, summary), tables.stages(facts, summary, claims)
    banners = summary_sections.banners(facts, summary, claims)
    questions = summary_sections.questions(facts, claims, fits=all(stage.fits for stage in stages))
    page = (
        environment()
        .get_template("report.html")
        .render(
            sections={
                at: name for at, name in _SECTIONS.items() if at != "privacy" or claims.noised
            },
            facts=facts,
            summary=summary,
            style=Markup(style),  # noqa: S704  # from this package; must not be escaped
            style_hash=style_hash,
            answer=answer(facts, summary, blocks, claims),
            in_short=summary_sections.in_short(banners, questions),
            claim=summary_sections.claim(facts, claims),
            who_saw=parties.who_saw(facts, claims),
            consent=rules.consent(facts),
            not_of_a_site=rules.NOT_OF_A_SITE,
            determined=determined(facts["method"]["disclosure"]["text"], noised=claims.noised),
            banners=banners,
            unusable=summary_sections.unusable(facts, summary),
            questions=questions,
            unprotected=limitations.unprotected(facts, claims),
            dropped=parties.dropped(facts),
            where_it_ran=parties.where_it_ran(facts),
            released=tables.numbers_released(facts, claims),
            blocks=[_block(block, facts, claims, blocks) for block in blocks],
            columns=tables.columns(facts, summary, claims),
            lanes=tables.lanes(facts, claims),
            stages=stages,
            thresholds=tables.thresholds(facts),
            releases=tables.releases(facts, claims.ledger.repeated),
            site_rows=ledgers.sites(facts),
            ledger_counts=ledgers.counting(facts),
            sees=claims.sees,
            coordinator_key=tables.coordinator_key(facts),
            counted_records=records_of(summary) if claims.noised else None,
            counts=_counts(facts, summary, claims),
            not_counted=not_counted(facts),
            other_counts=results.other_counts(facts, summary) if claims.noised else None,
            settings=tables.settings(facts, claims),
            noise=claims.noise_in_short(),
            guarantee=_guarantee(facts, summary, claims),
            arrow_up=forest_plot.arrow_picture(down=False),
            arrow_down=forest_plot.arrow_picture(down=True),
        )
    )
    return page + "\n"


def _counts(
    facts: Mapping[str, Any], summary: Mapping[str, Any], claims: PrivacyClaims
) -> str | None:
    shown = results.site_counts_shown(facts, summary)
    return None if claims.noised else record_counts(facts, single_sites=shown)


def _guarantee(
    facts: Mapping[str, Any], summary: Mapping[str, Any], claims: PrivacyClaims
) -> dict[str, Any] | None:
    """Return what the template shows of differential privacy, or None without noise."""
    if not claims.noised:
        return None
    guarantee = claims.guarantee
    # At a small delta no epsilon may hold: infinite, or null if it was read from run.json.
    curve = [(delta, e) for delta, e in guarantee["curve"] if e is not None and math.isfinite(e)]
    return {
        "holds": claims.holds,
        "sentence": written.typeset(claims.sentence),
        "plain_words": claims.plain_words(),
        "voids": guarantees.invalidating_conditions(
            guarantee, exact_before=bool(claims.ledger.exact)
        ),
        "expected": expected_utility.expected(facts, summary),
        "terms": noise_claims.terms(claims, facts["job"]["privacy"]),
        "mechanisms": noise_claims.mechanisms(claims),
        "curve": curve,
        "picture": curve_picture(curve, (guarantee["delta"], guarantee["epsilon"])),
        "colluders": noise_claims.colluders(guarantee),
        "noise_exhausted": noise_claims.noise_exhausted(guarantee, facts["protocol"]["name"]),
        "ledger": claims.ledger.standing,
        "repeats": claims.ledger.repeats,
        "totals": ledgers.totals(facts),
        "caps": ledgers.caps(facts),
        "hazards": hazards(claims, summary),
    }


def _block(
    block: results.Block,
    facts: Mapping[str, Any],
    claims: PrivacyClaims,
    blocks: list[results.Block],
) -> dict[str, Any]:
    """Return what the template shows of one analysis."""
    columns = shown_columns(facts["job"]["columns"])
    shown: dict[str, Any] = {
        "block": block,
        "statistics": results.statistics(block, noised=claims.noised),
        "failures": block.failures(),
    }
    match block.kind:
        case TableKind.REGRESSION:
            shown["terms"] = regression.coefficient_table(block, columns)
            shown["outcome"] = regression.outcome_in_words(block, columns)
            agreed = {each.term: each for each in site_agreement.agreements(block)}
            panels = regression.panels(block, columns)
            shown["panels"] = [_drawn(panel, agreed.get(panel.term)) for panel in panels]
            shown["cut"] = any(panel.cut for panel in panels)
            shown["agreement"] = site_agreement.sentences(block)
            shown["differ"] = any(each.differ for each in agreed.values())
        case TableKind.GRAPH:
            shown |= _graph(block, blocks)
        case TableKind.DESCRIPTION:
            shown["rows"] = results.description_table(block.summary)
            shown["within"] = results.within_sites(block.summary)
        case TableKind.COUNTS:
            shown["tables"] = count_tables.count_tables(block.summary)
        case TableKind.POSTERIOR:
            shown |= posterior.of_regression(block, columns)
        case TableKind.POSTERIOR_GRAPH:
            shown |= posterior.of_graph(block)
        case TableKind.SITES:
            shown |= fedlin.of_sites(block, columns)
        case TableKind.NETWORK:
            shown |= networks.of_network(block, facts)
        case TableKind.NUMBERS:  # the statistics are its whole result
            pass
    return shown


def _drawn(panel: regression.Panel, agreement: site_agreement.Agreement | None) -> dict[str, Any]:
    """Return a panel with its pictures, and how far the sites agree."""
    pictured = [
        (
            row,
            forest_plot.interval_picture(
                row.interval, panel.scale, pooled=i == 0, weight=panel.weight(row)
            ),
        )
        for i, row in enumerate(panel.rows)
    ]
    return {
        "panel": panel,
        "rows": pictured,
        "axis": forest_plot.axis_picture(panel.scale),
        "agreement": "" if agreement is None else site_agreement.in_words(agreement),
        "differ": agreement is not None and agreement.differ,
    }


def _graph(block: results.Block, blocks: list[results.Block]) -> dict[str, Any]:
    """Return edges and drawing; graphs over the same variables have the same layout."""
    names, edges = block.summary["names"], graph.judged(block.summary)
    graphs = [b.summary for b in blocks if b.kind is TableKind.GRAPH]
    same_names = [summary for summary in graphs if summary["names"] == names]
    pairs = {(e.source, e.target) for summary in same_names for e in graph.judged(summary)}
    kinds: tuple[graph.Verdict, ...] = ("found",)
    if "truth" in block.summary:
        kinds = ("true", "reversed", "extra", "missing")
    shown: dict[str, Any] = {
        "edges": edges,
        "caption": block.table.caption,
        "weight_unit": block.table.weights,
        "scored": "truth" in block.summary,
        "legend": [
            (kind, sum(edge.verdict == kind for edge in edges), graph.edge_sample(kind))
            for kind in kinds
        ],
        "alone": tables.graphs_alone(block),
        "drawing": None,
    }
    if len(names) <= graph.MAX_DRAWN:
        order = graph.round_order(names, sorted(pairs))
        shown["drawing"] = graph.graph_picture(order, edges, f"{block.title}: the learned graph")
    return shown
