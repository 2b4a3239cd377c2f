"""The run report: one self-contained page for a data protection officer and a statistician.

A function of the facts of a run and its result: same input, same bytes. The page makes no request,
runs no script, and its content policy forbids both; every name in it is escaped by the template
engine or the element tree. It judges nothing: see `secagg.audits.statements`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from secagg.audits import (
    counts,
    fedlin,
    graphs,
    ledgers,
    limits,
    mechanisms,
    pictures,
    plainly,
    posteriors,
    privacy,
    prospects,
    regression,
    results,
    statements,
    tables,
)
from secagg.audits import format as written
from secagg.audits.advice import advice
from secagg.audits.curve import curve_picture
from secagg.audits.hazards import hazards
from secagg.contracts import Result

_SECTIONS = {
    "summary": "Summary",
    "result": "Result",
    "seen": "Who saw what",
    "privacy": "Differential privacy",
    "bounds": "Bounds and bits",
    "releases": "Release decisions",
    "unprotected": "What is not protected",
    "job": "Job as run",
    "integrity": "Integrity",
}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("secagg.audits", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (
        written.any_setting, written.count, written.counted, written.deviation,
        written.field_kind, written.fixed, written.listing, written.moment, written.power_of_two,
        written.probability, written.seconds, written.share, written.significant, written.size,
    )  # fmt: skip
    environment.filters |= {function.__name__: function for function in formats}
    return environment


def render(facts: Mapping[str, Any], result: Result) -> str:
    """Return the page.

    facts: as `secagg.evidence.facts` returns, with `log` = {lines, head}
    result: only its summary is read
    """
    environment = _environment()
    assert environment.loader is not None
    style = environment.loader.get_source(environment, "report.css")[0]
    summary = result.summary
    blocks, stages = results.blocks(summary), tables.stages(facts, summary)
    banners = statements.banners(facts, summary)
    questions = statements.questions(facts, fits=all(stage.fits for stage in stages))
    page = environment.get_template("report.html").render(
        sections={
            at: name for at, name in _SECTIONS.items() if at != "privacy" or privacy.noised(facts)
        },
        facts=facts,
        summary=summary,
        style=Markup(style),  # noqa: S704  # our own file, which must not be escaped
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        in_short=statements.in_short(banners, questions),
        claim=statements.claim(facts),
        who_saw=statements.who_saw(facts),
        consent=statements.consent(facts),
        banners=banners,
        unusable=statements.unusable(summary),
        questions=questions,
        unprotected=limits.unprotected(facts),
        dropped=statements.dropped(facts),
        played_on=statements.played_on(facts),
        released=tables.numbers_released(facts),
        blocks=[_block(block, facts, blocks) for block in blocks],
        columns=tables.columns(facts, summary),
        lanes=tables.lanes(facts),
        stages=stages,
        policies=tables.policies(facts),
        releases=tables.releases(facts, ledgers.repeated_rounds(facts)),
        site_rows=ledgers.sites(facts),
        ledger_counts=ledgers.counting(facts),
        sees=privacy.seen(facts),
        coordinator_key=tables.coordinator_key(facts),
        counted_records=results.records_of(summary) if privacy.noised(facts) else None,
        counts=None if privacy.noised(facts) else counts.of_records(facts, summary),
        other_counts=results.other_counts(summary) if privacy.noised(facts) else None,
        settings=tables.settings(facts),
        noise=privacy.in_short(facts),
        promise=_promise(facts, summary),
        arrow_up=pictures.arrow_picture(down=False),
        arrow_down=pictures.arrow_picture(down=True),
    )
    return page + "\n"


def _promise(facts: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the template shows of differential privacy, or None without noise."""
    promise = facts["privacy"]
    if promise is None:
        return None
    curve = [(delta, epsilon) for delta, epsilon in promise["curve"] if epsilon is not None]
    return {
        "holds": privacy.holds(facts),
        "claimed": privacy.claimed(facts),
        "plainly": plainly.promised(facts),
        "voids": plainly.voids(facts),
        "expected": prospects.expected(facts, summary),
        "terms": mechanisms.terms(facts),
        "mechanisms": mechanisms.mechanisms(facts),
        "curve": curve,
        "picture": curve_picture(curve, (promise["delta"], promise["epsilon"])),
        "colluders": mechanisms.colluders(facts),
        "gives_way": mechanisms.gives_way(promise, facts["protocol"]["name"]),
        "ledger": ledgers.ledger_standing(facts)[1],
        "repeats": ledgers.repeats(facts),
        "totals": ledgers.totals(facts),
        "caps": ledgers.caps(facts),
        "hazards": hazards(facts, summary),
    }


def _block(
    block: results.Block, facts: Mapping[str, Any], blocks: list[results.Block]
) -> dict[str, Any]:
    """Return what the template shows of one analysis."""
    columns = facts["job"]["columns"]
    shown: dict[str, Any] = {
        "block": block,
        "statistics": results.statistics(block.summary, noised=privacy.noised(facts)),
        "failures": block.failures(),
        "advice": advice(block.summary),
    }
    match block.kind:
        case "regression":
            shown["terms"] = regression.coefficient_table(block, columns)
            shown["panels"] = [_drawn(panel) for panel in regression.panels(block, columns)]
        case "graph":
            shown |= _graph(block, blocks)
        case "description":
            shown["rows"] = results.description_table(block.summary)
            shown["within"] = results.within_sites(block.summary)
        case "posterior":
            shown |= posteriors.of_regression(block, columns)
        case "posterior graph":
            shown |= posteriors.of_graph(block)
        case "sites":
            shown |= fedlin.of_sites(block, columns)
        case _:  # its statistics are all there is to show
            pass
    return shown


def _drawn(panel: regression.Panel) -> dict[str, Any]:
    """Return a panel with its pictures."""
    pictured = [
        (row, pictures.interval_picture(row.interval, panel.scale, pooled=i == 0))
        for i, row in enumerate(panel.rows)
    ]
    return {"panel": panel, "rows": pictured, "axis": pictures.axis_picture(panel.scale)}


def _graph(block: results.Block, blocks: list[results.Block]) -> dict[str, Any]:
    """Return edges and drawing; all graphs over the same variables are laid out alike."""
    names, edges = block.summary["names"], graphs.judged(block.summary)
    alike = [b.summary for b in blocks if b.kind == "graph" and b.summary["names"] == names]
    pairs = {(e.source, e.target) for summary in alike for e in graphs.judged(summary)}
    kinds: tuple[graphs.Verdict, ...] = ("found",)
    if "truth" in block.summary:
        kinds = ("true", "reversed", "extra", "missing")
    shown: dict[str, Any] = {
        "edges": edges,
        "reading": graphs.reading(block.summary),
        "weight_unit": graphs.weight_unit(block.summary),
        "scored": "truth" in block.summary,
        "legend": [
            (kind, sum(edge.verdict == kind for edge in edges), graphs.edge_sample(kind))
            for kind in kinds
        ],
        "alone": tables.graphs_alone(block),
        "drawing": None,
    }
    if len(names) <= graphs.MOST_DRAWN:
        order = graphs.round_order(names, sorted(pairs))
        shown["drawing"] = graphs.graph_picture(order, edges, f"{block.title}: the learned graph")
    return shown
