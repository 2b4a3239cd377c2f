"""How far the floor of lambda, which step `paper` needs, moves the posterior: see benchmarks.

`benchmarks/sparse_floor.py` prints the table; here a part of it is sampled, and compared with the
exact step in Monte Carlo errors, which come from independent chains.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkout import ROOT

from secagg.models.sparse_regression import SparseRegression

BENCHMARKS: Path = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def floor() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield import_module("sparse_floor")


@pytest.fixture(scope="module")
def exact(floor: Any) -> Any:
    return floor.sampled("collapsed", 1.0, *SIZE)  # it has no floor


SIZE = 256, 1500  # chains, rounds


def scores(found: Any, exact: Any) -> np.ndarray:
    return (found.value - exact.value) / np.hypot(found.error, exact.error)


@pytest.mark.slow
def test_the_default_floor_moves_nothing(floor: Any, exact: Any) -> None:
    default = SparseRegression(outcome="y").lambda_floor
    found = floor.sampled("paper", default, *SIZE)
    print(np.round(scores(found, exact), 1).tolist())
    # 13 quantities, two-sided: one larger in 10 000 runs by chance
    assert np.max(np.abs(scores(found, exact))) < 4.5


@pytest.mark.slow
def test_a_floor_of_a_tenth_does(floor: Any, exact: Any) -> None:
    found = floor.sampled("paper", 0.1, *SIZE)
    print(np.round(scores(found, exact), 1).tolist())
    log_tau = [name.startswith("mean of log tau") for name in floor.QUANTITIES]
    apart = (found.value - exact.value)[log_tau]
    assert np.all(apart < 0)  # lambda is raised, so tau falls
    assert np.min(scores(found, exact)[log_tau]) < -4.5
