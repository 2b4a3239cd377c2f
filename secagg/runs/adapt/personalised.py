"""A site fits the networks of a finished run of `fedngm` or `fedngr` to its own records.

`secagg.models.neural.ngm.site_fits.personalisation` describes the fit. Only the run's folder is
read, and the site's records stay at the site.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.core.randomness import RandomBytes, system_random
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.records_to_predict import SITES
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.fitted.residuals import count_residuals
from secagg.models.neural.ngm.site_fits.personalisation import Personalised, personalised
from secagg.models.neural.torch_import import require_torch
from secagg.runs.adapt.finished_networks import FinishedNetworks, records_here
from secagg.runs.adapt.site_networks import SiteNetworks

MIN_RECORDS: Final = 10
"""Two records in each of five folds."""


def personalise(
    run: FinishedNetworks, table: pd.DataFrame, *, random: RandomBytes = system_random
) -> SiteNetworks:
    """Return the run's networks, fitted to a site's records as far as held-out records gain.

    table: like a site's file, with the columns of the model
    random: draws the folds of the cross-validation
    Raises `DataError` for a table that does not fit, or with fewer than `MIN_RECORDS` records.
    """
    require_torch(run.method.name)
    public = public_facts(run.job, SITES)
    rows = records_here(run.job, public, table, MIN_RECORDS)
    rng = np.random.default_rng(int.from_bytes(random(16), "little"))
    found = personalised(run.shared, run.theta, rows.values, rng)
    kept = found.held_out.chosen == math.inf
    arrays: dict[str, NDArray[Any]] = dict(run.arrays)
    if not kept:
        arrays |= run.shared.blocks.split(found.theta)
        if "residuals" in arrays:  # the run's are those of its own predictions
            model = FittedNgm.of(run.shared.layout, public, arrays)
            u = rows.values[:, list(run.shared.layout.chosen)]
            z = ((u - model.centre) * model.scale).T
            continuous = model.layout.continuous
            outputs = model.outputs(z)[continuous]
            arrays["residuals"] = count_residuals(z[continuous], outputs, model.sd)
    summary: dict[str, Any] = {
        "method": run.method.name,
        "names": list(run.shared.layout.names),
        "edges": [dict(edge) for edge in run.edges],
        "parameters": run.shared.blocks.size,
        "notes": list(run.notes),
        "run": {"converged": run.converged, "notes": list(run.notes)},
    }
    result = Result(summary, arrays)
    details = {"personalised": _fit_of(found)}
    return SiteNetworks(run.job, run.session, result, (), len(rows.values), rows.remarks, details)


def _fit_of(found: Personalised) -> dict[str, Any]:
    """Return how strongly the run was kept, and what that gains on held-out records.

    strength: kappa; None if the run was kept as it is
    """
    held_out = found.held_out
    gain, error = held_out.gain()
    losses = held_out.losses.mean(axis=1)
    return {
        "strength": None if held_out.chosen == math.inf else held_out.chosen,
        "loss_of_run": float(losses[0]),
        "loss": float(losses[held_out.best]),
        "gain": gain,
        "gain_error": error,
    }
