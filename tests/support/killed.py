"""Run or resume a job in a process that kills itself (SIGKILL) at a given moment.

python killed.py '{"run": [job, out, overrides] | "resume": [out], "what": "journal" | "log",
                   "number": n, "after": true | false}'

It dies just before or just after the n-th entry of the journal, or line of the log, that it writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from secagg.journal import Journal
from secagg.runlog import RunLog
from secagg.running import resume, run


def killed(**told: Any) -> bool:
    """Run this file as a process; return whether it was killed (or else ended well)."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(told, default=str)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def main() -> None:
    told = json.loads(sys.argv[1])
    kind: Any = {"journal": Journal, "log": RunLog}[told["what"]]
    real, left = kind.write, told["number"]

    def write(self: Any, *args: Any) -> None:
        nonlocal left
        left -= 1
        if left == -1 and not told["after"]:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *args)
        if left == -1:
            os.kill(os.getpid(), signal.SIGKILL)

    kind.write = write
    if "run" in told:
        job, out, overrides = told["run"]
        run(Path(job), out=out, overrides=overrides)
    else:
        resume(told["resume"])


if __name__ == "__main__":
    main()
