"""What the results of all sparse Bayesian models say of coefficients, priors and the sampler.

A probability of inclusion (PIP) is one of a prior as much as of records: whether a coefficient
counts as none is decided by the width of the spike, sqrt(c0 eta), which the model learns from all
coefficients together. So every result has the prior beside its PIPs, and how wide spike and slab
turned out, in the units analysed: standard deviations of the outcome for one of the predictor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.posterior_summary import Posterior, complaints, number, worst
from secagg.models.sparse_bayes.base import SparseModel

MAX_R_HAT = 1.1
"""Beyond it chains are at different places, and nothing is known of the posterior (Gelman and
others, Bayesian Data Analysis, 3rd edition, section 11.4)."""

LEAVES = (
    "The number of records; with scale = 'pooled' each column's variance within sites; and in "
    "every round, for every chain, sums over sites of each site's cross products, seen through "
    "random draws that are its own. Draws average out: all rounds together tell the pooled "
    "regressions about as exactly as one sum of cross products would, and something of how much "
    "sites differ and how records are split over them. That is so if the coordinator sends what "
    "the method draws, as it is trusted to. One that chooses its messages itself can bring sites "
    "to drown their own part in noise, and find what is left of a single other site in the sum."
)
"""What the sums of all rounds determine, of each linear model: see
`secagg.models.sparse_bayes.regression`."""

_NUMBERS = tuple(field.name for field in fields(Posterior))
_PRIOR = (
    "own_eta", "slab_shape", "slab_scale", "spike_ratio", "rho_a", "rho_b", "noise_shape",
    "noise_scale",
)  # fmt: skip


def check_share(name: str, value: float) -> None:
    """Raise `JobError` for a setting that is not between 0 and 1."""
    if not 0 < value < 1:
        raise JobError(f"method.{name}", f"{value} is not between 0 and 1")


def coefficient(theta: Posterior, inclusion: Posterior, at: tuple[int, ...]) -> dict[str, Any]:
    """Return the numbers of the coefficient at an index: its PIP first; None is undefined."""
    return {
        "pip": number(inclusion.mean[at]),
        "pip_mcse": number(inclusion.mcse_mean[at]),
        **{name: number(getattr(theta, name)[at]) for name in _NUMBERS},
    }


def beside(
    model: SparseModel,
    state: State,
    kept: Mapping[str, Array],
    found: Mapping[str, Posterior],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return what stands beside the coefficients in a summary: prior, sampler, diagnostics, notes.

    kept: the draws; found: what they say; names: of the coefficients, in the order of the draws
    """
    slab = float(np.median(np.sqrt(kept["eta"])))
    reported = {"coefficients": found["theta"], "PIPs": found["inclusion"]}
    agreement, bulk, tail, error = worst(reported.values())
    return {
        "n": state["records"],
        "scale": model.scale,
        "prior": {name: getattr(model, name) for name in _PRIOR},
        "sampler": {
            "chains": model.chains,
            "rounds": model.rounds,
            "warmup": model.discarded,
            "sweeps": model.sweeps,
            "thin": model.thin,
            "kept": len(kept["theta"]),
        },
        "diagnostics": {
            "slab_sd": slab,
            "spike_sd": float(np.sqrt(model.spike_ratio)) * slab,
            "largest_r_hat": agreement,
            "least_ess_bulk": bulk,
            "least_ess_tail": tail,
            "largest_pip_mcse": error,
        },
        "converged": agreement is None or agreement <= MAX_R_HAT,
        "notes": complaints(reported, model.chains, names),
    }


def arrays_of(kept: Mapping[str, Array], *, own_eta: bool) -> dict[str, Array]:
    """Return the draws under the names they have in arrays.npz: draws, chains, then coefficients.

    An eta in common of all coefficients is there once.
    """
    eta = kept["eta"] if own_eta else kept["eta"][..., 0]
    return {
        "draws_theta": kept["theta"],
        "draws_inclusion": kept["inclusion"],
        "draws_tau_squared": kept["t"],
        "draws_eta": eta,
    }
