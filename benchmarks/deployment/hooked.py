"""Start the processes of a consortium with the hooks of `hooks/sitecustomize.py`."""

from __future__ import annotations

import os
from pathlib import Path

HOOKS = Path(__file__).parent / "hooks"


def install_hooks(orders: Path) -> None:
    """Let processes that this one starts load the hooks; what PYTHONPATH had stays after them."""
    before = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    os.environ |= {
        "SECAGG_HOOKS": str(orders),
        "PYTHONPATH": os.pathsep.join([str(HOOKS), *before]),
    }
