"""Runs over a folder of sites that keeps its ledgers."""

from pathlib import Path
from typing import Any

from support.runs.jobs import as_csv, raw_job, table

import secagg
from secagg.core.randomness import RandomBytes, system_random
from secagg.jobs.job import parse_job

FIVE = ("a", "b", "c", "d", "e")
DELTA = 1e-6


def folder_with(place: Path, names: tuple[str, ...] = FIVE) -> Path:
    """Write a folder of sites and return it."""
    data = place / "data"
    data.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        (data / f"{name}.csv").write_text(as_csv(table(i, 40)), encoding="utf-8")
    return data


def run(
    data: Path, names: tuple[str, ...] = FIVE, random: RandomBytes = system_random, **changed: Any
) -> Any:
    """Run over some of the sites of a folder; the files of the others are out of the way."""
    away = [p for p in data.glob("*.csv") if p.stem not in names]
    for path in away:
        path.rename(path.with_suffix(".away"))
    try:
        settings = {"sites": {"folder": data, "max_rows": 100}, "protocol": {"name": "additive"}}
        return secagg.run(parse_job(raw_job(**settings | changed)), random=random)
    finally:
        for path in away:
            path.with_suffix(".away").rename(path)


def noised(epsilon: float = 1.0, placement: str = "sum", **more: Any) -> dict[str, Any]:
    return {"placement": placement, "epsilon": epsilon, "delta": DELTA, **more}
