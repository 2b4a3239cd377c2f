"""The files of an experiment, written whenever a batch of its cells is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping

from secagg.experiments.experiment import Planned
from secagg.experiments.runner.experiment import Done
from secagg.experiments.summary import as_csv, summarise
from secagg.reports.experiments import experiment_page, pictures


def write(planned: Planned, done: Done) -> Mapping[str, str]:
    """Return the text of each file, by its name: the page, its numbers and its pictures."""
    summary = summarise(planned, done)
    drawn = {f"{name}.svg": str(picture) + "\n" for name, (_, picture) in pictures(summary).items()}
    return {
        "report.html": experiment_page(summary),
        "summary.json": json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "results.csv": as_csv(planned, done),
        **drawn,
    }
