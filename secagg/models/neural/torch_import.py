"""How networks use torch: whether it is installed, and in one thread.

torch computes in float64 and in one thread, because the order of additions, and with it the last
bits of a sum, depends on the number of threads.

Not protected: other builds of torch, and other processors, may give other last bits. run.json
names the build.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from secagg.errors import JobError

INSTALL = "Run: pip install 'secagg[neural]'"


def require_torch(method: str) -> None:
    """Raise `JobError` if torch is not installed. It is not imported. method: as in the job."""
    if importlib.util.find_spec("torch") is None:
        raise JobError("method.name", f"{method!r} needs torch, which is missing", INSTALL)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread, then restore their number. May be a decorator."""
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
