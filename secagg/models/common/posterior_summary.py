"""Summaries of Markov chains' draws, and their convergence diagnostics.

Vehtari, Gelman, Simpson, Carpenter and Bürkner ("Rank-normalization, folding, and localization: an
improved R-hat", Bayesian Analysis 2021), as computed by the library arviz-stats. Every number is
reported with its Monte Carlo error: how much it would change if the chains were run again.

mean, sd         of the posterior, with Monte Carlo errors mcse_mean and mcse_sd
low, high        quantiles (1 -+ level) / 2, with Monte Carlo errors mcse_low and mcse_high
r_hat            rank-normalised split R-hat, the larger of the bulk and the folded one
ess_bulk, ess_tail  effective sample sizes, of all chains together

If all draws of a quantity are equal, its r_hat is NaN, its effective sample size is the number of
draws and its Monte Carlo errors are 0. With one chain every r_hat is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.errors import UsageError

if TYPE_CHECKING:
    from xarray import DataTree


MAX_R_HAT = 1.05
"""Above it chains disagree, and the draws do not describe the posterior. Every method takes this
limit, for a warning and for whether its result has converged. The paper above wants 1.01 for
published figures (section 4); Stan warns above 1.05."""
_JSON_INFINITY = 1e300  # replaces infinity in JSON: R-hat of chains that differ and never move
UNKNOWN_CONVERGENCE = (
    "whether the sampler has converged is unknown, because R-hat cannot be computed from one chain"
)
"""The caution of a result whose `converged` is None."""
MIN_ESS = 100  # effective sample size for each chain, as in the paper above
_DRAWS = "draws_"  # prefix of the arrays of draws in a result


@dataclass(frozen=True)
class Posterior:
    """Summaries of one kind of quantity; all arrays have its shape."""

    mean: Array
    sd: Array
    low: Array
    high: Array
    mcse_mean: Array
    mcse_sd: Array
    mcse_low: Array
    mcse_high: Array
    r_hat: Array
    ess_bulk: Array
    ess_tail: Array


def summarise(draws: Array, level: float = 0.95) -> Posterior:
    """Summarise draws of shape (draws, chains, ...): at least 4 draws of each chain."""
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(draws, tails, axis=(0, 1))

    def computed(statistic: str, **options: Any) -> Array:
        function = _of_arviz(statistic)
        with np.errstate(invalid="ignore", divide="ignore"):  # chains that never move
            return np.asarray(function(draws, chain_axis=1, draw_axis=0, **options))

    def error(method: str, **options: Any) -> Array:
        errors = computed("mcse", method=method, **options)
        return np.where(np.ptp(draws, axis=(0, 1)) > 0, errors, 0.0)

    return Posterior(
        mean=draws.mean(axis=(0, 1)),
        sd=draws.std(axis=(0, 1), ddof=1),
        low=low,
        high=high,
        mcse_mean=error("mean"),
        mcse_sd=error("sd"),
        mcse_low=error("quantile", prob=tails[0]),
        mcse_high=error("quantile", prob=tails[1]),
        r_hat=computed("rhat", method="rank"),
        ess_bulk=computed("ess", method="bulk"),
        ess_tail=computed("ess", method="tail", prob=tails),
    )


def _of_arviz(statistic: str) -> Callable[..., Any]:
    from arviz_stats.base.array import array_stats  # noqa: PLC0415  # it takes long to import

    function: Callable[..., Any] = getattr(array_stats, statistic)  # the library has no types
    return function


def chains_agree(r_hat: float | None) -> bool | None:
    """Return whether chains agree; None (unknown) if R-hat is undefined, as with one chain."""
    return None if r_hat is None else r_hat <= MAX_R_HAT


def median(draws: Array) -> tuple[Array, Array]:
    """Return the medians of draws (draws, chains, ...), and their Monte Carlo errors."""
    error = _of_arviz("mcse")(draws, method="quantile", prob=0.5, chain_axis=1, draw_axis=0)
    return np.median(draws, axis=(0, 1)), np.where(np.ptp(draws, axis=(0, 1)) > 0, error, 0.0)


def number(value: float) -> float | None:
    """Return a number for JSON: None where it is undefined."""
    return float(value) if np.isfinite(value) else None


def worst_diagnostics(posteriors: Iterable[Posterior]) -> tuple[float | None, ...]:
    """Return the largest R-hat, the smallest bulk and tail ESS, and the largest error of a PIP.

    posteriors: the quantities reported, PIPs last
    A diagnostic is None if there are too few draws or chains to compute it.
    """
    every = list(posteriors)

    def extreme(values: Sequence[Array], sign: int) -> float | None:
        flat = sign * np.concatenate([np.ravel(each) for each in values])
        flat = flat[~np.isnan(flat)]
        return sign * min(float(flat.max()), _JSON_INFINITY) if flat.size else None

    return (
        extreme([each.r_hat for each in every], 1),
        extreme([each.ess_bulk for each in every], -1),
        extreme([each.ess_tail for each in every], -1),
        extreme([every[-1].mcse_mean], 1),
    )


def sampling_warnings(
    posteriors: Mapping[str, Posterior],
    chains: int,
    names: Sequence[str],
    if_chains_disagree: str = "Increase method.rounds.",
) -> list[str]:
    """Return a warning for each kind of quantity that was sampled badly, with its worst entry.

    names: of the entries of each quantity, in its order (the last axis runs fastest)
    if_chains_disagree: what to do then
    """
    notes = []
    if chains == 1:
        notes.append(
            "One chain cannot show whether it has explored the whole posterior, and there is no "
            "R-hat. Run several (method.chains)."
        )
    for kind, posterior in posteriors.items():
        r_hat = np.where(np.isnan(posterior.r_hat), 1.0, posterior.r_hat).ravel()
        if np.max(r_hat) > MAX_R_HAT:
            notes.append(
                f"Chains disagree about {kind}: R-hat is {np.max(r_hat):.3f} for "
                f"{names[int(np.argmax(r_hat))]}, and should be at most {MAX_R_HAT}. "
                f"{if_chains_disagree}"
            )
        ess = np.fmin(posterior.ess_bulk, posterior.ess_tail).ravel()
        ess = np.where(np.isfinite(ess), ess, np.inf)
        if np.min(ess) < MIN_ESS * chains:
            notes.append(
                f"Few independent draws of {kind}: the effective sample size is "
                f"{np.min(ess):.0f} for {names[int(np.argmin(ess))]}, and should be at least "
                f"{MIN_ESS * chains}. Increase method.rounds for smaller Monte Carlo errors."
            )
    return notes


def to_arviz(result: Result) -> DataTree:
    """Return the draws of a sparse model's result in ArviZ's format: a tree with group posterior.

    result: of `secagg.run` or `secagg.runs.simulate.simulate`. For a run folder it is
        Result(json.loads(text of result.json), dict(numpy.load(arrays.npz)))
    Dimensions are chain and draw, then term for a regression, or outcome and predictor for a graph.
    The coefficient of an outcome on itself does not exist and is NaN. Variables are named as in
    arrays.npz, without "draws_".
    Raises `UsageError` if the result has no draws or arviz-base is not installed.
    """
    drawn = {key: value for key, value in result.arrays.items() if key.startswith(_DRAWS)}
    if not drawn:
        advice = "Pass the result of a sparse Bayesian model."
        raise UsageError("to_arviz", "this result has no draws", advice)
    try:
        import arviz_base  # noqa: PLC0415  # an optional extra
    except ImportError:
        advice = "pip install 'secagg[arviz]'"
        raise UsageError("to_arviz", "arviz-base is not installed", advice) from None
    summary, arrays = result.summary, result.arrays
    if "names" in summary:
        axes: dict[str, list[str]] = dict.fromkeys(("outcome", "predictor"), summary["names"])
    else:
        axes = {"term": [row["term"] for row in summary["coefficients"]]}
    variables, dims = {}, {}
    for key, value in drawn.items():
        each = value
        if "targets" in arrays:  # entries of one directed graph
            each = _as_matrices(value[:, :, 0], arrays["targets"], arrays["sources"])
        elif each.ndim == 4:  # each outcome's coefficients on all other variables
            outcomes = np.arange(len(arrays["predictors"]))[:, None]
            each = _as_matrices(value, outcomes, arrays["predictors"])
        name = key.removeprefix(_DRAWS)
        variables[name], dims[name] = np.swapaxes(each, 0, 1), list(axes)[: each.ndim - 2]
    tree: DataTree = arviz_base.from_dict({"posterior": variables}, coords=axes, dims=dims)
    return tree


def _as_matrices(draws: Array, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
    """Return draws of the entries as draws of the whole matrix, with NaN in all other entries."""
    if draws.ndim == 2:  # one number for the whole matrix
        return draws
    size = int(columns.max()) + 1
    matrices = np.full((*draws.shape[:2], size, size), np.nan)
    matrices[..., rows, columns] = draws
    return matrices
