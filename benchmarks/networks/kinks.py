"""How far from its optimum the search of `network = "paper"` ends, at kinks of its path penalty.

    python -m benchmarks.networks.kinks CELLS [--seeds N] [--records N] [--penalties P ...]

CELLS is a file to which each cell is appended as a line of JSON: one penalty and seed. Cells in the
file are not computed again. A table of all cells is printed at the end.

Records are those of `benchmarks.networks.query_coverage`, the first four columns. From where the
run's search ended, scipy's L-BFGS-B goes on, over the same objective with sqrt(w^2 + e^2) in place
of |w| for e = .01, .001, .0001 and .00001. "Gain" is by how much this raises the log posterior of
all records, with the penalty as it is; weights below 10 e are also tried as 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from benchmarks.harness import store_row, stored_rows, table, with_error
from benchmarks.networks.query_coverage import COLUMNS, SITES, drawn
from reproductions.harness.simulated_runs import job_of, simulated
from secagg.core.arrays import Array
from secagg.jobs.job import parse_job
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.ngm.layout import ngm_layout
from secagg.models.neural.ngm.networks import equation_1
from secagg.models.neural.ngm.path_norms import path_norms, path_slopes
from secagg.models.neural.ngm.shared_network import SharedNetwork, forbidden_paths
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

NAMES = ("x1", "x2", "b3", "x4")
WIDTHS = (1e-2, 1e-3, 1e-4, 1e-5)
PENALTIES = (1.0, 5.0, 10.0, 20.0)
STEPS = 400


def cell(penalty: float, records: int, seed: int) -> dict[str, Any]:
    """Return how the run's search ended, and what a further one gains."""
    rng = np.random.default_rng([seed, records])
    tables = {f"s{k}": drawn(records // SITES, rng)[list(NAMES)] for k in range(SITES)}
    columns = {name: COLUMNS[name] for name in NAMES}
    method = {"name": "fedngm", "network": "paper", "path_penalty": penalty}
    result, _ = simulated(method, columns, tables, seed)
    planned = plan_job(parse_job(job_of(method, columns, tables)), tables)
    layout, arrays = ngm_layout(planned.public, None), result.arrays
    u = np.concatenate([read_records(planned, each).values for each in planned.sources.values()])
    network = SharedNetwork(layout, (10,), arrays["centre"], arrays["scale"])
    theta = network.blocks.join({b.name: arrays[b.name] for b in network.blocks.blocks})
    exact, smooth = objectives(network, arrays["graph"], penalty, u)
    best = start = exact(theta)
    for width in WIDTHS:
        found = minimize(smooth, theta, args=(width,), jac=True, method="L-BFGS-B",
                         options={"maxiter": STEPS, "maxcor": 30})  # fmt: skip
        theta = found.x
        parts = network.blocks.split(theta.copy())
        for name in network.layers:
            parts[name] = np.where(np.abs(parts[name]) < 10 * width, 0.0, parts[name])
        best = min(best, exact(theta), exact(network.blocks.join(parts)))
    summary = result.summary
    return {"penalty": penalty, "records": records, "seed": seed, "rounds": summary["rounds"],
            "status": summary["status"], "gain": start - best}  # fmt: skip


def objectives(
    network: SharedNetwork, graph: Array, factor: float, u: Array
) -> tuple[Callable[[Array], float], Callable[[Array, float], tuple[float, Array]]]:
    """Return minus the log posterior, and its smooth form with its gradient."""
    penalty, n = equation_1(network, graph, factor), len(u)
    paths = forbidden_paths(network.layout, graph != 0)

    def exact(theta: Array) -> float:
        return gradient_sum(network, theta, u)[0] + n * penalty(theta, n)[0]

    def smooth(theta: Array, width: float) -> tuple[float, Array]:
        loss, slope = gradient_sum(network, theta, u)
        arrays = network.blocks.split(theta)
        sizes = [np.sqrt(arrays[name] ** 2 + width**2) for name in network.layers]
        total = float(np.sum(path_norms(sizes) * paths))
        for name, size, part in zip(network.layers, sizes, path_slopes(sizes, paths), strict=True):
            further = n * factor / (1 + total) * part * arrays[name] / size
            slope[network.blocks.slices[name]] += np.ravel(further)
        return loss + n * factor * float(np.log1p(total)), slope

    return exact, smooth


def shown(cells: list[dict[str, Any]]) -> str:
    rows = []
    for penalty, records in sorted({(c["penalty"], c["records"]) for c in cells}):
        chosen = [c for c in cells if (c["penalty"], c["records"]) == (penalty, records)]
        ended = pd.Series([c["status"] for c in chosen]).value_counts()
        rows.append([
            f"{penalty:g}", records, "; ".join(f"{n} {status}" for status, n in ended.items()),
            with_error([c["rounds"] for c in chosen], 0),
            with_error([c["gain"] for c in chosen], 0),
        ])  # fmt: skip
    return table(("path penalty", "records", "searches that ended", "rounds", "gain"), rows)


def main(say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--penalties", type=float, nargs="+", default=list(PENALTIES))
    asked = parser.parse_args()
    cells = stored_rows(asked.cells)
    done = {(c["penalty"], c["records"], c["seed"]) for c in cells}
    for seed, penalty in product(range(asked.seeds), asked.penalties):
        if (penalty, asked.records, seed) not in done:
            cells.append(cell(penalty, asked.records, seed))
            store_row(asked.cells, cells[-1])
    say(shown(cells))


if __name__ == "__main__":
    main()
