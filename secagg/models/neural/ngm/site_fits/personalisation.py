"""Personalisation: a site fits the networks of a finished run to its own records.

Chajewska and Shrivastava (2023), section 2.4: the global model is trained further on a client's
records, against the drift caused by other distributions there. The graph and the units are the
run's. With theta_0 the run's parameters, n records and their mean loss L,

    theta = argmin  L(theta) + (kappa / 2n) |theta - theta_0|^2                                  (1)

Training without the second term would overfit few records. It is a normal prior of precision kappa
around the run's parameters ("starting point as the reference": Li, Grandvalet and Davoine 2018,
"Explicit inductive bias for transfer learning"; over sites, Li, Hu, Beirami and Smith 2021,
"Ditto"). Variables are standardised, so kappa counts records: the run weighs as much as roughly
kappa records of the site. The site chooses kappa by its held-out records
(`secagg.models.neural.held_out`). kappa = infinity is among the choices, and is the run itself, bit
for bit: a site whose records do not differ keeps the run's model.

All of this happens at the site. The result depends on the site's records alone, apart from the run,
and is the site's: it may contain the values of single records in recognisable form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.held_out import HeldOut, held_out_losses
from secagg.models.neural.local_fit import fit_locally
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.rounds import Penalty

STRENGTHS: Final = (math.inf, 3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0)
"""The choices of kappa."""
_STEPS: Final = 100  # gradients for one kappa; what more of them change is noise of few records


@dataclass(frozen=True, eq=False)
class Personalised:
    """The parameters (1), with kappa chosen, and the losses of held-out records."""

    theta: Array
    held_out: HeldOut


def shrunk_towards(centre: Array, strength: float) -> Penalty:
    """Return the second term of (1). centre: theta_0; strength: kappa, finite."""

    def penalty(theta: Array, records: float) -> tuple[float, Array]:
        slope = strength * (theta - centre) / records
        return float(slope @ (theta - centre)) / 2, slope

    return penalty


def personalised(
    network: MaskedNetwork, theta: Array, values: Array, rng: np.random.Generator
) -> Personalised:
    """Return the run's parameters, fitted to a site's records.

    theta: of the run; values: scaled records, shape (records, variables of the job), at least 2
    rng: draws the folds
    """

    def fit(start: Array, records: Array, strength: float) -> Array:
        if strength == math.inf:
            return theta
        return fit_locally(network, start, records, shrunk_towards(theta, strength), steps=_STEPS)

    held_out = held_out_losses(network, theta, values, STRENGTHS, fit, rng)
    found = theta
    for strength in STRENGTHS[: held_out.best + 1]:  # the same path as in the folds
        found = fit(found, values, strength)
    return Personalised(found, held_out)
