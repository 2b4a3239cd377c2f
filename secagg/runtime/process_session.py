"""Sessions in which each party is a process: start one, or resume one after an interruption.

Until a run is finished and becomes `OUT`, it lies in one private folder, `OUT.partial` (mode 0700):

=========  ======================================================================================
lock       held by the process that runs the session
setup      the job, the roster, the nonce and the coordinator's private keys (mode 0600)
journal*   the coordinator's next step (`secagg.runtime.journal`), in three files
log.jsonl  the hash-chained log so far
parties/   a private folder for each party, which only its own process reads or writes
           (`secagg.runtime.engines.party_process`); the coordinator reads the file `seconds`
run/       the finished files, before they move to `OUT`
=========  ======================================================================================

The coordinator reads no record: it knows the sites by the names of their files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.private_files import read_checked, write_checked
from secagg.core.randomness import system_random
from secagg.core.version import __version__
from secagg.errors import ProtocolAbort, UsageError
from secagg.jobs.job import Job
from secagg.runtime.engines.channel import LIMIT
from secagg.runtime.engines.loopback import LoopbackEngine
from secagg.runtime.journal import Journal
from secagg.runtime.parties import make_coordinator, open_coordinator_ledger
from secagg.runtime.planned_job import Planned, plan_sites, roles, session_of
from secagg.runtime.session import Session

Progress = Callable[[Mapping[str, Any]], None]
"""Called with each event when it occurs."""


@contextmanager
def start_session(
    planned: Planned,
    folder: Path,
    overwrite: bool,
    progress: Progress | None,
    coordinator: Identity | None = None,
) -> Iterator[Session]:
    """Start every party, and agree on a session.

    overwrite: stored for `resume`; progress: called for each party that has started
    coordinator: its keys, if it has lasting ones
    Raises `ProtocolAbort` when a party does not start.
    """
    identity = coordinator or Identity.generate(COORDINATOR, Role.COORDINATOR, system_random)
    cwd = str(Path.cwd())
    setup: dict[str, Any] = {
        "secagg": __version__, "job": planned.job.model_dump_json(), "cwd": cwd,
        "overwrite": overwrite, "keys": [identity.signing_key, identity.opening_key],
    }  # fmt: skip
    with _engine(planned, folder, cwd, progress) as engine:
        began = time.monotonic()
        keys = engine.start()
        if missing := sorted(set(roles(planned)) - set(keys)):
            raise _not_started(missing, len(keys), time.monotonic() - began, engine)
        setup["roster"] = Roster({COORDINATOR: identity.public} | keys).to_plain()
        setup["nonce"] = system_random(16)
        write_checked(folder / "setup", setup)
        yield _session(planned, identity, setup, engine, folder)


@contextmanager
def resume_session(
    folder: Path, deadline: float | None, progress: Progress | None
) -> Iterator[tuple[Session, bool]]:
    """Resume the session in this folder; yield it, and whether it may overwrite an earlier run.

    deadline: instead of the job's; progress: called for each party that has started
    The parties start with the first request.
    Raises `EvidenceError` if the folder was changed after it was written.
    """
    setup = read_checked(folder / "setup")
    if setup["secagg"] != __version__:
        what = f"was started by secagg {setup['secagg']}, and this is {__version__}"
        raise UsageError(str(folder), what, "Resume it with that version.")
    identity = Identity(COORDINATOR, Role.COORDINATOR, *setup["keys"])
    sites = Roster.from_plain(setup["roster"]).with_role(Role.SITE)
    planned = plan_sites(Job.model_validate_json(setup["job"]), sites, {})
    with _engine(planned, folder, setup["cwd"], progress) as engine:
        if deadline is not None:
            engine.deadline = deadline
        yield _session(planned, identity, setup, engine, folder), setup["overwrite"]


def _engine(planned: Planned, folder: Path, cwd: str, progress: Progress | None) -> LoopbackEngine:
    engine = LoopbackEngine(COORDINATOR, planned.job, roles(planned), folder / "parties", cwd)
    engine.limit = min(LIMIT, planned.plans.message_bytes(len(roles(planned))))
    if progress is not None:
        engine.on_start = lambda started, parties: progress(
            {"event": "starting", "started": started, "parties": parties}
        )
    return engine


def _not_started(
    missing: list[str], started: int, seconds: float, engine: LoopbackEngine
) -> ProtocolAbort:
    """Return the error for a party that did not start; it says whether its process had ended."""
    ended = [name for name in missing if not engine.is_running(name)]
    name = (ended or missing)[0]
    what = (
        f"its process {'ended' if ended else 'was not ready'}; {started} of "
        f"{started + len(missing)} parties had started after {seconds:.0f} s"
    )
    busy = "The computer may be busy or too small for so many parties. Try again."
    return ProtocolAbort(name, what, "The reason is in the log of this party." if ended else busy)


def _session(
    planned: Planned,
    identity: Identity,
    setup: dict[str, Any],
    engine: LoopbackEngine,
    folder: Path,
) -> Session:
    roster, nonce = Roster.from_plain(setup["roster"]), setup["nonce"]
    name = session_of(planned, roster, nonce)
    engine.open(roster, nonce, name)
    ledger = open_coordinator_ledger(planned, name)
    coordinator = make_coordinator(planned, identity, roster, name, system_random, ledger)
    journal = Journal(folder / "journal", name)
    return Session(planned, nonce, coordinator, engine, journal=journal, ledger=ledger)
