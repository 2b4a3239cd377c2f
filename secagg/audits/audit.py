"""`secagg audit JOB`: run a job in a scratch folder, attack the run, and compare with the truth.

1. A fifth of each site's records is set aside at random. They take no part, so attacks on
   membership have others to compare with.
2. The job is run on the rest, in this process, with a transcript. The records are in memory, so
   no ledger is charged and nothing is released. The release rules are the job's; the sites' own
   policy files are not read. All draws, noise included, come from a seed, so an audit can be
   repeated.
3. The control: the same job under `plain`, without noise and with the weakest release rules.
4. Each attack is run on its views of the run, and on those of the control with the planted leak.
   An attack that asks the sites, asks a `secagg.audits.deployment`; that of the control forgets.

Guarantees: an attack gets a view and a generator, and no record. Only its scorer gets the truth.

Not protected: the person who audits a job holds all records in one place. Audit jobs over records
that one person may hold, or over simulated ones.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Attack, Finding, Limit, Truth, Verdict
from secagg.audits.deployment import Deployment, session_with_sites
from secagg.audits.run_integrity import roster_of
from secagg.audits.views import AskSites, View, Who, coordinator_view
from secagg.core.randomness import replayable_random
from secagg.core.threads import single_threaded_blas
from secagg.errors import SecaggError
from secagg.jobs.data_sources import Data, find_sites
from secagg.jobs.job import Job, Named, Privacy, Release, read_job
from secagg.runs.run import run
from secagg.runs.run_reader import RunFolder
from secagg.runtime.parties import read_records
from secagg.runtime.planned_job import Planned, plan_job

_SET_ASIDE = 0.2
_WEAKEST = {"min_sites": 2, "min_records": 1, "min_cell_records": 1, "min_level_sites": 1}


@dataclass(frozen=True)
class Attacked:
    """What one attack found, or why it did not apply.

    control: what it found in the run with the planted leak
    """

    attack: Attack
    who: Who
    verdict: Verdict
    why: str = ""
    finding: Finding | None = None
    control: Finding | None = None
    limit: Limit | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Audit:
    """The findings about one job."""

    job: Job
    sites: tuple[str, ...]
    records: int
    set_aside: int
    seed: int
    attacked: tuple[Attacked, ...] = field(repr=False)

    @property
    def leaks(self) -> tuple[Attacked, ...]:
        """The attacks that found a leak."""
        return tuple(each for each in self.attacked if each.verdict is Verdict.LEAK)


@dataclass(frozen=True)
class _Run:
    """A run, as its coordinator saw it, and the truth about it."""

    view: View
    truth: Truth

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
    ) -> _Run:
        """Run a job with a transcript in a scratch folder. control: its sites forget."""
        planned = plan_job(job, kept)
        out = scratch / "run"
        run(job, kept, out=out, transcript=True, random=replayable_random(seed))
        folder = RunFolder.open_finished(out)
        session = bytes.fromhex(folder.facts["session"])
        view = coordinator_view(folder, planned, roster_of(folder.facts), session)
        truth = _truth(planned, kept, aside)
        random = replayable_random(seed + 1)
        deployment = Deployment(job, kept, scratch, random, remembers=not control)

        def open_session() -> AskSites:
            return session_with_sites(planned, truth.sites, random)

        view = replace(view, open_session=open_session, ask=deployment.ask)
        return cls(view, truth)

    def seen_by(self, who: Who, colluding: int) -> View:
        """Return the view of a party; of a coalition with so many of the largest sites."""
        view = self.view
        sizes = {site: len(self.truth.sites[site].values) for site in view.sites}
        largest = sorted(view.sites, key=lambda site: (-sizes[site], site))
        match who:
            case Who.COALITION:
                return view.for_coalition({s: self.truth.sites[s] for s in largest[:colluding]})
            case Who.SITE:
                return view.for_site(largest[0], self.truth.sites[largest[0]])
            case Who.OUTSIDER:
                return view.for_outsider()
        return replace(view, who=who)


def audit_job(
    job: Job | Mapping[str, Any] | str | Path,
    data: Data | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    attacks: Sequence[str] = (),
    views: Sequence[Who] = (),
    limits: Mapping[str, Limit] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Audit a job.

    data: records by site name instead of the job's sites
    attacks: their names; without any, all; views: whose; without any, all that the attacks have
    limits: by metric, instead of the attacks' own
    seed: of all draws; progress: called with what is done next
    Raises what `secagg.run` raises, and `UsageError` for an unknown attack.
    """
    chosen = make_attacks(attacks)
    job = read_job(job, overrides)
    tables = {name: source.read() for name, source in find_sites(job, data).items()}
    kept, aside = _set_aside(tables, np.random.default_rng([seed, 0]))
    done = []
    with tempfile.TemporaryDirectory(prefix="secagg-audit-") as scratch:
        progress("the job")
        run_ = _Run.of(job, kept, aside, seed, Path(scratch) / "job")
        progress("the control")
        planted = _control(job)
        control = _Run.of(planted, kept, aside, seed, Path(scratch) / "control", control=True)
        for i, attack in enumerate(chosen):
            limit = (limits or {}).get(attack.metric)
            for who in attack.views:
                if not views or who in views:
                    progress(f"{attack.name} ({who})")
                    done.append(_attacked(attack, who, run_, control, limit, [seed, 1 + i]))
    truth, view = run_.truth, run_.view
    records = sum(len(truth.sites[site].values) for site in view.sites)
    return Audit(job, view.sites, records, len(truth.others), seed, tuple(done))


