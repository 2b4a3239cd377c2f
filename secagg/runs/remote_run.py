"""The coordinator's side of a run over a federated engine: `lead`, which an engine's adapter calls.

The coordinator's home (`secagg.sessions.homes.home`) has its keys, the pinned roster, its ledger
and the folders of its runs. A run that was interrupted goes on if the same job is submitted again
under the same name.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from secagg.core.identity import COORDINATOR, PublicIdentity, Role
from secagg.core.private_files import read_checked
from secagg.core.roster_file import check_name, fingerprint
from secagg.errors import JobError, PolicyRefusal, UsageError
from secagg.jobs.job import Job, parse_job
from secagg.runs.lost_sites import earlier_sessions, tidy, without_lost_sites
from secagg.runs.output_folder import Resuming, check_target, partial_path
from secagg.runs.session_loop import Run
from secagg.runs.stored_run import begin_run, continue_run
from secagg.sessions.engines.engine import Progress
from secagg.sessions.engines.remote import Call, RemoteEngine
from secagg.sessions.homes.home import Home
from secagg.sessions.homes.own_source import check_party, named_sites
from secagg.sessions.planned_job import Planned, plan_sites, roles

_ENDING_SECONDS = 60.0
"""How long the process of a job may need that the engine's administrator has ended."""


def lead(
    home: Home, job: Job, call: Call, engine: str, name: str, progress: Progress | None = None
) -> Run:
    """Run a job, or go on with it, and return the run; its folder is `runs/NAME` in the home.

    job: lists its sites in `sites.names`; of its local keys, only `engine.deadline` is used
    call: carries messages to the parties; engine: the name of the federated engine
    Raises `UsageError`, `PolicyRefusal`, `ProtocolAbort`.
    """
    check_name("name", name)  # it becomes a folder's, and the engine's administrators choose it
    agreed = parse_job(job.agreed)
    planned = plan_remote(agreed)
    parties = pinned_parties(home, planned)
    deadline, text = job.engine.deadline, agreed.model_dump_json()

    def make(planned: Planned, _: str) -> RemoteEngine:
        limit = planned.plans.message_bytes(len(parties))
        return RemoteEngine(
            engine, call, home.identity, parties, text, deadline, limit, fingerprint(home.roster)
        )

    target, ledgers = home.folder / "runs" / name, home.folder / "ledgers"
    place = partial_path(target)
    again = "the same job, submitted again under the same name"
    logs = "If a party refused, the reason is in log.txt of its own home."
    resuming = Resuming(again, logs, "submit it under another name")

    def begin() -> Run:
        return begin_run(
            planned, target, lambda _: make, progress=progress, own=home.identity,
            ledgers=ledgers, stays=True, resuming=resuming, began_again=earlier_sessions(target),
        )  # fmt: skip

    def go_on() -> Run:
        return continue_run(
            place, target, lambda _: make, deadline=deadline, progress=progress,
            own=home.identity, ledgers=ledgers, resuming=resuming, wait=_ENDING_SECONDS,
        )  # fmt: skip

    tidy(target)
    if (place / "journal").is_file():
        _check_same(place, agreed)
        first = go_on
    else:
        check_target(target, overwrite=False)
        first = begin
    return replace(without_lost_sites(target, first, begin), folder=target)


def plan_remote(job: Job) -> Planned:
    """Return the plan of a job whose sites are elsewhere. Raises `JobError` without their names."""
    sites = named_sites(job)
    if job.simulation.site_alone:
        advice = "Add --set simulation.site_alone=false."
        raise JobError("simulation.site_alone", "needs the records of all sites", advice)
    return plan_sites(job, sites, {})


def pinned_parties(home: Home, planned: Planned) -> dict[str, PublicIdentity]:
    """Return the parties of a job but the coordinator, as the coordinator has pinned them.

    Raises `UsageError` for another party's home, or `PolicyRefusal`.
    """
    if home.settings.role is not Role.COORDINATOR:
        what = f"is the home of {home.name!r}, and the coordinator's is needed"
        raise UsageError(str(home.folder), what, "Use the home on the computer of the server.")
    roster = home.roster
    if roster.parties.get(COORDINATOR) != home.identity.public:
        raise PolicyRefusal(COORDINATOR, "the pinned roster has other keys of the coordinator")
    check_party(home, planned)
    return {name: roster.parties[name] for name in roles(planned)}


def _check_same(place: Path, agreed: Job) -> None:
    """Refuse to go on with another job's run under the same name."""
    stored = Job.model_validate_json(read_checked(place / "setup")["job"])
    if stored.agreed != agreed.agreed:
        what = "is the unfinished run of another job"
        raise UsageError(str(place), what, "Give this run another name.")
