"""`fedngm` through whole masked runs beside scipy's optimum of the same log posterior; -s: figures.

The log posterior is written anew in numpy, by column, since no two columns share a parameter:
(2), (3) of `secagg.models.neural.ngm.record_losses` and the normal priors of `penalty`, of
precision 1. L-BFGS-B minimises it from where the run ended, and from two other starts, until no
slope is above 10^-6.

Let D be what the search from the run's end gains in log units. To second order, every answer then
moves by at most sqrt(2 D) of its standard errors (equation 1 of
`secagg.models.neural.ngm.convergence`). A tenth of a standard error is D = .005. Answers are means
and logits of probabilities, with all neighbours given, so they have no Monte Carlo error. Residuals
are not counted: answers then depend on the networks alone.

What is found: with the default `least_gain`, D is below .005 in the first two cases. In the third,
the search ended on a plateau, where 20 steps gain less than .001 log units, and 2.0 below the
maximum; answers there are wrong by up to .3 standard errors. A smaller `least_gain` mends it.
Other starts end at other maxima, up to 9 log units higher or lower (docs/adr/040); where they end
at the same one, answers are the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import expit, logit, stdtrit

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.models.neural.ngm.fitted.replicates import REPLICATES
from secagg.runs.networks.finished_ngm import FinishedNgmRun
from secagg.runs.run import run

pytestmark = pytest.mark.neural
NAMES, LEVEL, UNITS = ["x", "y", "c", "w"], 2, 10
CHAIN = {"edges": [["x", "y"], ["y", "c"], ["c", "w"]]}
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "300 records": (300, 100, {}),
    "600 records": (600, 100, {}),
    "plateau": (600, 303, CHAIN),
    "plateau, small least_gain": (600, 303, CHAIN | {"least_gain": 1e-5}),
}
"""Records, seed of the records, and settings."""
QUERIES: list[tuple[dict[str, float], str]] = [
    ({"x": 1, "c": 1, "w": 0.3}, "y"), ({"x": -1.5, "c": 0, "w": -0.2}, "y"),
    ({"x": 0, "c": 1, "w": 0}, "y"), ({"x": 0.3, "y": 0.5, "w": 0.5}, "c"),
    ({"x": -1, "y": -1, "w": -0.5}, "c"), ({"x": 1, "y": 1, "c": 1}, "w"),
    ({"y": 0.5, "c": 1, "w": 0.5}, "x"),
]  # fmt: skip


def drawn(records: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=records)
    y = 1.2 * np.sin(1.5 * x) + 0.5 * rng.normal(size=records)
    c = (rng.random(records) < expit(2 * y)).astype(int)
    w = c - 0.5 + 0.7 * rng.normal(size=records)
    return pd.DataFrame({"x": x, "y": y, "c": c, "w": w}).clip(-4.9, 4.9)


def job(settings: Mapping[str, Any]) -> dict[str, Any]:
    wide = {"type": "continuous", "low": -5, "high": 5}
    return {
        "title": "Four columns", "sites": {"max_rows": 1000},
        "columns": dict.fromkeys("xy", wide) | {"c": {"type": "binary"}, "w": wide},
        "method": {"name": "fedngm", "penalty": 1.0, "count_fit": False, **settings},
        "protocol": {"name": "masked"}, "release": {"min_sites": 3, "min_records": 10},
    }  # fmt: skip


# --- the log posterior ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Column:
    """One column given others: z, standardised; curved inputs have hidden units.

    theta: W (units, curved), b, V (units), s (read), a, and log sd if the column is continuous
    """

    target: Array
    curved: Array
    read: Array
    level: bool

    def parts(self, theta: Array) -> tuple[Array, Array, Array, Array, float, float]:
        q, p = self.curved.shape[1], self.read.shape[1]
        W, b, V, s, rest = np.split(theta, np.cumsum([UNITS * q, UNITS, UNITS, p]))
        return W.reshape(UNITS, q), b, V, s, rest[0], 0.0 if self.level else rest[1]

    @property
    def size(self) -> int:
        return UNITS * (self.curved.shape[1] + 2) + self.read.shape[1] + (1 if self.level else 2)

    def minus_log_posterior(self, theta: Array) -> tuple[float, Array]:
        """Return it, without its constant, and its gradient."""
        W, b, V, s, a, log_sd = self.parts(theta)
        h = np.tanh(self.curved @ W.T + b)
        o, y = h @ V + self.read @ s + a, self.target
        if self.level:
            value, slope, of_sd = np.sum(np.logaddexp(0, o) - y * o), expit(o) - y, []
        else:
            t, squares = np.exp(2 * log_sd) + 1e-6, np.sum((o - y) ** 2)
            value = squares / (2 * t) + len(y) * np.log(t) / 2
            slope = (o - y) / t
            of_sd = [(len(y) / t - squares / t**2) * np.exp(2 * log_sd)]
        value += (np.sum(W**2) + V @ V + s @ s) / 2
        inner = np.outer(slope, V) * (1 - h**2)
        gradient = np.concatenate([
            (inner.T @ self.curved + W).ravel(), inner.sum(axis=0), h.T @ slope + V,
            self.read.T @ slope + s, [slope.sum()], of_sd,
        ])  # fmt: skip
        return float(value), gradient

    def minimum(self, start: Array) -> tuple[float, Array]:
        options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-6, "maxcor": 50}
        found = minimize(self.minus_log_posterior, start, jac=True, method="L-BFGS-B",
                         options=options)  # fmt: skip
        return float(found.fun), found.x

    def start(self, rng: np.random.Generator) -> Array:
        """Return small parameters, but for W, which makes curves of all kinds."""
        theta, hidden = 0.1 * rng.normal(size=self.size), UNITS * self.curved.shape[1]
        theta[:hidden] += rng.normal(size=hidden)
        return np.asarray(theta)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A run, the columns' posteriors, and where the run ended on them."""

    settings: Mapping[str, Any]
    result: Result
    columns: list[Column]
    read: list[tuple[Array, Array]]

    def parameters(self, number: int) -> Array:
        arrays, (read, curved) = self.result.arrays, self.read[number]
        parts = [
            arrays["hidden_1.weight"][number][:, curved].ravel(), arrays["hidden_1.bias"][number],
            arrays["output.weight"][number], arrays["linear.weight"][number, read],
            arrays["output.bias"][number : number + 1],
        ]  # fmt: skip
        return np.concatenate([*parts, self._log_sd(number)])

    def _log_sd(self, number: int) -> Array:
        before = number - (number > LEVEL)
        log_sd = self.result.arrays["log_sd"]
        return np.asarray(log_sd[before : before + 1] if number != LEVEL else log_sd[:0])

    def with_parameters(self, thetas: list[Array]) -> Result:
        arrays = {name: array.copy() for name, array in self.result.arrays.items()}
        for number, theta in enumerate(thetas):
            read, curved = self.read[number]
            W, b, V, s, a, log_sd = self.columns[number].parts(theta)
            arrays["hidden_1.weight"][number][:, curved] = W
            arrays["hidden_1.bias"][number], arrays["output.weight"][number] = b, V
            arrays["linear.weight"][number, read], arrays["output.bias"][number] = s, a
            if number != LEVEL:
                arrays["log_sd"][number - (number > LEVEL)] = log_sd
        return Result(self.result.summary, arrays)

    def answers(self, result: Result) -> tuple[Array, Array]:
        """Return means and logits, and their standard errors, by `secagg query`."""
        model = FinishedNgmRun.of(parse_job(job(self.settings)), result)
        found, quantile = [], stdtrit(REPLICATES / 2, 0.975)
        for given, of in QUERIES:
            (row,) = model.query(given, [of], random=replayable_random(0))["columns"]
            assert row["exact"]
            if of == "c":
                level = row["levels"][1]
                value, ends = logit(level["probability"]), logit(np.array(level["interval"]))
            else:
                value, ends = row["mean"], np.array(row["mean_interval"])
            found.append((value, (ends[1] - ends[0]) / 2 / quantile))
        return tuple(np.array(found).T)  # type: ignore[return-value]


