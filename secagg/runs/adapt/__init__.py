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

    table: like a site's file, with the columns of the run's job; may be empty
    sweeps: of the sampler of a sparse regression, for each draw
    Raises `UsageError` for an unfinished run or a method that does not support new sites,
    `EvidenceError` for a malformed folder, `DataError` for a table that does not fit.
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
            advice = f"Only {SparseRegression.name!r} and {FedLinHm2.name!r} support new sites."
            raise UsageError(str(folder), what, advice)
