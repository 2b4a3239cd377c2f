"""secagg: privacy-hardened secure aggregation for federated statistics.

`secagg.run(job)` runs a job, `secagg.resume(folder)` continues one that was interrupted; everything
else is imported from its own module, beginning with `secagg.contracts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from secagg.core.version import __version__

if TYPE_CHECKING:
    from secagg.audits.run_integrity import verify_folder
    from secagg.runs.run import Run, resume, run

__all__ = ["Run", "__version__", "resume", "run", "verify_folder"]

_HOMES = {
    "run": "secagg.runs.run",
    "resume": "secagg.runs.run",
    "Run": "secagg.runs.run",
    "verify_folder": "secagg.audits.run_integrity",
}


def __getattr__(name: str) -> Any:
    """Import on first use (PEP 562), so that `import secagg` costs milliseconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'secagg' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_HOMES[name]), name)
