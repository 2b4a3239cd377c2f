"""Graphs from one noisy sum of moments: wrong edges if the analyses know the noise, and if not.

    python -m benchmarks.noise.pooled_graphs --seeds 0-9 --cache FILE

The records are those of `python -m reproductions fed-sparse-bnsl`: graphs with as many edges as
variables d, ten sites of 1000 records. `known`: the analyses as they are. `exact`: the same learner
on the same repaired moments without their noise's variances. GES and PC have no row `exact` beyond
d = 10, because they then add so many edges that a run takes minutes. Finished cells are kept in
FILE, one line of JSON each, so a run can be resumed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reproductions.data.linear_graphs import records_of
from reproductions.fed_sparse_bnsl.tasks.own import run_job
from secagg.experiments.runner.types import Plain
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.golem import golem
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import ges, pc
from secagg.models.graphs.result import GraphFit

OWN: dict[str, Any] = {"standardise": False, "threshold": 0.3}
"""All errors have variance 1, so columns in their own units tell directions."""
LEARNERS: dict[str, tuple[Callable[..., GraphFit], dict[str, Any]]] = {
    "notears": (notears, OWN), "golem": (golem, {**OWN, "equal_variances": True}),
    "ges": (ges, {}), "pc": (pc, {}),
}  # fmt: skip
SLOW = ("ges", "pc")
CellKey = tuple[int, str, float, int]


def compute(cell: CellKey) -> list[dict[str, Any]]:
    """Return the scores of all learners; cell: d, placement, epsilon, seed."""
    d, placement, epsilon, seed = cell
    settings: dict[str, Plain] = {
        "d": d, "sites": 10, "each": 1000, "seed": seed, "placement": placement,
        "epsilon": epsilon, "delta": 1e-5,
    }  # fmt: skip
    records, found = records_of(settings), []
    analyses = [{"kind": kind, **keys} for kind, (_, keys) in LEARNERS.items()]
    arrays = run_job(records, settings, {"name": "moments", "analyses": analyses}).result.arrays
    names = tuple(f"x{j}" for j in range(d))
    moments = Moments(names, int(arrays["n"]), arrays["mean"], arrays["scatter"])
    for i, (kind, (learn, keys)) in enumerate(LEARNERS.items(), start=1):
        graphs = {"known": tuple(arrays[f"{i}_{_method(kind)}_{e}"] for e in _EDGES)}
        if kind not in SLOW or d <= 10:
            fit = learn(moments, **keys)
            graphs["exact"] = (fit.directed, fit.undirected)
        for noise, (directed, undirected) in graphs.items():
            score = compare_graphs(directed, records.truth, undirected)
            has = (directed | undirected).any()
            found.append({
                "d": d, "placement": placement, "epsilon": epsilon, "seed": seed, "learner": kind,
                "noise": noise, "shd": score.shd, "tpr": score.tpr,
                "fdr": score.fdr if has else None, "extra": score.extra,
            })  # fmt: skip
    return found


_EDGES = ("directed", "undirected")


def _method(kind: str) -> str:
    """Return the name in the arrays."""
    return "golem-ev" if kind == "golem" else kind


def table(found: list[dict[str, Any]]) -> str:
    """Return the means with standard errors; FDR over the runs whose graph has an edge."""
    groups = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list)
    for cell in found:
        key = ("learner", "d", "placement", "epsilon", "noise")
        groups[tuple(cell[name] for name in key)].append(cell)
    lines = ["| learner | d | noise | epsilon | variances | SHD | TPR | FDR | extra | seeds |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for group, cells in sorted(groups.items()):
        shown = [f"{value}" for value in group]
        for name, digits in (("shd", 1), ("tpr", 2), ("fdr", 2), ("extra", 1)):
            values = [cell[name] for cell in cells if cell[name] is not None]
            mean = np.mean(values) if values else math.nan
            error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            shown.append(f"{mean:.{digits}f} ({error:.{digits}f})")
        lines.append(f"| {' | '.join([*shown, str(len(cells))])} |")
    return "\n".join(lines)


def main() -> None:
    """Compute the cells that are not in the cache, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--variables", type=int, nargs="*", default=[10, 20, 50])
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.5, 1.0, 4.0])
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    low, high = map(int, given.seeds.split("-"))
    lines = given.cache.read_text().splitlines() if given.cache.exists() else []
    found = [json.loads(line) for line in lines]
    key = ("d", "placement", "epsilon", "seed")
    done = {tuple(cell[name] for name in key) for cell in found}
    with given.cache.open("a") as file:
        for seed in range(low, high + 1):
            for d in given.variables:
                for placement in ("sum", "site"):
                    for epsilon in given.epsilon:
                        if (d, placement, epsilon, seed) in done:
                            continue
                        start = time.process_time()
                        new = compute((d, placement, epsilon, seed))
                        seconds = time.process_time() - start
                        found += new
                        file.writelines(json.dumps({**c, "seconds": seconds}) + "\n" for c in new)
                        file.flush()
    print(table(found))


if __name__ == "__main__":
    main()
