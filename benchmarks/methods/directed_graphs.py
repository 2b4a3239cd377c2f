"""How well chains of directed graphs mix, and whether their probabilities are right: three tables.

    python -m benchmarks.methods.directed_graphs TABLE --cache FILE [--cells N] [--rounds N]

Tables, one cell a run:

* sachs: the eight sites of examples/sachs, p = 11. R-hat and effective sample size, the largest and
  smallest over all 110 effects and PIPs, and of the 55 pairs without directions over their PIPs and
  partial correlations; of how many the chains agree; processor seconds.
* truth: records of a known graph: "cycle" (a -> b <-> c -> d), "collider" (a -> b -> d <- c) and
  "chain" (a -> b -> c -> d -> e) with Laplace errors, and "normal", a -> b with normal errors,
  where no records tell directions; three sites of 150 to 200 records. A PIP above 1/2 is an arrow.
* calibration: graphs of three columns, drawn from the prior with the records of three sites drawn
  from the graph, so that of all entries with a PIP near x a share x must be in the slab, whatever
  the records tell. `scale` is 1, as the prior is one of effects in the units that are analysed.

Finished cells are kept in FILE, one line of JSON each, so a run can be resumed. `--copies` is the
number of copies of each chain (`temperatures`), `--steps` that of a path (`path_steps`), `--prior`
the method's `prior`; `--acyclic` sets `cycles = false`, and draws calibration's graphs without.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import COLLECTED_DRAWS, PublicFacts, SiteRecords, State, Variable
from secagg.core.randomness import replayable_random
from secagg.models.common.posterior_summary import summarise
from secagg.models.numerics.gaussian_draws import inverse_gamma
from secagg.models.sparse_bayes.base import recorded_draws
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.joint.orders import Orders
from secagg.models.sparse_bayes.laplace_graph import matrices
from secagg.runs.simulate import simulate_sites

Array = NDArray[np.float64]

LEVEL = 0.95
TRUTHS: dict[str, list[tuple[int, int, float]]] = {
    "cycle": [(0, 1, 0.9), (1, 2, 0.7), (2, 1, -0.4), (2, 3, 0.8)],
    "collider": [(0, 1, 0.8), (1, 3, -0.8), (2, 3, 0.7)],
    "chain": [(0, 1, 0.8), (1, 2, 0.8), (2, 3, 0.8), (3, 4, 0.8)],
    "normal": [(0, 1, 0.8)],
}
SIZES = (150, 200, 150)
CALIBRATED: dict[str, Any] = {
    "slab_shape": 3.0,
    "slab_scale": 0.3,
    "noise_shape": 3.0,
    "noise_scale": 0.02,
}
BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)


def mixing(theta: Array, inclusion: Array) -> dict[str, float]:
    """Return the worst diagnostics over all effects and PIPs, (draws, chains, entries)."""
    both = [summarise(values, LEVEL) for values in (theta, inclusion)]
    return {
        "r_hat": float(np.nanmax([each.r_hat for each in both])),
        "ess": float(np.nanmin([each.ess_bulk for each in both])),
        "ess_tail": float(np.nanmin([each.ess_tail for each in both])),
    }


def fitted(
    tables: dict[str, pd.DataFrame], columns: dict[str, Any], given: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Return the arrows of a run of the registered method, and its diagnostics."""
    method = {"name": "sparse_directed", "variables": list(columns), "seed": seed,
              "rounds": given.rounds, "temperatures": given.copies,
              "path_steps": given.steps, "prior": given.prior,
              "cycles": not given.acyclic}  # fmt: skip
    job = {
        "title": "directed graphs",
        "sites": {"max_rows": max(map(len, tables.values()))},
        "columns": columns,
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }
    start = time.process_time()
    result, _ = simulate_sites(job, tables, random=replayable_random(seed))
    seconds = time.process_time() - start
    draws = (result.arrays[f"draws_{name}"][:, :, 0] for name in ("theta", "inclusion"))
    pairs = result.summary["pairs_without_directions"]
    unclear = {
        f"{row['from']} -> {row['to']}": row["pip"]
        for row in result.summary["arrows"]
        if row["chains_agree"] is False
    }
    return {
        "unclear": unclear,
        "arrows_agree": sum(row["chains_agree"] for row in result.summary["arrows"]),
        "pairs": len(pairs),
        "pairs_agree": sum(pair["chains_agree"] for pair in pairs),
        "pairs_r_hat": max(pair[key] or 1.0 for pair in pairs for key in ("r_hat", "pip_r_hat")),
        "pairs_ess": min(pair["ess_bulk"] for pair in pairs),
        "pip": result.arrays["pip"].round(4).tolist(),
        "mean": result.arrays["mean"].round(4).tolist(),
        **mixing(*draws),
        "seconds": seconds,
        "powers": result.summary["sampler"]["powers"],
    }


