"""Tables that stay readable on a narrow terminal: words and numbers are never broken inside.

Headers and texts wrap between words, and numbers, which are the columns to the right, do not wrap.
If even so the columns are wider than the terminal, each row becomes a list of "header: value".
"""

from __future__ import annotations

from rich import table
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.style import StyleType
from rich.table import Column
from rich.text import Text

from secagg.cli.output.terminal import Paragraph

_GAP = 2  # columns between two columns
_UNLIMITED = 10_000
_READABLE = 16  # columns that a text gets at least, if it has as many


class Table(table.Table):
    """A table with a title above and a caption below, both as wide as the terminal."""

    def __init__(
        self, *headers: str, title: str = "", caption: str | None = "", show_header: bool = True
    ) -> None:
        super().__init__(
            *headers, box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True,
            show_header=show_header,
        )  # fmt: skip
        self.above, self.below = title, caption

    def add_row(
        self,
        *cells: RenderableType | None,
        style: StyleType | None = None,
        end_section: bool = False,
    ) -> None:
        """Add a row; later lines of its first cell are indented."""
        first, *others = cells
        own = Paragraph(first) if isinstance(first, str | Text) else first
        super().add_row(own, *others, style=style, end_section=end_section)

    def fits(self, console: Console) -> bool:
        """Return whether it is a table at the console's width, and not a list."""
        return self._widths(console, console.options) is not None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title, then a table or a list, then the caption."""
        options = options.update(no_wrap=False)
        widths = self._widths(console, options)
        if self.above:
            yield Paragraph(self.above, "bold")
        if widths is None:
            yield from self._list(console)
        else:
            for column, width in zip(self.columns, widths, strict=True):
                column.width = width
            yield from super().__rich_console__(console, options)
        if self.below:
            yield Paragraph(self.below, "dim")

    def _widths(self, console: Console, options: ConsoleOptions) -> list[int] | None:
        """Return the width of each column, or None if they do not fit."""
        ranges = [_range(console, options, column, self.show_header) for column in self.columns]
        widths = [least for least, _ in ranges]
        left = options.max_width - sum(widths) - _GAP * (len(widths) - 1)
        if left < 0:
            return None
        for _ in range(left):  # one more for the column that lacks most
            lacks = [most - width for (_, most), width in zip(ranges, widths, strict=True)]
            if not any(lacks):
                break
            widths[lacks.index(max(lacks))] += 1
        return widths

    def _list(self, console: Console) -> RenderResult:
        """Yield each row: its first cell, and below it a line for each other cell."""
        heads = [_one_line(console, column.header) for column in self.columns]
        columns = [list(column.cells) for column in self.columns]
        for i, row in enumerate(self.rows):
            if i:
                yield Text()
            cells = [_one_line(console, cells[i]) for cells in columns]
            for j, (head, cell) in enumerate(zip(heads, cells, strict=True)):
                if not cell:
                    continue
                shown = Text.assemble(head, ": ", cell) if head and self.show_header else cell
                yield Paragraph(shown, str(row.style or ""), indent=2 if j else 0)


def _range(
    console: Console, options: ConsoleOptions, column: Column, show_header: bool
) -> tuple[int, int]:
    """Return the least and the largest width that a column can use."""
    wide = options.update(width=_UNLIMITED)
    cells = [Measurement.get(console, wide, cell) for cell in column.cells]
    head = Measurement.get(console, wide, column.header if show_header else "")
    most = max((cell.maximum for cell in cells), default=0)
    whole = column.justify == "right"
    least = most if whole else max((cell.minimum for cell in cells), default=0)
    if not whole:
        least = max(least, min(most, _READABLE))
    return max(least, head.minimum), max(most, head.maximum)


def _one_line(console: Console, cell: RenderableType) -> Text:
    """Return a header or a cell as one line."""
    if isinstance(cell, Paragraph):
        cell = cell.render(console)
    text = cell if isinstance(cell, Text) else console.render_str(str(cell))
    joined = Text(" ").join(text.split("\n"))
    joined.style = text.style
    return joined
