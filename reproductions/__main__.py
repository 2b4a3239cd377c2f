"""The command `python -m reproductions`: its arguments, its progress bar and its tables.

`make reproduce PAPER="notears-admm --figure 1 --quick"` calls it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from secagg.cli.main import main
from secagg.cli.options import AsJson
from secagg.cli.printing import print_json, say
from secagg.errors import UsageError

if TYPE_CHECKING:
    from reproductions.harness.figures import Figure
    from reproductions.harness.tables import Study
    from secagg.experiments.runner.experiment import Done, Experiment, Write

app = typer.Typer(
    help="Run a paper's experiments again; write tables, pictures and numbers.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

E = TypeVar("E", bound="Experiment")
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes (default: as many as processors).")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Fewer columns and runs: two minutes on two cores.")
]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Runs (default: 30, as in the paper; quick: 3).")
]


class Tables(Enum):
    """Names of tables on the command line."""

    HEART = "heart"
    OVARIAN = "ovarian"
    SACHS = "sachs"


class Figures(Enum):
    """Names of figures on the command line."""

    DEVIATING_SITE = "deviating-site"


@app.callback()
def reproduce() -> None:
    """Make the paper's name part of the command, also while there is only one paper."""


@app.command(name="notears-admm")
def notears_admm(
    figure: Annotated[
        int,
        typer.Option(min=1, max=4, help="Number in the paper: 1, 2, 3 or 4.", show_default=False),
    ],
    seeds: Seeds = None,
    quick: Quick = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also figure 4 with d = 50 (takes days).")
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Leave a method out, e.g. ges-voting, the slowest. Repeatable."),
    ] = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder (default: runs/notears-admm); continues there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ng and Zhang (AISTATS 2022): federated structure learning by ADMM, and its baselines."""
    from reproductions.notears_admm import figures as paper  # noqa: PLC0415

    runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
    _run_figure(
        paper.figure(figure, runs, quick=quick, full=full, skip=skip or ()),
        out or Path("runs") / "notears-admm",
        jobs,
        as_json,
    )


@app.command(name="sparse-bayes")
def sparse_bayes(
    table: Annotated[
        Tables | None, typer.Option(help="Table of real records.", show_default=False)
    ] = None,
    figure: Annotated[
        Figures | None, typer.Option(help="Figure of simulated records.", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of a figure (default: 20; quick: 3).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds and runs: the chains will not converge.")
    ] = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder (default: runs/sparse-bayes); continues there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Kidd, Wang, Xu and Ni (PSB 2023): federated sparse Bayesian models, on records at hand."""
    from reproductions.sparse_bayes import tables as paper  # noqa: PLC0415

    folder = out or Path("runs") / "sparse-bayes"
    match table, figure:
        case None, Figures():
            runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
            _run_figure(paper.deviating_site(runs, quick=quick), folder, jobs, as_json)
        case Tables(), None if seeds is None:
            _run_study(paper.study(table.value, quick=quick), folder, jobs, as_json)
        case _:
            what = "needs either --table or --figure; --seeds is for a figure"
            raise UsageError("command", what, "For example --table heart.")


@app.command(name="fedlin")
def fedlin(
    table: Annotated[
        int | None,
        typer.Option(min=1, max=4, help="Number in the paper: 1, 2, 3 or 4.", show_default=False),
    ] = None,
    figure: Annotated[
        int | None,
        typer.Option(min=3, max=4, help="Number in the paper: 3 or 4.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the files of the paper, for tables 3 and 4.", show_default=False
        ),
    ] = None,
    seeds: Seeds = None,
    quick: Quick = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder (default: runs/fedlin); continues there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Yue, Al Kontar and Estrada Gomez (2022): FedLin, hierarchical linear models."""
    from reproductions.fedlin import tables as paper  # noqa: PLC0415

    runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
    match table, figure:
        case None, int():
            experiment = paper.figure(figure, runs, data, quick=quick)
        case int(), None:
            experiment = paper.table(table, runs, data, quick=quick)
        case _:
            what = "needs either --table or --figure"
            raise UsageError("command", what, "For example --table 1.")
    _run_figure(experiment, out or Path("runs") / "fedlin", jobs, as_json)


@app.command(name="fedngm")
def fedngm(
    table: Annotated[
        int,
        typer.Option(min=2, max=4, help="Number in the paper: 2, 3 or 4.", show_default=False),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the linked births of 2015, as CDC or NBER publish them.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs (default: 10; quick: 2).")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The first of three tables of births, and fewer runs.")
    ] = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder (default: runs/fedngm); continues there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Chajewska and Shrivastava (2023): FedNGM, neural graphical models. Needs torch."""
    from reproductions.fedngm import tables as paper  # noqa: PLC0415

    runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
    figure = paper.table(table, runs, data, quick=quick)
    _run_figure(figure, out or Path("runs") / "fedngm", jobs, as_json)


@app.command(name="fed-sparse-bnsl")
def fed_sparse_bnsl(
    seeds: Seeds = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only d = 10, without GES.")] = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder (default: runs/fed-sparse-bnsl); continues there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """El Fehri, Bellet and Bastien (2026): private graphs, as we read them, beside secagg's."""
    from reproductions.fed_sparse_bnsl import figures as paper  # noqa: PLC0415

    runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
    _run_figure(
        paper.figure(runs, quick=quick), out or Path("runs") / "fed-sparse-bnsl", jobs, as_json
    )


@app.command(name="fedges")
def fedges(
    seeds: Seeds = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only d = 10.")] = False,
    jobs: Jobs = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder (default: runs/fedges); continues there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Torrijos, Gámez and Puerta (2024): FedGES, graphs in place of sums, beside secagg's GES."""
    from reproductions.fedges import figures as paper  # noqa: PLC0415

    runs = seeds or (paper.QUICK_SEEDS if quick else paper.SEEDS)
    _run_figure(paper.figure(runs, quick=quick), out or Path("runs") / "fedges", jobs, as_json)


def _run_figure(figure: Figure, folder: Path, jobs: int | None, as_json: bool) -> None:
    from reproductions.harness.pages import write  # noqa: PLC0415
    from reproductions.printed import show_figure  # noqa: PLC0415

    _run(figure, write, show_figure, folder, jobs, as_json)


def _run_study(study: Study, folder: Path, jobs: int | None, as_json: bool) -> None:
    from reproductions.harness.tables import write  # noqa: PLC0415
    from reproductions.printed import show_study  # noqa: PLC0415

    _run(study, write, show_study, folder, jobs, as_json)


def _run(
    experiment: E,
    write: Write[E],
    show: Callable[[E, Done], None],
    folder: Path,
    jobs: int | None,
    as_json: bool,
) -> None:
    from secagg.cli.output.cells import progress  # noqa: PLC0415
    from secagg.experiments.runner.experiment import compute_experiment  # noqa: PLC0415

    with progress(quiet=as_json) as (started, finished):
        done = compute_experiment(
            experiment, write, folder, jobs or os.cpu_count() or 1, started, finished
        )
    if as_json:
        [numbers] = [file for file in done.files if file.suffix == ".json"]
        printed = {"files": [str(file) for file in done.files], "computed": done.computed}
        printed |= json.loads(numbers.read_text("utf-8"))
        print_json(printed)
    else:
        show(experiment, done)
        for file in done.files:
            say(file)


if __name__ == "__main__":
    main(app)
