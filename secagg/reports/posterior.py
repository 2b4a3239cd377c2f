"""The tables of a sparse Bayesian model: its prior, its posterior, and their Monte Carlo errors.

The page shows numbers of a posterior with their Monte Carlo errors, and posterior inclusion
probabilities (PIPs) with the prior that they depend on. A regression has a table and a forest plot.
A graph has a table of its likeliest pairs, a heat map of all PIPs (as in Figure 2 of Kidd, Wang, Xu
and Ni, PSB 2023) and a drawing of its edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.evidence import numbers as written
from secagg.models.common.posterior_summary import MAX_R_HAT
from secagg.reports.regression import unit_of
from secagg.reports.results import Block, Summary
from secagg.reports.svg import graph
from secagg.reports.svg.forest_plot import (
    Interval,
    Scale,
    axis_picture,
    interval_picture,
    scale_for,
)
from secagg.reports.svg.heat_map import MAX_CELLS, bar_picture, heat_picture

LIKELY = 0.5
"""The page marks coefficients with at least this PIP: they form the median probability model
(Barbieri and Berger 2004)."""
MAX_LISTED = 40
"""Pairs of a graph in the table, edges first; result.json has all of them."""


@dataclass(frozen=True)
class Pair:
    """A pair of variables of a graph, with the numbers of each coefficient between them.

    undecided: no edge, although the intervals of its coefficients exclude 0
    """

    source: str
    target: str
    directed: bool
    pip: float
    edge: bool
    undecided: bool
    weight: float | None
    sides: tuple[Summary, ...]


WITHHELD = (
    "The graph and its PIPs are not shown, because the chains disagree: the largest R-hat is above "
    f"{MAX_R_HAT}. The notes say about what; result.json has all PIPs."
)


def is_withheld(block: Block) -> bool:
    """Return whether a directed graph's PIPs are not shown: its chains disagree."""
    return "errors" in block.summary and not block.usable


def is_surrogate(summary: Summary) -> bool:
    """Return whether a graph is the Gaussian surrogate: pairs with one number each."""
    return "errors" in summary and "pairs" in summary


def prior_in_words(summary: Summary) -> str:
    """Return the prior in words."""
    prior = {
        key: value if isinstance(value, bool) else written.declared(value)
        for key, value in summary["prior"].items()
    }
    errors = f"IG({prior['noise_shape']}, {prior['noise_scale']})"
    site = f"σ_k² ~ {errors}"
    if summary.get("errors") == "laplace":
        site = f"Laplace errors of scale b_kj ~ {errors}"
    number = "one for each coefficient" if prior["own_eta"] else "one for all coefficients"
    eta = "η_j" if prior["own_eta"] else "η"
    spike, spread = f"{prior.get('spike_ratio')} {eta}", "λ_kj and τ_j ~ C⁺(0, 1)"
    if "spike_variance" in prior:  # the calibrated prior
        spike = written.significant(summary["prior"]["spike_variance"], 2)
        spread = f"λ_kj ~ C⁺(0, 1), τ_j ~ C⁺(0, {prior['spread_scale']})"
    return (
        f"Prior: θ_j ~ N(0, {eta}) in the slab and N(0, {spike}) in the "
        f"spike, {eta} ~ IG({prior['slab_shape']}, {prior['slab_scale']}), {number}; the slab has "
        f"probability ρ ~ Beta({prior['rho_a']}, {prior['rho_b']}). At site k: "
        f"θ_kj ~ N(θ_j, λ_kj² τ_j²), {spread}, {site}."
    )


def widths_in_words(summary: Summary) -> str:
    """Return the widths of spike and slab, which a PIP distinguishes."""
    widths = summary["diagnostics"]
    slab, spike = (written.significant(widths[name], 2) for name in ("slab_sd", "spike_sd"))
    return (
        f"A PIP is the probability that a coefficient comes from the slab. For these records the "
        f"slab has standard deviation {slab} and the spike {spike} (medians). A coefficient of the "
        "spike's size counts as zero, even if its estimate is precise."
    )


