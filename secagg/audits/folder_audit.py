"""`secagg audit RUN`: what a finished run's folder shows to an attacker, without the records.

The folder is verified first, as by `secagg verify`. Then each attack is run on the coordinator's
view of the folder, and `Attack.without_truth` says what the attacker knows about its guess. With a
transcript (`secagg run --transcript`), the view has the messages; without, the sums only.

What the result means. A leak is one: the attacker knows that it succeeded. That no attack succeeds
is *inconclusive*, because there is no control without the records: audit the job (`secagg audit
JOB`) for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from secagg.audits.audit import Attacked, Progress, judged, leaks, tasks_of
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Limit
from secagg.audits.outcomes import Outcome, attack_folder
from secagg.audits.views import Who, coordinator_view
from secagg.evidence.integrity import verify_folder
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import Job


@dataclass(frozen=True)
class FolderAudit:
    """The findings about one run. with_messages: whether it has a transcript"""

    job: Job
    sites: tuple[str, ...]
    session: str
    with_messages: bool
    seed: int
    attacked: tuple[Attacked, ...]

    @property
    def leaks(self) -> tuple[Attacked, ...]:
        """The attacks that found a leak."""
        return leaks(self.attacked)


def audit_folder(
    folder: Path,
    *,
    attacks: Sequence[str] = (),
    views: Sequence[Who] = (),
    limits: Mapping[str, Limit] | None = None,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> FolderAudit:
    """Audit a run; see `secagg.audits.audit.audit_job` for the arguments.

    Raises `EvidenceError` if the folder was changed after the run, and `UsageError` if it is not
    that of a finished run, or for an unknown attack.
    """
    chosen = make_attacks(attacks)
    run = RunFolder.open_finished(folder)
    verify_folder(run, recompute=False)
    view = coordinator_view(run, run.planned)
    by_who = {Who.COORDINATOR: view, Who.OUTSIDER: view.for_outsider()}
    tasks = tasks_of(chosen, views)
    done = []
    for i, (attack, who) in enumerate(tasks):
        progress(i, len(tasks), f"{attack.name} ({who})")
        outcome = Outcome("needs the sites: audit the job")
        if who in by_who:
            outcome = attack_folder(attack, by_who[who], seed)
        done += judged(attack, who, outcome, limits or {})
    return FolderAudit(run.job, view.sites, run.session, bool(view.messages), seed, tuple(done))
