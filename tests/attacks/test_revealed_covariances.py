"""What the pooled covariances of `fedngr` tell a coordinator beyond the gradients of its search.

Its first sum has the cross products of all columns, for the inputs of the refit; without them
(`inputs = "neighbours"`) it has only their squares. All sums are over the same records, so what a
sum of f(record) tells beyond sums of g(record) is the part of f that is no linear combination of
g's entries. The attacker knows the network and its first parameters, which are public, and
simulates records to learn that combination; no record of the sites is needed.

Found: the gradient of the first round alone determines the covariances. Where records are like the
simulated ones, what it leaves open is 3 % of their standard error; at the sites of the run below,
13 %. It also shows who took part better than they do. Further rounds only add to this.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

from secagg.audits.membership import area_under_roc
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import parse_job
from secagg.models.neural.ngm.layout import ModelColumn, NgmLayout
from secagg.models.neural.ngm.shared_network import SharedNetwork
from secagg.models.neural.record_gradients import record_gradients
from secagg.runs.run import run
from secagg.sessions.fixed_point import decode
from secagg.sessions.planned_job import plan_job

pytestmark = pytest.mark.neural
NAMES = ["a", "b", "c", "d", "case"]
PAIRS = np.triu_indices(len(NAMES), 1)
LAYOUT = NgmLayout(
    tuple(ModelColumn(n, (i,), i == 4) for i, n in enumerate(NAMES)), (0, 1, 2, 3, 4)
)
RECORDS = 300
SIMULATED = 5000
Of = Callable[[Array], Array]


def drawn(n: int, rng: np.random.Generator) -> Array:
    """Return records of the sites: dependent columns, one of them curved, and a level, 0 or 1."""
    a, b = rng.normal(size=(2, n))
    c = 0.7 * a - 0.5 * b + 0.6 * rng.normal(size=n)
    d = np.sin(1.5 * c) + 0.4 * rng.normal(size=n)
    return np.column_stack([a, b, c, d, rng.logistic(size=n) < 1.5 * d]).clip(-4.9, 4.9)


def simulated(n: int, rng: np.random.Generator) -> Array:
    """Return the attacker's records, standardised: normal, with all kinds of correlations."""
    A = rng.normal(size=(n, 5, 6))
    z = np.einsum("nij,nj->ni", A, rng.normal(size=(n, 6))) / np.linalg.norm(A, axis=2)
    z[:, 4] = np.where(z[:, 4] > 0, 1.0, -1.0)
    return np.asarray(z)


def gradients(hidden: int, z: Array) -> Array:
    """Return each record's gradient at the first parameters, shape (records, parameters)."""
    network = SharedNetwork(LAYOUT, (hidden,), np.zeros(5), np.ones(5))
    return np.concatenate(list(record_gradients(network, network.initial(0), z)))


def products(z: Array) -> Array:
    """Return the cross products of each record, shape (records, pairs)."""
    return np.asarray(z[:, PAIRS[0]] * z[:, PAIRS[1]])


def known(gradient: Array, z: Array) -> Array:
    """Return what sums have without cross products; z: its first two moments are known."""
    return np.hstack([np.ones((len(z), 1)), z, z**2, gradient])


@cache
def records_and_gradients(hidden: int) -> tuple[Array, Array]:
    z = simulated(SIMULATED, np.random.default_rng(5))
    return z, known(gradients(hidden, z), z)


def combination(sums: Array, wanted: Array) -> Array:
    """Return the least squares that give `wanted` from `sums`, with a little ridge."""
    length = np.sqrt(np.mean(sums**2, axis=0)) + 1e-12
    X, n = sums / length, len(sums)
    found = np.linalg.solve(X.T @ X / n + 1e-5 * np.eye(X.shape[1]), X.T @ wanted / n)
    return np.asarray(found / length[:, None])


def test_the_first_gradient_tells_the_covariances_and_not_everything() -> None:
    """Shares of the variance over records that the other sums explain, on other records."""
    z, sums = records_and_gradients(100)
    half = SIMULATED // 2
    # Control: how many records have two large values is no combination of the gradient.
    corner = (z[:, :1] > 1) & (z[:, 1:2] > 1)
    wanted = np.hstack([products(z), corner])
    left = wanted[half:] - sums[half:] @ combination(sums[:half], wanted[:half])
    explained = 1 - left.var(axis=0) / wanted[half:].var(axis=0)
    without = sums[:, :11]  # control: means and variances alone
    bare = wanted[half:] - without[half:] @ combination(without[:half], wanted[:half])
    by_squares = 1 - bare.var(axis=0) / wanted[half:].var(axis=0)
    print(f"\nexplained: {explained.round(4)}; by squares alone {by_squares.round(3)}")
    assert np.all(explained[:-1] > 0.99) and explained[-1] < 0.95
    assert np.all(by_squares[:-1] < 0.1)


