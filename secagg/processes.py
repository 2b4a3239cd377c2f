"""Sessions whose parties are processes: begun, and taken up again after an interruption.

A run that is under way lives in one private folder, `OUT.partial` (mode 0700), until it is finished
and becomes `OUT`:

=========  ======================================================================================
lock       held by the process that runs it
setup      the job, the roster, the nonce and the coordinator's own keys (mode 0600)
journal    what the coordinator is about to do (`secagg.journal`)
log.jsonl  the hash-chained log so far
parties/   a private folder for each party, which only its own process reads or writes
           (`secagg.engines.party_process`); the exception is the time it spent
run/       the finished files, before they are moved to their place
=========  ======================================================================================

The coordinator reads no record: it knows the sites by the names of their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secagg import __version__
from secagg.durable import read_checked, write_checked
from secagg.engines.loopback import LoopbackEngine
from secagg.errors import ProtocolAbort, UsageError
from secagg.identity import Identity, Role, Roster
from secagg.job import Job
from secagg.journal import Journal
from secagg.randomness import system_random
from secagg.session import (
    COORDINATOR,
    Planned,
    Session,
    make_coordinator,
    plan_sites,
    roles,
    session_of,
)


@contextmanager
def begin(planned: Planned, folder: Path, overwrite: bool) -> Iterator[Session]:
    """Start every party, and agree on a session.

    overwrite: kept for `resume`. Raises `ProtocolAbort` when a party does not start.
    """
    identity = Identity.generate(COORDINATOR, Role.COORDINATOR, system_random)
    cwd = str(Path.cwd())
    setup: dict[str, Any] = {
        "secagg": __version__, "job": planned.job.model_dump_json(), "cwd": cwd,
        "overwrite": overwrite, "keys": [identity.signing_key, identity.opening_key],
    }  # fmt: skip
    with _engine(planned, folder, cwd) as engine:
        keys = engine.start()
        for name in sorted(set(roles(planned)) - set(keys)):
            raise ProtocolAbort(name, "its process did not start", "Its own log says why.")
        setup["roster"] = Roster({COORDINATOR: identity.public} | keys).to_plain()
        setup["nonce"] = system_random(16)
        write_checked(folder / "setup", setup)
        yield _session(planned, identity, setup, engine, folder)


@contextmanager
def again(folder: Path, deadline: float | None) -> Iterator[tuple[Session, bool]]:
    """Take up the session in this folder; yield it, and whether it is to overwrite an earlier run.

    deadline: instead of the job's. Parties are started with the first request.
    Raises `EvidenceError` for a folder that is not as it was written.
    """
    setup = read_checked(folder / "setup")
    if setup["secagg"] != __version__:
        theirs = f"was begun by secagg {setup['secagg']}, and this is {__version__}"
        raise UsageError(str(folder), theirs, "Continue it with that version.")
    identity = Identity(COORDINATOR, Role.COORDINATOR, *setup["keys"])
    sites = Roster.from_plain(setup["roster"]).named(Role.SITE)
    planned = plan_sites(Job.model_validate_json(setup["job"]), sites, {})
    with _engine(planned, folder, setup["cwd"]) as engine:
        if deadline is not None:
            engine.deadline = deadline
        yield _session(planned, identity, setup, engine, folder), setup["overwrite"]


def _engine(planned: Planned, folder: Path, cwd: str) -> LoopbackEngine:
    return LoopbackEngine(COORDINATOR, planned.job, roles(planned), folder / "parties", cwd)


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
    coordinator = make_coordinator(planned, identity, roster, name, system_random)
    return Session(planned, nonce, coordinator, engine, journal=Journal(folder / "journal", name))
