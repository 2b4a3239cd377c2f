"""Fit a finished run to a site that took no part in it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import UsageError
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.runs.adapt import fedlin, sparse_bayes
from secagg.runs.run_reader import RunFolder


def adapt(
    folder: str | Path,
    table: pd.DataFrame,
    *,
    sweeps: int = sparse_bayes.SWEEPS,
    random: RandomBytes = system_random,
) -> sparse_bayes.AdaptedSite | fedlin.NewSitePosterior:
    """Return the posterior of a site with these records, given the run in this folder.

    table: as a site's file would be, with the columns of the run's job; may be empty
    sweeps: of the sampler of a sparse regression, for each draw
    Raises `UsageError` for what is not a finished run of a method that goes to a new site,
    `EvidenceError` for a folder that is not as secagg writes it, `DataError` for a table that does
    not fit.
    """
    run = RunFolder.open_finished(folder)
    match run.method:
        case SparseRegression():
            finished = sparse_bayes.FinishedSparseRun.read(run)
            return sparse_bayes.adapt(finished, table, sweeps=sweeps, random=random)
        case FedLinHm2():
            return fedlin.fit_new_site(fedlin.FinishedHm2Run.read(run), table, random=random)
        case other:
            what = f"is a run of {other.name!r}"
            advice = f"Only {SparseRegression.name!r} and {FedLinHm2.name!r} go to a new site."
            raise UsageError(str(folder), what, advice)
