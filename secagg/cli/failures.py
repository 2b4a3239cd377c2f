"""How a command ends that fails: one line on standard error, and an exit code."""

from __future__ import annotations

import json
import sys
import warnings

import typer

from secagg.errors import SecaggError


class Interruption(SystemExit):
    """The user pressed Ctrl-C, or the system sent SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number

    def kept(self) -> str:
        """Return the notes added while the run ended: what is kept, and where."""
        return " ".join(getattr(self, "__notes__", ()))


def on_signal(number: int, _: object) -> None:
    """Raise `Interruption`, so that clean-up runs and no half-written folder stays behind."""
    # Requests that were about to be sent are dropped. Python would print a warning for each.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    raise Interruption(number)


class InterruptedRun(SecaggError):
    """The error that is shown when a command was interrupted."""

    code = "interrupted"


def exit_with(error: SecaggError, exit_code: int | None = None) -> None:
    """Print the error, as one line or as JSON, and exit with its code."""
    if "--json" in sys.argv:
        fields = {k: getattr(error, k) for k in ("code", "where", "what", "advice")}
        typer.echo(json.dumps({"error": fields}, ensure_ascii=False), err=True)
    else:
        typer.echo(f"secagg: {error.line()}".replace("\n", " "), err=True)
    sys.exit(error.exit_code if exit_code is None else exit_code)
