"""A job without its parties has the bits of the job with them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import secagg
from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import CapabilityError, DataError
from secagg.jobs.registry import METHODS as METHODS_BY_NAME
from secagg.models.moments.method import PooledMoments
from secagg.runs.simulate import simulate

METHODS: list[dict[str, Any]] = [
    {"name": "moments", "analyses": [{"kind": "describe"}]},
    {"name": "notears_admm", "rounds": 8},
    {"name": "gradient", "family": "gaussian", "outcome": "y", "predictors": ["x"], "rounds": 5},
]


def sites() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    return {
        name: pd.DataFrame({"x": x, "y": 0.5 * x + rng.normal(size=n)})
        for name, n in (("a", 20), ("b", 35))
        for x in [rng.normal(size=n)]
    }


def job(method: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "title": "t",
        "sites": {"max_rows": 100},
        "columns": {key: {"type": "continuous", "low": -8, "high": 8} for key in "xy"},
        "method": method,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 2, "min_records": 1},
    } | changed


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_a_simulation_has_the_same_bits_as_a_run(method: dict[str, Any]) -> None:
    ran = secagg.run(job(method), sites(), random=replayable_random(1)).result
    done: list[int] = []
    alone = simulate(job(method), sites(), random=replayable_random(1), progress=done.append)
    assert ran.arrays.keys() == alone.arrays.keys()
    for name, values in ran.arrays.items():
        assert values.tobytes() == alone.arrays[name].tobytes(), name
    assert alone.summary.items() <= ran.summary.items()  # a run adds its own facts
    assert done == list(range(1, len(done) + 1)) and done


def test_methods_draw_the_same_numbers_under_every_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocols take different amounts of the session's randomness; methods have their own."""
    drawing = ("secagg.models.sparse_bayes.regression", "SparseRegression")
    monkeypatch.setitem(METHODS_BY_NAME, "sparse_regression", drawing)
    method = {"name": "sparse_regression", "outcome": "y", "rounds": 8, "chains": 2}

    def draws(protocol: str, seed: int) -> np.ndarray:
        asked = job(method, protocol={"name": protocol}, simulation={"site_alone": False})
        result = secagg.run(asked, sites(), random=replayable_random(seed)).result
        return result.arrays["draws_theta"]

    first = draws("plain", 1)
    for protocol in ("additive", "masked"):
        assert draws(protocol, 1).tobytes() == first.tobytes()
    alone = simulate(job(method), sites(), random=replayable_random(1))
    assert alone.arrays["draws_theta"].tobytes() == first.tobytes()
    assert not np.array_equal(draws("plain", 2), first)


def test_a_variant_runs_in_place_of_the_jobs_method() -> None:
    class TwiceTheMean(PooledMoments):
        def result(self, *args: Any) -> Result:
            result = super().result(*args)
            return replace(result, arrays={"twice": 2 * result.arrays["mean"]})

    plain = job(METHODS[0] | {"centre": "pooled"})
    usual, _ = secagg.simulate_sites(plain, sites())
    varied, _ = secagg.simulate_sites(plain, sites(), variant=TwiceTheMean)
    assert varied.arrays["twice"].tolist() == (2 * usual.arrays["mean"]).tolist()


def test_errors_in_records_are_reported_as_in_a_run() -> None:
    broken = sites()
    broken["b"]["x"] = "much"
    with pytest.raises(DataError, match="x"):
        simulate(job(METHODS[0]), broken)


def test_simulating_a_private_job_is_refused() -> None:
    private = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(CapabilityError):
        simulate(job(METHODS[0], privacy=private, simulation={"site_alone": False}), sites())
