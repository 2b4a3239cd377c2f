"""Shared by the cells of sparse models: all settings of the sampler, and its summaries.

The learners' defaults are for users and may change, so cells do not rely on them.

Kidd, Wang, Xu and Ni (PSB 2023) state one hyper-parameter, c0 = 0.01 (SPIKE_RATIO). We set all
others to 1, except the slab's scale b_eta, which is a setting of the cell. Another setting says
whether the slab has one variance for all coefficients or one for each. Inclusion probabilities
depend on these two settings more than on anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.experiments.runner.types import Settings
from secagg.models.common.posterior_summary import Posterior, summarise

SPIKE_RATIO = 0.01
MAX_R_HAT = 1.01  # for published figures, as Vehtari et al. (2021) want it
CHAINS = 4
LEVEL = 0.95
WHOLE_FIT = "all"  # the entry for the whole fit, next to those for its coefficients
DRAWS = 2500  # largest number of stored draws per chain

PRIOR = {
    "spike_ratio": SPIKE_RATIO, "slab_shape": 1.0, "rho_a": 1.0, "rho_b": 1.0,
    "noise_shape": 1.0, "noise_scale": 1.0,
}  # fmt: skip

Columns = Mapping[str, Mapping[str, object]]


def sampler(settings: Settings) -> dict[str, object]:
    """Return the method's settings. Settings: rounds, own_eta, slab_scale, seed.

    The first half of the rounds is discarded, and at most DRAWS of the other half are stored: the
    draws of these chains are so strongly correlated that more would add no information.
    """
    rounds = int(settings["rounds"])
    return {
        "step": "collapsed",
        "chains": CHAINS,
        "rounds": rounds,
        "warmup": rounds // 2,
        "sweeps": 1,
        "thin": max(1, rounds // 2 // DRAWS),
        "scale": "pooled",
        "own_eta": bool(settings["own_eta"]),
        "level": LEVEL,
        "slab_scale": float(settings["slab_scale"]),
        "seed": int(settings["seed"]),
        **PRIOR,
    }


def sampled(result: Result) -> tuple[Posterior, Posterior]:
    """Return the posteriors of the common coefficients, and of their inclusion."""
    theta, inclusion = result.arrays["draws_theta"], result.arrays["draws_inclusion"]
    return summarise(theta, LEVEL), summarise(inclusion, LEVEL)


def quantities(theta: Posterior, inclusion: Posterior, at: tuple[int, ...]) -> dict[str, float]:
    """Return the recorded numbers of the coefficient at an index.

    mean, mcse, low, high: of the posterior; pip, pip_mcse; and r_hat, ess_bulk and ess_tail of
    the coefficient or its PIP, whichever is worse
    """
    both = (theta, inclusion)
    numbers = {
        "mean": theta.mean[at],
        "mcse": theta.mcse_mean[at],
        "low": theta.low[at],
        "high": theta.high[at],
        "pip": inclusion.mean[at],
        "pip_mcse": inclusion.mcse_mean[at],
        "r_hat": np.max([each.r_hat[at] for each in both]),
        "ess_bulk": np.min([each.ess_bulk[at] for each in both]),
        "ess_tail": np.min([each.ess_tail[at] for each in both]),
    }
    return {name: float(value) for name, value in numbers.items()}


def widths(eta: NDArray[np.float64]) -> dict[str, float]:
    """Return the median standard deviations of the slab and of the spike, from draws of eta."""
    slab = float(np.median(np.sqrt(eta)))
    return {"slab_sd": slab, "spike_sd": float(np.sqrt(SPIKE_RATIO)) * slab}


def worst(coefficients: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size (of bulk and tail)."""
    return (
        max(each["r_hat"] for each in coefficients),
        min(min(each["ess_bulk"], each["ess_tail"]) for each in coefficients),
    )
