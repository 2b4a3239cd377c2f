"""Samples from a site's own network, for the global network to learn from.

Chajewska and Shrivastava (2023), section 2.3: each site trains a network on its own records, and
the global network is trained on samples from all of them (equation 2), so that it learns an average
of their distributions. In the paper the networks are sent to the coordinator, which draws the
samples. Here a site draws them from its own network, and neither network nor samples leave the
site: the sites sum gradients over their samples, as they would over records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.models.neural.local_fit import fit_locally
from secagg.models.neural.ngm.fit_stage import fit_counts
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.model import FittedNgm, States
from secagg.models.neural.ngm.fitted.sampling import start, sweep
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.rounds import Penalty

MAX_SAMPLES = 1_000_000
OVER_SAMPLES = "over samples from networks that each site trained on its own records."
"""Ends a sentence on what the sums reveal."""
_SWEEPS = 100  # far more than the pseudo-Gibbs sampler needs from independent starts
_LOCAL_STEPS = 300


def own_network(
    network: MaskedNetwork, values: Array, penalty: Penalty, public: PublicFacts, seed: int
) -> FittedNgm:
    """Return a network trained on a site's records, with the counts of its residuals.

    values: the site's records, shape (records, variables of the job); at least one
    """
    theta = fit_locally(network, network.initial(seed), values, penalty, steps=_LOCAL_STEPS)
    model = fitted_model(network, theta, public)
    residuals = fit_counts(model, values[:, list(network.layout.chosen)])["residuals"]
    return fitted_model(network, theta, public, residuals)


def samples_from(model: FittedNgm, count: int, variables: int, rng: np.random.Generator) -> Array:
    """Return samples as scaled records, shape (count, variables of the job).

    Variables outside the model are 0.
    """
    samples = np.zeros((count, variables))
    samples[:, list(model.layout.chosen)] = _scaled_samples(model, count, rng)
    return samples


def fitted_model(
    network: MaskedNetwork,
    theta: Array,
    public: PublicFacts,
    residuals: NDArray[np.float64] | None = None,
) -> FittedNgm:
    """Return the model with these parameters. residuals: counts of equation (4), if known."""
    arrays = {**network.blocks.split(theta), "graph": network.graph, "centre": network.centre,
              "scale": network.scale}  # fmt: skip
    if network.curved is not None:
        arrays["curved"] = network.curved
    if residuals is not None:
        arrays["residuals"] = residuals
    return FittedNgm.of(network.layout, public, arrays)


def _scaled_samples(model: FittedNgm, count: int, rng: np.random.Generator) -> Array:
    """Return samples, scaled by the public bounds, shape (count, variables of the model)."""
    d, p = model.layout.d, model.layout.variables
    states = States(np.zeros((p, count)), np.zeros((d, count), dtype=np.intp))
    conditionals = [Conditional(model, number) for number in range(d)]
    start(conditionals, states, rng)
    for _ in range(_SWEEPS):
        sweep(conditionals, states, rng)
    u = states.z.T * model.inverse_scale + model.centre
    return np.clip(u, -1, 1)
