"""What `sparse_directed` finds if sites lack columns, beside what it finds without them.

    python -m benchmarks.methods.lacking_columns --cache FILE [--designs NAME...] [--seeds N]

Records have Laplace errors and follow one graph of five columns, a -> b -> c -> d -> e and a -> e;
each effect of each site deviates from it by .05 (sd). Designs:

* each: four sites; the first lacks b, the second c, the third d, the fourth e. No site has all
  columns, and the columns that all sites have, a alone, have no graph.
* half: six sites, of which the last three lack c.

Fits, of the same records:

* all: every column at every site, as if none were missing
* lacking: what there is, with the columns in `[partial]`
* sites: only sites with all columns (half)
* columns: only columns that all sites have (half). Without c, b acts on d directly, with the
  product of its effects through c: that is the truth then.

Effects are compared in the units analysed: of each fit, the mean over arrows of estimate less
truth, and of its size; the share of intervals of level 95 % with the truth; the share of all arrows
of which a PIP above 1/2 is right. Beside each number is its standard error over seeds. An arrow on
which chains disagree counts as any other.

Finished cells are kept in FILE, one line of JSON each, so a run can be resumed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.methods.directed_graphs import with_error
from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate

Array = NDArray[np.float64]

NAMES = "abcde"
EFFECTS = {("a", "b"): 0.8, ("b", "c"): -0.7, ("c", "d"): 0.6, ("d", "e"): 0.8, ("a", "e"): 0.5}
SD_OF_SITES = 0.05
LACKED = {"each": ("b", "c", "d", "e"), "half": ("", "", "", "c", "c", "c")}
FITS = {"each": ("all", "lacking"), "half": ("all", "lacking", "sites", "columns")}
COLUMN = {"type": "continuous", "low": -60.0, "high": 60.0}


def simulated(design: str, n: int, seed: int) -> dict[str, pd.DataFrame]:
    rng, tables = np.random.default_rng([41, seed]), {}
    for k in range(len(LACKED[design])):
        graph = np.zeros((5, 5))
        for (h, j), effect in EFFECTS.items():
            own = effect + SD_OF_SITES * rng.standard_normal()
            graph[NAMES.index(j), NAMES.index(h)] = own
        Y = np.linalg.solve(np.eye(5) - graph, rng.laplace(size=(5, n)))
        tables[f"s{k}"] = pd.DataFrame(Y.T + rng.uniform(-1, 1, 5), columns=list(NAMES))
    return tables


def seen(design: str, fit: str, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return what a fit reads."""
    lacked = dict(zip(tables, LACKED[design], strict=True))
    if fit == "all":
        return tables
    if fit == "sites":
        return {name: table for name, table in tables.items() if not lacked[name]}
    if fit == "columns":
        return {name: table.drop(columns=sorted({*lacked.values()} - {""}))
                for name, table in tables.items()}  # fmt: skip
    return {n: table.drop(columns=lacked[n]) if lacked[n] else table for n, table in tables.items()}


def truth(names: list[str], scale: Array) -> Array:
    """Return the effects [j, h] of h on j, in columns divided by these deviations."""
    graph = np.zeros((len(names), len(names)))
    effects = dict(EFFECTS)
    if "c" not in names:
        effects["b", "d"] = effects["b", "c"] * effects["c", "d"]
    for (h, j), effect in effects.items():
        if h in names and j in names:
            graph[names.index(j), names.index(h)] = effect
    return graph * scale / scale[:, None]


def cell(design: str, fit: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    tables = seen(design, fit, simulated(design, given.records, seed))
    names = [name for name in NAMES if any(name in table for table in tables.values())]
    having = {name: [s for s, table in tables.items() if name in table] for name in names}
    everywhere = [name for name in names if len(having[name]) == len(tables)]
    job = {
        "title": "lacking columns",
        "sites": {"max_rows": given.records},
        "columns": dict.fromkeys(everywhere, COLUMN),
        "partial": {name: {"column": COLUMN, "sites": having[name]}
                    for name in names if name not in everywhere},
        "method": {"name": "sparse_directed", "variables": names, "seed": seed,
                   "rounds": given.rounds, "temperatures": given.copies, "path_steps": given.steps},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 5},
    }  # fmt: skip
    start = time.process_time()
    result = simulate(job, tables, random=replayable_random(seed))
    squares = {
        name: np.mean([tables[site][name].var(ddof=0) for site in having[name]]) for name in names
    }
    expected = truth(names, np.sqrt(np.array([squares[name] for name in names])))
    place = {name: i for i, name in enumerate(names)}
    errors, covered, right, absent = [], [], [], []
    for row in result.summary["arrows"]:
        effect = expected[place[row["to"]], place[row["from"]]]
        right.append((row["pip"] > 0.5) == (effect != 0))
        if effect != 0:
            errors.append(float(np.sign(effect) * (row["mean"] - effect)))
            covered.append(row["low"] <= effect <= row["high"])
        else:
            absent.append(row["low"] <= effect <= row["high"])
    return {
        "bias": float(np.mean(errors)),
        "error": float(np.mean(np.abs(errors))),
        "covered": float(np.mean(covered)),
        "absent_covered": float(np.mean(absent)),
        "right": float(np.mean(right)),
        "arrows": len(right),
        "r_hat": result.summary["diagnostics"]["largest_r_hat"],
        "seconds": time.process_time() - start,
    }


def table(cells: list[dict[str, Any]]) -> str:
    lines = [
        "| design | fit | seeds | bias (below 0: towards 0) | error | intervals of arrows with the "
        "truth | of other pairs | arrows right | largest R-hat | seconds |",
        "|---|---|" + "--:|" * 8,
    ]
    for design, fits in FITS.items():
        for fit in fits:
            mine = [c for c in cells if (c["design"], c["fit"]) == (design, fit)]
            if mine:
                shown = (
                    with_error([c[key] for c in mine], 3)
                    for key in ("bias", "error", "covered", "absent_covered", "right")
                )
                lines.append(
                    f"| {design} | {fit} | {len(mine)} | {' | '.join(shown)} "
                    f"| {max(c['r_hat'] for c in mine):.2f} "
                    f"| {np.mean([c['seconds'] for c in mine]):.0f} |"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--designs", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    asked = {key: vars(given)[key] for key in ("records", "rounds", "copies", "steps")}
    done = []
    if given.cache.exists():
        done = [json.loads(line) for line in given.cache.read_text().splitlines()]
    done = [one for one in done if asked.items() <= one.items()]
    for seed in range(given.seeds):
        for design in given.designs:
            for fit in FITS[design]:
                key = {**asked, "design": design, "fit": fit, "seed": seed}
                if not any(key.items() <= one.items() for one in done):
                    found = {**key, **cell(design, fit, seed, given)}
                    with given.cache.open("a") as stream:
                        stream.write(json.dumps(found) + "\n")
                    done.append(found)
    print(table(done))


if __name__ == "__main__":
    main()
