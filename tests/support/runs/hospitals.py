"""The records of four hospitals, and what a coordinator that writes jobs learns about them."""

import copy
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from secagg.core.frames import read_frame
from secagg.core.identity import COORDINATOR
from secagg.core.randomness import system_random
from secagg.errors import SecaggError
from secagg.jobs.job import parse_job
from secagg.sessions.fixed_point import decode
from secagg.sessions.party import REFUSED
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session import open_session

EXAMPLE = Path(__file__).parents[3] / "examples" / "heart-disease"
HOSPITALS = ("cleveland", "hungary", "switzerland", "va_long_beach")
LINEAR: dict[str, Any] = tomllib.loads((EXAMPLE / "linear.toml").read_text(encoding="utf-8"))
LOGISTIC: dict[str, Any] = tomllib.loads((EXAMPLE / "logistic.toml").read_text(encoding="utf-8"))


def folder(place: Path) -> Path:
    """Copy the four files, without ledgers, and return their folder."""
    data = place / "data"
    data.mkdir(parents=True)
    for name in HOSPITALS:
        shutil.copy(EXAMPLE / "data" / f"{name}.csv", data)
    return data


def records(data: Path) -> dict[str, pd.DataFrame]:
    """Return the records of each hospital, as the truth to compare an attack with."""
    return {name: pd.read_csv(data / f"{name}.csv") for name in HOSPITALS}


def moments_job(data: Path, columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a job of moments over these columns, as plain data."""
    job: dict[str, Any] = {
        "title": "Moments",
        "sites": {"folder": str(data), "max_rows": 1000},
        "columns": copy.deepcopy(columns),
        "method": {"name": "moments"},
        "protocol": {"name": "plain"},  # the sums are the same under every protocol
        "release": {"min_sites": 3, "min_records": 10},
    }
    return job | more


@dataclass
class Seen:
    """What the coordinator sees in one run.

    codes: the error code of each site that refused
    sums: for each stage, the last opened sum of it
    """

    codes: dict[str, str] = field(default_factory=dict)
    sums: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


def ask(raw: dict[str, Any], *, consent_only: bool = False) -> Seen:
    """Run a job to its end, or until a party refuses, and return what the coordinator sees.

    consent_only: the coordinator leaves after the sites' first answers, before any release
    """
    seen = Seen()
    session = open_session(plan_job(parse_job(raw)), system_random)
    step = session.coordinator.start()
    try:
        while not step.done:
            frames = session.engine.exchange(step.requests)
            for frame in frames:
                read = read_frame(frame, session.roster, COORDINATOR, session.session)
                if read.header.phase == REFUSED:
                    seen.codes[read.header.sender] = read.body["code"]
            if consent_only:
                break
            step = session.coordinator.advance(step.state, frames)
            if step.state.total is not None:
                stage = str(step.state.stage)
                plan = session.planned.plans.of(stage)
                seen.sums[stage] = decode(plan, step.state.total)[0]
    except SecaggError:
        pass
    finally:
        session.close()
    return seen
