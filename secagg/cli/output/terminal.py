"""What all output of commands shares: where it goes, and how warnings and numbers are written."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape


def standard_output() -> Console:
    """Return standard output; where that is a file, wide enough for every table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


def show_warnings(out: Console, warnings: Sequence[tuple[str, bool]]) -> None:
    """Print headlines, a line each; of those marked true, as of a promise that is void."""
    for headline, void in warnings:
        style = "bold red" if void else "bold yellow"
        out.print(f"! {escape(headline)}", style=style, soft_wrap=True)


def show_disclosure(out: Console, text: str, *, noised: bool) -> None:
    """Print what all sums of a run together determine, in the method's own words."""
    with_noise = ", but for their noise" if noised else ""
    out.print(f"all sums together determine{with_noise}: {escape(text)}")


def number(value: float | None) -> str:
    """Return three significant digits, plain where that is short."""
    if value is None:
        return "-"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:.3g}"
