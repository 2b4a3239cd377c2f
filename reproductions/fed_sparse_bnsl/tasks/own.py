"""Cells of secagg's methods, run as jobs with noise in the sum, at each site, or without noise."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reproductions.data.linear_graphs import Records, records_of
from reproductions.fed_sparse_bnsl.tasks.zcdp import gaussian_epsilon, rho_of
from reproductions.harness.graph_scores import scores
from secagg.core.randomness import replayable_random
from secagg.experiments.runner.types import Settings
from secagg.runs.run import Run, run

WIDTH = 4.0  # public bounds of a column, in standard deviations of the population
NORM = 1.25  # record_norm, in root mean squares of a record's scaled length

NOTEARS: dict[str, Any] = {"kind": "notears", "standardise": False, "threshold": 0.3}
"""Columns keep their units: equal variances of the errors identify the graph. Without noise, the
default threshold is another one; with noise, it is this one."""

METHODS: dict[str, dict[str, Any]] = {
    "notears": {"name": "moments", "analyses": [NOTEARS]},
    "ges": {"name": "moments", "analyses": [{"kind": "ges"}]},
    "admm": {"name": "notears_admm", "standardise": False},
}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores of one method, and of NOTEARS with a chosen penalty and threshold.

    Settings: learner (of METHODS), placement ("sum", "site" or "none"), epsilon and delta (with
    noise), chosen_penalty and chosen_threshold (if wanted, with the learner "notears"), and those
    of the records. The job's epsilon is that at which its Gaussian noise has the rho that epsilon
    gives under zCDP: see `reproductions.fed_sparse_bnsl.tasks.zcdp`.
    """
    records, learner = records_of(settings), str(settings["learner"])
    name, d = f"{learner}-{settings['placement']}", len(records.scale)
    method = METHODS[learner]
    if "chosen_penalty" in settings:
        chosen = {k: float(settings[f"chosen_{k}"]) for k in ("penalty", "threshold")}
        method = {**method, "analyses": [NOTEARS, {**NOTEARS, **chosen}]}
    done = run_job(records, settings, method)
    summary, arrays = done.result.summary, done.result.arrays
    rho = {}
    if settings["placement"] != "none":
        rho = {"rho": float(done.facts["privacy"]["mu"]) ** 2 / 2}
    fits = {name: ("", summary)}
    sent = 1 + d + d * (d + 1) // 2
    if learner == "admm":
        sent += int(summary["diagnostics"]["rounds"]) * d * d
    else:
        names = (name, f"{name}-chosen")
        fits = {
            name: (f"{i}_{learner}_", fit)
            for i, (name, fit) in enumerate(zip(names, summary["analyses"], strict=False), 1)
        }
    return {
        name: rho
        | scores(
            records.truth,
            arrays[f"{prefix}directed"],
            arrays[f"{prefix}undirected"],
            converged=bool(fit.get("converged", True)),
            sent=sent,
        )
        for name, (prefix, fit) in fits.items()
    }


def run_job(records: Records, settings: Settings, method: dict[str, Any]) -> Run:
    """Run a method as a job; settings: as in `compute`, without the learner."""
    placement, d = str(settings["placement"]), len(records.scale)
    names = [f"x{j}" for j in range(d)]
    bounds = {name: float(WIDTH * s) for name, s in zip(names, records.scale, strict=True)}
    job: dict[str, Any] = {
        "title": "reproduction",
        "sites": {"max_rows": int(settings["each"])},
        "columns": {n: {"type": "continuous", "low": -b, "high": b} for n, b in bounds.items()},
        "method": method,
        # Only a protocol that hides single contributions can have the noise in the sum alone.
        "protocol": {"name": "masked" if placement == "sum" else "plain"},
        "release": {"min_sites": len(records.sites), "min_records": 1},
    }
    if placement != "none":
        delta = float(settings["delta"])
        job["privacy"] = {
            "placement": placement,
            "epsilon": gaussian_epsilon(rho_of(float(settings["epsilon"]), delta), delta),
            "delta": delta,
            "record_norm": NORM * d**0.5 / WIDTH,
        }
    tables = {f"s{k}": pd.DataFrame(rows, columns=names) for k, rows in enumerate(records.sites)}
    return run(job, tables, random=replayable_random(int(settings["seed"])))
