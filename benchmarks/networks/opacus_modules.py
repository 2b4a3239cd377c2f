"""Modules of users under noise: seconds a record, and results beside Opacus alone at each site.

    python -m benchmarks.networks.opacus_modules FILE.jsonl [--seeds 10] [--records 1000]

Appends one line of JSON for each finished cell, skips those in the file, and prints two tables.

time      seconds for one record's clipped gradient, the median of 9 repetitions over 512 records:
          record by record (until now, all large networks), as now, and by Opacus with its noise
result    the unexplained variance on 2000 other records, at three sites, epsilon 4, delta 1e-5, 60
          rounds: secagg over all sites with one noise in the sum, Opacus at each site, and the
          network without noise (over all sites, 60 rounds of L-BFGS; only smooth ones)
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn, optim

from benchmarks.networks.network_rounds import SITES, job
from secagg.core.randomness import replayable_random
from secagg.errors import JobError
from secagg.experiments.measures.networks import module_predictions
from secagg.jobs.job import parse_job
from secagg.models.neural import record_gradients
from secagg.models.neural.gradients import clipped_gradient_sum
from secagg.models.neural.module_learner import ModuleLearner
from secagg.models.neural.opacus_training import train_with_opacus
from secagg.models.neural.torch_module import TorchModule
from secagg.runs.networks.finished_module import FinishedModuleRun
from secagg.runs.run import run
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

COLUMNS, OTHERS, ROUNDS, TIMED, REPEATS = 6, 2000, 60, 512, 9
EPSILON, DELTA = 4.0, 1e-5


def mlp(inputs: int, outputs: int, hidden: int = 64) -> Any:
    """Return a multilayer perceptron with two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
        nn.Linear(hidden, outputs),
    )  # fmt: skip


def wide(inputs: int, outputs: int) -> Any:
    """Return a perceptron of 68,000 parameters."""
    return mlp(inputs, outputs, 256)


def levels(inputs: int, outputs: int) -> Any:
    """Return a module with an embedding of the first column, in 20 intervals."""

    class Levels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(20, 4)
            self.rest = mlp(inputs + 3, outputs, 16)

        def forward(self, x: Any) -> Any:
            level = ((x[:, 0] + 1) * 10).long().clamp(0, 19)
            return self.rest(torch.cat([self.table(level), x[:, 1:]], dim=1))

    return Levels()


def signal(inputs: int, outputs: int) -> Any:
    """Return a convolution and a hidden layer, both with BatchNorm."""
    return nn.Sequential(
        nn.Unflatten(1, (1, inputs)), nn.Conv1d(1, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Tanh(),
        nn.Flatten(), nn.Linear(8 * inputs, 16), nn.BatchNorm1d(16), nn.Tanh(),
        nn.Linear(16, outputs),
    )  # fmt: skip


MODULES = {each.__name__: each for each in (mlp, wide, levels, signal)}
TRAINED = ("mlp", "levels", "signal")


def raw_job(module: str, *, noise: bool, replace_layers: bool) -> dict[str, Any]:
    """Return the job of a module."""
    method = {
        "name": "torch_module",
        "outcome": "y",
        "module": f"benchmarks.networks.opacus_modules:{module}",
        "module_settings": {},
        "rounds": ROUNDS,
        "replace_layers": replace_layers,
    }
    made = job(method, "masked", COLUMNS)
    privacy = {"placement": "round", "epsilon": EPSILON, "delta": DELTA}
    return made | ({"privacy": privacy} if noise else {})


def tables(seed: int, records: int) -> dict[str, pd.DataFrame]:
    """Return three sites, and other records under the name "others"."""
    rng, found = np.random.default_rng(seed), {}
    for name, n in [*((f"site{k}", records) for k in range(SITES)), ("others", OTHERS)]:
        X = rng.uniform(-2, 2, (n, COLUMNS))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n)
        found[name] = pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)]).assign(y=y)
    return found


def refusal(module: str) -> dict[str, str]:
    """Return why a module is refused with noise as it is, in a line; "" if it is not."""
    data = tables(0, 50)
    del data["others"]
    try:
        plan_job(parse_job(raw_job(module, noise=True, replace_layers=False)), data)
    except JobError as error:
        return {"why": error.line()}
    return {"why": ""}


