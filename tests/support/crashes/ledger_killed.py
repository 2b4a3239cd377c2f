"""Processes at one ledger: killed ones, racing ones, and ones that may not write.

python -m support.crashes.ledger_killed '{"what": "kills" | "births" | "race" | "confined", ...}'

This process imports everything once and is forked for each of them: hundreds in seconds. It prints
what it saw as JSON and judges nothing; tests do. A child "sends" by writing to a pipe.
"""

import json
import os
import random
import resource
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.crashes.processes import printed_by
from support.privacy.ledgers import CAP, now, numbered

from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal, SecaggError
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Release

NOBODY = 65534

POINTS = (
    "before BEGIN", "after BEGIN", "after check", "after INSERT", "before COMMIT", "after COMMIT",
    "before sending", "after sending",
)  # fmt: skip


def told(**orders: Any) -> Any:
    """Run this file as a process and return what it saw."""
    return printed_by("support.crashes.ledger_killed", orders)


# --- in the process ------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(sqlite3.Connection):
    """A connection that kills its process at a statement."""

    point = ""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        when, _, what = self.point.partition(" ")
        here = bool(what) and sql.startswith(what)
        if here and when == "before":
            die()
        done = super().execute(sql, *values)
        if here and when == "after":
            die()
        return done


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Run work(pipe) in a child; return its id and the pipe's other end."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        try:
            work(theirs)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    os.close(theirs)
    return child, ours


def rest_of(pipe: int) -> str:
    with os.fdopen(pipe) as file:
        return file.read()


def send(path: Path, release: Release, pipe: int, point: str) -> None:
    """Enter and send, in a child that dies at `point`."""
    connect = sqlite3.connect
    sqlite3.connect = lambda *a, **k: connect(*a, factory=Mortal, **k)  # type: ignore[assignment, misc]
    with Ledger.open(path, create=False, now=now) as ledger:
        os.write(pipe, b"ready\n")
        Mortal.point = point

        def draw(n: int) -> bytes:
            if point == "after check":
                die()
            return system_random(n)

        try:
            entered = ledger.record_release(release, caps=[CAP], random=draw)
        except PolicyRefusal:
            os.write(pipe, b"refused\n")
            return
        if point == "before sending":
            die()
        os.write(pipe, entered.seed.hex().encode() + b"\n")
        if point == "after sending":
            die()


