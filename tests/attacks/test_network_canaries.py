"""Canaries in whole private runs of networks: what the released sums tell about who took part.

Steinke, Nasr and Jagielski (2023): each canary record is put into the run with probability 1/2, and
the auditor guesses from the releases which were in (`secagg.audits.epsilon.one_run`). The auditor
knows all records and canaries. Each canary is alone at the upper bound of one predictor, so the
gradient of this predictor's weight is its own. Without noise, the same auditor finds them: the
positive control (epsilon None). With -s, the bounds are shown."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from secagg.audits.epsilon.one_run import one_run_epsilon
from secagg.core.randomness import replayable_random
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import parse_job
from secagg.runs.run import run
from secagg.sessions.fixed_point import decode
from secagg.sessions.planned_job import plan_job

pytestmark = [pytest.mark.neural, pytest.mark.attack]
DELTA, SITES, RECORDS = 1e-4, 3, 60
LINEAR = {"optimiser": "sgd", "learning_rate": 0.001, "rounds": 20, "clip": 1.0}
IN_THE_SUM = {"name": "torch_module", "outcome": "y", "module_settings": {"hidden": []}, **LINEAR}
AT_THE_SITE = {
    "name": "fedngm", "hidden": [], "edges": "all", "standardise": False, "learn_from": "samples",
    "optimiser": "lbfgs", "rounds": 30, "samples": 500, "local_steps": 30,
}  # fmt: skip


def drawn(canaries: int, seed: int) -> tuple[dict[str, pd.DataFrame], NDArray[np.bool_]]:
    """Return the sites' tables, and which canaries are in them. Columns are within [-1, 1]."""
    rng = np.random.default_rng(seed)
    names = [*(f"x{j}" for j in range(canaries)), "y"]
    marked = np.hstack([np.eye(canaries), np.ones((canaries, 1))])
    inside = rng.random(canaries) < 0.5
    others = rng.uniform(-0.02, 0.02, (SITES * RECORDS, canaries + 1))
    values = rng.permutation(np.vstack([others, marked[inside]]))
    parts = np.array_split(values, SITES)
    return {f"s{k}": pd.DataFrame(part, columns=names) for k, part in enumerate(parts)}, inside


def job(
    data: dict[str, pd.DataFrame], method: dict[str, Any], placement: str, epsilon: float | None
) -> dict[str, Any]:
    column = {"type": "continuous", "low": -1.0, "high": 1.0}
    privacy = {"placement": placement, "epsilon": epsilon, "delta": DELTA}
    return {
        "title": "Canaries",
        "sites": {"max_rows": 200},
        "columns": dict.fromkeys(data["s0"].columns, column),
        "method": method,
        "protocol": {"name": "masked"},
        # a canary has a leverage of nearly 1, which no rule but this lets into an exact run
        "release": {"min_sites": 3, "min_records": 20 if epsilon else 1},
        **({"privacy": privacy} if epsilon else {}),
    }


def bound(scores: NDArray[np.float64], inside: NDArray[np.bool_]) -> float:
    """Return the lower bound on epsilon; the auditor guesses of the two fifths that are surest."""
    fifth = len(scores) // 5
    order = np.argsort(scores)
    guesses = np.concatenate([order[:fifth], order[-fifth:]])
    correct = int(np.sum(inside[guesses] == (np.arange(2 * fifth) >= fifth)))
    found = one_run_epsilon(correct, 2 * fifth, len(scores), DELTA)
    print(f"at least {found:.2f}; {correct} of {2 * fifth} right")
    return found


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0, None])
def test_sums_of_noisy_gradients_stay_below_the_claim(
    epsilon: float | None, tmp_path: Path
) -> None:
    """The scores are what the weights' gradients add up to, over all sums of the run."""
    data, inside = drawn(150, seed=1)
    raw = job(data, IN_THE_SUM, "round", epsilon)
    run(raw, data, out=tmp_path / "run", random=replayable_random(5))
    planned, scores = plan_job(parse_job(raw), data), np.zeros(len(inside))
    for item in RunFolder(tmp_path / "run").sums:
        if item.stage == "train":
            fields, _ = decode(planned.plans.of(item.stage), item.total)
            scores -= fields["change"][: len(inside)]  # the prediction is below the canaries' y
    lower = bound(scores, inside)
    assert lower <= epsilon if epsilon else lower > 2.5


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0, None])
def test_a_model_of_samples_of_noisy_networks_stays_below_the_claim(epsilon: float | None) -> None:
    """The scores are the weights from each canary's column to y, in the global model."""
    data, inside = drawn(20, seed=2)
    found = run(job(data, AT_THE_SITE, "site", epsilon), data, random=replayable_random(6)).result
    to_y = found.arrays["linear.weight"][-1, :-1]
    lower = bound(to_y, inside)
    assert lower <= epsilon if epsilon else lower > 0.5
