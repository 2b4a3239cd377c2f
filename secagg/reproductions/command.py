"""The command `secagg reproduce`: its arguments, its progress bar and its tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from secagg.reproductions.figures import Figure
    from secagg.reproductions.reproducing import Reproduced

app = typer.Typer(help="Run a paper's experiments again; write tables, pictures and numbers.")


@app.callback()
def reproduce() -> None:
    """Keep the paper's name in the command line, however many papers there are."""


@app.command(name="notears-admm")
def notears_admm(
    figure: Annotated[
        int, typer.Option(min=1, max=4, help="Of the paper: 1, 2, 3 or 4.", show_default=False)
    ],
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs (default: 30, the paper's; quick: 3).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer columns and runs, in two minutes on two cores.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Figure 4 with d = 50, too (days).")] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Leave a method out, e.g. ges-voting, the slowest. Repeatable."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: as many as processors).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder (default: reproductions/notears-admm); goes on there."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ng and Zhang (AISTATS 2022): federated structure learning by ADMM, and its baselines."""
    from secagg.reproductions import notears_admm as paper  # noqa: PLC0415  # when it runs

    runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
    _run(
        paper.figure(figure, runs, quick=quick, full=full, skip=skip or ()),
        out or Path("reproductions") / "notears-admm",
        jobs or os.cpu_count() or 1,
        as_json,
    )


def _run(figure: Figure, folder: Path, jobs: int, as_json: bool) -> None:
    from secagg.reproductions import screen  # noqa: PLC0415
    from secagg.reproductions.reproducing import reproduce  # noqa: PLC0415

    with screen.progress(quiet=as_json) as (started, finished):
        done = reproduce(figure, folder, jobs, started, finished)
    if as_json:
        typer.echo(json.dumps(_printed(done), indent=1, ensure_ascii=False))
    else:
        screen.show(done)


def _printed(done: Reproduced) -> dict[str, object]:
    from secagg.reproductions.pages import as_plain  # noqa: PLC0415

    return {
        "files": [str(file) for file in done.files],
        "computed": done.computed,
        **as_plain(done.figure, done.entries, done.versions, done.seconds),
    }
