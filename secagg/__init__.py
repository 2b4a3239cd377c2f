"""secagg: privacy-hardened secure aggregation for federated statistics.

`secagg.run(job)` runs a job, `secagg.resume(folder)` continues one that was interrupted; everything
else is imported from its own module, beginning with `secagg.contracts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secagg.running import Run, resume, run
    from secagg.verifying import verify_folder

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "resume", "run", "verify_folder"]

_HOMES = {
    "run": "secagg.running",
    "resume": "secagg.running",
    "Run": "secagg.running",
    "verify_folder": "secagg.verifying",
}


def __getattr__(name: str) -> Any:
    """Import on first use (PEP 562), so that `import secagg` costs milliseconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'secagg' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_HOMES[name]), name)