def test_a_run_without_covariances_tells_them(tmp_path: Path) -> None:
    """A masked run; the coordinator has its sums only. Errors in standard errors, 1 / root n."""
    wide: dict[str, Any] = {"type": "continuous", "low": -5, "high": 5}
    job: dict[str, Any] = {
        "title": "A graph", "sites": {"max_rows": 200},
        "columns": dict.fromkeys(NAMES[:4], wide) | {"case": {"type": "binary"}},
        "method": {"name": "fedngr", "inputs": "neighbours", "rounds": 1, "refit_rounds": 1},
        "protocol": {"name": "masked"}, "release": {"min_sites": 3, "min_records": 5},
    }  # fmt: skip
    records = drawn(RECORDS, np.random.default_rng(1))
    table = pd.DataFrame(records, columns=NAMES).astype({"case": int})
    tables = {f"s{k}": table[k::3] for k in range(3)}
    run(job, tables, out=tmp_path / "run", random=replayable_random(2))
    planned, found = plan_job(parse_job(job), tables), dict[str, Any]()
    for item in RunFolder(tmp_path / "run").sums:
        found[item.stage] = decode(planned.plans.of(item.stage), item.total)[0]
    assert "moments" not in found["units"] and len(found["units"]["squares"]) == 5
    mean = found["train"]["change"] / found["train"]["weight"]
    z, sums = records_and_gradients(100)
    of_sites = np.concatenate([[1.0], np.zeros(5), np.ones(5), mean])
    guess = of_sites @ combination(sums, products(z))
    truth = np.corrcoef(records, rowvar=False)[PAIRS]
    error, nothing = np.abs(np.stack([guess - truth, truth])) * np.sqrt(RECORDS)
    rms, guessed = np.sqrt(np.mean(error**2)), np.sqrt(np.mean(nothing**2))
    print(f"\nerrors {error.round(2)}, {rms:.2f} on average; of a guess of 0 {guessed:.1f}")
    assert rms < 0.5
    assert guessed > 5


def traced(of: Of, n: int, runs: int) -> tuple[float, float]:
    """Return the area under the ROC of who took part, and what it would be for normal functions.

    The attacker knows the population. A sum over n records of k uncorrelated functions moves the
    score of one who took part by k / n, with the standard deviation sqrt(k / n).

    of: from records to what is summed, shape (records, functions)
    """
    rng = np.random.default_rng(3)
    population = of(simulated(3000, rng))
    mean, (U, s, Vt) = population.mean(axis=0), np.linalg.svd(population - population.mean(axis=0),
                                                              full_matrices=False)  # fmt: skip
    kept = s > 0.01 * s[0]
    whiten = Vt[kept].T / s[kept] * np.sqrt(len(U))
    inside, outside = [], []
    for _ in range(runs):
        took, other = ((of(simulated(n, rng)) - mean) @ whiten for _ in range(2))
        total = took.mean(axis=0)
        inside.append(took @ total)
        outside.append(other @ total)
    area = area_under_roc(np.concatenate(inside), np.concatenate(outside)).value
    return float(area), float(ndtr(np.sqrt(np.sum(kept) / (2 * n))))


def test_gradients_show_who_took_part_better_than_covariances() -> None:
    """Covariances alone do show it, of few records: the positive control."""

    def squares(z: Array) -> Array:
        return np.hstack([z, z[:, :4] ** 2])

    def moments(z: Array) -> Array:
        return np.hstack([squares(z), products(z)])

    def every(z: Array) -> Array:
        return gradients(20, z)

    few = {name: traced(of, 40, 25) for name, of in
           {"squares": squares, "moments": moments, "gradient": every}.items()}  # fmt: skip
    many = {name: traced(of, 300, 4) for name, of in
            {"moments": moments, "gradient": every}.items()}  # fmt: skip
    print(f"\nof 40 records {few}, of 300 {many}")
    # 1000 or 1200 scores of either kind: the standard error of an area is .013.
    for areas in (few, many):
        assert all(area < theory + 0.04 for area, theory in areas.values())
        assert areas["gradient"][0] > areas["moments"][0] + 0.04
    assert few["squares"][0] + 0.02 < few["moments"][0]
    assert few["moments"][0] > 0.62 > many["moments"][0]
