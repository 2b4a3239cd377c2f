"""The part of HM2's result that describes phi, the parameters that sites share.

phi has a normal density on an unconstrained scale, or a mixture. Each component is reported as a
mean or a standard deviation, with the median and the ends of the interval transformed:

    mu[x]        the mean of x's coefficient over sites
    log tau[x]   exp(log tau / 2), the standard deviation of x's coefficient between sites
    log lambda   lambda; for the elastic net, lambda1 and lambda2
    log sigma^2  exp(log sigma^2 / 2), the standard deviation of the noise
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from secagg.contracts import State, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.design import INTERCEPT, Layout
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.posterior.importance_points import Mixture
from secagg.models.numerics.natural_gaussian import Natural

_FEW_SITES = 15
_MIN_EFFECTIVE_POINTS = 50  # effective sample size, for the ends of 90 % intervals
_LARGE_ERROR = 0.1  # Monte Carlo error of a posterior mean, in posterior standard deviations


@dataclass(frozen=True)
class Shared:
    """A component of phi: its kind ("mu", "log tau", ...), its term, median and interval."""

    kind: str
    term: str
    mean: float
    median: float
    low: float
    high: float
    sd: float


def shared_rows(names: Sequence[str], mean: Array, sd: Array, level: float) -> list[Shared]:
    """Return the components of phi under q. A term's name may contain brackets."""
    reach = float(ndtri((1 + level) / 2))
    rows = []
    for name, m, s in zip(names, mean.tolist(), sd.tolist(), strict=True):
        kind, _, term = name.partition("[")
        rows.append(Shared(kind, term.removesuffix("]"), m, m, m - reach * s, m + reach * s, s))
    return rows


def importance_rows(rows: Sequence[Shared], mixture: Mixture, level: float) -> list[Shared]:
    """Return the components of phi by importance sampling, instead of those under q."""
    mean, cov = mixture.moments()
    shares = (0.5, (1 - level) / 2, (1 + level) / 2)
    found = []
    for j, (row, m, s) in enumerate(
        zip(rows, mean.tolist(), np.sqrt(np.diagonal(cov)).tolist(), strict=True)
    ):
        median, low, high = (mixture.quantile(j, share) for share in shares)
        found.append(Shared(row.kind, row.term, m, median, low, high, s))
    return found


def importance_weighted(
    prior: NormalHierarchy, q: Natural, total: Update
) -> tuple[Mixture | None, list[str]]:
    """Return the posterior from the sums at the points; None and a note if they are invalid."""
    try:
        return Mixture.of(prior, q, total), []
    except np.linalg.LinAlgError:
        note = (
            "The sums at the points are invalid: a site sent something other than its likelihood. "
            "The shared parameters are reported by the normal approximation, as without points."
        )
        return None, [note]


def importance_summary(mixture: Mixture) -> tuple[dict[str, Any], list[str]]:
    """Return the number of points, the effective sample size and the error; and notes.

    error: the largest standard error of a mean, in posterior standard deviations; None if the
        effective sample size is too small to estimate it
    """
    _, cov = mixture.moments()
    error = float(np.max(mixture.error() / np.sqrt(np.diagonal(cov))))
    points, too_few, notes = len(mixture.weights), mixture.effective < _MIN_EFFECTIVE_POINTS, []
    if too_few:
        notes.append(
            f"The effective sample size of {points} points of log tau is only "
            f"{mixture.effective:.0f}: do not rely on the posterior of the shared parameters. Take "
            "more method.points, or 0."
        )
    elif error > _LARGE_ERROR:
        notes.append(
            f"The mean of a shared parameter has a Monte Carlo error of {error:.2g} posterior "
            "standard deviations. Take more method.points."
        )
    told = {"many": points, "effective": mixture.effective, "error": None if too_few else error}
    return told, notes


def in_words(
    rows: Sequence[Shared], layout: Layout, centre: Array, scale: Array
) -> list[dict[str, Any]]:
    """Return the components as means and standard deviations, in the columns' own units."""
    unit = float(layout.half_range[0] / scale[0])
    slopes = layout.slope_units(scale)
    units = dict(zip(layout.terms[layout.d - len(slopes) :], slopes.tolist(), strict=True))
    units[INTERCEPT] = unit
    start = float(layout.midpoint[0] + layout.half_range[0] * centre[0])
    found = []
    for row in rows:
        ends = np.array([row.median, row.low, row.high])
        match row.kind:
            case "mu" if row.term == INTERCEPT:
                name, ends = "mean intercept, at the predictors' origin", start + unit * ends
            case "mu":
                name, ends = f"mean of {row.term} over sites", units[row.term] * ends
            case "log tau":
                name, ends = f"sd of {row.term} between sites", units[row.term] * np.exp(ends / 2)
            case "log sigma^2":
                name, ends = "sd of the noise", unit * np.exp(ends / 2)
            case _:
                name, ends = row.kind.removeprefix("log "), np.exp(ends)
        component = f"{row.kind}[{row.term}]" if row.term else row.kind
        estimate, low, high = ends.tolist()
        found.append(
            {
                "name": name,
                "estimate": estimate,
                "low": low,
                "high": high,
                "component": component,
                "mean": row.mean,
                "sd": row.sd,
            }
        )
    return found


def converged(state: State, components: Sequence[str]) -> dict[str, Any]:
    """Return whether the rounds converged, and notes."""
    far, errors, notes = state["far"], state["error"], []
    if state["strained"]:
        notes.append(
            f"At {state['strained']:.0f} sites the cavity was no density, or the moments could "
            "not be computed. Narrower priors or more sites would help."
        )
    elif not state["arrived"]:
        notes.append(
            "The rounds ended before q(phi) converged, or before every site had taken part: in "
            f"the last round it was {far:.2g} posterior standard deviations from convergence. Take "
            "more method.rounds."
        )
    worst = int(np.argmax(errors))
    if errors[worst] > _LARGE_ERROR:
        notes.append(
            f"The mean of {components[worst]} has a Monte Carlo error of {errors[worst]:.2g} "
            "posterior standard deviations, because the sites draw at random."
        )
    return {"converged": state["arrived"], "distance": far, "notes": notes}


def cautions(sites: int, *, weighed: bool, own_units: bool, noisy: bool) -> list[str]:
    """Return cautions for readers of p(phi) with the prior "normal".

    noisy: whether sites have noise in their moments, which `points` does not know
    own_units: whether priors meant for pooled units are used in the columns' own units
    """
    notes = []
    if sites < _FEW_SITES and not weighed:
        advice = " method.points corrects this, but its sums reveal more."
        notes.append(
            f"With fewer than {_FEW_SITES} sites the normal approximation makes the intervals of "
            f"shared parameters too short, and those of the sites hardly.{'' if noisy else advice}"
        )
    if own_units:
        notes.append(
            "The priors of mu and tau are the defaults, which are meant for pooled units, but the "
            "columns are in their own units. Set the priors, or take pooled units."
        )
    return notes
