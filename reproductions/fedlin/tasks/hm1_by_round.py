"""Cells of FedLin's figure 3: |Theta_hat - Theta| / sqrt(K) after each round of cases II and III.

`centralised.rounds` computes every round's coefficients; they equal those of the method
`fedlin_hm1` by secure sums. As there, the noise's variance is the pooled residual variance of the
devices' own least squares.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from reproductions.fedlin.tasks import centralised
from reproductions.fedlin.tasks.hm1 import PAPER_LEARNING_RATE
from reproductions.fedlin.tasks.runs import ALPHA, STEP_SHARE, STEPS
from reproductions.fedlin.tasks.simulated_cases import draw
from secagg.experiments.runner.types import CONVERGED, Settings


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the distance of each method. Settings: case, noise, round, seed.

    hm1, hm1-printed: as in the task `hm1`; separate: the same steps as hm1 without shrinkage
    least: least squares, the same in every round
    """
    case, noise, count, seed = (settings[name] for name in ("case", "noise", "round", "seed"))
    drawn = draw(str(case), float(noise), int(seed))
    devices = centralised.quadratics(drawn.X, drawn.y)
    own_rate = np.array([STEP_SHARE / each.steepest for each in devices])
    printed = np.array([PAPER_LEARNING_RATE / len(x) for x in drawn.X])
    pairs = zip(devices, own_rate.tolist(), strict=True)
    path_lengths = np.array([each.answer(rate, STEPS) for each, rate in pairs])
    weight = centralised.noise_variance(drawn.X, drawn.y) * path_lengths
    last = int(count) - 1
    estimates = {
        "hm1": next(
            islice(centralised.rounds(devices, own_rate, weight, STEPS, ALPHA), last, None)
        ),
        "hm1-printed": next(
            islice(centralised.rounds(devices, printed, 2 * printed, STEPS, ALPHA), last, None)
        ),
        "separate": centralised.separate(devices, own_rate, STEPS * int(count)),
        "least": centralised.least_squares(drawn.X, drawn.y),
    }
    root = np.sqrt(len(devices))
    return {
        name: {"distance": float(np.linalg.norm(theta - drawn.theta) / root), CONVERGED: 1.0}
        for name, theta in estimates.items()
    }