def seconds(module: str) -> dict[str, float]:
    """Return the seconds for a record, in three ways."""
    learner = ModuleLearner(
        MODULES[module], {}, tuple(range(COLUMNS)), (COLUMNS,), "squared_error",
        replace_layers=True,
    )  # fmt: skip
    theta = learner.initial(0)
    values = np.random.default_rng(0).uniform(-1, 1, (TIMED, COLUMNS + 1))

    def timed(work: Callable[[], Any], n: int, repeats: int = REPEATS) -> float:
        work()
        found = list[float]()
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            found.append((time.perf_counter() - start) / n)
        return statistics.median(found)

    few = values[:64]
    whole, record_gradients._MAX_NUMBERS = record_gradients._MAX_NUMBERS, 0
    one = timed(lambda: clipped_gradient_sum(learner, theta, few, 1.0, 32), len(few), 3)
    record_gradients._MAX_NUMBERS = whole
    record_gradients._found.clear()
    now = timed(lambda: clipped_gradient_sum(learner, theta, values, 1.0, 32), TIMED)
    record_gradients._found.clear()
    start = time.perf_counter()
    clipped_gradient_sum(learner, theta, values[:1], 1.0, 32)
    search = time.perf_counter() - start

    trained = GradSampleModule(learner.trained(learner.blocks.split(theta)), loss_reduction="sum")
    optimiser = DPOptimizer(
        optim.SGD(trained.parameters(), 0.0), noise_multiplier=1.0, max_grad_norm=1.0,
        expected_batch_size=TIMED, loss_reduction="sum",
    )  # fmt: skip
    records = torch.tensor(values)

    def step() -> None:
        for part in records.split(64):
            optimiser.zero_grad()
            outputs = trained(part[:, :COLUMNS])
            learner.losses_of(outputs, part).sum().backward()
            optimiser.step()

    return {"parameters": float(len(theta)), "record by record": one, "now": now,
            "opacus": timed(step, TIMED), "search": search}  # fmt: skip


def results(module: str, seed: int, records: int) -> dict[str, float]:
    """Return the unexplained variance of each way, and the seconds."""
    data = tables(seed, records)
    others = {"others": data.pop("others")}
    raw = parse_job(raw_job(module, noise=True, replace_layers=True))
    start = time.process_time()
    finished = run(raw, data, random=replayable_random(seed))
    took = time.process_time() - start
    together = module_predictions(FinishedModuleRun.of(raw, finished.result), others)
    planned, alone = plan_job(raw, data), list[float]()
    method = planned.method
    assert isinstance(method, TorchModule)
    learner = method.learner(planned.public)
    start = time.process_time()
    for k, source in enumerate(planned.sources.values()):
        theta, _ = train_with_opacus(
            learner, read_records(planned, source).values, method, epsilon=EPSILON, delta=DELTA,
            seed=seed * SITES + k,
        )  # fmt: skip
        arrays = dict(learner.blocks.split(theta))
        own = FinishedModuleRun(raw, planned.public, learner, arrays)
        alone.append(module_predictions(own, others)["unexplained"])
    found = {
        "together": together["unexplained"], "alone": statistics.mean(alone),
        "seconds together": took, "seconds alone": time.process_time() - start,
    }  # fmt: skip
    try:
        exact = parse_job(raw_job(module, noise=False, replace_layers=True))
        fit = run(exact, data, random=replayable_random(seed))
        without = module_predictions(FinishedModuleRun.of(exact, fit.result), others)
        return found | {"without noise": without["unexplained"]}
    except JobError:  # not smooth
        return found


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


def main() -> None:
    """Compute what is missing, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=int, default=1000)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = asked.file.read_text("utf-8").splitlines() if asked.file.exists() else []
    done = {tuple(each["cell"]): each["found"] for each in map(json.loads, lines)}

    def cell(name: tuple[Any, ...], work: Callable[[], dict[str, Any]]) -> None:
        if name not in done:
            done[name] = work()
            with asked.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"cell": name, "found": done[name]}) + "\n")

    for module in MODULES:
        cell(("refused", module), partial(refusal, module))
        cell(("seconds", module), partial(seconds, module))
    for seed in range(asked.seeds):
        for module in TRAINED:
            cell((module, seed, asked.records), partial(results, module, seed, asked.records))
    print("| module | parameters | record by record | now | Opacus | search, once |")
    print("|---|---|---|---|---|---|")
    for module in MODULES:
        t = done["seconds", module]
        ways = (f"{1e6 * t[way]:.0f} µs" for way in ("record by record", "now", "opacus"))
        print(f"| {module} | {t['parameters']:,.0f} | {' | '.join(ways)} | {t['search']:.2f} s |")
    ways = ("without noise", "together", "alone", "seconds together", "seconds alone")
    print(f"\n| module | {' | '.join(ways)} | seeds |\n|{'---|' * (len(ways) + 2)}")
    for module in TRAINED:
        found = [done[module, seed, asked.records] for seed in range(asked.seeds)]
        cells = (_mean([each[way] for each in found if way in each]) for way in ways)
        print(f"| {module} | {' | '.join(cells)} | {asked.seeds} |")
    for module in MODULES:
        if done["refused", module]["why"]:
            print(f"\n{module}: {done['refused', module]['why']}")


if __name__ == "__main__":
    main()
