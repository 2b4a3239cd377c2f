"""Results that all FedLin methods share: coefficients over sites, and errors of predictions.

The coordinator's result has means and standard deviations of coefficients over sites with records,
computed from sums. A site's own result has its coefficients and its own least squares. Prediction
errors are root mean squares in the outcome's unit. They are computed over all records, and for each
site and then averaged over sites (`mean_site_rmse`, the paper's A-RMSE). Under noise once at the
site, `secagg.models.fedlin.noise_in_results` says what these numbers mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from secagg.contracts import PublicFacts, Result, State
from secagg.models.fedlin.base import FedLinModel
from secagg.models.fedlin.descriptions import MEAN_ONLY, SITE_OLS
from secagg.models.fedlin.design import INTERCEPT, Layout
from secagg.models.fedlin.final_sum import FEW_SITES
from secagg.models.fedlin.noise_in_results import noise_facts
from secagg.models.fedlin.site import Site

SCHEMA = 2
"""Version of the keys of FedLin's results; version 1 had `separate`, `nothing`, `rmse_sites`."""
_WARN_CHANGE = 0.01  # relative change in the last round, or still to come
_MAX_REMAINING_SHARE = 0.995  # larger estimates are reported as "100 % or more"


def summary(method: FedLinModel, state: State, public: PublicFacts) -> dict[str, Any]:
    """Return the part of the result that all methods share."""
    layout, total = method.layout(public), state["finished"]
    sites = round(float(total["with_records"][0]))
    mean = total["coefficients"] / sites
    sd: list[float | None] = [None] * layout.d
    if "squares" in total and sites > FEW_SITES:
        variance = (total["squares"] - sites * mean**2) / (sites - 1)
        sd = np.sqrt(np.maximum(variance, 0.0)).tolist()
    factor = layout.slope_units(state["scale"])
    first = layout.d - len(factor)
    rows: list[dict[str, Any]] = []
    for j, term in enumerate(layout.terms):
        row: dict[str, Any] = {"term": term, "mean": float(mean[j]), "sd": sd[j]}
        if j >= first:
            unit = float(factor[j - first])
            spread = sd[j]
            own_sd = None if spread is None else unit * spread
            row["own_units"] = {"mean": unit * row["mean"], "sd": own_sd}
        rows.append(row)
    errors = _errors(method, state)
    deviation = {}
    if method.link.linear:
        deviation["outcome_deviation"] = float(state["half"] / state["scale"][0])
    telling = {"sites_telling_noise": state["telling"]} if "telling" in state else {}
    return {
        "schema": SCHEMA,
        "method": f"fedlin-{method.short}",
        "outcome": method.outcome,
        "training_records": state["records"],  # a run adds "records", of all
        "sites": state["sites"],
        "sites_with_records": sites,
        **telling,
        "units": method.scale,
        "intercept": method.intercept,
        **deviation,
        "across_sites": rows,
        "errors": errors,
        **noise_facts(method, state, public, errors),
        "noise_sd": float(np.sqrt(state["noise"]) * state["half"]) if method.needs_noise else None,
        "notes": _of_levels(method, layout, public),
    }


