"""What commands print without tables: plain lines and JSON. All of it goes through here.

`secagg.core.printable` says what is made harmless. Tables and coloured lines go through
`secagg.cli.output.terminal`. A test reads the code of all commands: nothing else prints.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import Any

import typer

from secagg.core.printable import printable, printable_json

_LABEL = re.compile(r"(\S+ ?){0,3}\s{2,}|\s+")


def say(*lines: object, error: bool = False) -> None:
    """Print lines. Each argument is one line, whatever characters it has.

    A terminal gets several lines for a long one, broken between words. If it begins with a label
    and a gap, or with an indent, the others are below the text that follows.
    """
    stream = sys.stderr if error else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    for line in lines:
        text = printable(str(line))
        if width is not None and len(text) > width:
            label = _LABEL.match(text)
            indent = label.end() if label and label.end() <= width / 2 else 2
            text = textwrap.fill(
                text, width, subsequent_indent=" " * indent,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        typer.echo(text, err=error)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    from secagg.evidence.run_files import finite  # noqa: PLC0415

    typer.echo(printable_json(finite(value), indent=1))


def print_data(text: str) -> None:
    """Print the content of a file: as it is to a file or a pipe, as lines to a terminal."""
    if sys.stdout.isatty():
        for line in text.splitlines():
            typer.echo(printable(line))
    else:
        typer.echo(text, nl=False)
