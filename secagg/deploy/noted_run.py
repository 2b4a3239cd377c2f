"""A run under an engine that shows errors to others: what went wrong is noted at home only."""

from __future__ import annotations

import traceback

from secagg.errors import InternalError, SecaggError
from secagg.jobs.job import Job
from secagg.runs.remote_run import lead
from secagg.sessions.engines.remote import Call
from secagg.sessions.homes.home import Home


class RunFailed(Exception):  # engines show the name
    """A run of secagg failed with this exit code; the coordinator's log says why."""


AGAIN = "Submit the same folder again: the run goes on where it stopped"


def run_noted(home: Home, job: str, call: Call, engine: str, name: str) -> None:
    """Run a job, given as JSON, and note in the coordinator's log how it ended.

    Raises `RunFailed`, an exception without a text, so that the engine's job fails: engines keep
    the text of an exception in their logs and send it on.
    """
    home.note(f"{name}: begins. If no later line says how it ended, {engine} ended the process")
    try:
        run = lead(home, Job.model_validate_json(job), call, engine, name)
    except SecaggError as error:
        home.note(f"{name}: ended with exit code {error.exit_code}: {error.line()}")
        raise RunFailed(error.exit_code) from None
    except Exception:
        home.note(f"{name}: {traceback.format_exc()}")
        raise RunFailed(InternalError.exit_code) from None
    except BaseException as error:  # the engine ends the process, for instance after an abort
        home.note(f"{name}: was ended from outside ({type(error).__name__}). {AGAIN}")
        raise
    session, head = run.facts["session"][:8], run.facts["log"]["head"]
    home.note(f"{name}: done, session {session}, log head {head}")  # for `secagg verify --head`
