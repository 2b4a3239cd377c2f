"""NOTEARS-ADMM compared with one secure sum of moments on equal data: graphs, bytes and time.

    python -m benchmarks.methods.bench_routes [--quick] [PART ...]

PART: graphs, levels, costs; default all. About 15 minutes of one core in total.

The paper argues against one sum of moments (section 4) because secure sums cost too much and do not
generalise. Here both run under the same protocol, `masked`, on the same records.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import number, section, size, table, timed
from benchmarks.methods.bench_notears import job
from benchmarks.methods.notears_cases import Case, Matrix
from secagg.models.common.pooled_moments import Moments
from secagg.models.common.units import centred
from secagg.models.graphs.golem import golem
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import ges, pc
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.linear_simulation import learn
from secagg.runs.run import run

RECORDS, SITES = 256, (2, 8, 64)
SEEDS = {10: 30, 20: 30, 50: 10}  # of graphs, by their number of variables
PENALTY, USUAL = 0.01, 0.1  # ADMM's default, and that of NOTEARS's authors and of our `notears`
SHIFTS = (0.0, 0.5, 2.0)  # standard deviation of sites' levels; that of the noise is 1
METHODS: dict[str, dict[str, Any]] = {
    "ADMM": {"name": "notears_admm"},
    "one shot": {"name": "moments", "analyses": [{"kind": "notears", "penalty": PENALTY}]},
}

Learner = Callable[[Moments, bool], GraphFit]
LEARNERS: dict[str, Learner] = {
    f"NOTEARS {PENALTY:g}": lambda m, scaled: notears(
        m, standardise=scaled, penalty=PENALTY, threshold=0.3
    ),
    f"NOTEARS {USUAL:g}": lambda m, scaled: notears(
        m, standardise=scaled, penalty=USUAL, threshold=0.3
    ),
    "GOLEM-EV": lambda m, scaled: golem(m, standardise=scaled, equal_variances=True, threshold=0.3),
    "GOLEM-NV": lambda m, scaled: golem(m, standardise=scaled, threshold=0.3),
}
UNITLESS: dict[str, Callable[[Moments], GraphFit]] = {"PC": pc, "GES": ges}
LIKE = next(iter(LEARNERS))


def pooled(parts: Sequence[Matrix], *, within: bool = False) -> Moments:
    """Return the result of `moments` on the sites' records, with `centre` "site" or "pooled"."""
    away = np.concatenate([centred(rows) for rows in parts] if within else parts)
    mean = away.mean(axis=0)
    away = away - mean
    names = tuple(f"x{j}" for j in range(away.shape[1]))
    return Moments(names, len(away), mean, away.T @ away, within=len(parts) if within else None)


def by_rounds(parts: Sequence[Matrix], *, scaled: bool) -> GraphFit:
    """Return ADMM's graph; scaled: of columns over their deviations within sites, its default."""
    scale = pooled(parts, within=True).standard_deviation if scaled else 1.0
    return learn([rows / scale for rows in parts], penalty=PENALTY)


def shd(fit: GraphFit, truth: NDArray[np.bool_]) -> float:
    """Return the distance from the truth; see `secagg.models.graphs.metrics` for edges without a
    direction, which PC and GES leave, and which count as right where the truth has either.
    """
    return float(compare_graphs(fit.directed, truth, fit.undirected).shd)


def mean(values: Sequence[float]) -> str:
    """Return mean and standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.1f} ({error:.1f})"


def graphs(seeds: Mapping[int, int], sites: Sequence[int]) -> tuple[str, str]:
    """Return the table of distances, and that of ADMM's beyond those of the like one-shot route."""
    rows: list[list[object]] = []
    beyond: list[list[object]] = []
    for d, count in seeds.items():
        found: dict[bool, dict[str | int, list[float]]] = {
            scaled: defaultdict(list) for scaled in (False, True)
        }
        for seed in range(count):
            for K in sites:
                truth, parts = Case(d, RECORDS, K, seed).simulate()
                for scaled, columns in found.items():
                    columns[K].append(shd(by_rounds(parts, scaled=scaled), truth))
            # The records of a seed are the same, however many sites they are spread over.
            truth, parts = Case(d, RECORDS, 1, seed).simulate()
            moments = pooled(parts)
            for name, learner in LEARNERS.items():
                for scaled, columns in found.items():
                    columns[name].append(shd(learner(moments, scaled), truth))
            for name, unitless in UNITLESS.items():
                distance = shd(unitless(moments), truth)
                for columns in found.values():
                    columns[name].append(distance)
        for scaled, columns in found.items():
            label = [d, "standardised" if scaled else "own", count]
            rows.append([*label, *map(mean, columns.values())])
            pairs = (np.subtract(columns[K], columns[LIKE]).tolist() for K in sites)
            beyond.append([*label, *map(mean, pairs)])
    label = ["d", "units", "graphs"]
    rounds = [f"ADMM, K {K}" for K in sites]
    return table([*label, *rounds, *LEARNERS, *UNITLESS], rows), table([*label, *rounds], beyond)


