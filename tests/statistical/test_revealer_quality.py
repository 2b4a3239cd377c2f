"""Edge F1 of graph revealers on three sites, beside the pooled graphical lasso; -s shows them."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.covariance import GraphicalLassoCV
from support.methods.mixed_graphs import Graph, curved, f1, pairwise_mixed

from secagg.jobs.job import parse_job
from secagg.models.neural.graph_votes import vote_level
from secagg.models.neural.site_graphs import site_graph
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural
SEEDS = range(3)
RECORDS = 1000


def revealed(table: pd.DataFrame) -> Graph:
    columns: dict[str, dict[str, Any]] = {
        str(name): {"type": "continuous", "low": -40, "high": 40}
        if cells.dtype == float
        else {"type": "binary"}
        for name, cells in table.items()
    }
    job = {
        "title": "A graph",
        "sites": {"max_rows": RECORDS},
        "columns": columns,
        "method": {"name": "fedngr"},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 2},
    }
    tables = {"a": table[:300], "b": table[300:600], "c": table[600:]}
    found = simulate(parse_job(job), tables).arrays["graph"]
    return np.asarray(found != 0)


def voted(table: pd.DataFrame, votes: int = 2) -> Graph:
    """Return the pairs with two votes of three sites, as in `fedngm`."""
    d = table.shape[1]
    alpha = vote_level(d * (d - 1) // 2, 3, votes, 0.2)
    parts = np.split(table.to_numpy(np.float64), [300, 600])
    columns = [[j] for j in range(d)]
    graphs = [site_graph(part, columns, "partial_correlation", alpha=alpha) for part in parts]
    return np.asarray(np.sum(graphs, axis=0) >= votes)


def pooled_lasso(table: pd.DataFrame) -> Graph:
    """Return the graph of partial correlations above 0.1, with the penalty of cross-validation."""
    z = table.to_numpy(np.float64)
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        precision = GraphicalLassoCV().fit(z).precision_
    scale = np.sqrt(np.diagonal(precision))
    found = np.abs(precision / np.outer(scale, scale)) > 0.1
    np.fill_diagonal(found, val=False)
    return np.asarray(found)


@pytest.mark.parametrize(
    ("simulated", "least", "gain"), [(pairwise_mixed, 0.95, -0.03), (curved, 0.8, 0.15)]
)
def test_graphs_are_as_good_as_the_lassos_and_better_where_dependence_is_curved(
    simulated: Callable[[int, int, int], tuple[pd.DataFrame, Graph]], least: float, gain: float
) -> None:
    scores = []
    for seed in SEEDS:
        table, truth = simulated(10, RECORDS, seed)
        scores.append([f1(revealed(table), truth), f1(pooled_lasso(table), truth)])
    mean, error = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1) / np.sqrt(len(scores))
    print(f"\n{simulated.__name__}: revealer, lasso = {mean.round(3)} +- {error.round(3)}")
    assert mean[0] >= least and mean[0] >= mean[1] + gain


@pytest.mark.parametrize(("simulated", "low", "high"), [(pairwise_mixed, 0.97, 1.0),
                                                        (curved, 0.4, 0.7)])  # fmt: skip
def test_votes_find_linear_dependences_and_half_of_the_curved_ones(
    simulated: Callable[[int, int, int], tuple[pd.DataFrame, Graph]], low: float, high: float
) -> None:
    scores = []
    for seed in range(10):
        table, truth = simulated(10, RECORDS, seed)
        scores.append(f1(voted(table), truth))
    print(f"\n{simulated.__name__}: votes {np.mean(scores):.3f} +- {np.std(scores) / 3:.3f}")
    assert low <= np.mean(scores) <= high
