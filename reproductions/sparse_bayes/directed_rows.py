"""The tables for the directed graph of `sparse_bayes`: the proteins of Sachs et al."""

from __future__ import annotations

from collections.abc import Mapping

from reproductions.harness.tables import StudyTables, Table
from reproductions.sparse_bayes import rows as text
from reproductions.sparse_bayes.tasks import directed_graph
from reproductions.sparse_bayes.tasks.sampler import WHOLE_FIT
from secagg.experiments.runner.types import Numbers

TITLE = "A directed graph of 11 proteins, cycles allowed"
NOTEARS = "NOTEARS, one shot"
MIN_SHOWN_PIP = 0.1  # smallest PIP of an edge in the table
NOTES = (
    "Records: the 853 cells of the observational condition of Sachs et al. (Science 2005), from "
    "the package cdt 0.6.0, as logarithms, in four consecutive blocks of the file: four similar "
    "sites. The file's other cells were measured under interventions, which change the graph.",
    "Truth: the 17 edges of the consensus graph, which come from biology and not from these cells.",
    text.HYPER.format(slab=text.PRIORS[text.ONE]).replace("`collapsed`", "`paper`"),
    text.MIXING,
    f"Graphs of the sparse model: the edges at a Bayesian false discovery rate of "
    f"{directed_graph.FDR:g}, and the edges with a PIP above {directed_graph.MIN_PIP:g}. SHD "
    "counts 1 for each missing pair, extra pair and reversed edge; a graph without edges has 17.",
    f"{NOTEARS}: one secure sum of moments, standardised, penalty 0.1, edges above 0.3.",
)


def tables(fits: Mapping[str, Numbers]) -> StudyTables:
    """Return the likeliest edges, the graphs compared with the truth, and the chains' mixing."""
    fit = fits[text.ONE]
    edges = {name: row for name, row in fit.items() if directed_graph.ARROW in name}
    shown = sorted(
        (name for name, row in edges.items() if row["pip"] >= MIN_SHOWN_PIP),
        key=lambda name: -edges[name]["pip"],
    )
    likeliest = Table(
        "Edges",
        ("edge", "mean", "95 % interval", "PIP", "in the consensus graph", "R-hat", "ESS, bulk",
         "tail"),
        [
            [name, *row[:3], _truth(name), *row[3:]]
            for name in shown
            for row in [text.coefficient_row(name, edges[name])[1:]]
        ],
        f"Edges with a PIP of at least {MIN_SHOWN_PIP:g}. Prior: {text.PRIORS[text.ONE]}.",
    )  # fmt: skip
    scored = {
        f"Bayesian false discovery rate {directed_graph.FDR:g}": fit["fdr"],
        f"PIP above {directed_graph.MIN_PIP:g}": fit["likely"],
        NOTEARS: fits[NOTEARS]["notears"],
    }
    kinds = ("edges", "right", "reversed", "extra", "missing", "shd")
    graphs = Table(
        "Graphs",
        ("graph", "edges", "right", "reversed", "extra pairs", "missing pairs", "SHD"),
        [[name, *(f"{row[kind]:.0f}" for kind in kinds)] for name, row in scored.items()],
    )
    mixing = Table(
        "Mixing of the chains",
        text.MIXING_HEAD,
        [text.mixing_row(list(edges.values()), fit[WHOLE_FIT])],
    )
    return StudyTables((likeliest, graphs, mixing))


def _truth(name: str) -> str:
    cause, effect = name.split(directed_graph.ARROW)
    true = directed_graph.true_edges()
    if name in true:
        return "yes"
    return "reversed" if directed_graph.edge(effect, cause) in true else "no"
