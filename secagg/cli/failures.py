"""How a failing command ends: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
import warnings

from secagg.cli.printing import say
from secagg.core.printable import printable_json
from secagg.errors import SecaggError


class Interruption(SystemExit):
    """The user pressed Ctrl-C, or the system sent SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number

    @property
    def advice(self) -> str:
        """The notes added while the run ended: which files are kept, and where."""
        return " ".join(getattr(self, "__notes__", ()))


def on_signal(number: int, _: object) -> None:
    """Raise `Interruption`, so that clean-up runs and no half-written folder stays behind."""
    # The process drops requests that it has not sent yet. Python would print a warning for each.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    raise Interruption(number)


class InterruptedRun(SecaggError):
    """The error that an interrupted command shows."""

    code = "interrupted"


def exit_with(error: SecaggError, exit_code: int | None = None) -> None:
    """Print the error, as one line or as JSON, and exit with its code."""
    if "--json" in sys.argv:
        fields = {k: getattr(error, k) for k in ("code", "where", "what", "advice")}
        say(printable_json({"error": fields}), error=True)
    else:
        say(f"secagg: {error.line()}", error=True)
    sys.exit(error.exit_code if exit_code is None else exit_code)
