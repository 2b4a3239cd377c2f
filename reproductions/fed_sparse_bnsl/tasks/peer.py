"""Cells of Fed-Sparse-BNSL: each participant's noise is its own."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from reproductions.data.linear_graphs import records_of
from reproductions.fed_sparse_bnsl.tasks.consensus import Choices, learn
from reproductions.fed_sparse_bnsl.tasks.mechanism import step_noise
from reproductions.fed_sparse_bnsl.tasks.zcdp import rho_of
from reproductions.harness.graph_scores import scores
from secagg.core.randomness import replayable_random
from secagg.experiments.runner.types import Settings

WHOLE = ("rounds", "steps")


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the scores. Settings: the fields of `Choices`, epsilon and delta (both left out for a
    run without noise), and those of the records.

    The acyclic graph is always a result, so every run counts as converged.
    """
    records = records_of(settings)
    given = {field.name: float(settings[field.name]) for field in fields(Choices)}
    whole = {name: int(given.pop(name)) for name in WHOLE}
    choices = Choices(**whole, **given)  # type: ignore[arg-type]
    rho = math.inf
    if "epsilon" in settings:
        rho = rho_of(float(settings["epsilon"]), float(settings["delta"]))
    seed = int.from_bytes(replayable_random(int(settings["seed"]))(16), "big")
    found = learn(records.sites, records.scale, rho, choices, np.random.default_rng(seed))
    numbers = scores(records.truth, found.directed, converged=True, sent=0)
    numbers["kilobytes"] = found.sent / 1000
    steps = choices.rounds * choices.steps
    if rho < math.inf:
        numbers["rho"] = steps * step_noise(rho, steps, choices.selection).rho
    return {"fed-sparse-bnsl" if rho < math.inf else "fed-sparse-bnsl-exact": numbers}
