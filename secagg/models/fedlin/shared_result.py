"""What HM2's result says of phi, which sites share.

phi is normal on an unconstrained scale, or a mixture; people read means and standard deviations. So
each of its components is told as what it is of, with the median and the interval's ends carried
over:

    mu[x]        the mean of x's coefficient over sites
    log tau[x]   exp(log tau / 2), the standard deviation of x's coefficient between sites
    log lambda   lambda; of the elastic net lambda1 and lambda2
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
_MIN_EFFECTIVE_POINTS = 50  # points: for the ends of intervals of 90 %
_LARGE_ERROR = 0.1  # of a posterior mean, in posterior standard deviations


@dataclass(frozen=True)
class Shared:
    """A component of phi: its kind ("mu", "log tau", ...), of which term, median and interval."""

    kind: str
    term: str
    mean: float
    median: float
    low: float
    high: float
    sd: float


def shared_rows(names: Sequence[str], mean: Array, sd: Array, level: float) -> list[Shared]:
    """Return q's components; a term's name may have brackets of its own."""
    reach = float(ndtri((1 + level) / 2))
    rows = []
    for name, m, s in zip(names, mean.tolist(), sd.tolist(), strict=True):
        kind, _, term = name.partition("[")
        rows.append(Shared(kind, term.removesuffix("]"), m, m, m - reach * s, m + reach * s, s))
    return rows


def importance_rows(rows: Sequence[Shared], mixture: Mixture, level: float) -> list[Shared]:
    """Return the components as weighed points have them, in place of q."""
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
    """Return the posterior by the sums at points; None, and a note, where they are no such sums."""
    try:
        return Mixture.of(prior, q, total), []
    except np.linalg.LinAlgError:
        note = (
            "The sums at the points are none of what sites' records say: a site sent something "
            "else. What sites share is told by the normal density, as without points."
        )
        return None, [note]


def importance_summary(mixture: Mixture) -> tuple[dict[str, Any], list[str]]:
    """Return how many points there were, how many count; and notes on it.

    error: the largest standard error of a mean, in posterior standard deviations; None where so few
        points count that it cannot be told
    """
    _, cov = mixture.moments()
    error = float(np.max(mixture.error() / np.sqrt(np.diagonal(cov))))
    many, few, notes = len(mixture.weights), mixture.effective < _MIN_EFFECTIVE_POINTS, []
    if few:
        notes.append(
            f"Of {many} points of log tau only {mixture.effective:.0f} count, so that the "
            "posterior of what sites share is not to be relied on. Take more method.points, or 0."
        )
    elif error > _LARGE_ERROR:
        notes.append(
            f"A mean of what sites share has a Monte Carlo error of {error:.2g} posterior "
            "standard deviations. Take more method.points."
        )
    told = {"many": many, "effective": mixture.effective, "error": None if few else error}
    return told, notes


def in_words(
    rows: Sequence[Shared], layout: Layout, centre: Array, scale: Array
) -> list[dict[str, Any]]:
    """Return the components as people read them, in the columns' own units."""
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
    """Return whether rounds ended by themselves, and what should be known of it."""
    far, errors, notes = state["far"], state["error"], []
    if state["strained"]:
        notes.append(
            f"At {state['strained']:.0f} sites the others left no density to start from, or no "
            "moments could be had. Narrower priors, or more sites, would help."
        )
    elif not state["arrived"]:
        notes.append(
            "Rounds ended before q(phi) stood still, or before every site had taken part: in the "
            f"last it was {far:.2g} posterior standard deviations from where it went. Take more "
            "method.rounds."
        )
    worst = int(np.argmax(errors))
    if errors[worst] > _LARGE_ERROR:
        notes.append(
            f"The mean of {components[worst]} has a Monte Carlo error of {errors[worst]:.2g} "
            "posterior standard deviations, from sites' own draws."
        )
    return {"converged": state["arrived"], "distance": far, "notes": notes}


def cautions(*, sites: int, weighed: bool, own_units: bool) -> list[str]:
    """Return what a reader of p(phi) should know, of the prior "normal".

    own_units: whether the columns' own units have the priors that are meant for pooled ones
    """
    notes = []
    if sites < _FEW_SITES and not weighed:
        notes.append(
            f"With fewer than {_FEW_SITES} sites intervals of what sites share are too short, by "
            "the approximation's own error; sites' own hardly are. method.points mends it, for "
            "sums that tell more."
        )
    if own_units:
        notes.append(
            "The priors of mu and tau are the method's own, and here in the columns' own units, "
            "which may be anything: set them, or take pooled units."
        )
    return notes
