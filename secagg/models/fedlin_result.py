"""What the results of all FedLin methods say: coefficients over sites, and errors of predictions.

The coordinator's has means and standard deviations over sites with records, which are sums; each
site's own has its coefficients, beside its own least squares. Errors are root mean squares in the
outcome's unit: over all records, and (`rmse_sites`, the paper's A-RMSE) the mean over sites of each
site's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Public, Result, State
from secagg.models.fedlin_ending import FEW
from secagg.models.fedlin_model import FedLinModel
from secagg.models.fedlin_site import Site
from secagg.models.regression_layout import INTERCEPT

Array = NDArray[np.float64]

_MUCH = 0.01  # of a change in the last round


def summary(method: FedLinModel, state: State, public: Public) -> dict[str, Any]:
    """Return what every method's result begins with."""
    layout, total = method.layout(public), state["finished"]
    here = round(float(total["with_records"][0]))
    mean = total["coefficients"] / here
    sd: list[float | None] = [None] * layout.d
    if "squares" in total and here > FEW:
        variance = (total["squares"] - here * mean**2) / (here - 1)
        sd = np.sqrt(np.maximum(variance, 0.0)).tolist()
    factor = layout.slope_units(state["scale"])
    first = layout.d - len(factor)
    rows: list[dict[str, Any]] = []
    for j, term in enumerate(layout.terms):
        row: dict[str, Any] = {"term": term, "mean": float(mean[j]), "sd": sd[j]}
        if j >= first:
            unit = float(factor[j - first])
            apart = sd[j]
            own = None if apart is None else unit * apart
            row["own_units"] = {"mean": unit * row["mean"], "sd": own}
        rows.append(row)
    return {
        "method": f"fedlin-{method.short}",
        "outcome": method.outcome,
        "training_records": state["records"],  # a run adds "records", of all
        "sites": state["sites"],
        "sites_with_records": here,
        "units": method.scale,
        "intercept": method.intercept,
        "outcome_deviation": float(state["half"] / state["scale"][0]),
        "across_sites": rows,
        "errors": _errors(method, state),
        "noise_sd": float(np.sqrt(state["noise"]) * state["half"]) if method.needs_noise else None,
        "notes": [],
    }


def rounds_told(state: State, tolerance: float, patience: int) -> dict[str, Any]:
    """Return how many rounds there were, and whether coefficients had come to rest.

    Without a tolerance nothing is claimed of that, and "converged" left out.
    """
    change, notes = state["change"], list[str]()
    told: dict[str, Any] = {"rounds": state["round"], "change": change, "notes": notes}
    rests = tolerance > 0 and state["quiet"] >= patience
    if not rests and (tolerance > 0 or change is None or change > _MUCH):
        by = "" if change is None else f" by {100 * change:.2g} %"
        notes.append(
            f"Rounds ended while coefficients still changed{by} in a round: more method.rounds "
            "would change them further."
        )
    return told | ({"converged": rests} if tolerance > 0 else {})


def _errors(method: FedLinModel, state: State) -> list[dict[str, Any]]:
    total, half = state["finished"], state["half"]
    found = []
    for i, model in enumerate(method.models):
        row: dict[str, Any] = {"model": model}
        row["training_rmse"] = float(half * np.sqrt(total["training"][i] / state["records"]))
        if method.holdout:
            held, sites = total["held"].tolist()
            row["held_rmse"] = row["rmse_sites"] = None
            if held:
                row["held_rmse"] = float(half * np.sqrt(total["held_squares"][i] / held))
                row["rmse_sites"] = float(half * total["held_rmse"][i] / sites)
        found.append(row)
    return found


def own_summary(method: FedLinModel, memory: State, public: Public) -> Result | None:
    """Return a site's own coefficients in the columns' units, once the run is at its end."""
    if "errors" not in memory:
        return None
    layout, facts = method.layout(public), memory["facts"]
    site, errors = Site.read(memory["site"]), memory["errors"]
    centre, scale = facts["centre"], facts["scale"]
    half, held = float(layout.half[0]), errors.get("held_here", 0)
    fitted = {method.short: memory["own"]["theta"], "separate": site.separate}
    units = {
        name: layout.in_own_units(theta, centre, scale, site.level)
        for name, theta in fitted.items()
    }
    slopes = [term for term in layout.terms if term != INTERCEPT]
    rows = [
        {"term": term, **{name: float(values[j]) for name, values in units.items()}}
        for j, term in enumerate([INTERCEPT, *slopes])
    ]
    told: list[dict[str, Any]] = []
    for i, model in enumerate(method.models):
        row: dict[str, Any] = {"model": model}
        row["training_rmse"] = _rmse(errors["training"][i], errors["here"], half)
        if "held" in errors:
            row["held_rmse"] = _rmse(errors["held"][i], held, half)
        told.append(row)
    notes = ["Coefficients are in the columns' own units."]
    if layout.degree > 1:
        notes = [f"Powers are of {layout.names[1]!r} from 0 to 1 over its public bounds."]
    if site.rank < layout.d:
        notes.append("The records here do not tell all coefficients: separate is one fit of many.")
    return Result(
        {
            "outcome": method.outcome,
            "records_here": site.here + held,
            "learned_from": site.here,
            "held_here": held,
            "notes": notes,
            "coefficients": rows,
            "errors": told,
        }
    )


def _rmse(squares: float, many: int, half: float) -> float | None:
    return float(half * np.sqrt(squares / many)) if many else None
