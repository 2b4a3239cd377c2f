"""Graphs with noise once at the site: wrong edges if sites know its size, and if they do not.

    python -m benchmarks.noise.graphs_under_noise --method notears_admm --rows 500 --seeds 0-39
    python -m benchmarks.noise.graphs_under_noise --method local_graphs --edges 0 --threshold 0.05
    python -m benchmarks.noise.graphs_under_noise --method local_graphs --learner pc --close

Ten columns of variance 1 from a random graph with `--edges` edges, weights of 0.3 to 0.8 in size,
at four sites with `--rows` records each. Bounds are -5 to 5, so every column has the spread that
`secagg plan` assumes. `--close`: closely related columns, those of `benchmarks.noise.pooled_graphs`
in standard deviations, at ten sites with 1000 records each. `--typical`: records relative to
typical ranges of one standard deviation about 0, in place of record_norm. `known`: sites know the
variances of the noise. `plain`: the same method on the same noisy moments, without them.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import Any

import numpy as np

from reproductions.data.linear_graphs import records_of
from reproductions.fed_sparse_bnsl.tasks.own import NORM, WIDTH
from secagg.contracts import Method, PublicFacts, RecordCount, Result, SiteRecords, State
from secagg.core.randomness import seeded_random
from secagg.jobs.job import parse_job
from secagg.models.graphs.metrics import compare_graphs
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job
from secagg.sessions.site_moments import draw_site_moments

D, SITES = 10, 4


def simulated(rng: np.random.Generator, edges: int, rows: int, d: int = D) -> tuple[Any, Any]:
    """Return the true graph and records of all sites; all columns have variance 1."""
    order = rng.permutation(d)
    truth = np.zeros((d, d), dtype=bool)
    pairs = [(i, j) for i in range(d) for j in range(i + 1, d)]
    for k in rng.choice(len(pairs), edges, replace=False):
        truth[order[pairs[k][0]], order[pairs[k][1]]] = True
    weights = np.where(truth, rng.uniform(0.3, 0.8, (d, d)) * rng.choice([-1, 1], (d, d)), 0)
    X = np.zeros((rows * SITES, d))
    for j in order:
        signal = X @ weights[:, j]
        signal *= min(1.0, math.sqrt(0.8 / max(signal.var(), 1e-9)))
        X[:, j] = signal + math.sqrt(1 - signal.var()) * rng.normal(size=len(X))
    return truth, X


def close(seed: int) -> tuple[Any, Any, float]:
    """Return the graph and the records of ten sites, with 4 standard deviations as 5; the norm."""
    records = records_of({"d": D, "sites": 10, "each": 1000, "seed": seed})
    X = np.concatenate(records.sites) / records.scale * 5 / WIDTH
    return records.truth, X, NORM * D**0.5 / WIDTH


def job_of(
    method: dict[str, Any], epsilon: float, d: int = D, typical: float | None = None, **privacy: Any
) -> dict[str, Any]:
    """Return the job, with noise once at the site; typical: half of the typical ranges."""
    column: dict[str, Any] = {"type": "continuous", "low": -5, "high": 5}
    norm: dict[str, Any] = {"record_norm": 1.2}
    if typical is not None:
        column["typical"], norm = [-typical, typical], {}
    return {
        "title": "Graphs under noise",
        "sites": {"max_rows": 100_000},
        "columns": {f"x{j}": column for j in range(d)},
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 4, "min_records": 5},
        "privacy": {
            "placement": "site", "epsilon": epsilon, "delta": 1e-5, **norm, **privacy,
        },
    }  # fmt: skip


def noisy_sites(
    job: dict[str, Any], X: Any, rng: np.random.Generator, sites: int = SITES
) -> tuple[Method, PublicFacts, list[SiteRecords]]:
    """Return the method, the public facts and each site's records as the method gets them."""
    parts = np.split(X, sites)
    data = {f"s{k}": {f"x{j}": x[:, j] for j in range(x.shape[1])} for k, x in enumerate(parts)}
    planned = plan_job(parse_job(job), data)
    rows = [
        draw_site_moments(
            [read_records(planned, source)], planned.public, seeded_random(rng.bytes(32))
        ).repaired
        for source in planned.sources.values()
    ]
    return planned.method, planned.public, rows


