"""Does the recommendation of an experiment hold on fresh seeds?

    python benchmarks/experiments/recommendation.py SWEEP.toml STUDY [--fresh 50] [--jobs 2]

SWEEP.toml has a goal, and STUDY is the folder that `secagg experiment` wrote for it. Each curve is
run at its recommended epsilon with `--fresh` seeds that the experiment did not use. Printed is the
share of these runs that reach the goal, with its Monte Carlo error; the goal asks for `share`.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path

from secagg.experiments.experiment import plan_experiment
from secagg.experiments.runner.experiment import compute_experiment
from secagg.experiments.statistics import results
from secagg.experiments.sweep import read_sweep


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sweep", type=Path)
    parser.add_argument("study", type=Path)
    parser.add_argument("--fresh", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    sweep, found = read_sweep(given.sweep), json.loads((given.study / "summary.json").read_text())
    assert sweep.goal is not None
    print("| curve | recommended | runs that reach the goal | asked for |\n|---|---|---|---|")
    for each in found["recommendations"]:
        if each["smallest"] is None:
            print(f"| {each['line']} | none | | |")
            continue
        lines = tuple(line for line in sweep.lines if line.name == each["line"])
        fresh = sweep.model_copy(
            update={
                "lines": lines, "axes": {sweep.across: (each["smallest"],)},
                "repeat": given.fresh, "seed": sweep.seed + sweep.repeat, "attacks": None,
            }
        )  # fmt: skip
        planned = plan_experiment(fresh)
        with tempfile.TemporaryDirectory() as scratch:
            done = compute_experiment(planned, lambda *_: {}, Path(scratch), given.jobs)
        ((result,),) = (along.values() for along in results(planned, done.outcomes).values())
        values = list(result.values[sweep.goal.metric].values())
        share = sum(sweep.goal.loss(value) < sweep.goal.limit for value in values) / given.fresh
        error = math.sqrt(share * (1 - share) / given.fresh)
        print(
            f"| {each['line']} | {each['smallest']:g} | {share:.2f} ± {error:.2f} | "
            f"{sweep.goal.share:g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
