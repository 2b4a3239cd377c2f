"""Fit a finished run to a site that took no part in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.runs.adapt import fedlin, sparse_bayes
from secagg.runs.adapt.own_columns import read_own_columns

if TYPE_CHECKING:
    from secagg.runs.adapt.stitched import StitchedSite


def adapt(
    folder: str | Path,
    table: pd.DataFrame,
    *,
    columns: Mapping[str, Any] | str | Path | None = None,
    sweeps: int = sparse_bayes.SWEEPS,
    random: RandomBytes = system_random,
) -> sparse_bayes.AdaptedSite | fedlin.NewSitePosterior | StitchedSite:
    """Return what the run in this folder and a site's records say together.

    After a regression, the posterior of a new site; after `fedngm`, the model of the run's columns
    and the site's own.

    table: like a site's file, with the columns of the run's job; after a regression, may be empty
    columns: after `fedngm`, the site's own columns: a TOML file, or a mapping like it
    sweeps: of the sampler of a sparse regression, for each draw
    Raises `UsageError` for an unfinished run or a method that does not support new sites,
    `EvidenceError` for a malformed folder, `DataError` for a table that does not fit.
    """
    run = RunFolder.open_finished(folder)
    if isinstance(run.method, FedNgm):
        if columns is None:
            advice = "Name a file that declares them: --columns FILE."
            raise UsageError(str(folder), "is a run of 'fedngm', which needs new columns", advice)
        from secagg.runs.adapt import stitched  # noqa: PLC0415  # with networkx, for these runs only

        networks = stitched.FinishedNetworks.read(run)
        return stitched.stitch(networks, table, read_own_columns(columns), random=random)
    if columns is not None:
        what = f"is a run of {run.method.name!r}, to which no column can be added"
        raise UsageError(str(folder), what, f"Columns can be added to runs of {FedNgm.name!r}.")
    match run.method:
        case SparseRegression():
            finished = sparse_bayes.FinishedSparseRun.read(run)
            return sparse_bayes.adapt(finished, table, sweeps=sweeps, random=random)
        case FedLinHm2():
            return fedlin.fit_new_site(fedlin.FinishedHm2Run.read(run), table, random=random)
        case other:
            what = f"is a run of {other.name!r}"
            names = f"{SparseRegression.name!r}, {FedLinHm2.name!r} and {FedNgm.name!r}"
            advice = f"Only {names} support new sites."
            raise UsageError(str(folder), what, advice)
