"""Networks of a run, personalised networks and networks of a site alone, at sites that differ.

    python -m benchmarks.networks.personalisation CELLS [--seeds N] [--records N ...]
        [--methods M ...] [--skews S ...]

CELLS is a file to which each cell is appended as a line of JSON: one method, skew, number of
records of a site, and seed. Cells in the file are not computed again. Two tables are printed.

Site k = -1, 0, 1 has records of four columns

    x1 ~ N(m, 1),  x2 ~ N(1.2 a sin(1.5 x1), .5^2),  P(b3 = 1) = s(c + 2 a x2),
    x4 ~ N(b3 - .5, .7^2)

with s the logistic function, and (m, c, a) = (0, 0, 1) but for the skew: "inputs" m = 1.5 k;
"shares" c = 1.5 k; "effects" a = 1, .3, -.5. Losses and areas under the curve (of b3 given the
others) are of 4000 new records of each site, as a mean over the three sites. "Alone" has the run's
graph and units, and a penalty of 1 (the default of `fedngm`) or 20.

The second table is of stitching, without skew. Site -1 has two more columns,

    y ~ N(sin(2 x1) + .5 x4, .5^2),  P(g = 1) = s(x2),

whose edges are named, or all. The loss of both columns, of 4000 new records, for penalties on the
added networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import rankdata

from benchmarks.harness import store_row, stored_rows, table, with_error
from reproductions.harness.simulated_runs import job_of, simulated
from secagg.contracts import Array
from secagg.core.randomness import replayable_random
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job, parse_job
from secagg.models.neural.gradients import record_losses
from secagg.models.neural.local_fit import fit_locally
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.penalty import quadratic_penalty
from secagg.models.neural.ngm.site_fits.personalisation import personalised
from secagg.runs.adapt.finished_networks import FinishedNetworks, records_here
from secagg.runs.adapt.own_columns import read_own_columns
from secagg.runs.adapt.stitched import stitch

METHODS: dict[str, dict[str, Any]] = {"fedngm": {"name": "fedngm"}, "fedngr": {"name": "fedngr"}}
SKEWS = ("none", "inputs", "shares", "effects")
RECORDS = (100, 400)
TEST = 4000
SITES = (-1, 0, 1)
EFFECTS = {-1: 1.0, 0: 0.3, 1: -0.5}
WIDE = {"type": "continuous", "low": -6, "high": 6}
COLUMNS: dict[str, Mapping[str, object]] = {
    "x1": WIDE, "x2": WIDE, "b3": {"type": "binary"}, "x4": WIDE,
}  # fmt: skip
OWN = {"y": WIDE, "g": {"type": "binary"}}
EDGES: dict[str, Any] = {"named": [["y", "x1"], ["y", "x4"], ["g", "x2"]], "all": "all"}
PENALTIES = (20.0, 1.0)
ALONE = (1.0, 20.0)


def drawn(n: int, skew: str, site: int, rng: np.random.Generator) -> pd.DataFrame:
    a = EFFECTS[site] if skew == "effects" else 1.0
    x1 = 1.5 * site * (skew == "inputs") + rng.normal(size=n)
    x2 = 1.2 * a * np.sin(1.5 * x1) + 0.5 * rng.normal(size=n)
    b3 = (rng.random(n) < expit(1.5 * site * (skew == "shares") + 2 * a * x2)).astype(int)
    x4 = b3 - 0.5 + 0.7 * rng.normal(size=n)
    y = np.sin(2 * x1) + 0.5 * x4 + 0.5 * rng.normal(size=n)
    g = (rng.random(n) < expit(x2)).astype(int)
    return pd.DataFrame({"x1": x1, "x2": x2, "b3": b3, "x4": x4, "y": y, "g": g})


def cell(name: str, skew: str, records: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, records, SKEWS.index(skew)])
    tables = {f"s{k}": drawn(records, skew, k, rng) for k in SITES}
    tests = {f"s{k}": drawn(TEST, skew, k, rng) for k in SITES}
    shared = {site: t[list(COLUMNS)] for site, t in tables.items()}
    result, _ = simulated(METHODS[name], COLUMNS, shared, seed)
    job = parse_job(job_of(METHODS[name], COLUMNS, shared))
    run = FinishedNetworks.of(job, result)
    at_sites = [_site(run, shared[s], tests[s][list(COLUMNS)], rng) for s in tables]
    found = {key: np.mean([each[key] for each in at_sites], axis=0).tolist() for key in at_sites[0]}
    stitched = {}
    for edges, penalty in product(EDGES, PENALTIES) if skew == "none" else ():
        loss = _stitched(run, tables["s-1"], tests["s-1"], edges, penalty)
        stitched[f"{edges}, {penalty:g}"] = loss
    return {"method": name, "skew": skew, "records": records, "seed": seed, **found,
            "stitched": stitched}  # fmt: skip


def _site(
    run: FinishedNetworks, here: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator
) -> dict[str, Any]:
    """Return [loss, area under the curve] of each network at one site, and what it chose."""
    values, new = (_values(run.job, each) for each in (here, test))
    network = run.shared
    own = personalised(network, run.theta, values, rng)
    scores = {"run": run.theta, "personalised": own.theta}
    scores |= {f"alone, {hidden:g}": _alone(network, values, hidden) for hidden in ALONE}
    return {**{k: _score(run, network, v, new, test) for k, v in scores.items()},
            "kept": float(own.held_out.best == 0), "gain": own.held_out.gain()[0]}  # fmt: skip


def _alone(network: MaskedNetwork, values: Array, hidden: float) -> Array:
    penalty = quadratic_penalty(network.blocks, hidden, 1.0)
    return fit_locally(network, network.initial(0), values, penalty, steps=200)


def _values(job: Job, each: pd.DataFrame) -> Array:
    return records_here(job, public_facts(job, ("a", "b")), each, 2).values


def _score(
    run: FinishedNetworks, network: MaskedNetwork, theta: Array, new: Array, test: pd.DataFrame
) -> list[float]:
    public = public_facts(run.job, ("a", "b"))
    model = FittedNgm.of(network.layout, public, {**run.arrays, **network.blocks.split(theta)})
    position = network.layout.columns[list(network.layout.names).index("b3")].positions[0]
    u = new[:, list(network.layout.chosen)]
    score = model.outputs(((u - model.centre) * model.scale).T)[position]
    case = test["b3"].to_numpy() == 1
    ranks = rankdata(score)
    area = (ranks[case].mean() - (case.sum() + 1) / 2) / (~case).sum()
    return [float(record_losses(network, theta, new).mean()), float(area)]


def _stitched(
    run: FinishedNetworks,
    here: pd.DataFrame,
    test: pd.DataFrame,
    edges: str,
    penalty: float,
) -> float:
    """Return the loss of both new columns for new records, per record."""
    random = replayable_random(0)
    own = read_own_columns({"columns": OWN, "edges": EDGES[edges]})
    site = stitch(run, here, own, penalty=penalty, random=random)
    found, lost = site.predictions(test, random), 0.0
    error = (test["y"] - found["y_mean"]) / found["y_sd"]
    lost += float(np.mean(error**2 / 2 + np.log(found["y_sd"])))
    return lost - float(np.mean(np.log(np.where(test["g"] == 1, found["g=1"], found["g=0"]))))


def shown(cells: list[dict[str, Any]]) -> str:
    """Return both tables."""
    rows, stitched = [], []
    keys = dict.fromkeys((c["method"], c["records"], c["skew"]) for c in cells)
    networks = ("run", "personalised", *(f"alone, {hidden:g}" for hidden in ALONE))
    for key in sorted(keys):
        chosen = [c for c in cells if (c["method"], c["records"], c["skew"]) == key]
        for i, what in enumerate(("loss", "AUC")):
            found = [with_error([c[n][i] for c in chosen]) for n in networks]
            gain = with_error([c["personalised"][i] - c["run"][i] for c in chosen])
            rows.append([*key, len(chosen), what, *found, gain])
        if labels := list(chosen[0]["stitched"]):
            found = [with_error([c["stitched"][label] for c in chosen]) for label in labels]
            stitched.append([*key, len(chosen), *found])
    head = ("method", "records", "skew", "seeds", "of", *networks, "personalised - run")
    labels = [f"{edges}, {penalty:g}" for edges, penalty in product(EDGES, PENALTIES)]
    second = ("method", "records", "skew", "seeds", *labels)
    return f"{table(head, rows)}\n\n{table(second, stitched)}"


def main(say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=int, nargs="+", default=list(RECORDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--skews", nargs="+", default=list(SKEWS), choices=list(SKEWS))
    asked = parser.parse_args()
    cells = stored_rows(asked.cells)
    done = {(c["method"], c["skew"], c["records"], c["seed"]) for c in cells}
    for case in product(asked.methods, asked.skews, asked.records, range(asked.seeds)):
        if case not in done:
            cells.append(cell(*case))
            store_row(asked.cells, cells[-1])
    say(shown(cells))


if __name__ == "__main__":
    main()