@cache
def fitted(case: str) -> Fitted:
    records, seed, settings = CASES[case]
    table = drawn(records, seed)
    tables = {f"s{k}": table[k::3] for k in range(3)}
    result = run(job(settings), tables, random=replayable_random(seed)).result
    assert result.summary["converged"]
    z = ((table - table.mean()) / table.std(ddof=0)).to_numpy()
    graph = result.arrays["graph"]
    pairs = zip(graph, result.arrays.get("curved", graph), strict=True)
    read = [(np.flatnonzero(one), np.flatnonzero(other)) for one, other in pairs]
    columns = [
        Column(table["c"].to_numpy() if number == LEVEL else z[:, number], z[:, curved],
               z[:, inputs], number == LEVEL)
        for number, (inputs, curved) in enumerate(read)
    ]  # fmt: skip
    return Fitted(settings, result, columns, read)


# --- tests ----------------------------------------------------------------------------------------


def test_the_gradient_of_the_oracle_is_that_of_its_value() -> None:
    found = fitted("300 records")
    for number, column in enumerate(found.columns):
        theta = found.parameters(number) + 0.1
        error = check_grad(lambda t, c=column: c.minus_log_posterior(t)[0],
                           lambda t, c=column: c.minus_log_posterior(t)[1], theta)  # fmt: skip
        assert error < 1e-4 * np.linalg.norm(column.minus_log_posterior(theta)[1])


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_the_maximum_that_the_run_is_at(case: str) -> None:
    found = fitted(case)
    starts = [found.parameters(number) for number in range(4)]
    ends = [column.minimum(t) for column, t in zip(found.columns, starts, strict=True)]
    D = sum(c.minus_log_posterior(t)[0] for c, t in zip(found.columns, starts, strict=True))
    D -= sum(value for value, _ in ends)
    at_run, error = found.answers(found.result)
    apart = np.abs(found.answers(found.with_parameters([t for _, t in ends]))[0] - at_run) / error
    rounds = found.result.summary["rounds"]
    print(f"\n{case}: {rounds} rounds, D {D:.5f}; in standard errors {apart.round(3)}")
    assert D >= 0
    # .96 / root 200 for the replicates, 4 times; .002 for what is beyond second order
    assert np.all(apart <= 1.27 * np.sqrt(2 * D) + 0.002)
    if case == "plateau":
        assert D > 1  # if the default search is made better, change this page and ADR 40
    else:
        assert D < 0.005
        assert np.all(apart < 0.1)


@pytest.mark.parametrize("case", ["300 records", "600 records"])
def test_from_other_starts_answers_are_the_same_where_the_maximum_is_the_same(case: str) -> None:
    found, rng = fitted(case), np.random.default_rng(1)
    at_run, error = found.answers(found.result)
    same = 0
    for _ in range(2):
        thetas, gains = [], []
        for number, column in enumerate(found.columns):
            start = found.parameters(number)
            value, theta = column.minimum(column.start(rng))
            gains.append(column.minus_log_posterior(start)[0] - value)
            thetas.append(theta if abs(gains[-1]) < 0.005 else start)
        everywhere = found.answers(found.with_parameters(thetas))[0]
        apart = np.abs(everywhere - at_run) / error
        same += sum(abs(gain) < 0.005 for gain in gains)
        print(f"\n{case}: gains by column {np.round(gains, 3)}; where the same, {apart.round(3)}")
        assert np.all(apart < 0.1)
    assert same >= 4  # of 8
