"""What chains of draws say, and how far to believe it.

Vehtari, Gelman, Simpson, Carpenter and Bürkner ("Rank-normalization, folding, and localization: an
improved R-hat", Bayesian Analysis 2021), as computed by the library arviz-stats. Every number that
is reported has its Monte Carlo error: what it would change by if the chains were run again.

mean, sd         of the posterior; mcse_mean, mcse_sd their Monte Carlo errors
low, high        quantiles (1 -+ level) / 2; mcse_low, mcse_high
r_hat            rank-normalised split R-hat, the larger of bulk's and the folded one
ess_bulk, ess_tail  effective sample sizes, of all chains together

A quantity whose draws are all equal has no r_hat (NaN), an ess of all draws and errors of 0; of one
chain nothing has an r_hat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.errors import UsageError

if TYPE_CHECKING:
    from xarray import DataTree


MAX_R_HAT = 1.01
_JSON_INFINITY = (
    1e300  # stands for infinity, which JSON has not: chains that never move, and differ
)
MIN_ESS = 100  # for each chain, in the paper above
_DRAWS = "draws_"  # begins the names of draws among a result's arrays


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
        function = getattr(array_stats, statistic)  # the library has no types
        with np.errstate(invalid="ignore"):  # draws that are all equal: 0 / 0
            return np.asarray(function(draws, chain_axis=1, draw_axis=0, **options))

    def error(method: str, **options: Any) -> Array:
        found = computed("mcse", method=method, **options)
        return np.where(np.ptp(draws, axis=(0, 1)) > 0, found, 0.0)

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


def median(draws: Array) -> tuple[Array, Array]:
    """Return the medians of draws (draws, chains, ...), and their Monte Carlo errors."""
    function = getattr(array_stats, "mcse")  # noqa: B009  # the library has no types
    error = function(draws, method="quantile", prob=0.5, chain_axis=1, draw_axis=0)
    return np.median(draws, axis=(0, 1)), np.where(np.ptp(draws, axis=(0, 1)) > 0, error, 0.0)


def number(value: float) -> float | None:
    """Return a number for JSON: None where it is undefined."""
    return float(value) if np.isfinite(value) else None


def worst(found: Iterable[Posterior]) -> tuple[float | None, ...]:
    """Return the largest R-hat, the least bulk and tail ESS, and the largest error of a PIP.

    found: the quantities reported, PIPs last. None where draws or chains are too few to tell.
    """
    every = list(found)

    def most(values: Sequence[Array], sign: int) -> float | None:
        flat = sign * np.concatenate([np.ravel(each) for each in values])
        flat = flat[~np.isnan(flat)]
        return sign * min(float(flat.max()), _JSON_INFINITY) if flat.size else None

    return (
        most([each.r_hat for each in every], 1),
        most([each.ess_bulk for each in every], -1),
        most([each.ess_tail for each in every], -1),
        most([every[-1].mcse_mean], 1),
    )


def complaints(found: Mapping[str, Posterior], chains: int, names: Sequence[str]) -> list[str]:
    """Return a sentence for each kind of quantity that was not sampled well, worst entry named.

    names: of the entries of each quantity, in its order (the last axis runs fastest)
    """
    notes = []
    if chains == 1:
        notes.append(
            "One chain: whether it has seen all of the posterior cannot be told, and there is no "
            "R-hat. Run several (method.chains)."
        )
    for kind, posterior in found.items():
        r_hat = np.where(np.isnan(posterior.r_hat), 1.0, posterior.r_hat).ravel()
        if np.max(r_hat) > MAX_R_HAT:
            notes.append(
                f"Chains disagree about {kind}: R-hat is {np.max(r_hat):.3f} for "
                f"{names[int(np.argmax(r_hat))]}, and at most {MAX_R_HAT} where they mix. "
                "More rounds are needed (method.rounds)."
            )
        least = np.fmin(posterior.ess_bulk, posterior.ess_tail).ravel()
        least = np.where(np.isfinite(least), least, np.inf)
        if np.min(least) < MIN_ESS * chains:
            notes.append(
                f"Few independent draws of {kind}: the effective sample size is "
                f"{np.min(least):.0f} for {names[int(np.argmin(least))]}, and "
                f"{MIN_ESS * chains} are wanted. More rounds make its Monte Carlo errors smaller "
                "(method.rounds)."
            )
    return notes


def to_arviz(result: Result) -> DataTree:
    """Return the draws of a sparse model's result as ArviZ has them: a tree with group posterior.

    result: of `secagg.run` or `secagg.runs.simulate.simulate`. Of a run folder it is
        Result(json.loads(text of result.json), dict(numpy.load(arrays.npz)))
    Dimensions are chain and draw, then term (of a regression), or outcome and predictor (of a
    graph; an outcome's own coefficient, which does not exist, is NaN). Variables are named as in
    arrays.npz, without "draws_".
    Raises `UsageError` where the result has no draws, or arviz-base is not installed.
    """
    drawn = {key: value for key, value in result.arrays.items() if key.startswith(_DRAWS)}
    if not drawn:
        mend = "Take the result of a sparse Bayesian model."
        raise UsageError("to_arviz", "this result has no draws", mend)
    try:
        import arviz_base  # noqa: PLC0415  # an optional extra
    except ImportError:
        mend = "pip install 'secagg[arviz]'"
        raise UsageError("to_arviz", "arviz-base is not installed", mend) from None
    summary, arrays = result.summary, result.arrays
    if "names" in summary:
        axes: dict[str, list[str]] = dict.fromkeys(("outcome", "predictor"), summary["names"])
    else:
        axes = {"term": [row["term"] for row in summary["coefficients"]]}
    variables, dims = {}, {}
    for key, value in drawn.items():
        each = value
        if "targets" in arrays:  # entries of one directed graph
            each = _placed(value[:, :, 0], arrays["targets"], arrays["sources"])
        elif each.ndim == 4:  # each outcome's coefficients of all others
            outcomes = np.arange(len(arrays["predictors"]))[:, None]
            each = _placed(value, outcomes, arrays["predictors"])
        name = key.removeprefix(_DRAWS)
        variables[name], dims[name] = np.swapaxes(each, 0, 1), list(axes)[: each.ndim - 2]
    tree: DataTree = arviz_base.from_dict({"posterior": variables}, coords=axes, dims=dims)
    return tree


def _placed(draws: Array, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
    """Return draws of entries as draws of the whole matrix, NaN where it has no such entry."""
    if draws.ndim == 2:  # one number for all of them
        return draws
    size = int(columns.max()) + 1
    whole = np.full((*draws.shape[:2], size, size), np.nan)
    whole[..., rows, columns] = draws
    return whole
