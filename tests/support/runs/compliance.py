"""Parts of a compliance report in tests: an experiment, a form, and its content."""

import json
from pathlib import Path
from typing import Any

from secagg.experiments.summary import SCHEMA

FORM = """[purpose]
purpose = "To plan beds."
permit = "EK 12/2026"
controller = "North Hospital"
[judgement]
epsilon = "The board decided on 4."
"""


def experiment(at: float = 3.5, limit: float = 0.4) -> dict[str, Any]:
    """Return the summary of an experiment, as far as a report reads it.

    at: its only ε; limit: the tolerance limit there, of which the goal is to be below 0.5
    """
    mean = {"mean": 0.25, "low": 0.2, "high": 0.3, "runs": 20}
    points = [{"across": at, "metrics": {"error": mean}, "runs": 20}]
    return {
        "schema": SCHEMA, "title": "A sweep",
        "repeat": 20, "public": True, "across": "privacy.epsilon",
        "curves": [{"line": "sum", "points": points, "no_noise": None}],
        "baselines": {}, "baseline_curves": [],
        "job": {"title": "A job", "method": "moments", "columns": []},
        "goal": {"metric": "error", "below": 0.5, "above": None, "share": 0.9,
                 "confidence": 0.9, "fewest_runs": 22},
        "recommendations": [{"line": "sum", "smallest": at if limit < 0.5 else None, "points": [
            {"across": at, "limit": limit, "reached": 20, "runs": 20}]}],
    }  # fmt: skip


def content(report: Path) -> Any:
    return json.loads((report / "report.json").read_text())


def statements(report: Path) -> dict[str, Any]:
    return {s["id"]: s for section in content(report)["sections"] for s in section["statements"]}
