"""Fed-Sparse-BNSL beside secagg's graphs under noise, at equal epsilon.

El Fehri, Bellet and Bastien, "Differentially private and federated structure learning in Bayesian
networks" (AISTATS 2026, PMLR 300, 4879-4887; arXiv 2512.01708; program:
gitlab.com/ghitafassy/fed-sparse-bnsl). Neither the full text nor the program could be read. We read
the abstract, the beginning of the introduction, and two published summaries.

These sources state: linear Gaussian networks; the consensus problem of Ng and Zhang (AISTATS 2022)
with the l1 penalty moved to the participants' matrices; proximal greedy coordinate descent at each
participant, which sends only the few entries that it changed; in the private variant, the
exponential mechanism to select an entry and Gaussian noise in its gradient; zCDP.

Our choices: the greedy rule and its scale, clipping of each record's entry of the gradient,
neighbours (one record added or removed, the number of records public), exponents e^2 / 8 instead of
e^2 / 2 for the selection, equal budgets for all steps, Ng and Zhang's penalties rho, and secagg's
solver for W. `choices` has the numbers, chosen in the method's favour: by a search on other graphs
that costs no privacy. secagg's methods have their defaults, except that columns keep their units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace

from reproductions.fed_sparse_bnsl.choices import FOUND, NOTEARS
from reproductions.harness.figures import Figure, Method, Metric, Panel, Place, Remark
from secagg.experiments.runner.cells import Cell, cell
from secagg.experiments.runner.types import Plain

TASKS = "reproductions.fed_sparse_bnsl.tasks"
SEEDS, QUICK_SEEDS = 30, 3
EPSILONS, DELTA = (1.0, 8.0), 1e-5
SIZES = (10, 20, 50)
SITES, EACH = 10, 1000
GES_SIZES = (10,)  # with noise, GES adds so many edges that d = 20 takes a minute a run

METRICS = (
    Metric("shd", "SHD", 1),
    Metric("tpr", "TPR", 2, top=1.0),
    Metric("fdr", "FDR", 2, top=1.0),
)
COSTS = (
    Metric("edges", "Edges", 1),
    Metric("rho", "rho (zCDP) spent", 4),
    Metric("kilobytes", "kB sent by each site", 1),
    Metric("seconds", "CPU seconds", 2),
)
PEER = "fed-sparse-bnsl"
EXACT_PEER = f"{PEER}-exact"
NOISY = {
    "admm-site": ("admm", "site"),
    "notears-site": ("notears", "site"),
    "notears-site-chosen": ("notears", "site"),
    "notears-sum": ("notears", "sum"),
    "ges-site": ("ges", "site"),
    "ges-sum": ("ges", "sum"),
}
EXACT = {
    EXACT_PEER: None,
    "admm-none": ("admm", "none"),
    "notears-none": ("notears", "none"),
    "ges-none": ("ges", "none"),
}
SECONDS = {"peer": (0.15, 1.0), "notears": (0.8, 1.2), "ges": (1.0, 3.4), "admm": (1.6, 0.6)}
"""Rough processor time of a cell at d = 10, and the power of d at which it grows."""

METHODS = (
    Method(PEER, "Fed-Sparse-BNSL", note="our reading; each participant's messages have noise."),
    Method("admm-site", "notears_admm, noise at sites", note="each site's moments have noise."),
    Method("notears-site", "moments + notears, noise at sites", note="one sum."),
    Method(
        "notears-site-chosen",
        "the same, penalty and threshold chosen",
        drawn=False,
        note="by the search that chose Fed-Sparse-BNSL's settings.",
    ),
    Method("notears-sum", "moments + notears, noise in the sum", note="one sum, noise once."),
    Method("ges-site", "moments + ges, noise at sites", drawn=False, note="one sum."),
    Method("ges-sum", "moments + ges, noise in the sum", drawn=False, note="one sum."),
    Method(EXACT_PEER, "Fed-Sparse-BNSL, no noise", drawn=False, note="and no clipping."),
    Method("admm-none", "notears_admm, no noise", drawn=False),
    Method("notears-none", "moments + notears, no noise", drawn=False),
    Method("ges-none", "moments + ges, no noise", drawn=False),
)
NOTES = (
    f"Graphs with as many edges as variables, weights of 0.5 to 2, errors of variance 1; {SITES} "
    f"sites with {EACH} records each. An empty graph has the SHD d. Within a run, all methods have "
    "the same records.",
    f"All noisy rows spend the same rho; epsilon follows from it and delta = {DELTA:g} by Bun and "
    "Steinke's conversion. Noise in the sum protects a record from everyone if the protocol hides "
    "single contributions; noise at sites, and Fed-Sparse-BNSL's, needs no such protocol.",
    "Fed-Sparse-BNSL is built from published summaries, because its text and program could not be "
    "read. Its open settings were chosen by a search on other graphs, at no cost in privacy, for "
    "each d and epsilon. secagg's methods have default settings, with columns in their own units "
    "and threshold 0.3; one row has a penalty and a threshold that were chosen in the same way.",
    "All know each column's standard deviation s in the population: as bounds of -4 s to 4 s, as "
    "scale of clipping and of steps.",
    "kB: numbers that a site sends, before the overhead of a protocol; eight bytes each, or twelve "
    "with the number's place.",
)


def figure(seeds: int, *, quick: bool = False) -> Figure:
    """Return the comparison with `seeds` runs. quick: only d = 10, no GES"""
    sizes = SIZES[:1] if quick else SIZES
    panels = {Panel(f"d = {d}", "epsilon", EPSILONS): d for d in sizes}
    return Figure(
        name=f"comparison{'-quick' if quick else ''}",
        title="Fed-Sparse-BNSL and secagg's graphs at equal epsilon",
        metrics=METRICS,
        costs=COSTS,
        methods=METHODS,
        panels=tuple(panels),
        points={
            Place(panel.name, epsilon, method.name): {
                seed: _cell(method.name, d, epsilon, seed) for seed in range(seeds)
            }
            for panel, d in panels.items()
            for epsilon in EPSILONS
            for method in METHODS
            if not method.name.startswith("ges") or (d in GES_SIZES and not quick)
        },
        statements=(),
        remarks=tuple(_remarks(tuple(panels))),
        stated=(),
        notes=NOTES,
    )


def _remarks(panels: tuple[Panel, ...]) -> Iterator[Remark]:
    """Yield the differences that the paper and a reader of this comparison ask for."""
    questions = (
        ("Utility is close to non-private baselines (its noise against none).", PEER, EXACT_PEER),
        ("(Ours: ADMM with noise at sites against it.)", "admm-site", PEER),
        ("(Ours: one sum with noise at sites against it.)", "notears-site", PEER),
        ("(Ours: the same with chosen settings against it.)", "notears-site-chosen", PEER),
        ("(Ours: one sum with noise in the sum against it.)", "notears-sum", PEER),
    )
    for words, method, other in questions:
        places = tuple(
            (Place(panel.name, epsilon, method), Place(panel.name, epsilon, other))
            for panel in panels
            for epsilon in panel.columns
        )
        yield Remark(words, "shd", places)


def _cell(method: str, d: int, epsilon: float, seed: int) -> Cell:
    """Return the cell with the method's numbers; without noise, one for all epsilons."""
    records: dict[str, Plain] = {"d": d, "sites": SITES, "each": EACH, "seed": seed}
    if method in NOISY or method == PEER:
        records |= {"epsilon": epsilon, "delta": DELTA}
    if method.startswith(PEER):
        found = FOUND[d, epsilon if method == PEER else math.inf]
        steps = found.rounds * found.steps / 100
        return _timed("peer", "peer", steps, **asdict(found), **records)
    chosen = {**NOISY, **EXACT}[method]
    assert chosen is not None
    learner, placement = chosen
    if chosen == NOISY["notears-site"]:
        penalty, threshold = NOTEARS[d, epsilon]
        records |= {"chosen_penalty": penalty, "chosen_threshold": threshold}
    return _timed("own", learner, 1.0, learner=learner, placement=placement, **records)


def _timed(task: str, kind: str, times: float, **settings: Plain) -> Cell:
    at_ten, power = SECONDS[kind]
    seconds = times * at_ten * (float(settings["d"]) / 10) ** power
    return replace(cell(f"{TASKS}.{task}", seconds, **settings), late=kind == "ges")
