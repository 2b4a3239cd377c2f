"""NOTEARS-ADMM against NOTEARS on one secure sum of moments: at equal data, graphs, bytes and time.

    python benchmarks/bench_routes.py [--quick]

The paper's argument against the one-shot route (section 4) is that secure sums cost too much and
do not generalise. Both run here under the same protocol, `masked`, on the same records.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_notears import job
from harness import number, section, size, table, timed
from notears_cases import Case, distance

from secagg.models.admm_linear import learn
from secagg.models.notears import notears
from secagg.models.pooled import Moments
from secagg.running import run

SIZES, SITES, RECORDS, SEEDS = (10, 20, 50), (2, 4, 8, 16, 32, 64), 256, 30
PENALTIES = (0.1, 0.01)  # of the one-shot route: that of NOTEARS's authors, and ADMM's own
METHODS: dict[str, dict[str, Any]] = {
    "ADMM": {"name": "notears_admm"},
    "one shot": {
        "name": "moments",
        "analyses": [{"kind": "notears", "standardise": False, "penalty": PENALTIES[0]}],
    },
}


def one_shot(parts: Sequence[np.ndarray[Any, Any]], penalty: float) -> np.ndarray[Any, Any]:
    """Return the weights of NOTEARS on the pooled moments of all sites' records."""
    rows = np.concatenate(parts)
    away = rows - rows.mean(axis=0)
    names = tuple(f"x{j}" for j in range(rows.shape[1]))
    moments = Moments(names, len(rows), rows.mean(axis=0), away.T @ away)
    fit = notears(moments, standardise=False, penalty=penalty)
    assert fit.weights is not None
    return fit.weights * fit.directed


def graphs(d: int, sites: Sequence[int], seeds: int) -> dict[int, list[str]]:
    """Return for each number of sites the mean distances: ADMM, then one shot by penalty."""
    found: dict[int, list[list[float]]] = {
        K: [[] for _ in range(1 + len(PENALTIES))] for K in sites
    }
    for seed in range(seeds):
        for K in sites:
            truth, parts = Case(d, RECORDS, K, seed).simulate()
            weights = learn(parts).weights
            assert weights is not None
            found[K][0].append(float(distance(weights, truth)))
        # The records of a seed are the same, however many sites they are spread over.
        for i, penalty in enumerate(PENALTIES):
            shd = float(distance(one_shot(parts, penalty), truth))
            for K in sites:
                found[K][1 + i].append(shd)
    return {K: [_mean(values) for values in columns] for K, columns in found.items()}


def _mean(values: Sequence[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.1f} ± {error:.1f}"


def costs(case: Case) -> list[str]:
    """Return kilobytes that a site sends, and processor seconds of the whole run, by method."""
    cells: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        common = {**job(case, Path(folder)), "protocol": {"name": "masked"}}
        for method in METHODS.values():
            seconds, done = timed(lambda method=method: run({**common, "method": method}))
            sent = next(t for t in done.facts["traffic"] if t["role"] == "site")["sent_bytes"]
            cells += [size(sent / case.K), number(seconds)]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, once: does it all run?")
    quick = parser.parse_args().quick
    sizes, sites, seeds = ((10,), (2, 4), 2) if quick else (SIZES, SITES, SEEDS)
    rows: list[list[object]] = []
    for d in sizes:
        distances = graphs(d, sites, seeds)
        rows += [[d, K, *distances[K], *costs(Case(d, RECORDS, K))] for K in sites]
    head = ["d", "K", "SHD ADMM", *(f"SHD one shot, penalty {p:g}" for p in PENALTIES)]
    head += [f"{name}: {what}" for name in METHODS for what in ("a site sends", "CPU s")]
    section(
        "NOTEARS-ADMM against one secure sum of moments",
        f"ER1 graphs of d variables, {RECORDS} records over K sites; SHD: mean and standard error "
        f"over {seeds} graphs. ADMM: variant fast, penalty 0.01. Costs: one run under `masked`, "
        "all parties in one process, learning included.",
        table(head, rows),
    )


if __name__ == "__main__":
    main()
