"""Cells of FedLin's table 1: HM1, separate devices, and the exact posterior mean.

The paper does not say whether its "learning rate 0.01" multiplies the gradient of a device's sum or
mean of squares. With the sum, full batches diverge from about 50 records on, so
PAPER_LEARNING_RATE refers to the mean. The method `fedlin_hm1` derives each device's rate from its
records (`STEP_SHARE`).
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from reproductions.fedlin.tasks import centralised
from reproductions.fedlin.tasks.runs import (
    ALPHA,
    HM1,
    ROUNDS,
    STEP_SHARE,
    STEPS,
    coefficients,
    regressions,
)
from reproductions.fedlin.tasks.simulated_cases import draw, errors
from secagg.experiments.runner.types import CONVERGED, Settings
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.fedlin.round import Round
from secagg.models.fedlin.site import Site

PAPER_LEARNING_RATE = 0.01  # for the gradient of a device's mean of squares


class PrintedWeightHm1(FedLinHm1):
    """HM1 with a_k = 2 eta_k, as printed in Algorithm 1: it uses 1/T as the noise's variance."""

    def prior_weight(self, site: Site, now: Round) -> float:
        """Return a_k."""
        return 2 * self.eta(site)


_VARIANTS: dict[str, tuple[str, type[FedLinHm1]]] = {
    "hm1": ("posterior", FedLinHm1),
    "hm1-steps": ("steps", FedLinHm1),
    "hm1-weight": ("steps", PrintedWeightHm1),
}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the errors of each method. Settings: case, noise, seed.

    hm1, hm1-steps, hm1-weight: the method by secure sums, with weight "posterior", "steps" or as
        printed
    hm1-one: 600 rounds of one step each; hm1-printed: with rate and weight as printed
    separate-printed: 600 steps with the printed rate; least: least squares; exact: the posterior
        mean given Omega and the noise
    """
    case, noise, seed = (settings[name] for name in ("case", "noise", "seed"))
    drawn = draw(str(case), float(noise), int(seed))
    devices = centralised.quadratics(drawn.X, drawn.y)
    printed = np.array([PAPER_LEARNING_RATE / len(x) for x in drawn.X])
    own_rate = np.array([STEP_SHARE / each.steepest for each in devices])
    steps = ROUNDS * STEPS
    variance = centralised.noise_variance(drawn.X, drawn.y)
    memory = 1 - (1 - ALPHA) ** (1 / STEPS)  # over STEPS rounds equivalent to ALPHA in one
    single = centralised.rounds(devices, own_rate, 2 * own_rate * variance, 1, memory)
    as_printed = centralised.rounds(devices, printed, 2 * printed, STEPS, ALPHA)
    estimates = {
        "hm1-one": next(islice(single, steps - 1, None)),
        "hm1-printed": next(islice(as_printed, ROUNDS - 1, None)),
        "separate-printed": centralised.separate(devices, printed, steps),
        "least": centralised.least_squares(drawn.X, drawn.y),
        "exact": centralised.posterior_mean(drawn.X, drawn.y, drawn.root, float(noise)),
    }
    for name, (weight, variant) in _VARIANTS.items():
        _, own = regressions({**HM1, "weight": weight}, drawn.X, drawn.y, int(seed), variant)
        estimates[name] = coefficients(own, "hm1")
    return {name: errors(drawn, theta) | {CONVERGED: 1.0} for name, theta in estimates.items()}
