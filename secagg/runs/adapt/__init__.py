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
from secagg.models.neural.ngm.revealer import FedNgr
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.runs.adapt import fedlin, sparse_bayes
from secagg.runs.adapt.own_columns import read_own_columns

if TYPE_CHECKING:
    from secagg.runs.adapt.site_networks import SiteNetworks


_WITH_NETWORKS = (FedNgm, FedNgr)


def gives_networks(folder: str | Path) -> bool:
    """Return whether `adapt` returns networks for the run in this folder. Raises as `adapt`."""
    return isinstance(RunFolder.open_finished(folder).method, _WITH_NETWORKS)


def adapt(
    folder: str | Path,
    table: pd.DataFrame,
    *,
    columns: Mapping[str, Any] | str | Path | None = None,
    sweeps: int = sparse_bayes.SWEEPS,
    random: RandomBytes = system_random,
) -> sparse_bayes.AdaptedSite | fedlin.NewSitePosterior | SiteNetworks:
    """Return what the run in this folder and a site's records say together.

    After a regression, the posterior of a new site. After `fedngm` and `fedngr`, the run's networks
    fitted to the site's records; or, with `columns`, with networks of the site's own columns.

    table: like a site's file, with the columns of the run's job; after a regression, may be empty
    columns: after `fedngm` and `fedngr`, the site's own columns: a TOML file, a mapping like it,
        or "job" for those that the job declares in `[partial]`
    sweeps: of the sampler of a sparse regression, for each draw
    Raises `UsageError` for an unfinished run or a method that does not support new sites,
    `EvidenceError` for a malformed folder, `DataError` for a table that does not fit.
    """
    run = RunFolder.open_finished(folder)
    if isinstance(run.method, _WITH_NETWORKS):
        # With networkx, for these runs only.
        from secagg.runs.adapt import finished_networks, personalised, stitched  # noqa: PLC0415

        networks = finished_networks.FinishedNetworks.read(run)
        if columns is None:
            return personalised.personalise(networks, table, random=random)
        own = read_own_columns(columns, run.job, list(map(str, table.columns)))
        return stitched.stitch(networks, table, own, random=random)
    if columns is not None:
        what = f"is a run of {run.method.name!r}, to which no column can be added"
        advice = f"Columns can be added to runs of {FedNgm.name!r} and {FedNgr.name!r}."
        raise UsageError(str(folder), what, advice)
    match run.method:
        case SparseRegression():
            finished = sparse_bayes.FinishedSparseRun.read(run)
            return sparse_bayes.adapt(finished, table, sweeps=sweeps, random=random)
        case FedLinHm2():
            return fedlin.fit_new_site(fedlin.FinishedHm2Run.read(run), table, random=random)
        case other:
            what = f"is a run of {other.name!r}"
            supporting = (SparseRegression, FedLinHm2, *_WITH_NETWORKS)
            names = ", ".join(method.name for method in supporting)
            advice = f"These methods support new sites: {names}."
            raise UsageError(str(folder), what, advice)
