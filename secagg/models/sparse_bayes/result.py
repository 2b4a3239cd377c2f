"""What the results of all sparse Bayesian models say of coefficients, priors and the sampler.

A probability of inclusion (PIP) is one of a prior as much as of records: whether a coefficient
counts as none is decided by the width of the spike, sqrt(c0 eta), which the model learns from all
coefficients together. So every result has the prior beside its PIPs, and how wide spike and slab
turned out, in the units analysed: standard deviations of the outcome for one of the predictor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from secagg.contracts import TRUSTED, Disclosure, DisclosureKind, Label, State
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.disclosures import means_by_subtraction
from secagg.models.common.posterior_summary import Posterior, complaints, number, worst
from secagg.models.sparse_bayes.base import SparseModel

MAX_R_HAT = 1.1
"""Beyond it chains are at different places, and nothing is known of the posterior (Gelman and
others, Bayesian Data Analysis, 3rd edition, section 11.4)."""

_HONEST = (
    "Can a coordinator that follows the method learn one site's coefficients? It is sent none: it "
    "sees sums over all sites of the run, of numbers that each site draws at random around its "
    "own. All rounds together show in part how much sites differ. If all sites but one are alike, "
    "or are known from elsewhere, that is about the one.",
    "Can it learn the records of a site that has only a few? It is sent no record, and not how "
    "many a site has; few records move the sums little. But no noise bounds what one record "
    "changes: how little that is, is not proved.",
)
_ANY_STEP = (
    f"{TRUSTED} A coordinator that chooses its messages itself chooses what the sums depend on, "
    "and may find a single site's part in them. How much of it is not bounded."
)
_COLLAPSED_STEP = (
    f"{TRUSTED} A coordinator that chooses its messages itself can, in some tens of rounds, make "
    "other sites drown their own part in noise, and read a single site's X'X and X'y (the cross "
    "products of its columns, from which its regression follows) off the sums."
)


def disclosed(text: str, if_malicious: str = _ANY_STEP) -> Disclosure:
    """Return what a sampler's sums tell; text: what all rounds together determine."""
    other = means_by_subtraction()
    return Disclosure(DisclosureKind.SITES, text, if_malicious, if_honest=_HONEST, other_runs=other)


def linear_disclosure(*, collapsed: bool) -> Disclosure:
    """Return what the sums of a linear model tell: see `secagg.models.sparse_bayes.regression`.

    collapsed: whether they are of the collapsed step
    """
    return disclosed(
        "The number of records; with scale = 'pooled' each column's variance within sites; and in "
        "every round, for every chain, sums over sites of each site's cross products, seen through "
        "random draws that are its own. Draws average out: all rounds together tell the pooled "
        "regressions about as exactly as one sum of cross products would, and something of how "
        "much sites differ and how records are split over them. That is so if the coordinator "
        "sends what the method draws, as it is trusted to. One that chooses its messages itself "
        "can make sites drown their own part in noise, and find what is left of a single other "
        "site in the sum.",
        _COLLAPSED_STEP if collapsed else _ANY_STEP,
    )


LABELS: Final[Mapping[str, Label]] = {
    "scale": ("columns divided by standard deviations", ""),
    "outcome_deviation": ("standard deviation of the outcome, within sites", ""),
    "slab_sd": ("standard deviation of the slab, median", ""),
    "spike_sd": ("standard deviation of the spike, median", ""),
    "largest_r_hat": (
        "largest R-hat",
        "do the chains agree? 1 where they do; at most 1.01 is wanted, and beyond 1.1 the result "
        "must not be used",
    ),
    "least_ess_bulk": (
        "least bulk ESS",
        "effective sample size: how many independent draws would tell as much of means; 100 for "
        "each chain are wanted",
    ),
    "least_ess_tail": ("least tail ESS", "the same of the ends of intervals"),
    "largest_pip_mcse": ("largest Monte Carlo error of a PIP", ""),
    "combine": ("PIP of a pair", "union: the larger of its two sides; intersection: the smaller"),
    "fdr_at_most": ("Bayesian false discovery rate that was set", ""),
    "expected_fdr": (
        "expected share of false ones among the edges",
        "the mean of 1 − PIP over the edges; at most the rate that was set",
    ),
}
"""Of all sparse Bayesian models."""

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
