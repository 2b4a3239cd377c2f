"""Hooks in the job processes of a consortium, for measurements; Python imports this at its start.

The consortium is started with this folder in PYTHONPATH and SECAGG_HOOKS, the folder of its orders:

=========  =========================================================================================
replay     if it exists, each party draws its random bytes from a seed, which is its name's digest
kill       [party, round, phase, when]: this party's process kills itself in this phase, "before" or
           "after" its work; the file is deleted first, so this happens once
versions   {party: version}: the version of secagg that a party's process says it has
planted    [party, place]: this party's code raises an exception at a place (`planted`)
capture    the name of a party: all that its processes give to TLS is written to PARTY-PID.sent
trips.csv  the server appends a line for each exchange: round, phase, parties, seconds
=========  =========================================================================================

The party "coordinator" is the server. Nothing of this is part of the product.
"""

import os
import sys
from pathlib import Path

_JOB_PROCESSES = ("server.runner_process", "client.worker_process")  # modules of NVFLARE


def _party() -> str:
    """Return the party of this process, from the path of its kit."""
    for part in sys.orig_argv:
        if "/prod_00/" in part:
            name = part.partition("/prod_00/")[2].partition("/")[0]
            return "coordinator" if name == "server" else name
    return ""


def _install(folder: Path, party: str) -> None:
    # ruff: noqa: PLC0415  # every process imports this file, and only job processes need these
    import hashlib
    import json
    import signal
    import time

    import secagg.core.version

    versions = folder / "versions"
    if versions.exists():  # before any other module has read it
        mine = secagg.core.version.__version__
        secagg.core.version.__version__ = json.loads(versions.read_bytes()).get(party, mine)

    from secagg.core.frames import peek_header
    from secagg.core.randomness import seeded_random
    from secagg.sessions.engines import crash_safe_party, remote

    def maybe_die(request: bytes, when: str) -> None:
        try:
            ordered = json.loads((folder / "kill").read_bytes())
        except OSError:
            return
        if ordered == [party, *peek_header(request), when]:
            (folder / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    make_party, handle = crash_safe_party.make_party, crash_safe_party.CrashSafeParty.handle
    exchange = remote.RemoteEngine.exchange

    def made(planned, identity, roster, session, random, method_random):
        if (folder / "replay").exists():
            random = seeded_random(hashlib.sha256(party.encode()).digest())
            method_random = random
        return make_party(planned, identity, roster, session, random, method_random)

    def handled(self, request):
        maybe_die(request, "before")
        reply = handle(self, request)
        maybe_die(request, "after")
        return reply

    def exchanged(self, requests):
        first = next(iter(requests.values()), None)
        if first is None:
            return exchange(self, requests)
        maybe_die(first, "before")
        began = time.monotonic()
        replies = exchange(self, requests)
        seconds = time.monotonic() - began
        maybe_die(first, "after")
        round_, phase = peek_header(first)
        with (folder / "trips.csv").open("a") as file:
            file.write(f"{round_},{phase},{len(requests)},{seconds:.4f}\n")
        return replies

    if (folder / "planted").exists():
        import planted

        planted.plant(*json.loads((folder / "planted").read_bytes()), party)
    crash_safe_party.make_party = made
    crash_safe_party.CrashSafeParty.handle = handled
    remote.RemoteEngine.exchange = exchanged


def _capture(folder: Path, party: str) -> None:
    import ssl

    def written(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def send(self, data, *rest):
            with (folder / f"{party}-{os.getpid()}.sent").open("ab") as file:
                file.write(bytes(data))
            return real(self, data, *rest)

        setattr(kind, name, send)

    for name in ("send", "sendall", "write"):
        written(ssl.SSLSocket, name)
    written(ssl.SSLObject, "write")


def _start(folder: Path, party: str) -> None:
    capture = folder / "capture"
    if capture.exists() and capture.read_text() == party:
        _capture(folder, party)
    if any(part.endswith(_JOB_PROCESSES) for part in sys.orig_argv):
        _install(folder, party)


if "SECAGG_HOOKS" in os.environ and _party():
    _start(Path(os.environ["SECAGG_HOOKS"]), _party())