def levels(seeds: Mapping[int, int], sites: Sequence[int], shifts: Sequence[float]) -> str:
    """Return the table of distances where sites differ in level."""
    rows: list[list[object]] = []
    for d, count in seeds.items():
        for K in sites:
            for shift in shifts:
                found: list[list[float]] = []
                for seed in range(count):
                    truth, parts = Case(d, RECORDS, K, seed).simulate()
                    moved = np.random.default_rng([seed, K]).normal(0, shift, (K, d))
                    parts = [rows + level for rows, level in zip(parts, moved, strict=True)]
                    fits = (
                        by_rounds(parts, scaled=False),
                        LEARNERS[LIKE](pooled(parts, within=True), False),
                        LEARNERS[LIKE](pooled(parts), False),
                    )
                    found.append([shd(fit, truth) for fit in fits])
                columns = zip(*found, strict=True)
                rows.append([d, K, f"{shift:g}", count, *map(mean, columns)])
    head = ["d", "K", "levels", "graphs", "ADMM", 'one shot, centre "site"', 'centre "pooled"']
    return table(head, rows)


def costs(cases: Sequence[Case]) -> str:
    """Return the table of sums, bytes that a site sends and processor seconds of the whole run."""
    rows: list[list[object]] = []
    for case in cases:
        cells: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            common = {**job(case, Path(folder)), "protocol": {"name": "masked"}}
            for method in METHODS.values():
                seconds, done = timed(functools.partial(run, {**common, "method": method}))
                sent = next(t for t in done.facts["traffic"] if t["role"] == "site")["sent_bytes"]
                cells += [str(done.facts["rounds"]), size(sent / case.K), number(seconds)]
        rows.append([case.d, case.K, *cells])
    what = ("sums", "a site sends", "CPU s")
    return table(["d", "K", *(f"{name}: {w}" for name in METHODS for w in what)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="graphs, levels, costs")
    parser.add_argument("--quick", action="store_true", help="small sizes, once: does it all run?")
    options = parser.parse_args()
    seeds, sites, shifts = SEEDS, SITES, SHIFTS
    if options.quick:
        seeds, sites, shifts = {5: 2}, (2, 4), SHIFTS[1:2]
    simulated = (
        "Random graphs of d variables and d edges (ER1), with normal noise of variance 1 and "
        f"{RECORDS} records over K sites. Cells are mean SHD over graphs (seeds from 0 on), with "
        "its standard error. A graph without any edge has an SHD of d."
    )
    for part in options.parts or ("graphs", "levels", "costs"):
        if part == "graphs":
            section(
                "NOTEARS-ADMM against one secure sum of moments: graphs",
                f"{simulated} ADMM is the variant fast with penalty {PENALTY:g}. All other methods "
                "use one sum of moments, which does not depend on K. NOTEARS has the penalty in "
                "its column, the others their defaults. If PC or GES leaves an edge undirected, "
                "it counts as right if the truth has that edge in either direction. Last table: "
                "SHD of ADMM minus SHD of NOTEARS with the same penalty, paired by graph.",
                *graphs(seeds, sites),
            )
        elif part == "levels":
            section(
                "The same where sites differ in level",
                f"{simulated} At each site, every column is shifted by a random normal number, "
                "with the standard deviation in the table. Columns are not standardised, and all "
                f"penalties are {PENALTY:g}.",
                levels({d: n for d, n in seeds.items() if d < 50}, sites, shifts),
            )
        elif part == "costs":
            section(
                "NOTEARS-ADMM against one secure sum of moments: costs",
                "One run each under `masked`, with all parties in one process. The time includes "
                "learning the graph. The sums are that of the record counts and the method's.",
                costs([Case(d, RECORDS, K) for d in seeds for K in sites]),
            )
        else:
            parser.error(f"no part {part!r}")


if __name__ == "__main__":
    main()
