"""How well networks predict that were learned in different ways: a table of held-out likelihoods.

    python -m benchmarks.noise.network_utility --replicates 10 --cache FILE

Records are those of `site_graph_quality` with d = 10 columns, four of them continuous. Each site
oversamples: a record with a positive value of the site's own continuous column is three times as
likely there. The score is the mean log pseudo-likelihood of a record, in nats, over 4000 records
that nobody has seen and no site has skewed. It adds up the log probabilities of each column given
all others. The table shows differences from `federated`, paired by replicate, with Monte Carlo
standard errors.

    local       one site's own graph and networks; the mean over sites
    federated   `fedngm`: trained on sums of gradients over records
    distilled   `learn_from = "samples"`: on sums of gradients over samples of the sites' networks
    at the site and in the sum: the last two with noise (placements "site" and "round"), on the
                complete graph of linear networks
    marginals   each column on its own: what a model without any edge would score
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import secagg
from benchmarks.methods.site_graph_quality import network, records
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.runs.networks.finished_ngm import FinishedNgmRun
from secagg.runs.simulate import simulate

D, TEST_RECORDS = 10, 4000
SIZES = {3: 600, 10: 180}
"""Records of a site, by the number of sites: 1800 in all."""
PRIVATE_SITES, PRIVATE_RECORDS = 3, 2000
EPSILONS = (1.0, 4.0, 8.0)
DELTA = 1e-5
WAYS: dict[str, dict[str, Any]] = {
    "federated": {},
    "distilled": {"learn_from": "samples"},
}
PRIVATE: dict[str, dict[str, Any]] = {
    "in the sum": {"hidden": [], "edges": "all", "standardise": False, "sampling_rate": 0.1},
    "at the site": {"hidden": [], "edges": "all", "standardise": False, "learn_from": "samples",
                    "sampling_rate": 0.1},
}  # fmt: skip
PLACEMENTS = {"in the sum": "round", "at the site": "site"}
OVERSAMPLING = 3.0
BOUND = 5.0  # of continuous columns, in standard deviations


def table(values: NDArray[np.float64], columns: list[list[int]]) -> pd.DataFrame:
    """Return records as a table: numbers, and levels "0", "1", "2"."""
    found: dict[str, Any] = {}
    for j, positions in enumerate(columns):
        part = values[:, positions]
        levels = not set(np.unique(part)) - {0.0, 1.0}
        number = (part @ np.arange(1, len(positions) + 1)).astype(int)
        found[f"v{j}"] = number.astype(str) if levels else part[:, 0]
    return pd.DataFrame(found)


def declared(columns: list[list[int]]) -> dict[str, dict[str, Any]]:
    """Return the declarations of the columns."""
    smooth = D - 2 * (3 * D // 10)
    found: dict[str, dict[str, Any]] = {}
    for j, positions in enumerate(columns):
        levels = [str(level) for level in range(len(positions) + 1)]
        kind = "binary" if len(levels) == 2 else "categorical"
        found[f"v{j}"] = (
            {"type": "continuous", "low": -BOUND, "high": BOUND}
            if j < smooth
            else {"type": kind, "levels": levels}
        )
    return found


def drawn(
    seed: list[int], sites: int, size: int
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame, dict[str, dict[str, Any]]]:
    """Return the sites' tables, the test records and the columns."""
    rng = np.random.default_rng(seed)
    _, S = network(rng, D)
    given, columns = {}, list[list[int]]()
    for k in range(sites):
        values, columns = records(rng, S, 6 * size)
        weights = np.where(values[:, columns[k % 4][0]] > 0, OVERSAMPLING, 1.0)
        chosen = rng.choice(len(values), size, replace=False, p=weights / weights.sum())
        given[f"s{k}"] = table(values[chosen], columns)
    test = table(records(rng, S, TEST_RECORDS)[0], columns)
    return given, test, declared(columns)


