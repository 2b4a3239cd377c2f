"""What commands print without tables: plain lines and JSON. All of it goes through here.

`secagg.core.printable` says what is made harmless. Tables and coloured lines go through
`secagg.cli.output.terminal`. A test reads the code of all commands: nothing else prints.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from secagg.core.printable import printable, printable_json


def say(*lines: object, error: bool = False) -> None:
    """Print lines. Each argument is one line, whatever characters it has."""
    for line in lines:
        typer.echo(printable(str(line)), err=error)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    from secagg.evidence.run_files import finite  # noqa: PLC0415

    typer.echo(printable_json(finite(value), indent=1))


def print_data(text: str) -> None:
    """Print the content of a file: as it is to a file or a pipe, as lines to a terminal."""
    if sys.stdout.isatty():
        say(*text.splitlines())
    else:
        typer.echo(text, nl=False)
