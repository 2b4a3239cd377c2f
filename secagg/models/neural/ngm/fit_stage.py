"""The last sum of a neural graphical model: how the predictions of its networks agree with records.

For each continuous column: how many records have which residual (equation 4 of
`secagg.models.neural.ngm.fitted.residuals`), so that samples have the spread and skewness of the
records. For each level but the first of a column with levels: of the records whose predicted
probability of the level is in a tenth of [0, 1], how many there are, and how many have the level.

Counts below `MIN_SHOWN` describe few persons, so the result does not have them: those of residuals
are merged with their neighbours, others are set to 0. The coordinator sees them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, Update
from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.fitted.residuals import SHAPE, count_residuals, merged
from secagg.models.neural.ngm.layout import NgmLayout

FIT: Final = "fit"
TENTHS: Final = 10
MIN_SHOWN: Final = 5


def fit_fields(layout: NgmLayout, rows: float) -> tuple[Field, ...]:
    """Declare the counts. rows: the largest number of records at a site."""
    levels = (layout.variables - len(layout.continuous), TENTHS)
    return (
        Field("residuals", (len(layout.continuous), *SHAPE), rows, 0, Kind.COUNT),
        Field("predicted", levels, rows, 0, Kind.COUNT),
        Field("observed", levels, rows, 0, Kind.COUNT),
    )


def fit_counts(model: FittedNgm, u: Array) -> Update:
    """Return a site's counts. u: the model's variables, scaled, shape (records, variables)."""
    z = ((u - model.centre) * model.scale).T
    outputs, continuous = model.outputs(z), model.layout.continuous
    predicted: list[NDArray[Any]] = []
    observed: list[NDArray[Any]] = []
    for column in model.layout.columns:
        if not column.indicator:
            continue
        positions = list(column.positions)
        logits = np.vstack([np.zeros(len(u)), outputs[positions]])
        shares = np.exp(logits - logits.max(axis=0))
        for position, share in zip(positions, shares[1:] / shares.sum(axis=0), strict=True):
            tenth = np.minimum((share * TENTHS).astype(np.intp), TENTHS - 1)
            predicted.append(np.bincount(tenth, minlength=TENTHS))
            has_level = (u[:, position] > 0).astype(float)
            observed.append(np.bincount(tenth, has_level, minlength=TENTHS))
    return {
        "residuals": count_residuals(z[continuous], outputs[continuous], model.sd),
        "predicted": np.reshape(predicted, (-1, TENTHS)).astype(np.float64),
        "observed": np.reshape(observed, (-1, TENTHS)).astype(np.float64),
    }


def shown(total: Update) -> Update:
    """Return the counts without those below `MIN_SHOWN`."""
    large = {name: np.where(n < MIN_SHOWN, 0.0, n) for name, n in total.items()}
    return large | {"residuals": merged(total["residuals"], MIN_SHOWN)}


def calibration(model: FittedNgm, predicted: Array, observed: Array) -> list[dict[str, Any]]:
    """Return for each level its tenths: middle of the probability, records, share with the level.

    A tenth is left out if fewer than `MIN_SHOWN` records are in it, have the level, or lack it.
    """
    named = [v.name for v in model.variables if v.indicator]
    found: list[dict[str, Any]] = []
    for name, n, k in zip(named, predicted, observed, strict=True):
        kept = (n >= MIN_SHOWN) & (k >= MIN_SHOWN) & (n - k >= MIN_SHOWN)
        tenths = [
            {"probability": (t + 0.5) / TENTHS, "records": int(n[t]), "share": float(k[t] / n[t])}
            for t in np.flatnonzero(kept)
        ]
        found.append({"variable": name, "tenths": tenths})
    return found
