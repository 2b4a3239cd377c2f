"""Simulated sites for the benchmark of sparse Bayesian regression, and its ways to be sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.core.randomness import replayable_random
from secagg.models.common.posterior_summary import Posterior, summarise
from secagg.runs.simulate import simulate

Array = NDArray[np.float64]

EFFECTS = (0.8, 0.25)
"""Of the first predictors, strong and weak; the others have none."""


@dataclass(frozen=True)
class Sites:
    """M sites of n records: an outcome, then q independent predictors, each of variance 1.

    One coefficient in ten differs at a site, by N(0, 0.3^2).
    """

    sites: int = 4
    records: int = 138
    predictors: int = 11
    seed: int = 0

    def simulate(self) -> dict[str, Array]:
        """Return the records, the outcome in the first column."""
        rng = np.random.default_rng(self.seed)
        common = np.zeros(self.predictors)
        common[: len(EFFECTS)] = EFFECTS[: self.predictors]
        found = {}
        for k in range(self.sites):
            x = rng.standard_normal((self.records, self.predictors))
            differs = rng.random(self.predictors) < 0.1
            theta = common + differs * 0.3 * rng.standard_normal(self.predictors)
            y = x @ theta + rng.standard_normal(self.records)
            found[f"s{k}"] = np.column_stack([y, x])
        return found

    @property
    def names(self) -> list[str]:
        """The columns."""
        return ["y", *(f"x{j}" for j in range(self.predictors))]

    def tables(self) -> dict[str, dict[str, Array]]:
        """Return the records as `secagg.run` takes them."""
        return {
            site: dict(zip(self.names, rows.T, strict=True))
            for site, rows in self.simulate().items()
        }

    def job(self, protocol: str = "plain", **method: Any) -> dict[str, Any]:
        """Return the job of a sparse regression."""
        bounds = {"type": "continuous", "low": -8, "high": 8}
        return {
            "title": "benchmark",
            "sites": {"max_rows": max(1000, self.records)},
            "columns": dict.fromkeys(self.names, bounds),
            "method": {"name": "sparse_regression", "outcome": "y", "prior": "paper", **method},
            "protocol": {"name": protocol},
            "release": {"min_sites": 2, "min_records": 1},
            "simulation": {"site_alone": False},
        }


@dataclass(frozen=True)
class Sampled:
    """The results of one way of sampling.

    seconds: processor time; rounds: of all chains, after warmup
    """

    way: str
    seconds: float
    rounds: int
    theta: Posterior
    pip: Posterior
    log_tau: Posterior
    extra: str = field(default="")

    @property
    def ess(self) -> Array:
        """Bulk effective sample sizes of the common coefficients."""
        return self.theta.ess_bulk


def sampled(case: Sites, way: str, seed: int, **method: Any) -> tuple[Any, ...]:
    """Return the draws of theta, PIP and tau squared of one simulated run, (draws, chains, q)."""
    result = simulate(case.job(**method), case.tables(), random=replayable_random(seed))
    names = ("draws_theta", "draws_inclusion", "draws_tau_squared")
    return way, *(result.arrays[name] for name in names)


def summed_up(way: str, seconds: float, draws: Sequence[Array], extra: str = "") -> Sampled:
    """Return the summaries of draws of theta, PIP and tau squared."""
    theta, pip, t = draws
    found = [summarise(each) for each in (theta, pip, np.log(t) / 2)]
    return Sampled(way, seconds, len(theta) * theta.shape[1], *found, extra)
