"""Private runs that are killed and go on: the same noise, paid once, nothing sent unrecorded.

`support.private_killed` kills; here is what must hold then. Killed means SIGKILL: what was written
to the system's cache survives it. Loss of power is not simulated.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import TOML, write_job
from support.private_killed import VICTIM, told

from secagg import codec, ring
from secagg.job import load_job
from secagg.noise import Adjacency
from secagg.privacy.budget import Cost
from secagg.privacy.events import epsilon_of
from secagg.privacy.gaussian import gaussian_epsilon, gaussian_mu
from secagg.privacy.sampling import sample
from secagg.randomness import expanded, system_random
from secagg.session import open_session, plan_job
from secagg.stages import COHORT

slow = pytest.mark.slow
SITES = ("north", "south", "west")
STAGES = (COHORT, "moments")
DELTA = 1e-6
PRIVATE = """
[privacy]
placement = "sum"
epsilon = 1.0
delta = 1e-6
"""
MASKED = {"protocol.name": "masked"}
# three jobs of epsilon 1 fit, a fourth does not
CAP = gaussian_epsilon(math.sqrt(3.5) * gaussian_mu(1.0, DELTA), DELTA)
POLICY = f"""
min_sites = 3
min_records = 2
[budget]
period_epsilon = {CAP}
period_delta = {DELTA}
adjacency = ["add_remove"]
"""


def private_job(place: Path, policy: str = "") -> Path:
    job = write_job(place, TOML + PRIVATE)
    if policy:
        (place / f"data/{VICTIM}.policy.toml").write_text(policy)
    return job


def mechanisms(job: Path, **about: Any) -> Any:
    """Return the plan of a job, and what each of its releases costs."""
    changed = {"protocol.name": about["protocol"], "privacy.placement": about["placement"]}
    return plan_job(load_job(job, changed))


def noised(planned: Any, ledgers: Mapping[str, list[dict[str, Any]]], session: str) -> np.ndarray:
    """Return what a session must have released: exact sums, and noise of the ledgers' seeds."""
    opened = open_session(planned, system_random)
    plan = planned.plans.of("moments")
    parts = []
    for name, side in opened.sides.items():
        update, _ = side.method.local("moments", side.rows, {}, {}, side.public)
        vector = codec.encode(plan, update)
        (seed,) = {r["seed"] for r in ledgers[name] if (r["session"], r["round"]) == (session, 1)}
        codec.add_noise(plan, vector, noise_of(ledgers[name], seed, plan.noised))
        parts.append(vector)
    opened.close()
    total = ring.total(parts, plan.length, plan.ring_bits)
    upper: np.ndarray = codec.decode(plan, total)[0]["moments"]
    return upper


def noise_of(rows: Sequence[Mapping[str, Any]], seed: str, size: int) -> np.ndarray:
    (variance,) = {r["content"]["variance"] for r in rows if r["seed"] == seed}
    return sample(variance, size, expanded(bytes.fromhex(seed)))


def released(out: Path) -> np.ndarray:
    matrix = np.load(out / "arrays.npz")["released"]
    upper: np.ndarray = matrix[np.triu_indices(len(matrix))]
    return upper


def session_of(out: Path) -> str:
    return str(json.loads((out / "run.json").read_text())["session"])


def spent(rows: Sequence[Mapping[str, Any]]) -> float:
    costs = [Cost.of(r["content"]["cost"]) for r in rows if r["kind"] == "entry"]
    return epsilon_of([cost.event(Adjacency.ADD_REMOVE) for cost in costs], DELTA)


# --- a site is killed at every step of its answers ------------------------------------------------

RUNS: tuple[dict[str, Any], ...] = (
    {"how": "steps", "protocol": "masked", "placement": "sum", "epsilon": 1.0},
    {"how": "delays", "protocol": "masked", "placement": "sum", "epsilon": 1.0, "deaths": 12},
    {"how": "steps", "protocol": "plain", "placement": "site", "epsilon": 1.0},
    {"how": "delays", "protocol": "plain", "placement": "site", "epsilon": 1.0, "deaths": 12},
    {"how": "steps", "protocol": "masked", "placement": "sum", "epsilon": 1.0},
)
FREE, REFUSED = 3, 4  # the fourth uses the third's noise again, and there is no room for the fifth
KILLS = 200


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    private_job(place, POLICY)
    return place


@pytest.fixture(scope="module")
def saw(place: Path) -> Any:
    return told(place, RUNS)


def asked(saw: Any) -> Iterator[tuple[int, Any]]:
    """Yield, for each time that the site was asked, the run's number and what was seen."""
    for number, played in enumerate(saw):
        for one in played["seen"]:
            yield number, one


@slow
def test_x(saw: Any) -> None:
    print(
        json.dumps(
            {
                n: Counter(o["last"] for m, o in asked(saw) if m == n and o["killed"])
                for n in range(5)
            },
            indent=1,
        )
    )
    print(sum(o["killed"] for _, o in asked(saw)))
    json.dump(saw, open("/tmp/saw.json", "w"))
    assert 0