def sampler_in_words(summary: Summary) -> str:
    """Return the numbers of chains, rounds, sweeps and draws."""
    run = summary["sampler"]
    chains = written.counted(run["chains"], "chain")
    sweeps = written.counted(run["sweeps"], "sweep")
    thinned = f", one of {run['thin']} kept" if run["thin"] > 1 else ""
    return (
        f"{chains} of {written.counted(run['rounds'], 'round')}, {sweeps} at each site in a round, "
        f"without the first {written.count(run['warmup'])} rounds{thinned}: "
        f"{written.counted(run['chains'] * run['kept'], 'draw')}."
    )


def unit_analysed(summary: Summary) -> str:
    """Return the unit of coefficients."""
    scale = "pooled within sites" if summary["scale"] == "pooled" else "each site's own"
    return f"standard deviations of the outcome for one of the predictor, {scale}"


def pairs_of(summary: Summary) -> list[Pair]:
    """Return the pairs of a graph, the likeliest first; each direction of a directed graph."""
    if "arrows" in summary:
        return [
            Pair(
                row["from"], row["to"], True, row["pip"], row["edge"],
                row.get("undecided", False), row["mean"],
                ({"outcome": row["to"], "predictor": row["from"], **row},),
            )
            for row in summary["arrows"]
        ]  # fmt: skip
    pairs = []
    for row in summary["pairs"]:
        source, target = row["between"]
        weight, sides = row["partial_correlation"], tuple(row["sides"])
        edge, open_pair = row["edge"], row.get("undecided", False)
        pairs.append(Pair(source, target, False, row["pip"], edge, open_pair, weight, sides))
    return pairs


