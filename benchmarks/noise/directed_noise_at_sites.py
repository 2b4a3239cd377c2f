"""Coverage of sparse_directed with normal errors and noise once at the site.

    python -m benchmarks.noise.directed_noise_at_sites --epsilon 1 --repeat 20 --rounds 1000

Four sites of 400 records each and three columns of variance 1, a -> b -> c with effects of 0.6 and
0.5; columns within -4 to 4, record_norm 1.2, nominal level 90 %. With a known order (default),
coverage of the three effects; with --unordered, that of each site's partial correlations (mean and
1.645 standard deviations), and the PIPs of the pairs.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import SiteRecords, State
from secagg.core.randomness import replayable_random, seeded_random
from secagg.jobs.job import parse_job
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job
from secagg.sessions.site_moments import draw_site_moments

SITES, ROWS, NAMES = 4, 400, ("a", "b", "c")
EFFECTS = {("a", "b"): 0.6, ("b", "c"): 0.5, ("a", "c"): 0.0}
PARTIAL = np.array([0.545, 0.0, 0.419])
"""Of the pairs a b, a c, b c, given the third column: r_ab root((1 - r_bc^2) / (1 - r_ac^2)) .."""


def records(rng: np.random.Generator) -> pd.DataFrame:
    """Return the records of one site."""
    a = rng.normal(size=ROWS)
    b = 0.6 * a + 0.8 * rng.normal(size=ROWS)
    c = 0.5 * b + np.sqrt(0.75) * rng.normal(size=ROWS)
    return pd.DataFrame({"a": a, "b": b, "c": c}).clip(-4, 4)


def fit(given: argparse.Namespace, seed: int) -> tuple[State, list[State], SparseDirected, Any]:
    """Return the coordinator's last state, the sites' memories, the method and public facts."""
    rng = np.random.default_rng(seed)
    data = {f"s{k}": records(rng) for k in range(SITES)}
    job: dict[str, Any] = {
        "title": "Coverage",
        "sites": {"max_rows": 5000},
        "columns": {name: {"type": "continuous", "low": -4, "high": 4} for name in NAMES},
        "method": {
            "name": "sparse_directed", "errors": "gaussian", "ordered": not given.unordered,
            "prior": given.prior, "rounds": given.rounds, "level": 0.9,
        },
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 5},
        "privacy": {
            "placement": "site", "epsilon": given.epsilon, "delta": 1e-5, "record_norm": 1.2,
        },
    }  # fmt: skip
    if given.epsilon == np.inf:
        del job["privacy"]
    planned = plan_job(parse_job(job), data)
    method, public, random = planned.method, planned.public, replayable_random(seed)
    assert isinstance(method, SparseDirected)
    rows: list[SiteRecords] = [read_records(planned, planned.sources[name]) for name in data]
    if public.site_moments:
        draws = [draw_site_moments([each], public, seeded_random(random(32))) for each in rows]
        rows = [each.repaired for each in draws]
    randoms = [seeded_random(random(32)) for _ in rows]
    state, memories = method.initial_state(public), [State() for _ in rows]
    while (request := method.next_request(state)) is not None:
        found = method.contribute_batched(request[0], rows, request[1], memories, public, randoms)
        memories = [memory for _, memory in found]
        total = {
            name: np.sum([update[name] for update, _ in found], axis=0) for name in found[0][0]
        }
        state = method.aggregate(state, total, SITES)
    return state, memories, method, public


def main() -> None:
    """Print coverage, mean width and root mean squared error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--epsilon", type=float, default=1.0, help="inf: no noise")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--unordered", action="store_true")
    parser.add_argument("--prior", choices=("calibrated", "paper"), default="calibrated")
    given = parser.parse_args()
    covered, widths, errors, pips, r_hats, began = [], [], [], [], [], time.perf_counter()
    for seed in range(given.repeat):
        state, memories, method, public = fit(given, seed)
        summary = method.result(state, public, None).summary  # type: ignore[arg-type]
        r_hats.append(summary["diagnostics"]["largest_r_hat"])
        if given.unordered:
            own = [method.site_result(memory, public) for memory in memories]
            rows = [row for one in own if one for row in one.summary["partial_correlations"]]
            middle = np.array([row["mean"] for row in rows])
            half = 1.645 * np.array([row["sd"] for row in rows])
            true, pairs = np.tile(PARTIAL, SITES), summary["pairs"]
            pips.append([row["pip"] for row in sorted(pairs, key=lambda row: row["between"])])
        else:
            unit = dict(zip(NAMES, 1 / np.asarray(state["scale"]), strict=True))
            ends = [(row["from"], row["to"]) for row in summary["arrows"]]
            true = np.array([EFFECTS[end] * unit[end[0]] / unit[end[1]] for end in ends])
            middle = np.array([(row["high"] + row["low"]) / 2 for row in summary["arrows"]])
            half = np.array([(row["high"] - row["low"]) / 2 for row in summary["arrows"]])
            pip = {end: row["pip"] for end, row in zip(ends, summary["arrows"], strict=True)}
            pips.append([pip[end] for end in EFFECTS])
        covered.append(np.abs(middle - true) <= half)
        widths.append(2 * half)
        errors.append(middle - true)
    by_set = np.mean(covered, axis=1)
    print(
        f"epsilon {given.epsilon:g}, {given.repeat} data sets: coverage {np.mean(covered):.3f} "
        f"+- {np.std(by_set) / np.sqrt(given.repeat):.3f}, width {np.mean(widths):.3f}, root mean "
        f"squared error {np.sqrt(np.mean(np.square(errors))):.3f}; mean PIPs "
        f"{np.round(np.mean(pips, axis=0), 3)} +- "
        f"{np.round(np.std(pips, axis=0) / np.sqrt(given.repeat), 3)}; R-hat above 1.1 in "
        f"{np.sum(np.array(r_hats) > 1.1)} sets; "
        f"{(time.perf_counter() - began) / given.repeat:.1f} s a run"
    )


if __name__ == "__main__":
    main()
