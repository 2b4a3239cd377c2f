"""Private runs that are killed (SIGKILL) at every step around a release.

python -m support.crashes.private_killed '[folder, [{"how": "steps" | "delays" | "all", ...}, ...]]'

A step is what changes a file or a contribution, or sends: see `watch`. A process can be told to die
before its n-th one. `how` a run is killed:

steps    one site, before the 1st step of each answer, then before the 2nd, ... until it lives to
         give it; so none is left out, nor will be that somebody adds later
delays   one site, so many times an answer, after random delays: also inside of a step
all      coordinator and sites, by random numbers of steps, until the run is finished

Parties are made from their folders and ledgers each time (`support.crashes.folders`). Processes are
forks of one that has imported everything: hundreds in seconds. A site that may die "sends" into a
pipe. This prints what it saw as JSON and judges nothing; tests do.
"""

import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from support.crashes.folders import FolderEngine
from support.crashes.ledger_killed import die, fork
from support.crashes.processes import printed_by
from support.privacy.ledgers import now

import secagg.sessions.engines.processes
from secagg.core.frames import peek_header
from secagg.errors import PolicyRefusal
from secagg.privacy.ledger.ledger import Ledger
from secagg.runs.run import resume, run
from secagg.sessions import site_moments, site_steps

VICTIM = "north"
NEVER = -1
READY = b"ready\n"
CHANCE = random.Random(20261121)


def told(place: Path, runs: Sequence[Mapping[str, Any]]) -> Any:
    """Run this file as a process and return what it saw."""
    return printed_by("support.crashes.private_killed", [str(place), runs])


def releases(ledger: Path, opened: bool = True) -> list[dict[str, Any]]:
    """Open a ledger, which verifies its chain, and read it with SQLite alone.

    Returns entries and re-uses; a re-use has the seed of its entry.
    opened: or leave that to who opens it next, a party or `play` at the end
    """
    if not ledger.exists():
        return []
    if opened:
        Ledger.open(ledger, create=False, now=now).close()
    db = sqlite3.connect(ledger)
    sound = db.execute("PRAGMA integrity_check").fetchone()[0]
    rows = db.execute(
        "SELECT kind, session, round, content, seed, belongs, seq FROM lines "
        "WHERE kind IN ('entry', 'use') ORDER BY seq"
    ).fetchall()
    db.close()
    assert sound == "ok", sound
    seeds = {row[6]: row[4].hex() for row in rows}
    return [
        {"kind": kind, "session": session, "round": round_, "content": json.loads(content),
         "seed": seeds[belongs or seq]}
        for kind, session, round_, content, _, belongs, seq in rows
    ]  # fmt: skip


# --- steps ---------------------------------------------------------------------------------------


class Steps:
    """Tells of each step of a process, and kills it before the one that is `fatal`."""

    fatal: ClassVar[int] = NEVER
    tell: ClassVar[int | None] = None

    @classmethod
    def begin(cls, tell: int, fatal: int) -> None:
        cls.tell, cls.fatal = tell, fatal
        os.write(tell, READY)

    @classmethod
    def before(cls, name: str) -> None:
        if cls.tell is None:
            return
        os.write(cls.tell, f"step {name}\n".encode())
        if cls.fatal == 0:
            die()
        cls.fatal -= 1


class Watched(sqlite3.Connection):
    """A connection whose changes are steps."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        verb = sql.partition(" ")[0]
        if verb in ("BEGIN", "INSERT", "COMMIT", "ROLLBACK", "CREATE"):
            Steps.before(f"INSERT {values[0][2]}" if verb == "INSERT" else verb)
        return super().execute(sql, *values)


def watched(where: Any, name: str) -> None:
    """Make a function's calls steps: death comes before it, or after it, before the next step."""
    real = getattr(where, name)

    def call(*args: Any, **more: Any) -> Any:
        Steps.before(name)
        done = real(*args, **more)
        if name == "sample_weighted" and Steps.tell is not None:
            os.write(Steps.tell, b"noise " + hashlib.sha256(done).hexdigest().encode() + b"\n")
        return done

    setattr(where, name, call)


def watch() -> None:
    """Make steps of what ledgers, files, noise and logs are written with, here and in forks."""
    connect = sqlite3.connect
    sqlite3.connect = lambda *a, **k: connect(*a, factory=Watched, **k)  # type: ignore[assignment, misc]
    for module in (site_steps, site_moments):
        watched(module, "sample_weighted")
        watched(module, "add_noise")
    for name in ("fsync", "replace", "link"):
        watched(os, name)


# --- one site is killed --------------------------------------------------------------------------