def joined(found: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Return both summaries in one dictionary, with the notes of both."""
    return {**found, **added, "notes": [*found["notes"], *added["notes"]]}


def _of_levels(method: FedLinModel, layout: Layout, public: PublicFacts) -> list[str]:
    """Return a note for an outcome that is 0 or 1."""
    if not (public.variables[layout.columns[0]].indicator and method.link.linear):
        return []
    return [
        f"The outcome {method.outcome!r} is 0 or 1: its regression is a linear probability model, "
        "whose predictions may be below 0 or above 1. For one model of all sites, use method "
        "logistic, which has odds ratios."
    ]


def convergence(state: State, tolerance: float, patience: int, more: str) -> dict[str, Any]:
    """Return the number of rounds, and whether the coefficients converged.

    Without a tolerance, the result has no key "converged". If each round changes little, a small
    change does not show convergence. So "remaining" is the method's estimate of the change still to
    come; None if the method has no estimate. No result with "converged" has a note that it is not.

    more: advice, the settings that continue the search
    """
    change, remaining, notes = state["change"], state["remaining"], list[str]()
    ending: dict[str, Any] = {"rounds": state["round"], "change": change, "remaining": remaining}
    rests = tolerance > 0 and state["quiet"] >= patience
    short = remaining is not None and remaining > _WARN_CHANGE
    if remaining is not None and short:
        share = (
            f"about {_percent(remaining)}" if remaining < _MAX_REMAINING_SHARE else "100 % or more"
        )
        notes.append(
            f"The rounds ended before the coefficients converged: judging by the last changes, "
            f"{share} of their size was still to come. "
            f"Take {'a smaller method.tolerance' if rests else more}."
        )
    elif not rests and (tolerance > 0 or change is None or change > _WARN_CHANGE):
        by = "" if change is None else f" by {_percent(change)}"
        notes.append(
            f"The rounds ended while coefficients still changed{by} in a round. Take more "
            "method.rounds."
        )
    return {**ending, "notes": notes} | (
        {"converged": rests and not short} if tolerance > 0 else {}
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < _MAX_REMAINING_SHARE else f"{100 * share:.0f} %"


def explained(errors: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the variation that the method explains, divided by that of least squares.

    errors: those of the result. Returns None if least squares explain nothing.
    """
    squares = {row["model"]: row["training_rmse"] ** 2 for row in errors}
    most = squares[MEAN_ONLY] - squares[SITE_OLS]
    own = squares[MEAN_ONLY] - squares[errors[0]["model"]]
    return float(own / most) if most > 0 else None


def _errors(method: FedLinModel, state: State) -> list[dict[str, Any]]:
    total, half = state["finished"], state["half"]
    found = []
    for i, model in enumerate(method.models):
        row: dict[str, Any] = {"model": model}
        row["training_rmse"] = float(half * np.sqrt(total["training"][i] / state["records"]))
        if method.holdout:
            held, sites = total["held"].tolist()
            row["held_rmse"] = row["mean_site_rmse"] = None
            if held:
                row["held_rmse"] = float(half * np.sqrt(total["held_squares"][i] / held))
                row["mean_site_rmse"] = float(half * total["held_rmse"][i] / sites)
        found.append(row)
    return found


def own_summary(method: FedLinModel, memory: State, public: PublicFacts) -> Result | None:
    """Return a site's own coefficients in the columns' units; None before the end of the run."""
    if "errors" not in memory:
        return None
    layout, facts = method.layout(public), memory["facts"]
    site, errors = Site.read(memory["site"]), memory["errors"]
    centre, scale = facts["centre"], facts["scale"]
    half, held_out = float(layout.half_range[0]), errors.get("held_here", 0)
    fitted = dict(zip(method.models[:2], method.fitted(site, memory["own"]), strict=False))
    units = {
        name: layout.in_own_units(theta, centre, scale, site.level)
        for name, theta in fitted.items()
    }
    slopes = [term for term in layout.terms if term != INTERCEPT]
    rows = [
        {"term": term, **{name: float(values[j]) for name, values in units.items()}}
        for j, term in enumerate([INTERCEPT, *slopes])
    ]
    error_rows: list[dict[str, Any]] = []
    for i, model in enumerate(method.models):
        row: dict[str, Any] = {"model": model}
        row["training_rmse"] = _rmse(errors["training"][i], errors["here"], half)
        if "held" in errors:
            row["held_rmse"] = _rmse(errors["held"][i], held_out, half)
        error_rows.append(row)
    notes = ["Coefficients are in the columns' own units."]
    if layout.degree > 1:
        notes = [f"Powers are of {layout.names[1]!r} from 0 to 1 over its public bounds."]
    if site.rank < layout.d and SITE_OLS in fitted:
        notes.append(
            "The records of this site do not determine all coefficients: site_ols is one of many "
            "fits."
        )
    return Result(
        {
            "schema": SCHEMA,
            "outcome": method.outcome,
            "records_here": site.records + held_out,
            "learned_from": site.records,
            "held_here": held_out,
            "notes": notes,
            "coefficients": rows,
            "errors": error_rows,
        }
    )


def _rmse(squares: float, count: int, half: float) -> float | None:
    return float(half * np.sqrt(squares / count)) if count else None
