"""Progress of a run on standard error: a line for each round, later for each tenth or hundredth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.reports.numbers import declared
from secagg.runtime.process_session import Progress


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Yield a progress callback that prints one line a round, or None if quiet."""
    if quiet:
        yield None
        return
    errors = Console(stderr=True, highlight=False)

    def show(event: Mapping[str, Any]) -> None:
        if event["event"] in ("release", "asked") and event["round"] % _step(event["round"]):
            return
        match event["event"]:
            case "sites":
                names = escape(", ".join(event["sites"]))
                errors.print(f"{len(event['sites'])} sites: {names}", soft_wrap=True)
            case "session":
                protocol, sites = event["protocol"]["name"], event["plan"][0]["sites"]
                rounds = sum(stage["max_rounds"] for stage in event["plan"])
                errors.print(
                    f"[dim]session {event['session'][:8]}: {sites} sites, {protocol}, "
                    f"at most {rounds} rounds[/]"
                )
            case "release":
                covered = len(event["contributors"])
                errors.print(
                    f"[dim]round {event['round']:3} {escape(event['stage']):10} "
                    f"sum over {covered} sites released[/]"
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
            case "restarted":
                party = escape(event["party"])
                errors.print(f"[yellow]round {event['round']:3} {party} was started again[/]")
            case "remark":  # before anything is released; for the site's own eyes
                errors.print(f"[bold yellow]{escape(event['text'])}[/]", soft_wrap=True)
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
