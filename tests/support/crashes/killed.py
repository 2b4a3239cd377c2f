"""Run or resume a job in a process that kills itself (SIGKILL) at a given point.

python -m support.crashes.killed '{"run": [job, out, overrides] | "resume": [out],
    "what": "journal" | "log", "number": n, "after": true | false, "nursery": [handle] | []}'

It dies just before or just after it writes the n-th entry of the journal, or line of the log. With
a handle, its parties come from a nursery (`support.crashes.nursery`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.crashes.nursery import Nursery

from secagg.core.hash_chain_log import RunLog
from secagg.runs.run import resume, run
from secagg.sessions.engines import launcher
from secagg.sessions.journal import Journal


def killed(nursery: Nursery | None = None, **told: Any) -> bool:
    """Run this file as a process; return whether it was killed (otherwise, it succeeded)."""
    lent = [nursery.line.fileno()] if nursery else []
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "support.crashes.killed",
            json.dumps(told | {"nursery": lent}, default=str),
        ],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        pass_fds=lent,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def main() -> None:
    told = json.loads(sys.argv[1])
    kind: Any = {"journal": Journal, "log": RunLog}[told["what"]]
    real, left = kind.write, told["number"]

    def write(self: Any, *args: Any, **options: Any) -> None:
        nonlocal left
        left -= 1
        if left == -1 and not told["after"]:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *args, **options)
        if left == -1:
            os.kill(os.getpid(), signal.SIGKILL)

    kind.write = write
    for handle in told["nursery"]:
        stand_in = Nursery(socket.socket(fileno=handle)).stand_in()
        launcher.subprocess = stand_in  # type: ignore[assignment]
    if "run" in told:
        job, out, overrides = told["run"]
        run(Path(job), out=out, overrides=overrides)
    else:
        resume(told["resume"])


if __name__ == "__main__":
    main()
