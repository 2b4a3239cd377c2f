"""secagg: federated statistics through secure sums.

    run              runs a job, which is one file that states the whole analysis
    resume           continues an interrupted run
    Run              what `run` and `resume` return
    plan             shows what a job would send and release, before any record is read
    simulate         computes a job's result without messages, for a person who holds all the data
    simulate_sites   the same, with each site's own result
    FedLin           one linear regression for each site, with the interface of scikit-learn
    FedNGM           a neural graphical model of all columns, with the interface of scikit-learn
    FedModule        a torch module over sites, with the interface of scikit-learn
    verify_folder    checks that nobody changed the files of a run

`import secagg` is fast, because each name is imported when it is first used. `secagg.errors`
defines the errors that these names raise. `secagg.contracts` defines what a method and a protocol
must provide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from secagg.core.version import __version__

if TYPE_CHECKING:
    from secagg.evidence.integrity import verify_folder
    from secagg.runs.estimators.fedlin import FedLin
    from secagg.runs.estimators.fedmodule import FedModule
    from secagg.runs.estimators.fedngm import FedNGM
    from secagg.runs.plan import plan
    from secagg.runs.run import Run, resume, run
    from secagg.runs.simulate import simulate, simulate_sites

__all__ = [
    "FedLin",
    "FedModule",
    "FedNGM",
    "Run",
    "__version__",
    "plan",
    "resume",
    "run",
    "simulate",
    "simulate_sites",
    "verify_folder",
]

_HOMES = {
    "run": "secagg.runs.run",
    "resume": "secagg.runs.run",
    "Run": "secagg.runs.run",
    "plan": "secagg.runs.plan",
    "simulate": "secagg.runs.simulate",
    "simulate_sites": "secagg.runs.simulate",
    "FedLin": "secagg.runs.estimators.fedlin",
    "FedModule": "secagg.runs.estimators.fedmodule",
    "FedNGM": "secagg.runs.estimators.fedngm",
    "verify_folder": "secagg.evidence.integrity",
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
