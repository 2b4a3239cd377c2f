"""Run a module of tests/support as a process, and read the JSON that it prints."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def printed_by(module: str, orders: Any) -> Any:
    """Return what the module prints when its only argument is `orders` as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(orders, default=str)],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
