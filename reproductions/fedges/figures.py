"""FedGES beside GES on one secure sum, without noise: errors, bytes, and what is revealed.

Torrijos, Gamez and Puerta (Discovery Science 2024); `reproductions.fedges.tasks.rounds` says what
we read of it and what we chose. FedGES has no noise and no secure sum: its coordinator sees every
site's graph of every round.
"""

from __future__ import annotations

from dataclasses import replace

from reproductions.harness.figures import Figure, Method, Metric, Panel, Place, Remark
from secagg.experiments.runner.cells import Cell, cell

TASKS = "reproductions.fedges.tasks"
SEEDS, QUICK_SEEDS = 30, 3
SIZES, EACH, SITES = (10, 20, 50), (100, 1000), 10
INSERTIONS = 10
LEAST = {"fedges-union": 1, "fedges-controlled": SITES // 2 + 1}
UNION_SIZES = (10, 20)  # the union grows so dense that d = 50 takes hours
SECONDS = {
    "fedges-union": (0.7, 3.2),
    "fedges-controlled": (0.2, 3.2),
    "ges": (0.1, 3.0),
    "ges-voting": (0.8, 2.9),
}
"""Rough processor time of a cell at d = 10, and the power of d at which it grows."""

METRICS = (
    Metric("shd", "SHD", 1),
    Metric("tpr", "TPR", 2, top=1.0),
    Metric("fdr", "FDR", 2, top=1.0),
)
COSTS = (
    Metric("edges", "Edges", 1),
    Metric("rounds", "Rounds", 1),
    Metric("kilobytes", "kB sent by each site", 2),
    Metric("seconds", "CPU seconds", 2),
)
METHODS = (
    Method(
        "fedges-union", "FedGES, union",
        note="the coordinator sees the graph of each site in each round.",
    ),
    Method(
        "fedges-controlled", "FedGES, controlled",
        note="edges of more than half of the sites; the coordinator sees the same.",
    ),
    Method("ges", "moments + ges", note="one secure sum of moments: no site's graph is seen."),
    Method(
        "ges-voting", "local_graphs (GES), vote",
        note="one secure sum of the sites' adjacency matrices: how many sites have each edge.",
    ),
)  # fmt: skip
NOTES = (
    f"Linear Gaussian graphs with as many edges as variables, {SITES} sites. An empty graph has "
    "the SHD d. Estimates are equivalence classes.",
    f"FedGES: at most {INSERTIONS} insertions a round and 20 rounds, with the BIC instead of BDeu. "
    "These settings are ours: the paper's records are discrete, and it reports several limits.",
    "kB: eight bytes for each number or edge, before the overhead of a protocol.",
)


def figure(seeds: int, *, quick: bool = False) -> Figure:
    """Return the comparison with `seeds` runs. quick: only d = 10"""
    panels = {
        Panel(f"d = {d}", "records per site", EACH): d for d in (SIZES[:1] if quick else SIZES)
    }
    return Figure(
        name=f"comparison{'-quick' if quick else ''}",
        title="FedGES and GES on one secure sum",
        metrics=METRICS,
        costs=COSTS,
        methods=METHODS,
        panels=tuple(panels),
        points={
            Place(panel.name, each, method.name): {
                seed: _cell(method.name, d, each, seed) for seed in range(seeds)
            }
            for panel, d in panels.items()
            for each in EACH
            for method in METHODS
            if method.name != "fedges-union" or d in UNION_SIZES
        },
        statements=(),
        remarks=(
            Remark(
                "(One secure sum against FedGES with controlled fusion.)",
                "shd",
                tuple(
                    (Place(panel.name, each, "ges"), Place(panel.name, each, "fedges-controlled"))
                    for panel in panels
                    for each in EACH
                ),
            ),
        ),
        stated=(),
        notes=NOTES,
    )


def _cell(method: str, d: int, each: int, seed: int) -> Cell:
    at_ten, power = SECONDS[method]
    seconds = at_ten * (d / 10) ** power
    task, more = "one_sum", dict[str, int]()
    if method in LEAST:
        task, more = "graphs_sent", {"insertions": INSERTIONS, "least": LEAST[method]}
    made = cell(
        f"{TASKS}.{task}", seconds, method=method, d=d, sites=SITES, each=each, seed=seed, **more
    )
    return replace(made, late=d == SIZES[-1])
