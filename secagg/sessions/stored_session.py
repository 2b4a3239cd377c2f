"""Sessions whose parties are other processes: start one, or resume one after an interruption.

Until a run is finished and becomes `OUT`, it lies in one private folder, `OUT.partial` (mode 0700):

=========  ======================================================================================
lock       held by the process that runs the session
setup      the job, the roster, the nonce and, if they are drawn for this run only, the
           coordinator's private keys (mode 0600)
journal*   the coordinator's next step (`secagg.sessions.journal`), in three files
log.jsonl  the hash-chained log so far
parties/   with engine "processes": a private folder for each party (`secagg.sessions.engines`)
run/       the finished files, before they move to `OUT`
=========  ======================================================================================

The coordinator reads no record: it knows the sites by their names.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.private_files import read_checked, write_checked
from secagg.core.randomness import system_random
from secagg.core.version import __version__
from secagg.errors import EvidenceError, UsageError
from secagg.jobs.job import Job
from secagg.sessions.engines.engine import MakeEngine, RemoteParties
from secagg.sessions.journal import Journal
from secagg.sessions.parties import make_coordinator, open_coordinator_ledger
from secagg.sessions.planned_job import Planned, plan_sites, roles, session_of
from secagg.sessions.session import Session


@contextmanager
def start_session(
    planned: Planned,
    folder: Path,
    overwrite: bool,
    make_engine: MakeEngine,
    own: Identity | None = None,
    ledgers: Path | None = None,
    *,
    stays: bool = False,
) -> Iterator[Session]:
    """Reach every party, and agree on a session.

    overwrite: stored for `resume`; own: the coordinator's lasting keys
    ledgers: the folder of the coordinator's ledger, if it is not the job's
    stays: whether `resume_session` gets the lasting keys again, so that they need not be stored
    Raises `ProtocolAbort` when a party is not ready.
    """
    identity = own or Identity.generate(COORDINATOR, Role.COORDINATOR, system_random)
    cwd = str(Path.cwd())
    keys = None if stays else [identity.signing_key, identity.opening_key]
    setup: dict[str, Any] = {
        "secagg": __version__, "job": planned.job.model_dump_json(), "cwd": cwd,
        "overwrite": overwrite, "keys": keys,
    }  # fmt: skip
    with make_engine(planned, cwd) as engine:
        began = time.monotonic()
        ready = engine.start()
        planned = _without_absent_sites(planned, ready)
        if missing := sorted(set(roles(planned)) - set(ready)):
            raise engine.not_ready(missing, len(ready), time.monotonic() - began)
        parties = {name: ready[name] for name in roles(planned)}
        setup["roster"] = Roster({COORDINATOR: identity.public} | parties).to_plain()
        setup["nonce"] = system_random(16)
        write_checked(folder / "setup", setup)
        yield _session(planned, identity, setup, engine, folder, ledgers)


@contextmanager
def resume_session(
    folder: Path,
    deadline: float | None,
    make_engine: MakeEngine,
    own: Identity | None = None,
    ledgers: Path | None = None,
) -> Iterator[tuple[Session, bool]]:
    """Resume the session in this folder; yield it, and whether it may overwrite an earlier run.

    deadline: instead of the job's; own and ledgers: as for `start_session`
    The parties are reached with the first request.
    Raises `EvidenceError` if the folder was changed after it was written.
    """
    setup = read_checked(folder / "setup")
    if setup["secagg"] != __version__:
        what = f"was started by secagg {setup['secagg']}, and this is {__version__}"
        raise UsageError(str(folder), what, "Resume it with that version.")
    roster = Roster.from_plain(setup["roster"])
    identity = own
    if setup["keys"] is not None:
        identity = Identity(COORDINATOR, Role.COORDINATOR, *setup["keys"])
    if identity is None or roster.parties[COORDINATOR] != identity.public:
        raise EvidenceError(str(folder), "belongs to a coordinator with other keys")
    planned = plan_sites(Job.model_validate_json(setup["job"]), roster.with_role(Role.SITE), {})
    with make_engine(planned, setup["cwd"]) as engine:
        if deadline is not None:
            engine.deadline = deadline
        yield _session(planned, identity, setup, engine, folder, ledgers), setup["overwrite"]


def _without_absent_sites(planned: Planned, ready: Collection[str]) -> Planned:
    """Return the plan over the groups that are ready, if the job's rule leaves the others out.

    If that is too few sites for a sum, or the sites are on this computer, the plan is unchanged.
    """
    named = planned.named
    left = () if named is None else named.whole_groups(ready)
    if planned.sources or named is None or named.fault(left) or len(left) == len(named.names):
        return planned
    return plan_sites(planned.job, left, {})


def _session(
    planned: Planned,
    identity: Identity,
    setup: dict[str, Any],
    engine: RemoteParties,
    folder: Path,
    ledgers: Path | None,
) -> Session:
    roster, nonce = Roster.from_plain(setup["roster"]), setup["nonce"]
    name = session_of(planned, roster, nonce)
    engine.open(roster, nonce, name)
    ledger = open_coordinator_ledger(planned, name, ledgers)
    coordinator = make_coordinator(planned, identity, roster, name, system_random, ledger)
    journal = Journal(folder / "journal", name)
    return Session(planned, nonce, coordinator, engine, journal=journal, ledger=ledger)
