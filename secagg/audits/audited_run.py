"""A run of the audited job, with everything that attacks on it need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from secagg.audits.contract import Truth
from secagg.audits.deployment import Deployment, session_with_sites
from secagg.audits.run_integrity import roster_of
from secagg.audits.views import AskSites, View, Who, coordinator_view
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, SecaggError
from secagg.jobs.data_sources import find_sites
from secagg.jobs.job import Engine, Job, Named, Privacy, Release
from secagg.runs.run import run
from secagg.runs.run_reader import RunFolder
from secagg.runtime.parties import read_records
from secagg.runtime.planned_job import Planned, plan_job

SET_ASIDE = 0.2
_WEAKEST = {"min_sites": 2, "min_records": 1, "min_cell_records": 1, "min_level_sites": 1}


@dataclass(frozen=True)
class AuditedRun:
    """A run, as its coordinator saw it, the truth about it, and sites that answer further jobs."""

    view: View
    truth: Truth
    deployment: Deployment

    @classmethod
    def of(
        cls,
        job: Job,
        kept: Mapping[str, pd.DataFrame],
        aside: Mapping[str, pd.DataFrame],
        seed: int,
        scratch: Path,
        *,
        control: bool = False,
    ) -> AuditedRun:
        """Run a job with a transcript in a scratch folder. control: its sites forget."""
        planned = plan_job(job, kept)
        out = scratch / "run"
        run(job, kept, out=out, transcript=True, random=replayable_random(seed))
        folder = RunFolder.open_finished(out)
        session = bytes.fromhex(folder.facts["session"])
        public = replace(planned, sources={})  # an attack gets no way to the records
        view = coordinator_view(folder, public, roster_of(folder.facts), session)
        truth = truth_about(planned, kept, aside)
        deployment = Deployment(job, kept, seed + 1, remembers=not control)

        def open_session() -> AskSites:
            return session_with_sites(planned, truth.sites, replayable_random(seed + 2))

        return cls(replace(view, open_session=open_session), truth, deployment)

    def seen_by(self, who: Who, colluding: int) -> View:
        """Return the view of a party; of a coalition with so many of the largest sites.

        Each view has a deployment of its own, so that attacks do not depend on earlier ones.
        """
        view = replace(self.view, ask=replace(self.deployment).ask)
        sizes = {site: len(self.truth.sites[site].values) for site in view.sites}
        largest = sorted(view.sites, key=lambda site: (-sizes[site], site))
        match who:
            case Who.COALITION:
                return view.for_coalition({s: self.truth.sites[s] for s in largest[:colluding]})
            case Who.OUTSIDER:
                return view.for_outsider()
        return replace(view, who=who)


def in_memory(job: Job) -> Job:
    """Return the job for one process whose ledgers end with it."""
    sites = job.sites.model_copy(update={"ledgers": None})
    return job.model_copy(update={"sites": sites, "engine": Engine()})


def control_of(job: Job, tables: Mapping[str, pd.DataFrame]) -> Job:
    """Return the job of the control.

    Settings of the method that need [privacy], such as a clip, are left out.
    """
    changed = {
        "protocol": Named(name="plain"),
        "privacy": Privacy(),
        "release": Release(**_WEAKEST),
    }
    control = job.model_copy(update=changed)
    while True:
        try:
            plan_job(control, tables)
            return control
        except JobError as error:
            table, _, key = error.where.partition(".")
            settings = control.method.settings
            if table != "method" or settings.pop(key, None) is None:
                raise
        method = Named(name=control.method.name, **settings)
        control = control.model_copy(update={"method": method})


def split(
    tables: Mapping[str, pd.DataFrame], share: float, rng: np.random.Generator
) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """Return the rows of each table that take part, and the share that is set aside."""
    kept, aside = {}, {}
    for name, table in sorted(tables.items()):
        frame = pd.DataFrame(table)
        out = np.zeros(len(frame), dtype=bool)
        out[rng.permutation(len(frame))[: int(share * len(frame))]] = True
        kept[name], aside[name] = frame[~out], frame[out]
    return kept, aside


def truth_about(
    planned: Planned, kept: Mapping[str, pd.DataFrame], aside: Mapping[str, pd.DataFrame]
) -> Truth:
    """Return the records that take part, and the others."""
    sites = {name: read_records(planned, source) for name, source in planned.sources.items()}
    others = []
    for name, source in find_sites(planned.job, dict(aside)).items():
        try:
            others.append(read_records(planned, source).values)
        except SecaggError:  # for example a site without a row that was set aside
            others.append(np.zeros((0, sites[name].values.shape[1])))
    together = np.concatenate(others)
    return Truth(sites, together[np.random.default_rng(0).permutation(len(together))])