class Killing(FolderEngine):
    """Asks `VICTIM` again and again, until it lives to answer."""

    how: ClassVar[str] = ""
    deaths: ClassVar[int] = 0
    ledger: ClassVar[Path]
    seen: ClassVar[list[dict[str, Any]]] = []
    usual: ClassVar[dict[str, float]] = {}
    """seconds that it works on an answer, by phase, for random delays"""

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        others = {name: request for name, request in requests.items() if name != VICTIM}
        replies = list(super().exchange(others))
        if VICTIM in requests:
            replies.append(self._until_it_lives(requests[VICTIM]))
        return replies

    def _until_it_lives(self, request: bytes) -> bytes:
        killed, sent = True, b""
        if self.how == "steps":
            for fatal in itertools.count():
                killed, sent = self._ask(request, fatal)
                if not killed:
                    break
            for fatal in (0, 1, NEVER):  # now it has its reply, and only sends
                killed, sent = self._ask(request, fatal)
        else:
            usual = self.usual[peek_header(request)[1]]
            for part in sorted(CHANCE.random() for _ in range(self.deaths)):
                self._ask(request, delay=1.1 * part * usual)
            killed, sent = self._ask(request)
        assert not killed
        return sent

    def _ask(
        self, request: bytes, fatal: int = NEVER, delay: float | None = None
    ) -> tuple[bool, bytes]:
        """Ask a new process; return whether it was killed, and its reply if that is whole."""

        def work(pipe: int) -> None:
            site = self.party(VICTIM)
            Steps.begin(tell, fatal)
            reply = site.answer(["handle", request])[2]
            Steps.before("send")
            os.write(pipe, len(reply).to_bytes(4, "little") + reply)
            Steps.before("end")

        trace, tell = os.pipe()
        child, pipe = fork(work)
        os.close(tell)
        os.read(trace, len(READY))
        began = time.perf_counter()
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        killed, words, sent = ended(child, trace, pipe)
        round_, phase = peek_header(request)
        if not killed:
            took = time.perf_counter() - began
            self.usual[phase] = max(took, self.usual.get(phase, 0.0))
        whole = len(sent) > 4 and int.from_bytes(sent[:4], "little") == len(sent) - 4
        sent = sent[4:] if whole else b""
        answered = bool(sent) and peek_header(sent)[1] == phase  # and not refused
        steps = [line[5:] for line in words if line.startswith("step ")]
        self.seen.append({
            "phase": phase, "round": round_, "killed": killed, "timed": delay is not None,
            "last": steps[-1] if steps else "",
            "noise": [line[6:] for line in words if line.startswith("noise ")],
            "sent": hashlib.sha256(sent).hexdigest() if answered else "",
            "releases": releases(self.ledger, opened=False),
        })  # fmt: skip
        return killed, sent


def ended(child: int, trace: int, pipe: int) -> tuple[bool, list[str], bytes]:
    """Wait for a child's end; return whether it was killed, what it told, and what it sent.

    The trace is read first: what is sent fits into a pipe's buffer, a trace may not.
    """
    with os.fdopen(trace) as tale, os.fdopen(pipe, "rb") as answer:
        words, sent = tale.read().splitlines(), answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), words
    return code != 0, words, sent


def kill_a_site(job: Path, out: Path, overrides: dict[str, str], about: Any) -> dict[str, Any]:
    """Play one run; return what was seen after each time that the site was asked."""
    Killing.how, Killing.deaths = about["how"], about.get("deaths", 0)
    Killing.ledger, Killing.seen = job.parent / f"data/ledgers/{VICTIM}.ledger", []
    secagg.sessions.engines.processes.LoopbackEngine = Killing  # type: ignore[assignment, misc]
    with contextlib.suppress(PolicyRefusal):
        run(job, out=out, overrides=overrides)
    return {"seen": Killing.seen}


# --- all are killed ------------------------------------------------------------------------------


def kill_all(job: Path, out: Path, overrides: dict[str, str], about: Any) -> dict[str, Any]:
    """Play one run in processes that die, coordinator and parties at once, after a few steps each.

    Each goes on where the last one stood. Returns where each died.
    """
    secagg.sessions.engines.processes.LoopbackEngine = FolderEngine  # type: ignore[assignment, misc]
    unfinished = out.with_name(f"{out.name}.partial") / "journal"
    deaths: list[str] = []

    while not out.exists():
        trace, tell = os.pipe()
        steps = CHANCE.randrange(1, about["longest"])

        def work(_: int, tell: int = tell, steps: int = steps) -> None:
            Steps.begin(tell, steps)
            if unfinished.exists():
                resume(out)
            else:
                run(job, out=out, overrides=overrides)

        child, pipe = fork(work)
        os.close(tell)
        killed, words, _ = ended(child, trace, pipe)
        deaths += words[-1:] if killed else []
    return {"deaths": deaths}


# --- runs ----------------------------------------------------------------------------------------


def play(place: Path, number: int, about: dict[str, Any]) -> dict[str, Any]:
    """Play one run, and return what is left of it."""
    out = place / f"out-{number}"
    overrides = {
        "engine.name": "processes", "protocol.name": about["protocol"],
        "privacy.placement": about["placement"], "privacy.epsilon": str(about["epsilon"]),
    }  # fmt: skip
    saw = (kill_all if about["how"] == "all" else kill_a_site)(
        place / "job.toml", out, overrides, about
    )
    ledgers = {path.stem: releases(path) for path in (place / "data/ledgers").glob("*.ledger")}
    return {"out": str(out), "ledgers": ledgers} | saw


def main() -> None:
    place, runs = json.loads(sys.argv[1])
    watch()
    print(json.dumps([play(Path(place), number, about) for number, about in enumerate(runs)]))


if __name__ == "__main__":
    main()
