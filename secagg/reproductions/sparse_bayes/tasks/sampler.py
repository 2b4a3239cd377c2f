"""What cells of sparse models share: the sampler with every setting written out, and its summaries.

Learners have defaults for their users, which may change. Cells rely on none of them.

Kidd, Wang, Xu and Ni (PSB 2023) state one hyper-parameter, c0 = 0.01 (SPIKE_RATIO). All others are
1 here, but for the slab's scale b_eta, which is a cell's own setting, as is whether the slab has
one variance for all coefficients or one for each: probabilities of inclusion depend on these two
more than on anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.models.common.posterior_summary import Posterior, summarise
from secagg.reproductions.harness.types import Settings

SPIKE_RATIO = 0.01
CHAINS = 4
LEVEL = 0.95
WHOLE_FIT = "all"  # the name of what is recorded of a fit, not of one of its coefficients
DRAWS = 2500  # of each chain at most that are kept

PRIOR = {
    "spike_ratio": SPIKE_RATIO, "slab_shape": 1.0, "rho_a": 1.0, "rho_b": 1.0,
    "noise_shape": 1.0, "noise_scale": 1.0,
}  # fmt: skip

Columns = Mapping[str, Mapping[str, object]]


def sampler(settings: Settings) -> dict[str, object]:
    """Return the method's settings. Settings: rounds, own_eta, slab_scale, seed.

    Half of the rounds are thrown away, and of the others at most DRAWS are kept: these chains'
    draws are so dependent that more would say nothing.
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
    """Return the posteriors of the coefficients in common, and of their inclusion."""
    theta, inclusion = result.arrays["draws_theta"], result.arrays["draws_inclusion"]
    return summarise(theta, LEVEL), summarise(inclusion, LEVEL)


def quantities(theta: Posterior, inclusion: Posterior, at: tuple[int, ...]) -> dict[str, float]:
    """Return what is recorded of the coefficient at an index.

    mean, mcse, low, high: of the posterior; pip, pip_mcse; and r_hat, ess_bulk and ess_tail of
    the coefficient or its PIP, whichever is worse
    """
    both = (theta, inclusion)
    found = {
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
    return {name: float(value) for name, value in found.items()}


def widths(eta: NDArray[np.float64]) -> dict[str, float]:
    """Return the median standard deviations of the slab and of the spike, from draws of eta."""
    slab = float(np.median(np.sqrt(eta)))
    return {"slab_sd": slab, "spike_sd": float(np.sqrt(SPIKE_RATIO)) * slab}


def worst(coefficients: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """Return the largest R-hat and the least effective sample size, of bulk and of tail."""
    return (
        max(each["r_hat"] for each in coefficients),
        min(min(each["ess_bulk"], each["ess_tail"]) for each in coefficients),
    )
