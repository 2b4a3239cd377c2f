"""Coverage of 95 % intervals of queries over simulated runs of `fedngm`, with known truth; -s.

Networks are linear, so that many runs take little time; benchmarks/networks/query_coverage.py has
curved ones. Records of three sites: w, x normal, y = x + spread(w) e, and a binary b given y.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.models.neural.ngm.fitted import intervals
from secagg.models.neural.ngm.fitted.sampling import Effort
from secagg.runs.networks.finished_ngm import FinishedNgmRun
from secagg.runs.simulate import simulate

pytestmark = pytest.mark.neural


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "EFFORT", FEW)


RUNS, RECORDS = 24, 300
FEW = Effort(chains=10, warm_up=20, sweeps=40)
_Z = np.linspace(-8, 8, 2001)
_W = norm.pdf(_Z) / norm.pdf(_Z).sum()


def constant(w: Array) -> Array:
    return np.ones_like(w)


def of_w(w: Array) -> Array:
    """A spread that depends on a neighbour, but not on the mean: the model does not know it."""
    return np.exp(0.6 * w - 0.36)


def drawn(spread: Callable[[Array], Array], rng: np.random.Generator) -> pd.DataFrame:
    w, x, e = rng.standard_normal((3, RECORDS))
    y = x + spread(w) * e
    b = (rng.random(RECORDS) < expit(y)).astype(int)
    return pd.DataFrame({"w": w, "x": x, "y": y, "b": b}).clip(-14, 14)


def covered(spread: Callable[[Array], Array]) -> Array:
    """Return whether each interval contains the truth, shape (runs, queries)."""
    wide = {"type": "continuous", "low": -15, "high": 15}
    job = parse_job(
        {
            "title": "Coverage", "sites": {"max_rows": RECORDS},
            "columns": {"w": wide, "x": wide, "y": wide, "b": {"type": "binary"}},
            "method": {"name": "fedngm", "hidden": [],
                       "edges": [["w", "y"], ["x", "y"], ["y", "b"], ["w", "x"]]},
            "protocol": {"name": "plain"}, "release": {"min_sites": 2, "min_records": 10},
        }
    )  # fmt: skip
    # The first mean is of all records with w and x, so b is drawn; so is y for the last.
    queries = (
        ({"x": 1, "w": 0}, "y", 1.0), ({"x": 1, "w": 2}, "y", 1.0),
        ({"y": 1}, "b", float(expit(1))),
        ({"x": 1, "w": 0}, "b", float(_W @ expit(1 + spread(np.zeros(1)) * _Z))),
    )  # fmt: skip
    found = []
    for seed in range(RUNS):
        table = drawn(spread, np.random.default_rng(seed))
        tables = {f"s{k}": table[k::3] for k in range(3)}
        run = FinishedNgmRun.of(job, simulate(job, tables, random=replayable_random(seed)))
        hits = []
        for given, of, truth in queries:
            (row,) = run.query(given, [of], effort=FEW, random=replayable_random(0))["columns"]
            low, high = row["mean_interval"] if of == "y" else row["levels"][1]["interval"]
            hits.append(low <= truth <= high)
        found.append(hits)
    return np.array(found)


def test_intervals_cover_where_the_model_is_right() -> None:
    found = covered(constant)
    print(f"\nspread constant: {found.mean(axis=0).round(3)}, all {found.mean():.3f}")
    error = np.sqrt(0.95 * 0.05 / RUNS)
    # Hits of one run are dependent: at worst, the mean of all is as uncertain as one share.
    assert np.all(found.mean(axis=0) >= 0.95 - 4 * error)
    assert 0.95 - 3 * error <= found.mean() <= 0.995


def test_intervals_are_short_at_leverage_of_an_unknown_spread() -> None:
    """What docs/adr/032 states: they rest on the model's residual variance."""
    found = covered(of_w)
    print(f"\nspread of w: {found.mean(axis=0).round(3)}")
    assert 0.6 <= found[:, 1].mean() <= 0.93
    assert found[:, [0, 2]].mean() >= 0.88
