"""secagg: federated statistics through secure sums.

    run, resume, Run     run a job, continue an interrupted run, what a run returns
    plan                 what a job would send and release, before any record is read
    simulate             a job's result without its parties, on data that one person holds
    FedLin               regressions of sites that differ, in scikit-learn's manner
    verify_folder        check that a run folder is what was written

`import secagg` is light: a name is imported when it is first used. `secagg.errors` has what these
raise, `secagg.contracts` what methods and protocols are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from secagg.core.version import __version__

if TYPE_CHECKING:
    from secagg.audits.run_integrity import verify_folder
    from secagg.runs.fedlin_estimator import FedLin
    from secagg.runs.plan import plan
    from secagg.runs.run import Run, resume, run
    from secagg.runs.simulate import simulate

__all__ = [
    "FedLin",
    "Run",
    "__version__",
    "plan",
    "resume",
    "run",
    "simulate",
    "verify_folder",
]

_HOMES = {
    "run": "secagg.runs.run",
    "resume": "secagg.runs.run",
    "Run": "secagg.runs.run",
    "plan": "secagg.runs.plan",
    "simulate": "secagg.runs.simulate",
    "FedLin": "secagg.runs.fedlin_estimator",
    "verify_folder": "secagg.audits.run_integrity",
}


def __getattr__(name: str) -> Any:
    """Import on first use (PEP 562), so that `import secagg` costs milliseconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'secagg' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names (PEP 562)."""
    return sorted(__all__)
