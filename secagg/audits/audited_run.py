"""A run of the audited job, with everything that attacks on it need."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from secagg.audits.contract import Truth
from secagg.audits.deployment import Deployment, session_with_sites
from secagg.audits.views import AskSites, View, Who, coordinator_view
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, SecaggError
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.data_sources import find_sites
from secagg.jobs.job import Engine, Job, Release
from secagg.jobs.person_ids import person_id
from secagg.jobs.privacy import Privacy
from secagg.jobs.registry import Named
from secagg.runs.run import run
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

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
        public = replace(planned, sources={})  # an attack gets no way to the records
        view = coordinator_view(folder, public)
        truth = truth_about(planned, kept, aside)
        deployment = Deployment(job, kept, seed + 1, remembers=not control)

        def open_session() -> AskSites:
            return session_with_sites(planned, truth.sites, replayable_random(seed + 2))

        return cls(replace(view, open_session=open_session), truth, deployment)

    def first(self, sums: int) -> AuditedRun:
        """Return the run as its coordinator saw it after the first sums of the method."""
        return replace(self, view=self.view.first(sums))

    @contextmanager
    def seen_by(self, who: Who, colluding: int) -> Iterator[View]:
        """Give the view of a party; of a coalition with so many of the largest sites.

        Each view has a deployment of its own, so that attacks do not depend on earlier ones. Its
        ledgers are closed at the end.
        """
        with replace(self.deployment, honest=who is not Who.DISHONEST) as deployment:
            yield self._view(deployment, who, colluding)

    def _view(self, deployment: Deployment, who: Who, colluding: int) -> View:
        view = replace(self.view, ask=deployment.ask)
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
    """Return the job of the control: in clear, and without noise."""
    return without_noise(job.model_copy(update={"protocol": Named(name="plain")}), tables)


def without_noise(job: Job, tables: Mapping[str, pd.DataFrame]) -> Job:
    """Return the job without noise, with rules that refuse nothing. Raises `JobError`.

    Settings of the method that need [privacy], such as a clip, are left out.
    """
    exact = job.model_copy(update={"privacy": Privacy(), "release": Release(**_WEAKEST)})
    while True:
        try:
            plan_job(exact, tables)
            return exact
        except JobError as error:
            table, _, key = error.where.partition(".")
            settings = exact.method.settings
            if table != "method" or settings.pop(key, None) is None:
                raise
        method = Named(name=exact.method.name, **settings)
        exact = exact.model_copy(update={"method": method})


def split(
    tables: Mapping[str, pd.DataFrame],
    share: float,
    rng: np.random.Generator,
    privacy: Privacy | None = None,
) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """Return the rows of each table that take part, and the share that is set aside.

    privacy: of the job. If it names persons, persons are set aside with all their rows; at all
        sites, if a person may have records at several

    The number set aside at a site is rounded up or down at random, so every person has the same
    probability. If it were always rounded down, small sites would set nobody aside. The others
    would then be of other sites than the members, and a difference between sites would look like a
    leak. Of the persons of a site, one takes part in any case, because a run needs a record. (Of
    those who have no record at a site before it in the order of names.)
    """
    kept, aside, decided = {}, {}, dict[Hashable, bool]()  # of each person: whether set aside
    rounding = rng.spawn(1)[0].random(len(tables))
    for (name, table), u in zip(sorted(tables.items()), rounding, strict=True):
        frame = pd.DataFrame(table)
        persons = _persons(frame, name, privacy or Privacy())
        new = [each for each in dict.fromkeys(persons) if each not in decided]
        number = max(min(int(share * len(new) + u), len(new) - 1), 0)
        order = rng.permutation(len(new))
        decided |= {new[i]: k < number for k, i in enumerate(order.tolist())}
        out = np.array([decided[each] for each in persons], dtype=np.bool_)
        kept[name], aside[name] = frame[~out], frame[out]
    return kept, aside


def _persons(frame: pd.DataFrame, site: str, privacy: Privacy) -> list[Hashable]:
    """Return the person of each row. A row without a name, which no run uses, is its own."""
    person, where = privacy.person, site if privacy.sites_per_person == 1 else None
    if person is None or list(frame.columns).count(person) != 1:  # a run says what is wrong
        return [(site, i) for i in range(len(frame))]
    names = map(person_id, frame[person])
    return [(where, name) if name else (site, i) for i, name in enumerate(names)]


def truth_about(
    planned: Planned, kept: Mapping[str, pd.DataFrame], aside: Mapping[str, pd.DataFrame]
) -> Truth:
    """Return the records that take part, and the others."""
    sites = {name: read_records(planned, source) for name, source in planned.sources.items()}
    others, of_site = list[Array](), list[str]()
    for name, source in find_sites(planned.job, dict(aside)).items():
        try:
            others.append(read_records(planned, source).values)
        except SecaggError:  # for example a site without a row that was set aside
            others.append(np.zeros((0, sites[name].values.shape[1])))
        of_site += [name] * len(others[-1])
    order = np.random.default_rng(0).permutation(len(of_site))
    return Truth(sites, np.concatenate(others)[order], np.array(of_site, dtype=np.str_)[order])
