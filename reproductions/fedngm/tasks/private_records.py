"""Cells of FedNGM's tables 2 and 3: predictions of the sites' own records.

Chajewska and Shrivastava (2023), section 3.3. The paper tests a site's own network by five-fold
cross-validation, and the global one on all of a site's records, on which the sites' networks were
trained. Here both are cross-validated on the same folds: for each fold, every site leaves its
records of the fold out, so no model has seen the records that it is tested on. A model "NAME-whole"
is tested as in the paper: it was fitted to all records.

Each measure is the mean of its values in the five folds, also for "NAME-whole", because a fold has
few records and some measures depend on their number. The folds have equal shares of the event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproductions.data.births import skewed
from reproductions.fedngm.tasks.models import OWN, Fit, fit
from reproductions.fedngm.tasks.records import Study, study
from secagg.experiments.runner.types import CONVERGED, Settings

FOLDS = 5
WHOLE = "-whole"

Sites = Mapping[str, pd.DataFrame]
Folds = Mapping[str, NDArray[np.intp]]


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the measures of one model at each site, under "MODEL 1", "MODEL 2", "MODEL 3".

    Settings: data (for "cdc" with file and digest), model, seed.
    """
    model, seed = str(settings["model"]), int(settings["seed"])
    of = study(settings)
    sites, _ = skewed(
        of.births, seed, site_records=of.site_records, public_records=of.public_records
    )
    folds = folds_of(of, sites, seed)
    scores: dict[str, dict[str, float]] = {}
    for group in [[name] for name in sites] if model == OWN else [list(sites)]:
        tables = {name: sites[name] for name in group}
        if model.endswith(WHOLE):
            fits = [fit(model.removesuffix(WHOLE), of, tables, seed)] * FOLDS
        else:
            fits = [fit(model, of, _without(tables, folds, i), seed) for i in range(FOLDS)]
        scores |= {name: _scored(of, table, folds[name], fits) for name, table in tables.items()}
    return {f"{model} {number}": scores[name] for number, name in enumerate(sites, 1)}


def folds_of(of: Study, sites: Sites, seed: int) -> dict[str, NDArray[np.intp]]:
    """Return the fold of each record of each site; the same for every model."""
    folds = {}
    for number, (name, table) in enumerate(sites.items()):
        order = np.random.default_rng([seed, number]).permutation(len(table))
        order = order[np.argsort(of.events(table)[order], kind="stable")]
        folds[name] = np.empty(len(table), dtype=np.intp)
        folds[name][order] = np.arange(len(table)) % FOLDS
    return folds


def _without(sites: Sites, folds: Folds, fold: int) -> dict[str, pd.DataFrame]:
    return {name: table[folds[name] != fold] for name, table in sites.items()}


def _scored(
    of: Study, table: pd.DataFrame, folds: NDArray[np.intp], fits: Sequence[Fit]
) -> dict[str, float]:
    """Return the means over folds; of a measure that is undefined in some folds, over the others.

    fits: the one that predicts each fold
    """
    by_measure: dict[str, list[float]] = {CONVERGED: [min(float(f.converged) for f in fits)]}
    for fold, fitted in enumerate(fits):
        part = table[folds == fold]
        for measure, value in of.scores(part, fitted.predict(part)).items():
            by_measure.setdefault(measure, []).append(value)
    return {measure: float(np.mean(values)) for measure, values in by_measure.items()}
