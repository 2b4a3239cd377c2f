"""Fitted neural graphical models with known joint distributions."""

from pathlib import Path
from typing import Any

import numpy as np
from support.runs.run_folders import log_files

from secagg.contracts import PublicFacts, Result, Variable
from secagg.core.arrays import Array
from secagg.evidence.run_files import json_bytes
from secagg.jobs.job import parse_job
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.layout import ngm_layout

BOUND = 10.0
"""Continuous columns are between -BOUND and BOUND; their z is the value itself."""


def public(columns: dict[str, int]) -> PublicFacts:
    """columns: number of levels of each; 0 for a continuous one."""
    variables: list[Variable] = []
    for name, levels in columns.items():
        if not levels:
            variables.append(Variable(name, name, 0.0, BOUND))
        variables += [
            Variable(f"{name}={level}", name, 0.5, 0.5, indicator=True)
            for level in range(1, levels)
        ]
    return PublicFacts(tuple(variables), tuple(columns), 100, ("a", "b"))


def linear_arrays(
    columns: dict[str, int], edges: str, linear: Array, bias: Array, sd: list[float]
) -> dict[str, Array]:
    """Return the arrays of a model without hidden layers.

    edges: as "x-y y-z"; linear: (variables, variables) in values and indicators 0 and 1
    """
    facts = public(columns)
    layout = ngm_layout(facts, None)
    indicator = np.array([v.indicator for v in facts.variables])
    graph = np.zeros((layout.d, layout.d), dtype=np.uint8)
    for edge in edges.split():
        i, j = (layout.names.index(name) for name in edge.split("-"))
        graph[i, j] = graph[j, i] = 1
    # An indicator is read as z = -1 or 1, so it is (1 + z) / 2.
    return {
        "graph": graph,
        "centre": np.zeros(len(indicator)),
        "scale": np.where(indicator, 1.0, BOUND),
        "linear.weight": np.where(indicator, linear / 2, linear),
        "output.bias": bias + linear @ np.where(indicator, 0.5, 0.0),
        "log_sd": np.log(np.asarray(sd, dtype=np.float64)),
    }


def model_of(columns: dict[str, int], arrays: dict[str, Any]) -> FittedNgm:
    facts = public(columns)
    return FittedNgm.of(ngm_layout(facts, None), facts, arrays)


def conditionals(model: FittedNgm, logarithm: tuple[int, ...] = ()) -> list[Conditional]:
    return [Conditional(model, i, i in logarithm) for i in range(model.layout.d)]


PRECISION = np.array([[2.0, -0.8, 0.0], [-0.8, 1.5, 0.6], [0.0, 0.6, 1.0]])


def gaussian() -> list[Conditional]:
    """x - y - z with joint distribution N(0, inverse of PRECISION)."""
    diagonal = np.diag(PRECISION)
    linear = -(PRECISION - np.diag(diagonal)) / diagonal[:, None]
    columns = dict.fromkeys("xyz", 0)
    arrays = linear_arrays(columns, "x-y y-z", linear, np.zeros(3), list(diagonal**-0.5))
    return conditionals(model_of(columns, arrays))


SHARES = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 2.0, -1.0], [1.0, -1.0, 3.0]])
SDS = np.array([1.0, 1.5])
MIXED = {"x": 0, "g": 3, "y": 0}


def mixed_arrays() -> dict[str, Array]:
    """x - g - y: g has levels with SHARES; x and y are normal given g, with MEANS and SDS."""
    linear, bias = np.zeros((4, 4)), np.zeros(4)
    for row, (mean, sd) in zip((0, 3), zip(MEANS, SDS, strict=True), strict=True):
        bias[row], linear[row, 1:3] = mean[0], mean[1:] - mean[0]
        linear[1:3, row] = (mean[1:] - mean[0]) / sd**2
        bias[1:3] -= (mean[1:] ** 2 - mean[0] ** 2) / (2 * sd**2)
    bias[1:3] += np.log(SHARES[1:] / SHARES[0])
    return linear_arrays(MIXED, "x-g g-y", linear, bias, list(SDS))


def mixed() -> list[Conditional]:
    return conditionals(model_of(MIXED, mixed_arrays()))


def shares_given(x: float | None = None) -> Array:
    """Return the probabilities of g's levels, given x or nothing."""
    weights = SHARES
    if x is not None:
        weights = SHARES * np.exp(-((x - MEANS[0]) ** 2) / (2 * SDS[0] ** 2))
    return np.asarray(weights / weights.sum())


COUPLED = {"a": 2, "b": 2, "c": 2}
COUPLINGS = np.array([[0.0, 2.5, 0.0], [2.5, 0.0, -2.0], [0.0, -2.0, 0.0]])
FIELDS = np.array([-0.7, -0.2, 0.9])


def coupled() -> list[Conditional]:
    """a - b - c, binary: log p = FIELDS' s + s' COUPLINGS s / 2 + constant, s in {0, 1}^3."""
    arrays = linear_arrays(COUPLED, "a-b b-c", COUPLINGS, FIELDS, [])
    return conditionals(model_of(COUPLED, arrays))


def coupled_table() -> dict[tuple[int, ...], float]:
    """Return the joint probabilities of `coupled`."""
    found = {}
    for s in np.ndindex(2, 2, 2):
        v = np.array(s)
        found[s] = float(np.exp(FIELDS @ v + v @ COUPLINGS @ v / 2))
    total = sum(found.values())
    return {s: p / total for s, p in found.items()}


def ngm_job() -> dict[str, Any]:
    """Return a job whose result has `mixed_arrays`; y is recorded as exp(y)."""
    low, high = np.exp([-BOUND, BOUND])
    return {
        "title": "Three columns",
        "sites": {"max_rows": 100},
        "columns": {
            "x": {"type": "continuous", "low": -BOUND, "high": BOUND},
            "g": {"type": "categorical", "levels": ["none", "mild", "2"]},
            "y": {"type": "continuous", "low": low, "high": high, "transform": "log"},
        },
        "method": {"name": "fedngm", "hidden": []},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }


def ngm_result() -> Result:
    edges = [{"between": ["x", "g"], "votes": 2}, {"between": ["g", "y"], "votes": 1}]
    summary = {"method": "fedngm", "names": list(MIXED), "edges": edges, "notes": ["Loss is high."]}
    return Result(summary, mixed_arrays())


def ngm_folder(folder: Path, records: int | None = None) -> Path:
    """Write as much of a run's folder as is needed to use its result.

    records: their number, without which there are no intervals
    """
    result, job = ngm_result(), parse_job(ngm_job())
    if records is not None:
        result.summary["records"] = records
    folder.mkdir(parents=True)
    agreed = {"job": job.model_dump(mode="json"), "roster": [], "plan": [], "nonce": "",
              "session": "", "secagg": "", "randomness": "",
              "method": {"name": "fedngm", "settings": {}},
              "protocol": {"name": "plain", "settings": {}}}  # fmt: skip
    facts = agreed | {"release_counts": {}, "log": {"lines": 0, "head": ""}}
    (folder / "run.json").write_bytes(json_bytes(facts))
    (folder / "result.json").write_bytes(json_bytes(result.summary))
    np.savez(folder / "arrays.npz", **result.arrays)
    written = {"event": "result", "files": ["result.json", "arrays.npz"]}
    log_files(folder, [{"event": "session", **agreed}, written, {"event": "report", "files": {}}])
    return folder
