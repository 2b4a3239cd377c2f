"""Contents that the results of all sparse Bayesian models share: coefficients, priors, the sampler.

A probability of inclusion (PIP) depends on the prior as much as on the records. The width of the
spike, sqrt(c0 eta), decides which coefficients count as zero, and the model learns it from all
coefficients together. So every result shows the prior next to its PIPs, and the posterior widths of
spike and slab. These are in the units analysed: standard deviations of the outcome per standard
deviation of the predictor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from secagg.contracts import TRUSTED, Disclosure, DisclosureKind, Label, State
from secagg.core.arrays import Array
from secagg.models.common.disclosures import means_by_subtraction
from secagg.models.common.posterior_summary import (
    MAX_R_HAT,
    UNKNOWN_CONVERGENCE,
    Posterior,
    chains_agree,
    number,
    sampling_warnings,
    worst_diagnostics,
)
from secagg.models.sparse_bayes.base import SparseModel
from secagg.models.sparse_bayes.spike_slab import SpikeSlab

_HONEST = (
    "Can a coordinator that follows the method learn one site's coefficients? It does not receive "
    "them. Each site draws numbers at random around its own coefficients, and the coordinator sees "
    "these numbers only as sums over all sites of the run. All rounds together show in part how "
    "much sites differ. If the coefficients of all other sites are known or similar to each other, "
    "this reveals the coefficients of the remaining site.",
    "Can such a coordinator learn the records of a site with few records? It receives no record, "
    "and no site's number of records. A few records change the sums only a little. But there is no "
    "noise that hides the change by one record, and no proof of how small the change is.",
)
ANY_STEP = (
    f"{TRUSTED} A coordinator that sends other numbers determines on what the sums depend, and may "
    "isolate a single site's part in them. How much it learns is not bounded."
)
_COLLAPSED_STEP = (
    f"{TRUSTED} If a column is constant at exactly one site, a coordinator that sends other "
    "numbers can make the parts of all other sites nearly pure noise. It can then read a single "
    "site's X'X and X'y from the sums, up to a factor (the cross products of its other columns). "
    "One sum is enough for that site's regression. Other ways may exist: how much such a "
    "coordinator learns is not bounded."
)


def sampler_disclosure(
    text: str, if_malicious: str = ANY_STEP, attacks: tuple[str, ...] = ()
) -> Disclosure:
    """Return what a sampler's sums reveal; text: what all rounds together determine."""
    return Disclosure(
        DisclosureKind.SITES, text, if_malicious, if_honest=_HONEST,
        other_runs=means_by_subtraction(), attacks=attacks,
    )  # fmt: skip


def linear_disclosure(*, collapsed: bool) -> Disclosure:
    """Return what the sums of a linear model reveal: see `secagg.models.sparse_bayes.regression`.

    collapsed: whether the step is "collapsed"
    """
    return sampler_disclosure(
        "The number of records; with scale = 'pooled' each column's variance within sites; and in "
        "every round, for every chain, sums over sites of numbers that depend on each site's cross "
        "products and on its random draws. Over many rounds the draws average out. So all rounds "
        "together reveal the pooled regressions about as precisely as one sum of cross products "
        "would, and in part how much sites differ and how records are split over them. This holds "
        "if the coordinator sends what the method draws, and sites trust it to do so. If a column "
        "is constant at one site only, a coordinator that sends other numbers can make the parts "
        "of all other sites nearly pure noise, and so find this site's part in the sum.",
        _COLLAPSED_STEP if collapsed else ANY_STEP,
        ("gibbs_sums", "sparse_invented") if collapsed else ("gibbs_sums",),
    )


LABELS: Final[Mapping[str, Label]] = {
    "scale": ("columns divided by standard deviations", ""),
    "outcome_deviation": ("standard deviation of the outcome, within sites", ""),
    "slab_sd": ("standard deviation of the slab, median", ""),
    "spike_sd": ("standard deviation of the spike, median", ""),
    "largest_r_hat": (
        "largest R-hat",
        f"1 if the chains agree; above {MAX_R_HAT} the result must not be used",
    ),
    "least_ess_bulk": (
        "smallest bulk ESS",
        "effective sample size: the number of independent draws that would estimate means as well; "
        "it should be at least 100 for each chain",
    ),
    "least_ess_tail": ("smallest tail ESS", "the same for the ends of intervals"),
    "largest_pip_mcse": ("largest Monte Carlo error of a PIP", ""),
    "combine": ("PIP of a pair", "union: the larger of its two sides; intersection: the smaller"),
    "fdr_at_most": ("Bayesian false discovery rate (setting)", ""),
    "expected_fdr": (
        "expected share of false edges",
        "the mean of 1 − PIP over the edges; at most the rate in the settings",
    ),
}
"""For all sparse Bayesian models."""

