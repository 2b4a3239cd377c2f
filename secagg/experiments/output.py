"""The files of an experiment, written whenever a batch of its cells is complete."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from secagg.core.browser import draw_png
from secagg.core.private_files import write_private
from secagg.errors import UsageError
from secagg.evidence.run_folder import MALFORMED_ERRORS
from secagg.experiments.experiment import Planned
from secagg.experiments.runner.experiment import Done
from secagg.experiments.summary import as_csv, summarise
from secagg.reports.experiments.page import experiment_page
from secagg.reports.experiments.pictures import pictures


def check_folder(folder: Path, title: str, file: str) -> None:
    """Refuse a folder with the results of another title or another file. Raises `UsageError`."""
    try:
        earlier = json.loads((folder / "summary.json").read_bytes())
        found = earlier["title"], earlier.get("file", file)
    except (OSError, *MALFORMED_ERRORS):
        return
    if found != (title, file):
        what = f"has another experiment: {found[0]!r}, of {found[1]!r}"
        raise UsageError(str(folder), what, "Give another --out, or remove its summary.json.")


def write(planned: Planned, done: Done) -> Mapping[str, str | bytes]:
    """Return the content of each file, by its name: the page, its numbers and its pictures."""
    summary = summarise(planned, done)
    drawn = {f"{name}.svg": str(picture) + "\n" for name, (_, picture) in pictures(summary).items()}
    return {
        "report.html": experiment_page(summary),
        "summary.json": json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "results.csv": as_csv(planned, done),
        **_parquet(as_csv(planned, done)),
        **drawn,
    }


def draw_pngs(files: Iterable[Path]) -> list[Path]:
    """Draw a PNG file beside each SVG file. Raises `UsageError` without a browser."""
    found = list[Path]()
    for svg in files:
        if svg.suffix == ".svg":
            found.append(svg.with_suffix(".png"))
            write_private(found[-1], draw_png(svg.read_text(encoding="utf-8")))
    return found


def _parquet(rows: str) -> dict[str, bytes]:
    """Return the same numbers as a Parquet file, if the extra `parquet` is installed."""
    if importlib.util.find_spec("pyarrow") is None:
        return {}
    made = io.BytesIO()
    pd.read_csv(io.StringIO(rows)).to_parquet(made)
    return {"results.parquet": made.getvalue()}
