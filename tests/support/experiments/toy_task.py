"""A task for the tests of `reproductions`: it draws, raises, ends its process, or waits."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def compute(settings: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return a number drawn from the seed; an empty file in the folder `calls` tells of the call.

    what: "raise", "die" (SIGKILL), "wait" (until the file `gate` exists), "draw" and nothing else
    """
    Path(settings["calls"], f"{settings['seed']}.{time.monotonic_ns()}").touch()
    match settings["what"]:
        case "raise":
            raise ArithmeticError(f"seed {settings['seed']} has no result\nsecond line")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            while not Path(settings["gate"]).exists():
                time.sleep(0.01)
    matrix = np.random.default_rng(settings["seed"]).standard_normal((40, 40))
    drawn = float(np.abs(np.linalg.inv(matrix)).sum())
    return {"toy": {"value": drawn, "converged": float(settings["seed"] != 3)}}