def kills(path: Path, parts: int, keys: int, deaths: int, seed: int) -> Any:
    """Kill so many senders: half of them at the points in turn, half after random delays.

    About deaths / keys of them, one after the other, have the same key. Then each key is asked for
    once more, and not killed.
    """
    Ledger.open(path, create=True, now=now).close()
    chance = random.Random(seed)
    usual = time_of_one(path.with_name("other"))
    seen: list[dict[str, Any]] = []
    died = 0
    while died < deaths:
        number = died * keys // deaths
        point = POINTS[len(seen) // 2 % len(POINTS)] if len(seen) % 2 else ""
        release = numbered(number, parts)
        child, pipe = fork(lambda p, r=release, at=point: send(path, r, p, at))
        os.read(pipe, 6)  # ready
        if not point:
            until = time.perf_counter() + chance.random() * 1.2 * usual
            while time.perf_counter() < until:
                pass
            os.kill(child, signal.SIGKILL)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        died += killed
        journal = path.with_name(f"{path.name}-journal").exists()
        said = rest_of(pipe).strip()
        about = {"point": point, "number": number, "killed": killed, "journal": journal}
        seen.append(about | {"sent": said} | looked_at(path))
    last = {}
    for number in range(keys):
        _, pipe = fork(lambda p, n=number: send(path, numbered(n, parts), p, ""))
        os.read(pipe, 6)
        last[number] = rest_of(pipe).strip()
        os.wait()
    return {"seconds": usual, "seen": seen, "last": last} | looked_at(path)


def births(path: Path, deaths: int, seed: int) -> Any:
    """Kill so many processes while they make a ledger; say which left one, and if it opens."""
    chance = random.Random(seed)

    def make(at: Path, pipe: int) -> None:
        os.write(pipe, b"ready\n")
        Ledger.open(at, create=True, now=now).close()

    begun = time.perf_counter()
    Ledger.open(path, create=True, now=now).close()
    usual = time.perf_counter() - begun
    seen = []
    for number in range(deaths):
        at = path.with_name(f"{path.name}-{number}")
        child, pipe = fork(lambda p, at=at: make(at, p))
        os.read(pipe, 6)
        time.sleep(chance.random() * usual)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(pipe)
        left = at.exists()
        with Ledger.open(at, create=not left, now=now) as ledger:
            ledger.record_release(numbered(0, 2), caps=[CAP], random=system_random)
        seen.append(left)
    return seen


def time_of_one(path: Path) -> float:
    """Return the seconds that one `record_release` takes, of 21 the median."""
    took = []
    with Ledger.open(path, create=True, now=now) as ledger:
        for number in range(21):
            begun = time.perf_counter()
            ledger.record_release(numbered(number, 1000), caps=[CAP], random=system_random)
            took.append(time.perf_counter() - begun)
    return sorted(took)[10]


def looked_at(path: Path) -> dict[str, Any]:
    """Read the file with SQLite alone."""
    db = sqlite3.connect(path)
    sound = db.execute("PRAGMA integrity_check").fetchone()[0]
    rows = db.execute("SELECT round, seed FROM lines WHERE kind = 'entry' ORDER BY seq").fetchall()
    db.close()
    entries = {number: seed.hex() for number, seed in rows}
    return {"integrity": sound, "entries": entries, "paid": len(rows)}


def race(path: Path, processes: int, each: int, parts: int, same: bool, create: bool) -> Any:
    """Let so many processes enter as much as they can at once, each its own or all the same."""
    if not create:
        Ledger.open(path, create=True, now=now).close()
    gate, opener = os.pipe()

    def work(which: int, pipe: int) -> None:
        os.close(opener)
        os.read(gate, 1)  # until all are there
        with Ledger.open(path, create=create, now=now) as ledger:
            for i in range(each):
                number = i if same else which * each + i
                try:
                    entered = ledger.record_release(
                        numbered(number, parts), caps=[CAP], random=system_random
                    )
                    said = f"{number} {entered.seed.hex()}\n"
                except PolicyRefusal:
                    said = f"{number} refused\n"
                os.write(pipe, said.encode())

    children = [fork(lambda pipe, w=which: work(w, pipe)) for which in range(processes)]
    os.close(gate)
    os.close(opener)
    said = [rest_of(pipe).splitlines() for _, pipe in children]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in children]
    return {"said": said, "codes": codes} | looked_at(path)


def confined(how: str) -> Any:
    """Try to enter where the folder, the file or the disk takes nothing more."""
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "ledger"
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)  # the superuser may write everywhere
        child, pipe = fork(lambda p: _confined(how, folder, path, p))
        said = rest_of(pipe)
        os.waitpid(child, 0)
        return {"said": json.loads(said)} | looked_at(path)


def _confined(how: str, folder: Path, path: Path, pipe: int) -> None:
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with Ledger.open(path, create=True, now=now) as ledger:
        ledger.record_release(numbered(0, 100), random=system_random)
    said = []

    def attempt(number: int) -> None:
        try:
            with Ledger.open(path, create=False, now=now) as ledger:
                ledger.record_release(numbered(number, 100), random=system_random)
            said.append(["entered", ""])
        except SecaggError as error:
            said.append([type(error).__name__, error.line()])

    if how == "disk":
        size = path.stat().st_size
        for number, limit in enumerate((0, 1, 512, 1024, 4096, size // 2, size - 1), start=1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            attempt(number)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    else:
        place, mode = (folder, 0o500) if how == "folder" else (path, 0o400)
        place.chmod(mode)
        attempt(1)
        place.chmod(0o700)
    os.write(pipe, json.dumps(said).encode())


def main() -> None:
    orders = json.loads(sys.argv[1])
    does = {"kills": kills, "births": births, "race": race, "confined": confined}[
        orders.pop("what")
    ]
    if "path" in orders:
        orders["path"] = Path(orders["path"])
    print(json.dumps(does(**orders)))


if __name__ == "__main__":
    main()
