"""The engine of a session in which each party is a process on this computer."""

from __future__ import annotations

from pathlib import Path

from secagg.core.identity import COORDINATOR
from secagg.sessions.engines.channel import LIMIT
from secagg.sessions.engines.engine import MakeEngine, Progress
from secagg.sessions.engines.loopback import LoopbackEngine
from secagg.sessions.planned_job import Planned, roles


def processes_in(folder: Path, progress: Progress | None) -> MakeEngine:
    """Return what makes the engine of the run in this folder; progress: called at each start."""

    def make(planned: Planned, cwd: str) -> LoopbackEngine:
        engine = LoopbackEngine(COORDINATOR, planned.job, roles(planned), folder / "parties", cwd)
        engine.limit = min(LIMIT, planned.plans.message_bytes(len(roles(planned))))
        if progress is not None:
            report: Progress = progress

            def starting(started: int, parties: int) -> None:
                report({"event": "starting", "started": started, "parties": parties})

            engine.on_start = starting
        return engine

    return make
