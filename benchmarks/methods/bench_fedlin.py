"""FedLin: every protocol, a hundred devices, and the cost of a step at a site and at the server.

python -m benchmarks.methods.bench_fedlin [--quick]
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import interleave, number, quick_asked, section, table, timed
from secagg.core.randomness import replayable_random
from secagg.models.fedlin.gradient_steps import Quadratic
from secagg.models.fedlin.hierarchies.base import Hierarchy, SufficientStatistics
from secagg.models.fedlin.hierarchies.elastic_net import ElasticNet
from secagg.models.fedlin.hierarchies.lasso import Lasso
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.fedlin.site_covariance import (
    history_length,
    parts,
    remembered,
    shrinkage,
    shrunk,
)
from secagg.runs.run import run

PLAIN = "plain"
PROTOCOLS = (PLAIN, "additive", "masked", "paillier")
HALF = 40.0
RANK = 2  # of the covariance between simulated sites
METHODS = {
    "HM1, 30 rounds": {"name": "fedlin_hm1", "rounds": 30},
    "FedAvg, 30 rounds": {"name": "fedavg", "rounds": 30},
    "HM2 ridge, 15 rounds": {
        "name": "fedlin_hm2",
        "prior": "ridge",
        "rounds": 15,
        "tolerance": 0.0,
    },
    "HM2 normal, 15 rounds": {"name": "fedlin_hm2", "rounds": 15, "tolerance": 0.0},
}


def tables(sites: int, records: int, d: int) -> dict[str, pd.DataFrame]:
    """Return sites whose coefficients depend on two causes."""
    rng = np.random.default_rng(0)
    Theta = rng.standard_normal((sites, RANK)) @ rng.standard_normal((RANK, d))
    found = {}
    for k in range(sites):
        X = rng.standard_normal((records, d))
        y = X @ Theta[k] + rng.standard_normal(records)
        found[f"site {k:03d}"] = pd.DataFrame(X, columns=_names(d)).assign(y=y)
    return found


def _names(d: int) -> list[str]:
    return [f"x{j}" for j in range(d)]


def job(method: dict[str, Any], protocol: str, d: int) -> dict[str, Any]:
    """Return the job of a method; all columns have the same bounds."""
    column = {"type": "continuous", "low": -HALF, "high": HALF}
    return {
        "title": "FedLin",
        "sites": {"max_rows": 1000},
        "columns": dict.fromkeys([*_names(d), "y"], column),
        "method": {"outcome": "y", **method},
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 1},
    }


def protocols(sites: int, d: int, rounds: int | None) -> str:
    """Return the table of whole runs under every protocol, the same numbers bit for bit."""
    rows: list[list[object]] = []
    data = tables(sites, 40, d)
    for name, method in METHODS.items():
        plain, first = 0.0, ""
        settings = {**method, "rounds": rounds or method["rounds"]}
        run(job({**settings, "rounds": 1}, PLAIN, d), data)  # modules are imported, untimed
        for protocol in PROTOCOLS:
            given = job(settings, protocol, d)
            seconds, ran = timed(functools.partial(run, given, data, random=replayable_random(1)))
            found = str((ran.result.summary, {k: r.summary for k, r in ran.own.items()}))
            plain, first = plain or seconds, first or found
            same = "the same" if found == first else "OTHERS"
            rows.append([name, protocol, number(seconds), f"{number(seconds / plain)} x", same])
    return table(["method", "protocol", "seconds", "over plain", "results"], rows)


def many(sites: int, d: int, rounds: int) -> str:
    """Return the table of runs over a hundred devices."""
    data = tables(sites, 20, d)
    rows: list[list[object]] = []
    for name, method in {"HM1": {"name": "fedlin_hm1"}, "FedAvg": {"name": "fedavg"}}.items():
        plain = 0.0
        for protocol in (PLAIN, "masked"):
            given = job({**method, "rounds": rounds}, protocol, d)
            seconds, _ = timed(functools.partial(run, given, data, random=replayable_random(1)))
            plain = plain or seconds
            ratio = f"{number(seconds / plain)} x"
            rows.append([name, protocol, number(seconds), number(seconds / rounds), ratio])
    return table(["method", "protocol", "seconds", "a round", "over plain"], rows)


def steps(sites: int, d: int, turns: int, rounds: int) -> str:
    """Return the cost of HM1 without parties, and of the dense algorithm."""
    rng = np.random.default_rng(0)
    shapes = []
    for _ in range(sites):
        X = rng.standard_normal((20, d))
        y = X @ rng.standard_normal(d) + rng.standard_normal(20)
        shapes.append(Quadratic.of(X.T @ X, X.T @ y))
    eta = np.array([0.5 / shape.steepest for shape in shapes])
    a = 2 * eta * 20
    each = range(sites)

    def by_sums() -> None:
        m, c = history_length(d, sites, rounds), 1.0
        theta, v = [np.zeros(d) for _ in each], [np.zeros(m) for _ in each]
        for _ in range(rounds):
            S, G = np.zeros((d, m)), np.zeros((m, m))
            for k in each:
                theta[k] = shapes[k].stepped(theta[k], eta[k], 20)
                s, g = parts(theta[k], v[k], c + a[k])
                S, G = S + s, G + g
            M, U = shrinkage(S, G)
            for k in each:
                theta[k] = shrunk(theta[k], v[k], M, a[k] / (c + a[k]))
                v[k] = remembered(v[k], theta[k], U, 0.1)
            c *= 0.9

    def dense() -> None:
        Theta, Omega, D = np.zeros((d, sites)), np.eye(sites), np.diag(a)
        for _ in range(rounds):
            for k in each:
                Theta[:, k] = shapes[k].stepped(Theta[:, k], eta[k], 20)
            Theta = np.linalg.solve((Omega + D).T, Theta.T).T @ Omega
            Omega = 0.9 * Omega + 0.1 / d * Theta.T @ Theta

    def floor() -> None:
        matrix = np.eye(sites)
        for _ in range(rounds):
            np.linalg.cholesky(matrix)
            for _ in each:
                np.ones((d, d)) @ np.ones(d)

    spreads = interleave({"by sums": by_sums, "dense": dense, "floor": floor}, turns, warm=True)
    base = spreads["floor"]
    rows = [[name, spread * 1e3, spread.over(base)] for name, spread in spreads.items()]
    return table(["HM1", f"{rounds} rounds, ms", "over the floor"], rows)


def moments(d: int, turns: int) -> str:
    """Return the cost of a site's step of HM2 and of its draws, by hierarchy."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(100)
    site = SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), 100, 1.0)
    hierarchies: dict[str, Hierarchy] = {
        "normal": NormalHierarchy(),
        "ridge": Ridge(),
        "lasso": Lasso(),
        "elastic net": ElasticNet(),
    }
    rows: list[list[object]] = []
    for name, hierarchy in hierarchies.items():
        prior = hierarchy.prior(d)
        found = hierarchy.tilted(site, prior, np.random.default_rng(1))
        error = float(np.max(found.error / np.sqrt(np.diagonal(found.cov))))
        tasks: dict[str, Callable[[], object]] = {
            "moments": functools.partial(hierarchy.tilted, site, prior, rng),
            "draws": functools.partial(hierarchy.draw, site, prior, 2000, rng),
        }
        spreads = interleave(tasks, turns, warm=True)
        rows.append([name, spreads["moments"] * 1e3, number(error), spreads["draws"] * 1e3])
    return table(["prior", "moments, ms", "their error, in sds", "2000 draws, ms"], rows)


