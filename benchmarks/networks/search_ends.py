"""How far from its maximum the search of `fedngm` ends, by the rule that ends it.

    python -m benchmarks.networks.search_ends CELLS [--seeds N] [--records N ...]

CELLS is a file to which each cell is appended as a line of JSON: one number of records and seed.
Cells in the file are not computed again. A table of all cells is printed at the end.

Records are those of `benchmarks.networks.query_coverage`, the first four columns. Each run searches
until 20 steps gain less than 10^-6 log units, or for 1500 rounds. A rule ends the search when so
many steps together gain less than so much; the default is 20 steps and .01. "Left" is by how much
the log posterior at this point is below that of the run's end, and "moved" the largest change, from
there to the end, of seven means and logits given all other columns, in their standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logit, stdtrit

from benchmarks.harness import store_row, stored_rows, table, with_error
from benchmarks.networks.query_coverage import COLUMNS, SITES, drawn
from reproductions.harness.simulated_runs import job_of, simulated
from secagg.contracts import Result, State, Update
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.jobs.job import Job, parse_job
from secagg.models.neural.ngm.fitted.replicates import REPLICATES
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.masked_network import masked_blocks
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.parameters import Blocks
from secagg.runs.networks.finished_ngm import FinishedNgmRun

NAMES = ("x1", "x2", "b3", "x4")
RECORDS = (300, 1000)
RULES = ((20, 0.01), (20, 0.001), (20, 1e-4), (50, 0.01), (50, 0.001), (100, 0.01))
QUERIES: tuple[tuple[dict[str, float], str], ...] = (
    ({"x1": 1, "b3": 1, "x4": 0.3}, "x2"), ({"x1": -1.5, "b3": 0, "x4": -0.2}, "x2"),
    ({"x1": 0, "b3": 1, "x4": 0}, "x2"), ({"x1": 0.3, "x2": 0.5, "x4": 0.5}, "b3"),
    ({"x1": -1, "x2": -1, "x4": -0.5}, "b3"), ({"x1": 1, "x2": 1, "b3": 1}, "x4"),
    ({"x2": 0.5, "b3": 1, "x4": 0.5}, "x1"),
)  # fmt: skip


def cell(records: int, seed: int) -> dict[str, Any]:
    """Return for each rule the rounds, the log units left and the largest move of an answer."""
    rng = np.random.default_rng([seed, records])
    tables = {f"s{k}": drawn(records // SITES, rng)[list(NAMES)] for k in range(SITES)}
    columns = {name: COLUMNS[name] for name in NAMES}
    method = {"name": "fedngm", "rounds": 1500, "least_gain": 1e-6, "count_fit": False}
    reached: list[tuple[float, Array]] = []
    blocks: list[Blocks] = []

    class Recorded(FedNgm):
        def aggregate(self, state: State, total: Update, sites: int) -> State:
            after = super().aggregate(state, total, sites)
            training = after["training"]["optimiser"]
            if training["steps"]:
                reached.append((training["value"] * after["records"], training["best"]))
            if not blocks:
                blocks.append(masked_blocks(NgmLayout.of(after["layout"]), self.hidden))
            return after

    result, _ = simulated(method, columns, tables, seed, Recorded)
    job = parse_job(job_of(method, columns, tables))
    values = [value for value, _ in reached]
    steps = [0, *(i for i in range(1, len(values)) if values[i] < values[i - 1])]
    at_end, errors = answers(job, result)
    found: dict[str, Any] = {"records": records, "seed": seed, "rounds": len(values)}
    for window, gain in RULES:
        ends = (r for i, r in enumerate(steps)
                if i >= window and values[steps[i - window]] - values[r] < gain)  # fmt: skip
        end = next(ends, len(values) - 1)
        arrays = result.arrays | blocks[0].split(reached[end][1])
        there, _ = answers(job, Result(result.summary, arrays))
        moved = float(np.max(np.abs(there - at_end) / errors))
        found[f"{window}, {gain:g}"] = [end + 1, values[end] - values[-1], moved]
    return found


def answers(job: Job, result: Result) -> tuple[Array, Array]:
    """Return means and logits of the queries, and their standard errors."""
    run, found, quantile = FinishedNgmRun.of(job, result), [], stdtrit(REPLICATES / 2, 0.975)
    for given, of in QUERIES:
        (row,) = run.query(given, [of], random=replayable_random(0))["columns"]
        if of == "b3":
            level = row["levels"][1]
            value, ends = logit(level["probability"]), logit(np.array(level["interval"]))
        else:
            value, ends = row["mean"], np.array(row["mean_interval"])
        found.append((value, (ends[1] - ends[0]) / 2 / quantile))
    return np.array(found).T[0], np.array(found).T[1]


def shown(cells: list[dict[str, Any]]) -> str:
    rows = []
    for records, (window, gain) in product(sorted({c["records"] for c in cells}), RULES):
        chosen = [c[f"{window}, {gain:g}"] for c in cells if c["records"] == records]
        rounds, left, moved = np.array(chosen).T
        rows.append([
            records, window, f"{gain:g}", len(chosen), with_error(rounds, 0), with_error(left, 3),
            f"{left.max():.3f}", f"{np.median(moved):.3f}", f"{moved.max():.3f}",
            f"{int(np.sum(moved > 0.1))}",
        ])  # fmt: skip
    head = ("records", "steps", "gain", "runs", "rounds", "left", "most", "moved, median", "most",
            "runs above .1")  # fmt: skip
    return table(head, rows)


def main(say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=int, nargs="+", default=list(RECORDS))
    asked = parser.parse_args()
    cells = stored_rows(asked.cells)
    done = {(c["records"], c["seed"]) for c in cells}
    for seed, records in product(range(asked.seeds), asked.records):
        if (records, seed) not in done:
            cells.append(cell(records, seed))
            store_row(asked.cells, cells[-1])
    say(shown(cells))


if __name__ == "__main__":
    main()