def sachs_cell(given: argparse.Namespace, seed: int) -> dict[str, Any]:
    from reproductions.data import sachs  # noqa: PLC0415  # needs the package cdt

    names = list(sachs.PROTEINS.values())
    values = sachs.intensities()
    cuts = [-(-i * len(values) // 8) for i in range(9)]  # as examples/sachs/make_data.py
    tables = {
        f"site {k}": pd.DataFrame(values[cuts[k] : cuts[k + 1]], columns=names) for k in range(8)
    }
    column = {"type": "continuous", "low": 1.0, "high": 1e5, "transform": "log"}
    return fitted(tables, dict.fromkeys(names, column), given, seed)


def truth_cell(given: argparse.Namespace, seed: int) -> dict[str, Any]:
    kind = list(TRUTHS)[seed % len(TRUTHS)]
    effects, rng = TRUTHS[kind], np.random.default_rng([7, seed])
    p = 1 + max(max(h, j) for h, j, _ in effects)
    graph = np.zeros((p, p))
    for h, j, effect in effects:
        graph[j, h] = effect
    names = list("abcde"[:p])
    draw = rng.standard_normal if kind == "normal" else rng.laplace
    tables = {}
    for k, n in enumerate(SIZES):
        e = draw(size=(p, n))
        Y = np.linalg.solve(np.eye(p) - graph, e).T + rng.uniform(-1, 1, p)
        tables[f"site {k}"] = pd.DataFrame(np.clip(Y, -30, 30), columns=names)
    column = {"type": "continuous", "low": -30.0, "high": 30.0}
    found = fitted(tables, dict.fromkeys(names, column), given, seed)
    there = graph.T != 0
    likely = np.array(found["pip"]) > 0.5
    counts = {
        "right": int((likely & there).sum()),
        "reversed": int((likely & there.T & ~there).sum()),
        "extra": int((likely & ~there & ~there.T).sum()),
        "missing": int((~likely & there).sum()),
    }
    return {"kind": kind, **found, **counts}


def calibration_cell(given: argparse.Namespace, seed: int) -> dict[str, Any]:
    rng, p, sites, n = np.random.default_rng([11, seed]), 3, 3, 60
    method = SparseDirected(
        rounds=given.rounds,
        temperatures=given.copies,
        path_steps=given.steps,
        seed=seed,
        prior=given.prior,
        cycles=not given.acyclic,
        **CALIBRATED,
    )
    prior = method.constants(sites * n)
    wide = p * (p - 1)
    present = np.ones(wide)
    if given.acyclic:
        present = Orders(rng.permutation(p)[None]).present()[0]
    while True:
        g = rng.random(wide) < rng.beta(method.rho_a, method.rho_b)
        eta = inverse_gamma(method.slab_shape, np.array([method.slab_scale]), rng)
        theta = rng.standard_normal(wide) * np.sqrt(np.where(g, eta, prior.narrow(eta)))
        tau = prior.spread * np.abs(rng.standard_cauchy(wide))
        w = (tau * np.abs(rng.standard_cauchy((sites, wide)))) ** 2
        mine = theta + np.sqrt(w) * rng.standard_normal((sites, wide))
        graphs, g = matrices(mine * present, p), g * (present > 0)
        # as a site's likelihood has the bound, the prior is one given that all sites are below it
        if np.abs(np.linalg.eigvals(graphs)).max() < 1:
            break
    b = inverse_gamma(method.noise_shape, np.full((sites, p), method.noise_scale), rng)
    parts = []
    for graph, scales in zip(graphs, b, strict=True):
        e = rng.laplace(size=(p, n)) * scales[:, None]
        parts.append(np.linalg.solve(np.eye(p) - graph, e).T)
    start = time.process_time()
    state = run_unscaled(method, parts, seed)
    draws = recorded_draws(state)
    theta_draws, inclusion = draws["theta"][:, :, 0], draws["inclusion"][:, :, 0]
    return {
        "pip": inclusion.mean(axis=(0, 1)).round(4).tolist(),
        "slab": g.astype(int).tolist(),
        **mixing(theta_draws, inclusion),
        "seconds": time.process_time() - start,
    }


def run_unscaled(method: SparseDirected, parts: list[Array], seed: int) -> State:
    """Return the coordinator's state after a run in the records' own units.

    Sites refuse a scale that makes a column's sum of squares larger than the number of records;
    with `noise_scale` of CALIBRATED that needs an effect above 20.
    """
    p, names = parts[0].shape[1], tuple(f"s{k}" for k in range(len(parts)))
    largest = max(float(np.abs(part - part.mean(axis=0)).max()) for part in parts) * 2
    variables = tuple(Variable(f"x{j}", f"x{j}", -largest, largest) for j in range(p))
    public = PublicFacts(variables, tuple(v.name for v in variables), 1000, names)
    rows = [SiteRecords(part - part.mean(axis=0), 0, np.zeros(p, dtype=np.int64)) for part in parts]
    state = method.initial_state(public)
    state = {**state, "status": "running", "records": sum(map(len, parts)), "scale": np.ones(p)}
    memories: list[State] = [State() for _ in parts]
    randoms = [replayable_random(1000 * seed + k) for k in range(len(parts))]
    while (sent := method.next_request(state)) is not None:
        answers = method.contribute_batched(*_call(sent, rows, memories, public, randoms))
        memories = [memory for _, memory in answers]
        total = {
            name: np.sum([update[name] for update, _ in answers], axis=0) for name in answers[0][0]
        }
        state = method.aggregate(state, total, len(parts))
    assert state[COLLECTED_DRAWS]
    return state


def _call(sent: Any, rows: Any, memories: Any, public: Any, randoms: Any) -> tuple[Any, ...]:
    stage, message = sent
    return stage, rows, message, memories, public, randoms


CELLS: dict[str, tuple[Callable[[argparse.Namespace, int], dict[str, Any]], int]] = {
    "sachs": (sachs_cell, 1),
    "truth": (truth_cell, 40),
    "calibration": (calibration_cell, 100),
}


def with_error(values: Any, digits: int = 2) -> str:
    """Return mean and standard error."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.{digits}f} ({error:.{digits}f})"


def table(name: str, cells: list[dict[str, Any]]) -> str:
    if name == "sachs":
        head = (
            "| cycles | prior | copies | steps | rounds | seed | R-hat | ESS | arrows agreed on "
            "| R-hat of pairs | ESS of partial correlations | pairs agreed on | seconds |\n"
            + "|---"
            + "|---"
            + "|--:" * 11
            + "|"
        )
        lines = [
            f"| {'no' if c.get('acyclic') else 'yes'} | {c['prior']} | {c['copies']} "
            f"| {c['steps']} | {c['rounds']} | {c['seed']} "
            f"| {c['r_hat']:.3f} | {c['ess']:.0f} | {c['arrows_agree']} of {2 * c['pairs']} "
            f"| {c['pairs_r_hat']:.3f} | {c['pairs_ess']:.0f} "
            f"| {c['pairs_agree']} of {c['pairs']} | {c['seconds']:.0f} |"
            for c in cells
        ]
    elif name == "truth":
        head = (
            "| graph | runs | right | reversed | extra | missing | largest R-hat | smallest ESS |"
            " PIPs a -> b, b -> a |\n|---|--:|--:|--:|--:|--:|--:|--:|---|"
        )
        lines = []
        for kind in TRUTHS:
            mine = [c for c in cells if c["kind"] == kind]
            if mine:
                counts = (
                    with_error([c[key] for c in mine])
                    for key in ("right", "reversed", "extra", "missing")
                )
                first, back = ([c["pip"][i][1 - i] for c in mine] for i in range(2))
                lines.append(
                    f"| {kind} | {len(mine)} | {' | '.join(counts)} "
                    f"| {max(c['r_hat'] for c in mine):.3f} | {min(c['ess'] for c in mine):.0f} "
                    f"| {with_error(first)}, {with_error(back)} |"
                )
    else:
        head = "| PIP | entries | mean PIP | share in the slab |\n|---|--:|--:|--:|"
        pip = np.concatenate([c["pip"] for c in cells])
        slab = np.concatenate([c["slab"] for c in cells])
        lines = []
        for low, high in pairwise(BINS):
            inside = (pip >= low) & ((pip < high) | (high == 1))
            if inside.sum() > 1:
                lines.append(
                    f"| {low} to {high} | {inside.sum()} | {pip[inside].mean():.2f} "
                    f"| {with_error(slab[inside])} |"
                )
        gap = (slab - pip).reshape(len(cells), -1).mean(axis=1)
        lines.append(f"\nShare less PIP, by graph: {with_error(gap, 3)}; largest R-hat "
                     f"{max(c['r_hat'] for c in cells):.3f}.")  # fmt: skip
    return "\n".join([head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("table", choices=CELLS)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--cells", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--acyclic", action="store_true")
    parser.add_argument("--prior", choices=("calibrated", "paper"), default="calibrated")
    given = parser.parse_args()
    cell, many = CELLS[given.table]
    done = []
    if given.cache.exists():
        done = [json.loads(line) for line in given.cache.read_text().splitlines()]
    asked = {
        "table": given.table,
        **{key: vars(given)[key] for key in ("rounds", "copies", "steps", "prior")},
        **({"acyclic": True} if given.acyclic else {}),
    }

    def same(one: dict[str, Any], seed: int) -> bool:
        wanted = {"acyclic": False, **asked, "seed": seed}
        return all({"acyclic": False, **one}.get(key) == value for key, value in wanted.items())

    for seed in range(given.first, given.first + (given.cells or many)):
        if not any(same(one, seed) for one in done):
            found = {**asked, "seed": seed, **cell(given, seed)}
            with given.cache.open("a") as stream:
                stream.write(json.dumps(found) + "\n")
            done.append(found)
    print(table(given.table, [one for one in done if one["table"] == given.table]))


if __name__ == "__main__":
    main()