def main() -> None:
    quick = quick_asked(__doc__, "few rounds: does it all run?")
    section(
        "FedLin: protocols",
        "Ten sites of 40 records, eight predictors. All parties are in one process, with keys, "
        "signatures, rules and log. One run of each. The last column compares the coordinator's "
        "and every site's results with those of plain.",
        protocols(3 if quick else 10, 2 if quick else 8, 2 if quick else None),
    )
    sites, rounds = (10, 3) if quick else (100, 100)
    section(
        "FedLin: a hundred devices",
        f"{sites} sites of 20 records, eight predictors, {rounds} rounds. Seconds are "
        "processor time of all parties together.",
        many(sites, 8, rounds),
    )
    section(
        "FedLin: HM1 without parties",
        "A hundred sites, eight predictors, 20 gradient steps a round in closed form. Dense is "
        "the same algorithm with all coefficients (Theta) and the covariance between sites (Omega) "
        "in one place. The floor of a round is a Cholesky factor of a 100 x 100 matrix, and one "
        "small matrix product for each site.",
        steps(100, 8, 1 if quick else 7, 5 if quick else 30),
    )
    section(
        "FedLin: HM2 at one site",
        "One site with 100 records and eight predictors, in the first round: it starts from "
        "the prior.",
        moments(8, 1 if quick else 5),
    )


if __name__ == "__main__":
    main()
