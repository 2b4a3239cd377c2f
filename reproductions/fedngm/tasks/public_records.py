"""Cells of FedNGM's table 4: predictions of public records, on which no model was trained.

Chajewska and Shrivastava (2023), section 3.3. Each site's own network, and each global model, is
fitted to all records of the site or the sites.
"""

from __future__ import annotations

from reproductions.data.births import skewed
from reproductions.fedngm.tasks.models import OWN, fit
from reproductions.fedngm.tasks.records import study
from secagg.experiments.runner.types import CONVERGED, Settings


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the measures of a model; of `own`, for each site under its name.

    Settings: data (for "cdc" with file and digest), model, seed.
    """
    model, seed = str(settings["model"]), int(settings["seed"])
    of = study(settings)
    sites, public = skewed(
        of.births, seed, site_records=of.site_records, public_records=of.public_records
    )
    parts = {name: {name: table} for name, table in sites.items()}
    if model != OWN:
        parts = {model: sites}
    scores: dict[str, dict[str, float]] = {}
    for name, tables in parts.items():
        found = fit(model, of, tables, seed)
        scores[name] = of.scores(public, found.predict(public)) | {
            CONVERGED: float(found.converged)
        }
    return scores