def without_variances(
    public: PublicFacts, rows: list[SiteRecords]
) -> tuple[PublicFacts, list[SiteRecords]]:
    """Return the same noisy moments for a method that does not know that they have noise."""
    return replace(public, site_moments=False), [replace(each, noisy=None) for each in rows]


def result_of(
    method: Method, public: PublicFacts, rows: list[SiteRecords], rng: np.random.Generator
) -> Result:
    """Run a method by plain sums."""
    state: State = method.initial_state(public)
    memories: list[State] = [{} for _ in rows]
    draws = [seeded_random(rng.bytes(32)) for _ in rows]
    while (request := method.next_request(state)) is not None:
        stage, message = request
        found = [
            method.contribute(stage, each, message, memory, public, draw)
            for each, memory, draw in zip(rows, memories, draws, strict=True)
        ]
        memories = [memory for _, memory in found]
        total = {name: sum(update[name] for update, _ in found) for name in found[0][0]}
        state = method.aggregate(state, total, len(rows))
    return method.result(state, public, RecordCount(sum(len(r.values) for r in rows), 0.0))


def errors(result: Result, truth: Any) -> tuple[float, float, float]:
    """Return SHD, wrong pairs whatever the direction, and pairs that are not in the truth."""
    directed, undirected = result.arrays["directed"], result.arrays["undirected"]
    has, true = directed | directed.T | undirected, truth | truth.T
    pairs = np.triu_indices(len(truth), 1)
    shd = compare_graphs(directed, truth, undirected).shd
    return shd, float((has ^ true)[pairs].sum()), float((has & ~true)[pairs].sum())


def main() -> None:
    """Print the mean errors, with standard errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--method", default="notears_admm")
    parser.add_argument("--learner", default="notears", help="of local_graphs")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--edges", type=int, default=10)
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--typical", action="store_true")
    parser.add_argument("--seeds", default="0-19")
    parser.add_argument("--threshold", type=float, default=None)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0, 4.0, 8.0])
    given = parser.parse_args()
    method: dict[str, Any] = {"name": given.method}
    if given.method == "local_graphs":
        method |= {"learner": given.learner, "redraws": 0}
    if given.threshold is not None:
        method |= {"threshold": given.threshold}
    low, high = map(int, given.seeds.split("-"))
    print("| epsilon | noise | SHD | wrong pairs | false pairs | runs with a false pair |")
    print("|---|---|---|---|---|---|")
    for epsilon in given.epsilon:
        found: dict[str, list[Any]] = {"plain": [], "known": []}
        for seed in range(low, high + 1):
            rng = np.random.default_rng(seed)
            if given.close:
                truth, X, norm = close(seed)
                job = job_of(method, epsilon, record_norm=norm)
                if given.typical:
                    spread = float(X.std())
                    job = job_of(method, epsilon, D, spread, expected_records=len(X))
                drawn = noisy_sites(job, X, rng, sites=10)
            else:
                truth, X = simulated(rng, given.edges, given.rows)
                job = job_of(method, epsilon)
                if given.typical:
                    job = job_of(method, epsilon, D, 1.0, expected_records=len(X))
                drawn = noisy_sites(job, X, rng)
            made, public, rows = drawn
            found["known"].append(errors(result_of(made, public, rows, rng), truth))
            plain = without_variances(public, rows)
            found["plain"].append(errors(result_of(made, *plain, rng), truth))
        for name, values in found.items():
            x = np.array(values)
            of, se = x.mean(axis=0), x.std(axis=0, ddof=1) / math.sqrt(len(x))
            share = (x[:, 2] > 0).mean()
            error = math.sqrt(share * (1 - share) / len(x))
            cells = " | ".join(f"{m:.2f} ({e:.2f})" for m, e in zip(of, se, strict=True))
            print(f"| {epsilon:g} | {name} | {cells} | {share:.2f} ({error:.2f}) |", flush=True)
        gap = np.array(found["known"])[:, 0] - np.array(found["plain"])[:, 0]
        se_gap = gap.std(ddof=1) / math.sqrt(len(gap))
        print(f"difference of SHD, known - plain: {gap.mean():.2f} ({se_gap:.2f})")


if __name__ == "__main__":
    main()
