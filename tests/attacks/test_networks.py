"""What a coordinator that deviates learns from sums of networks' gradients, and what noise leaves.

Fowl, Geiping, Czaja, Goldblum and Goldstein, "Robbing the Fed" (ICLR 2022), section 4: a hidden
unit with ReLU that is active for one record only has a gradient that is a multiple of this record.
The coordinator needs to know one value that no other record exceeds, for example that of the oldest
patient. A secure sum does not prevent it, because the sum over all sites is that record's gradient.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.networks import job, tables

from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.models.neural.parameters import Block, Blocks
from secagg.privacy.sampling.sampler import sample
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

pytestmark = pytest.mark.neural
PREDICTORS = ["x", "w", "case"]
METHOD = {"name": "torch_module", "outcome": "y", "predictors": PREDICTORS, "rounds": 4,
          "module_settings": {"hidden": [1], "activation": "relu"}}  # fmt: skip
BLOCKS = Blocks((Block("0.weight", (1, 3)), Block("0.bias", (1,)), Block("2.weight", (1, 1)),
                 Block("2.bias", (1,))))  # fmt: skip


def planned(data: dict[str, pd.DataFrame], **privacy: Any) -> Planned:
    raw = job(METHOD, "masked")
    if privacy:
        release = {"min_sites": 3, "min_records": 20}
        raw |= {"privacy": {"delta": 1e-5, **privacy}, "release": release}
    return plan_job(parse_job(raw), data)


def answer(plan: Planned, theta: np.ndarray) -> dict[str, np.ndarray]:
    """Return the sum over sites of what they contribute at these parameters, without noise."""
    updates = []
    for source in plan.sources.values():
        rows = read_records(plan, source)
        message = {"theta": theta}
        update, _ = plan.method.contribute(
            "train", rows, message, {}, plan.public, replayable_random(1)
        )
        updates.append(update)
    return {name: np.sum([update[name] for update in updates], axis=0) for name in updates[0]}


def robbing(threshold: float) -> np.ndarray:
    """Return parameters whose hidden unit is active where x, scaled, is above the threshold."""
    return BLOCKS.join(
        {"0.weight": np.array([[25.0, 0.0, 0.0]]), "0.bias": np.array([-25.0 * threshold]),
         "2.weight": np.array([[1.0]]), "2.bias": np.array([0.0])}
    )  # fmt: skip


def read_off(change: np.ndarray) -> np.ndarray:
    """Return the record whose gradient this is: that of the weights over that of the bias."""
    parts = BLOCKS.split(change)
    return np.asarray(parts["0.weight"][0] / parts["0.bias"][0])


def scaled(record: pd.Series) -> np.ndarray:
    return np.array([record["x"] / 4, (record["w"] - 5) / 5, 2.0 * record["case"] - 1])


def test_an_exact_sum_shows_the_record_with_the_largest_value() -> None:
    """All predictors of one patient, to nine digits, from one round: the positive control."""
    data = tables(3, rows=60)
    pooled = pd.concat(data.values()).sort_values("x")
    largest, second = pooled.iloc[-1], pooled.iloc[-2]
    theta = robbing((largest["x"] + second["x"]) / 8)
    plan = planned(data, placement="round", epsilon=2.0)  # exact rounds refuse ReLU
    exact = replace(plan, public=replace(plan.public, clip=None))
    found = read_off(answer(exact, theta)["change"])
    np.testing.assert_allclose(found, scaled(largest) * [1, 1, 0.5], rtol=1e-8)  # levels are halved


def test_with_noise_the_same_message_shows_nothing() -> None:
    """The clipped gradient of one record is far below the noise of a round, whatever is sent."""
    data = tables(3, rows=60)
    pooled = pd.concat(data.values()).sort_values("x")
    largest, second = pooled.iloc[-1], pooled.iloc[-2]
    theta = robbing((largest["x"] + second["x"]) / 8)
    plan = planned(data, placement="round", epsilon=2.0)
    total = answer(plan, theta)["change"]
    noise = plan.public.noise["train"]
    sigma = float(noise.variance) ** 0.5 * 2.0**-noise.fraction_bits
    hidden = np.concatenate([BLOCKS.split(total)[name].ravel() for name in ("0.weight", "0.bias")])
    assert np.linalg.norm(hidden) <= 1.0 < sigma  # the clip, for one active record
    draws = sample(noise.variance, 200 * len(total), replayable_random(2)).reshape(200, -1)
    noisy = total + draws * 2.0**-noise.fraction_bits
    guesses = np.array([read_off(each) for each in noisy])
    errors = np.median(np.abs(guesses - scaled(largest)), axis=0)
    # A guess that ignores the message errs by about a standard deviation of each column.
    assert np.all(errors > 0.2)
