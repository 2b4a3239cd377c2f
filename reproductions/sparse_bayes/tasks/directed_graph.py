"""Cells of the proteins of Sachs et al.: a federated sparse directed graph, and one-shot NOTEARS.

Records are logarithms of the 853 cells of the observational condition, in four consecutive blocks,
as if three laboratories had measured 213 cells each and one 214. The file's other cells were
measured under interventions, which change the effects of a protein. If conditions were sites, the
sites would have different graphs by design, and no single graph would be the truth for all. The
sites here are therefore similar; `outlying_site` simulates a site that deviates.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from reproductions.data import sachs
from reproductions.harness.simulated_runs import simulated
from reproductions.sparse_bayes.tasks.sampler import (
    WHOLE_FIT,
    quantities,
    sampled,
    sampler,
    widths,
)
from secagg.experiments.runner.types import Settings
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.sparse_bayes.markov_random_field import discoveries

SITES = 4
FDR = 0.1
MIN_PIP = 0.5
COPIES = 6  # of each chain
ARROW = " -> "
NAMES = tuple(sachs.PROTEINS.values())

COLUMNS: dict[str, dict[str, object]] = {
    name: {"type": "continuous", "low": 1.0, "high": 1e5, "transform": "log"} for name in NAMES
}


def edge(cause: str, effect: str) -> str:
    """Return the name of an edge."""
    return f"{cause}{ARROW}{effect}"


def true_edges() -> set[str]:
    """Return the names of the 17 edges of the consensus graph."""
    return {edge(cause, effect) for cause, effects in sachs.EDGES.items() for effect in effects}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the numbers of each edge and of the whole fit, and each graph's scores.

    Settings: method ("sparse" or "notears"), seed; for "sparse" also those of `sampler.sampler`.
    Graphs: "fdr", with the edges at the Bayesian false discovery rate FDR, and "likely", with the
    edges of a PIP above MIN_PIP; or "notears".
    """
    blocks = np.array_split(sachs.intensities(), SITES)
    tables = {f"block {k + 1}": pd.DataFrame(b, columns=NAMES) for k, b in enumerate(blocks)}
    if settings["method"] == "notears":
        analysis = {"kind": "notears", "penalty": 0.1, "standardise": True, "threshold": 0.3}
        moments = {"name": "moments", "centre": "site", "analyses": [analysis]}
        [graph] = simulated(moments, COLUMNS, tables, 0)[0].summary["analyses"]
        return {"notears": score((e["from"], e["to"]) for e in graph["edges"])}
    method = {
        "name": "sparse_directed",
        "variables": list(NAMES),
        "errors": "laplace",
        "ordered": False,
        "prior": "paper",
        "fdr": FDR,
        **paper(settings),
    }
    result, _ = simulated(method, COLUMNS, tables, int(settings["seed"]))
    theta, inclusion = sampled(result)
    ends = (result.arrays[name] for name in ("sources", "targets"))
    pairs = [(NAMES[cause], NAMES[effect]) for cause, effect in zip(*ends, strict=True)]
    numbers = {edge(*pair): quantities(theta, inclusion, (0, i)) for i, pair in enumerate(pairs)}
    pip = inclusion.mean[0]
    graphs = {"fdr": discoveries(pip, FDR), "likely": pip > MIN_PIP}
    scores = {name: score(p for p, edge in zip(pairs, is_edge, strict=True) if edge)
              for name, is_edge in graphs.items()}  # fmt: skip
    whole = {"records": float(result.summary["n"])} | widths(result.arrays["draws_eta"])
    return numbers | scores | {WHOLE_FIT: whole}


def paper(settings: Settings) -> dict[str, object]:
    """Return `sampler`'s settings without a step: directed graphs support only the paper's."""
    without_step = {name: value for name, value in sampler(settings).items() if name != "step"}
    return without_step | {"lambda_floor": 1e-4, "temperatures": COPIES, "path_steps": 0}


def score(edges: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return edges, right, reversed, extra, missing and shd of a graph, given the consensus."""
    graph = np.zeros((len(NAMES),) * 2, dtype=np.bool_)
    for cause, effect in edges:
        graph[NAMES.index(cause), NAMES.index(effect)] = True
    truth = sachs.consensus()
    compared = compare_graphs(graph, truth)
    counts = {
        "edges": graph.sum(), "right": (graph & truth).sum(), "reversed": compared.reversed,
        "extra": compared.extra, "missing": compared.missing, "shd": compared.shd,
    }  # fmt: skip
    return {name: float(count) for name, count in counts.items()}
