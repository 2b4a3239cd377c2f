"""What HM2's results say: the posterior of what sites share, and a site's own.

phi is normal on an unconstrained scale; people read means and standard deviations. So each of its
components is told as what it is of, with the median and the interval's ends carried over:

    mu[x]        the mean of x's coefficient over sites
    log tau[x]   exp(log tau / 2), the standard deviation of x's coefficient between sites
    log lambda   lambda; of the elastic net lambda1 and lambda2
    log sigma^2  exp(log sigma^2 / 2), the standard deviation of the noise

A site's own posterior is of draws; equation numbers are those of Yue, Al Kontar and Estrada Gomez
(2022). The intercept that a site took off is drawn for these: given theta_k and sigma_k^2 it is
N(mean of y - theta_k' mean of x, sigma_k^2 / n_k), by its flat prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from secagg.contracts import State
from secagg.models.fedlin_round import Round
from secagg.models.fedlin_site import Site
from secagg.models.regression_layout import INTERCEPT, Layout, Level
from secagg.models.selection import select

Array = NDArray[np.float64]

_LARGE_ERROR = 0.1  # of a posterior mean, in posterior standard deviations


@dataclass(frozen=True)
class Shared:
    """A component of phi: its kind ("mu", "log tau", ...), of which term, estimate and interval."""

    kind: str
    term: str
    estimate: float
    low: float
    high: float
    sd: float


def shared_rows(names: Sequence[str], mean: Array, sd: Array, level: float) -> list[Shared]:
    """Return q's components; a term's name may have brackets of its own."""
    reach = float(ndtri((1 + level) / 2))
    rows = []
    for name, m, s in zip(names, mean.tolist(), sd.tolist(), strict=True):
        kind, _, term = name.partition("[")
        rows.append(Shared(kind, term.removesuffix("]"), m, m - reach * s, m + reach * s, s))
    return rows


def in_words(
    rows: Sequence[Shared], layout: Layout, centre: Array, scale: Array
) -> list[dict[str, Any]]:
    """Return the components as people read them, in the columns' own units."""
    unit = float(layout.half[0] / scale[0])
    slopes = layout.slope_units(scale)
    units = dict(zip(layout.terms[layout.d - len(slopes) :], slopes.tolist(), strict=True))
    units[INTERCEPT] = unit
    start = float(layout.middle[0] + layout.half[0] * centre[0])
    found = []
    for row in rows:
        ends = np.array([row.estimate, row.low, row.high])
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
                "mean": row.estimate,
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


def drawn_level(layout: Layout, site: Site, variance: Array, rng: np.random.Generator) -> Level:
    """Return the site's level with its own intercept drawn, one for each variance of the noise."""
    y: Array = np.full(len(variance), site.level.y)
    if layout.intercept == "site" and site.here:
        y = y + np.sqrt(variance / site.here) * rng.standard_normal(len(variance))
    return Level(site.level.x, y)


def site_posterior(
    theta: Array, variance: Array, site: Site, now: Round, level: float, rope: float
) -> dict[str, Array]:
    """Return mean, sd, interval and selection of intercept and slopes, in own units.

    theta: draws (draws, d); variance: of the noise, (draws,), in the units analysed
    """
    layout = now.layout
    at = drawn_level(layout, site, variance, now.rng)
    draws = layout.in_own_units(theta, now.centre, now.scale, at)
    own, analysed = select(draws, level), select(theta, level, rope)
    told = {
        "mean": own.mean,
        "sd": own.sd,
        "low": own.low,
        "high": own.high,
        "mcse_mean": own.mcse_mean,
        "mcse_low": own.mcse_low,
        "mcse_high": own.mcse_high,
        "included": own.included.astype(np.float64),
        "doubtful": own.doubtful.astype(np.float64),
        "direction": own.direction,
    }
    first = len(own.included) - len(analysed.null)  # there is an intercept, or its place
    return told | {"null": np.concatenate([np.full(first, np.nan), analysed.null])}
