"""The software of the runs as a CycloneDX 1.6 list (ECMA-424), without the licences of others."""

from __future__ import annotations

from typing import Any

from secagg.compliance.evidence import AllEvidence

_PYTHON = "python"


def components(evidence: AllEvidence) -> dict[str, Any]:
    """Return the component list; a component in two versions is listed twice."""
    found = sorted({pair for run in evidence.runs for pair in run.facts["versions"].items()})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [_component(name, version) for name, version in found],
    }


def _component(name: str, version: str) -> dict[str, str]:
    if name == _PYTHON:
        return {"type": "platform", "name": "CPython", "version": version}
    kind = "application" if name == "secagg" else "library"
    made = {"type": kind, "name": name, "version": version}
    return {**made, "bom-ref": f"{name}@{version}", "purl": f"pkg:pypi/{name}@{version}"}