def of_regression(block: Block, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a regression: its table, and its forest plot."""
    rows: Sequence[Summary] = block.summary["coefficients"]
    own = all("own_units" in row for row in rows)
    return {
        **_words(block),
        "own": own,
        "outcome": block.summary["outcome"],
        "own_unit": _own_unit(block.summary["outcome"], columns),
        "rows": [
            {
                "term": row["term"],
                "unit": unit_of(row["term"], columns),
                "likely": row["pip"] >= LIKELY,
                "own": mean_and_interval(row, in_own_units=True) if own else ("", ""),
                "numbers": _numbers(row),
            }
            for row in rows
        ],
        "forest": _forest(block),
    }


def of_graph(block: Block) -> dict[str, Any]:
    """Return what the page shows of a graph: pairs, heat map and drawing."""
    summary, pairs = block.summary, pairs_of(block.summary)
    names: Sequence[str] = summary["names"]
    edges = [pair for pair in pairs if pair.edge]
    likely = edges + [pair for pair in pairs if not pair.edge]
    shown: dict[str, Any] = {
        **_words(block),
        "pairs": [(pair, [_numbers(side) for side in pair.sides]) for pair in likely[:MAX_LISTED]],
        "omitted": max(len(pairs) - MAX_LISTED, 0),
        "edges": len(edges),
        "directed": "arrows" in summary,
        "surrogate": is_surrogate(summary),
        "heat": None,
        "drawing": None,
        "legend": [],
        "withheld": WITHHELD if is_withheld(block) else "",
    }
    if shown["withheld"]:
        return shown
    if len(names) <= MAX_CELLS:
        shown["heat"] = heat_picture(names, _pips(pairs), "PIPs: outcomes by row")
    if len(names) <= graph.MAX_DRAWN:
        drawn = [
            graph.Edge(pair.source, pair.target, pair.directed, pair.weight, _sign(pair.weight))
            for pair in edges
        ]
        order = graph.round_order(names, [(edge.source, edge.target) for edge in drawn])
        shown["drawing"] = graph.graph_picture(order, drawn, f"{block.title}: its edges")
        shown["legend"] = [
            (kind, number, graph.edge_sample(kind, directed=shown["directed"]))
            for kind in graph.SIGNS
            if (number := sum(edge.verdict == kind for edge in drawn))
        ]
    return shown


def _words(block: Block) -> dict[str, str]:
    summary = block.summary
    return {
        "prior": prior_in_words(summary),
        "widths": widths_in_words(summary),
        "sampler": sampler_in_words(summary),
        "unit": unit_analysed(summary),
    }


def _numbers(row: Summary) -> dict[str, str]:
    """Return one coefficient's numbers in text."""
    mean, interval = mean_and_interval(row)
    return {
        "mean": mean,
        "error": written.significant(row["mcse_mean"], 2),
        "interval": interval,
        "pip": written.fixed(row["pip"], 3),
        "pip_error": written.fixed(row["pip_mcse"], 3),
        "r_hat": written.fixed(row["r_hat"], 3),
        "ess": ess_in_words([row]),
    }


def mean_and_interval(
    row: Summary, *, in_own_units: bool = False, centre: str = "mean"
) -> tuple[str, str]:
    """Return a coefficient's mean (or median, if `centre` is that) and its interval in text.

    The last digit is the second significant digit of the standard deviation, or the first one of
    the number's Monte Carlo error if that is larger: ends of intervals are often less certain than
    means, since few draws lie near them.
    """
    shown = row["own_units"] if in_own_units else row
    factor, width = 1.0, row["high"] - row["low"]
    if in_own_units and width > 0:  # errors of ends exist in the analysed unit only
        factor = (shown["high"] - shown["low"]) / width

    def text(name: str) -> str:
        error = row[f"mcse_{name}"]
        supported = 0.0 if error is None else 10 * factor * error
        return written.by_error(shown[name], max(shown["sd"] or 0.0, supported))

    return text(centre), written.interval(text("low"), text("high"))


def ess_in_words(rows: Sequence[Summary]) -> str:
    """Return the smallest bulk and tail effective sample sizes of some coefficients."""
    smallest = []
    for name in ("ess_bulk", "ess_tail"):
        sizes = [row[name] for row in rows if row[name] is not None]
        smallest.append(written.count(min(sizes)) if sizes else written.NONE)
    return " / ".join(smallest)


def _own_unit(outcome: str, columns: Mapping[str, Any]) -> str:
    """Return the unit of coefficients in own units."""
    logged = [name for name, column in columns.items() if column.get("transform") == "log"]
    of_outcome = unit_of(outcome, columns)
    if outcome in logged or not of_outcome:
        of_outcome = f"of {outcome}"
    of_logs = ", or one unit of log(x) if the job takes a column's logarithm" if logged else ""
    return (
        f"{of_outcome} for one unit of a continuous column{of_logs}, or one level against another"
    )


def _forest(block: Block) -> dict[str, Any]:
    """Return the terms on a common scale, since they have the same unit."""
    rows: Sequence[Summary] = block.summary["coefficients"]
    drawn = [Interval(row["mean"], row["low"], row["high"]) for row in rows]
    scale = scale_for(drawn, log=False)
    return {"axis": axis_picture(scale), "terms": [_drawn(row, scale) for row in rows]}


def _drawn(row: Summary, scale: Scale) -> dict[str, Any]:
    mean, interval = mean_and_interval(row)
    estimate, likely = Interval(row["mean"], row["low"], row["high"]), row["pip"] >= LIKELY
    return {
        "term": row["term"],
        "picture": interval_picture(estimate, scale, pooled=True, hollow=not likely),
        "bar": bar_picture(row["pip"]),
        "pip": written.fixed(row["pip"], 2),
        "mean": mean,
        "interval": interval,
    }


def _pips(pairs: Sequence[Pair]) -> dict[tuple[str, str], float]:
    """Return the PIP of each coefficient by outcome and predictor; of a pair with one, twice."""
    found = {}
    for pair in pairs:
        for side in pair.sides:
            found[side["outcome"], side["predictor"]] = side["pip"]
            if not pair.directed and len(pair.sides) == 1:
                found[side["predictor"], side["outcome"]] = side["pip"]
    return found


def _sign(weight: float | None) -> graph.Verdict:
    if not weight:
        return "found"
    return "positive" if weight > 0 else "negative"
