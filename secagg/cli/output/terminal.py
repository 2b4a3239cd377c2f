"""What the output of all commands shares: its console, and how it shows warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

WIDTH = 120  # of output that goes to a file


def standard_output() -> Console:
    """Return standard output; a file gets a width at which every table fits."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def show_warnings(out: Console, warnings: Sequence[tuple[str, bool]]) -> None:
    """Print warnings, one line each; True marks one that voids the privacy guarantee."""
    for headline, void in warnings:
        style = "bold red" if void else "bold yellow"
        out.print(f"! {escape(headline)}", style=style, soft_wrap=True)


def show_disclosure(
    out: Console, first: str, disclosure: Mapping[str, Any], *, noised: bool
) -> None:
    """Print what the first sum shows, and what the method's sums together determine.

    first: what is seen of the first sum; disclosure: of the method, as in run.json
    """
    with_noise = ", up to their noise" if noised else ""
    out.print(f"the first sum shows: {escape(first)}")
    out.print(f"the method's sums together determine{with_noise}: {escape(disclosure['text'])}")
    if attacks := disclosure.get("attacks"):
        shown = ", ".join(attacks)
        out.print(f"attacks that carry this out (secagg audit JOB --attack NAME): {shown}")