def _attacked(
    attack: Attack, who: Who, run: _Run, control: _Run, limit: Limit | None, seed: list[int]
) -> Attacked:
    """Run one attack on one view of the run and of the control."""
    began = time.perf_counter()
    colluding = attack.colluding(len(run.view.sites))
    view = run.seen_by(who, colluding)
    if why := attack.why_not(view):
        return Attacked(attack, who, Verdict.NOT_APPLICABLE, why)
    limit = limit or attack.limit(view)
    with single_threaded_blas():
        finding = attack.score(attack.run(view, np.random.default_rng(seed)), view, run.truth)
        if math.isnan(finding.value):
            return Attacked(attack, who, Verdict.NOT_APPLICABLE, str(finding.details["why_not"]))
        planted = attack.control(control.seen_by(who, colluding))
        guess = attack.run(planted, np.random.default_rng(seed))
        planted_finding = attack.score(guess, planted, control.truth)
    verdict, why = Verdict.NO_LEAK_FOUND, ""
    if limit.exceeded_by(finding.value):
        verdict = Verdict.LEAK
    elif finding.failed:
        verdict, why = Verdict.INCONCLUSIVE, finding.failed
    elif not attack.limit(planted).exceeded_by(planted_finding.value):
        verdict, why = Verdict.INCONCLUSIVE, "the attack does not find the planted leak either"
    spent = time.perf_counter() - began
    return Attacked(attack, who, verdict, why, finding, planted_finding, limit, spent)


def _control(job: Job) -> Job:
    changed = {
        "protocol": Named(name="plain"),
        "privacy": Privacy(),
        "release": Release(**_WEAKEST),
    }
    return job.model_copy(update=changed)


def _set_aside(
    tables: Mapping[str, pd.DataFrame], rng: np.random.Generator
) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """Return of each table four fifths of the rows, and the rest."""
    kept, aside = {}, {}
    for name, table in sorted(tables.items()):
        frame = pd.DataFrame(table)
        out = np.zeros(len(frame), dtype=bool)
        out[rng.permutation(len(frame))[: int(_SET_ASIDE * len(frame))]] = True
        kept[name], aside[name] = frame[~out], frame[out]
    return kept, aside


def _truth(
    planned: Planned, kept: Mapping[str, pd.DataFrame], aside: Mapping[str, pd.DataFrame]
) -> Truth:
    sites = {name: read_records(planned, source) for name, source in planned.sources.items()}
    others = []
    for name, source in find_sites(planned.job, dict(aside)).items():
        try:
            others.append(read_records(planned, source).values)
        except SecaggError:  # for example a site without a row that was set aside
            others.append(np.zeros((0, sites[name].values.shape[1])))
    together = np.concatenate(others)
    return Truth(sites, together[np.random.default_rng(0).permutation(len(together))])
