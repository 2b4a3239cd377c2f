"""How far the floor of lambda, which step `paper` needs, moves the posterior: see benchmarks.

`benchmarks/methods/bench_sparse_floor.py` prints the table; here a part of it is sampled, and
compared with the exact step in Monte Carlo errors, which come from independent chains.
"""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from secagg.models.sparse_bayes.regression import SparseRegression

SIZE = 256, 1500  # chains, rounds


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("benchmarks.methods.bench_sparse_floor")


def test_only_a_floor_far_above_the_default_changes_tau(floor: Any) -> None:
    exact = floor.sampled("collapsed", 1.0, *SIZE)  # it has no floor
    default = SparseRegression(outcome="y").lambda_floor
    (apart, error), (tenth, its_error) = (
        (found.value - exact.value, np.hypot(found.error, exact.error))
        for found in (floor.sampled("paper", least, *SIZE) for least in (default, 0.1))
    )
    print(np.round(apart / error, 1).tolist(), np.round(tenth / its_error, 1).tolist(), sep="\n")
    # 13 quantities, two-sided: one larger in 10 000 runs by chance
    assert np.max(np.abs(apart / error)) < 4.5
    log_tau = [name.startswith("mean of log tau") for name in floor.QUANTITIES]
    # lambda is raised, so tau falls: all three together
    assert np.all(tenth[log_tau] < 0)
    assert np.sum(tenth[log_tau]) < -4.5 * np.sqrt(np.sum(its_error[log_tau] ** 2))
