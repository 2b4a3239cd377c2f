"""What the output of all commands shares: its console, and how it shows warnings.

The console makes texts of others harmless (`secagg.core.printable`), so that no command can forget
to. A string is one line: a line feed in it is shown as `\\n`. Lines of our own that belong together
are a `Text`, which has no text of others. `escape` stays necessary around texts of others, or
square brackets in them could set a colour; a link they cannot set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from secagg.core.printable import is_printable, printable
from secagg.evidence.claims.disclosure import determined

WIDTH = 120  # of output that goes to a file
_LINK = re.compile(r"\b(?:link|@\w+)\b", re.IGNORECASE)


class SafeConsole(Console):
    """A console that obeys nothing in the texts that it prints."""

    def render_str(self, text: str, *args: Any, **options: Any) -> Text:
        """Return a string as one printable line. Rich calls this for strings and table cells."""
        shown = super().render_str(printable(text), *args, **options)
        shown.spans = [span for span in shown.spans if not _LINK.search(str(span.style))]
        return shown

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is printed; also `Text`, which no string was, is printable line by line."""
        for segment in super().render(renderable, options):
            if segment.control or is_printable(segment.text.replace("\n", "")):
                yield segment
            else:
                lines = map(printable, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


def standard_output() -> Console:
    """Return standard output; a file gets a width at which every table fits."""
    console = SafeConsole(highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return SafeConsole(highlight=False, emoji=False, width=WIDTH)


def standard_error() -> Console:
    """Return standard error, for progress and warnings."""
    return SafeConsole(stderr=True, highlight=False, emoji=False)


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
    out.print(f"The first sum shows: {escape(first)}")
    out.print(escape(determined(disclosure["text"], noised=noised)))
    if attacks := disclosure.get("attacks"):
        shown = ", ".join(attacks)
        out.print(f"attacks that carry this out (secagg audit JOB --attack NAME): {shown}")
