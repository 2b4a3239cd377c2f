"""A figure of toy cells (`support.experiments.toy_task`); run as a program, it is reproduced.

python -m support.experiments.toy_figure FOLDER CALLS JOBS SEED=WHAT...
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from reproductions.harness.figures import Figure, Method, Metric, Panel, Place
from reproductions.harness.pages import write
from secagg.experiments.runner.cells import cell
from secagg.experiments.runner.experiment import compute_experiment


def toy_figure(calls: Path, what: Mapping[int, str], gate: Path | str = "") -> Figure:
    """Return a figure of one place, whose seeds do what is told of each."""
    calls.mkdir(exist_ok=True)
    panel, method = Panel("here", "column", (1,)), Method("toy", "Toy", note="draws a number.")
    cells = {
        seed: cell(
            "support.experiments.toy_task",
            1.0,
            seed=seed,
            what=each,
            calls=str(calls),
            gate=str(gate),
        )
        for seed, each in what.items()
    }
    return Figure(
        name="toy",
        title="A toy figure",
        metrics=(Metric("value", "Value", 3),),
        costs=(),
        methods=(method,),
        panels=(panel,),
        points={Place("here", 1, "toy"): cells},
        statements=(),
        remarks=(),
        stated=(),
        notes=("A note.",),
    )


if __name__ == "__main__":
    folder, calls, jobs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    what = {int(seed): each for seed, each in (pair.split("=") for pair in sys.argv[4:])}
    compute_experiment(toy_figure(calls, what, folder / "gate"), write, folder, jobs)
