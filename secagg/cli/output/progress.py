"""Progress of a run on standard error: a line for each round, later for each tenth or hundredth.

Most methods may end before their largest number of rounds, so the time left is an upper limit, as
far as the next rounds take as long as the last ones.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.markup import escape

from secagg.cli.output.terminal import standard_error
from secagg.evidence.numbers import declared, duration
from secagg.sessions.engines.engine import Progress

_LAST_ROUNDS: Final = 100
_SHORT: Final = 5.0
"""Seconds. Nothing is said about the time left before a run has taken so long, or if it is less."""


class TimeLeft:
    """How much longer a run takes at most, if its rounds go on as the last ones."""

    def __init__(self, rounds: int, clock: Callable[[], float]) -> None:
        self._rounds, self._clock, self._began = rounds, clock, clock()
        self._ends: deque[tuple[int, float]] = deque(maxlen=_LAST_ROUNDS)

    def after(self, round_: int) -> str:
        """Return the words for the end of this round; "" if there is nothing to say yet."""
        now = self._clock()
        self._ends.append((round_, now))
        first, then = self._ends[0]
        if round_ == first or now - self._began < _SHORT:
            return ""
        left = (self._rounds - 1 - round_) * (now - then) / (round_ - first)
        return "" if left < _SHORT else f", at most {duration(left)} left"


@contextmanager
def progress(
    *, quiet: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress | None]:
    """Yield a progress callback that prints one line a round, or None if quiet."""
    if quiet:
        yield None
        return
    errors = standard_error()
    time_left = TimeLeft(0, clock)

    def show(event: Mapping[str, Any]) -> None:
        nonlocal time_left
        left = time_left.after(event["round"]) if event["event"] == "release" else ""
        if event["event"] in ("release", "asked") and event["round"] % _step(event["round"]):
            return
        match event["event"]:
            case "sites":
                names = escape(", ".join(event["sites"]))
                errors.print(f"{len(event['sites'])} sites: {names}")
            case "session":
                protocol, sites = event["protocol"]["name"], event["plan"][0]["sites"]
                rounds = sum(stage["max_rounds"] for stage in event["plan"])
                time_left = TimeLeft(rounds, clock)
                errors.print(
                    f"[dim]session {event['session'][:8]}: {sites} sites, {protocol}, "
                    f"at most {rounds} rounds[/]"
                )
            case "release":
                covered = len(event["contributors"])
                errors.print(
                    f"[dim]round {event['round']:3} {escape(event['stage']):10} "
                    f"sum over {covered} sites released{left}[/]"
                )
            case "asked":
                number = len(event["parties"])
                errors.print(
                    f"[dim]round {event['round']:3} {event['phase']:10} {number} parties asked[/]"
                )
            case "starting" if event["started"] % 10 == 0 or event["started"] == event["parties"]:
                errors.print(f"[dim]{event['started']} of {event['parties']} parties started[/]")
            case "resumed":
                deadline = declared(event["deadline"])
                errors.print(f"[dim]resumed in round {event['round']}, {deadline} s a phase[/]")
            case "began_again":
                lost = escape(", ".join(event["lost"]))
                errors.print(f"[yellow]the run begins again without {lost} and their groups[/]")
            case "restarted":
                party = escape(event["party"])
                errors.print(f"[yellow]round {event['round']:3} {party} was started again[/]")
            case "remark":  # before anything is released; for the site's own eyes
                errors.print(f"[bold yellow]{escape(event['text'])}[/]")
            case "missing":
                parties = escape(", ".join(event["parties"]))
                errors.print(f"[yellow]round {event['round']:3} no answer from {parties}[/]")
            case "rejected":
                errors.print(
                    f"[yellow]round {event['round']:3} rejected: {escape(event['why'])}[/]"
                )

    yield show


def _step(round_: int) -> int:
    """Return 1 up to round 99, 10 up to 999, and so on: 4000 rounds print 220 lines."""
    return int(10 ** max(0, len(str(round_)) - 2))