_CALLED = {"theta": "coefficients", "inclusion": "PIPs"}
_MOST_LISTED = 5  # undecided pairs that the note names
_NUMBERS = tuple(field.name for field in fields(Posterior))
_PRIOR = (
    "own_eta", "slab_shape", "slab_scale", "spike_ratio", "rho_a", "rho_b", "noise_shape",
    "noise_scale",
)  # fmt: skip


def coefficient(theta: Posterior, inclusion: Posterior, at: tuple[int, ...]) -> dict[str, Any]:
    """Return the numbers of the coefficient at an index, its PIP first; None is undefined."""
    return {
        "pip": number(inclusion.mean[at]),
        "pip_mcse": number(inclusion.mcse_mean[at]),
        **{name: number(getattr(theta, name)[at]) for name in _NUMBERS},
    }


def summary_fields(
    model: SparseModel,
    state: State,
    draws: Mapping[str, Array],
    posteriors: Mapping[str, Posterior],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the rest of a summary: prior, sampler, diagnostics, notes.

    draws: those recorded; posteriors: summaries of what is reported, PIPs last; names: of the
        coefficients, in their order
    """
    slab, constants = float(np.median(np.sqrt(draws["eta"]))), model.constants(state["records"])
    spike = float(np.sqrt(model.spike_ratio)) * slab
    if constants.spike is not None:
        spike = float(np.sqrt(constants.spike))
    reported = {_CALLED.get(name, name): each for name, each in posteriors.items()}
    r_hat, bulk, tail, error = worst_diagnostics(reported.values())
    return {
        "n": state["records"],
        "scale": model.scale,
        "prior": _prior(model, constants),
        "sampler": {
            "chains": model.chains,
            "rounds": model.rounds,
            "warmup": model.discarded,
            "sweeps": model.sweeps,
            "thin": model.thin,
            "kept": len(draws["theta"]),
        },
        "diagnostics": {
            "slab_sd": slab,
            "spike_sd": spike,
            "largest_r_hat": r_hat,
            "least_ess_bulk": bulk,
            "least_ess_tail": tail,
            "largest_pip_mcse": error,
        },
        "converged": chains_agree(r_hat),
        **({"caution": UNKNOWN_CONVERGENCE} if r_hat is None else {}),
        "notes": sampling_warnings(reported, model.chains, names, model.if_chains_disagree),
    }


def _prior(model: SparseModel, constants: SpikeSlab) -> dict[str, Any]:
    """Return the prior's constants; those of a fixed spike replace the ratio of the variances."""
    found = {name: getattr(model, name) for name in _PRIOR}
    if constants.spike is None:
        return found
    del found["spike_ratio"]
    return found | {"spike_variance": constants.spike, "spread_scale": constants.spread}


def undecided(edge: bool, sides: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a pair is no edge, although the intervals of its coefficients exclude 0."""
    return not edge and all(
        side["low"] is not None and (side["low"] > 0 or side["high"] < 0) for side in sides
    )


def with_note_on_undecided(
    summary: Mapping[str, Any], found: Sequence[str], advice: str
) -> dict[str, Any]:
    """Return a summary with a note that names undecided pairs, if the draws may be used.

    found: each undecided pair with its PIP
    """
    if not found or summary["converged"] is False:
        return dict(summary)
    listed = ", ".join(found[:_MOST_LISTED]) + (", and others" if len(found) > _MOST_LISTED else "")
    note = (
        f"Undecided, so no edge, although the interval excludes 0: {listed}. With few sites, this "
        "prior can take an effect that all sites have for a difference between sites. Do not read "
        f'"no edge" as "no effect" there.{advice}'
    )
    return {**summary, "notes": [*summary["notes"], note]}


def draw_arrays(draws: Mapping[str, Array], *, own_eta: bool) -> dict[str, Array]:
    """Return the draws under their names in arrays.npz: draws, chains, then coefficients.

    An eta that all coefficients share is stored once.
    """
    eta = draws["eta"] if own_eta else draws["eta"][..., 0]
    return {
        "draws_theta": draws["theta"],
        "draws_inclusion": draws["inclusion"],
        "draws_tau_squared": draws["t"],
        "draws_eta": eta,
    }
