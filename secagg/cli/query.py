"""The command `secagg query`: what a finished neural graphical model says of a record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.options import AsJson
from secagg.cli.printing import print_json
from secagg.errors import UsageError


def query(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of the finished run, or a JSON file of `secagg adapt`.",
            show_default=False,
        ),
    ],
    given: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="A known cell of the record; may be repeated."),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to tell about (default: all others)."),
    ] = None,
    most_probable: Annotated[
        bool, typer.Option(help="Show the most probable values of all other columns together.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show means and probabilities of columns, given others, after fedngm or fedngr."""
    from secagg.cli import output  # noqa: PLC0415  # load only for this command
    from secagg.evidence.run_folder import RunFolder  # noqa: PLC0415
    from secagg.runs.adapt.site_networks import read_site_networks  # noqa: PLC0415
    from secagg.runs.networks.finished_ngm import FinishedNgmRun  # noqa: PLC0415

    if of and most_probable:
        what = "cannot be used with --of, because it shows all columns"
        raise UsageError("--most-probable", what, "Leave out one of the two.")
    if run.is_file():
        finished = read_site_networks(run)
    else:
        finished = FinishedNgmRun.read(RunFolder.open_finished(run))
    known = _pairs(given or [])
    if most_probable:
        answer = finished.most_probable(known)
    else:
        others = [name for name in finished.cells.names if name not in known]
        answer = finished.query(known, of or others)
    if as_json:
        print_json(answer)
    else:
        output.show_query(answer)


def _pairs(texts: list[str]) -> dict[str, str]:
    """Return --given options as a mapping. Raises `UsageError`."""
    found: dict[str, str] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column:
            what = "is not COLUMN=VALUE"
            raise UsageError(f"--given {text}", what, "For example --given age=30.")
        if column in found:
            raise UsageError(f"--given {text}", f"column {column!r} is given twice", "Give one.")
        found[column] = value
    return found
