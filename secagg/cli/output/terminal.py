"""What the output of all commands shares: its console, and how it shows warnings.

The console makes texts of others harmless (`secagg.core.printable`), so that no command can forget
to. A string is one line: a line feed in it is shown as `\\n`. Lines of our own that belong together
are a `Text`, which has no text of others. `escape` stays necessary around texts of others, or
square brackets in them could set a colour; a link they cannot set.

On a terminal, lines break between words only. In a file or a pipe a text is one line, for grep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from secagg.core.printable import is_printable, printable
from secagg.evidence.claims.disclosure import determined
from secagg.evidence.numbers import listing

WIDTH = 120  # of output that goes to a file
_HANGING = 2  # columns by which the later lines of a paragraph are indented
_UNLIMITED = 10**9
_LINK = re.compile(r"\b(?:link|@\w+)\b", re.IGNORECASE)


class SafeConsole(Console):
    """A console that obeys nothing in the texts that it prints, and breaks no word."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a word that is longer than the line stays whole, so that it can be copied."""
        shown = objects
        if all(isinstance(each, str) for each in objects):
            texts = [self.render_str(each, markup=options.get("markup")) for each in objects]
            shown = tuple(map(Paragraph, texts))
        whole = {"crop": False, "no_wrap": not self.is_terminal}
        super().print(*shown, **(whole | options))

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


class Paragraph:
    """A text with an indent, and a deeper one for the lines after the first.

    So a text that another party wrote never begins a line, as secagg's own messages do.
    """

    def __init__(self, text: str | Text, style: str = "", *, indent: int = 0) -> None:
        self.text, self.style, self.indent = text, style, indent

    def render(self, console: Console) -> Text:
        """Return the text with its style."""
        text = console.render_str(self.text) if isinstance(self.text, str) else self.text.copy()
        text.stylize(self.style)
        return text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width of the longest word and that of the text, with its indents."""
        least, most = Measurement.get(console, options, self.render(console))
        later = _HANGING if least < most else 0
        return Measurement(least + self.indent + later, most + self.indent)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines; one line if it must not wrap."""
        text = self.render(console)
        width = _UNLIMITED if options.no_wrap else options.max_width - self.indent
        lines = text.divide(_breaks(text.plain, width, width - _HANGING))
        for i, line in enumerate(lines):
            line.rstrip()
            indent = Text(" " * (self.indent + _HANGING * (i > 0)), no_wrap=True, overflow="ignore")
            yield indent + line


def _breaks(text: str, first: int, later: int) -> list[int]:
    """Return where lines end. first, later: cells in the first line, and in each later one"""
    found, start, width = list[int](), 0, first
    for word in re.finditer(r"\s*(\S+(?: %)?)", text):
        if word.start() and cell_len(text[start : word.end()]) > width:
            start, width = word.start(1), later
            found.append(start)
    return found


def standard_output() -> Console:
    """Return standard output; a file gets a width at which every table fits."""
    console = SafeConsole(highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return SafeConsole(highlight=False, emoji=False, width=WIDTH)


def standard_error() -> Console:
    """Return standard error, for progress and warnings."""
    return SafeConsole(stderr=True, highlight=False, emoji=False)


def show_heading(out: Console, text: str) -> None:
    """Print an empty line and the heading of what follows."""
    out.print()
    out.print(text, style="bold", markup=False)


def show_warnings(out: Console, warnings: Sequence[tuple[str, bool]]) -> None:
    """Print warnings, one line each; True marks one that voids the privacy guarantee."""
    for headline, void in warnings:
        style = "bold red" if void else "bold yellow"
        out.print(Paragraph(f"! {escape(headline)}", style))


def alike(texts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return each different text once, with a list of the names that have it."""
    names: dict[str, list[str]] = {}
    for name, text in texts:
        names.setdefault(text, []).append(name)
    return [(listing(having), text) for text, having in names.items()]


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


def show_mistrust(out: Console, name: str, reasons: Sequence[str]) -> None:
    """Print that nobody should rely on a result, and why."""
    out.print(f"[bold red]! {escape(name)}: do not rely on this result[/]")
    for note in reasons:
        out.print(Paragraph(f"[red]- {escape(note)}[/]", indent=2))