def score(
    settings: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    columns: Mapping[str, Any],
    test: pd.DataFrame,
    seed: int,
    privacy: Mapping[str, Any] | None = None,
) -> float:
    """Return the mean log pseudo-likelihood of the test records."""
    raw: dict[str, Any] = {
        "title": "utility",
        "sites": {"max_rows": max(map(len, tables.values()))},
        "columns": columns,
        "method": {"name": "fedngm", **settings},
        "protocol": {"name": "masked"},
        "release": {"min_sites": 2, "min_records": 1},
    }
    if privacy:
        raw |= {"privacy": privacy, "release": {"min_sites": 3, "min_records": 100}}
        result = secagg.run(raw, tables, random=replayable_random(seed)).result
    else:
        result = simulate(raw, tables, random=replayable_random(seed))
    finished = FinishedNgmRun.of(parse_job(raw), result)
    return float(np.mean(finished.log_pseudo_likelihood(test)))


def alone(given: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return one site's records as a study: the other site has none and does not vote."""
    return {"a": given, "b": given.iloc[:0]}


def marginals(given: Mapping[str, pd.DataFrame], test: pd.DataFrame) -> float:
    """Return the score of pooled means, standard deviations and shares of levels."""
    pooled, total = pd.concat(given.values()), 0.0
    for name in pooled.columns:
        if pooled[name].dtype == np.float64:
            mean, sd = pooled[name].mean(), pooled[name].std()
            squares = np.mean((test[name] - mean) ** 2) / sd**2
            total -= np.log(2 * np.pi * sd**2) / 2 + squares / 2
        else:
            shares = pooled[name].value_counts(normalize=True)
            total += np.mean(np.log(shares[test[name]].to_numpy()))
    return float(total)


def exact(seed: list[int], sites: int) -> dict[str, float]:
    """Return the scores without noise."""
    given, test, columns = drawn(seed, sites, SIZES[sites])
    found = {way: score(s, given, columns, test, seed[0]) for way, s in WAYS.items()}
    own = [score({"votes": 1}, alone(t), columns, test, seed[0]) for t in given.values()]
    return found | {"local": float(np.mean(own)), "marginals": marginals(given, test)}


def private(seed: list[int], way: str, epsilon: float | None) -> dict[str, float]:
    """Return the score with noise; None: the same settings without."""
    given, test, columns = drawn(seed, PRIVATE_SITES, PRIVATE_RECORDS)
    if epsilon is None:
        settings = {k: v for k, v in PRIVATE[way].items() if k != "sampling_rate"}
        return {"score": score(settings, given, columns, test, seed[0])}
    privacy = {"placement": PLACEMENTS[way], "epsilon": epsilon, "delta": DELTA}
    return {"score": score(PRIVATE[way], given, columns, test, seed[0], privacy)}


def main() -> None:
    """Compute what the cache lacks, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    done = json.loads(given.cache.read_text()) if given.cache.exists() else {}

    def kept(key: str, compute: Any) -> dict[str, float]:
        if key not in done:
            begun = time.perf_counter()
            done[key] = compute()
            given.cache.write_text(json.dumps(done))
            print(f"{key}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        found: dict[str, float] = done[key]
        return found

    rows: dict[str, list[float]] = {}
    for number in range(given.replicates):
        for sites in SIZES:
            seed = [given.seed, number, sites]
            scores = kept(f"{seed}", lambda s=seed, K=sites: exact(s, K))
            for way in ("distilled", "local", "marginals"):
                rows.setdefault(f"K = {sites}, {way}", []).append(scores[way] - scores["federated"])
        seed = [given.seed, number]
        base = kept(f"{seed} federated", lambda s=seed: private(s, "in the sum", None))["score"]
        for way in PRIVATE:
            for epsilon in (None, *EPSILONS):
                if (way, epsilon) == ("in the sum", None):
                    continue
                one = kept(
                    f"{seed} {way} {epsilon}", lambda s=seed, w=way, e=epsilon: private(s, w, e)
                )
                name = "no noise" if epsilon is None else f"epsilon = {epsilon:g}"
                rows.setdefault(f"{way}, {name}", []).append(one["score"] - base)
    print("| way | difference from federated | standard error | replicates |\n|---|---|---|---|")
    for name, found in rows.items():
        error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
        print(f"| {name} | {np.mean(found):.3f} | {error:.3f} | {len(found)} |")


if __name__ == "__main__":
    main()
