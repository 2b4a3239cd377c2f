"""The command `secagg experiment`: what privacy costs, over axes of a job's settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.options import AsJson
from secagg.cli.printing import print_json, say


def experiment(
    sweep: Annotated[
        Path, typer.Argument(help="TOML file: a job, and the keys that change.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder (default: experiments/<name>); continues there."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: as many as processors).")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Run each curve once, and estimate the time of all.")
    ] = False,
    png: Annotated[
        bool, typer.Option("--png", help="Also draw PNG files, with an installed Chromium.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job many times over records at hand, and show what privacy costs.

    Nothing is released, and no ledger is charged. The same command again goes on where an earlier
    one stopped.
    """
    from secagg.cli.output.cells import progress  # noqa: PLC0415  # each command loads what it needs
    from secagg.cli.output.experiment import show, show_plan  # noqa: PLC0415
    from secagg.core.browser import find_browser  # noqa: PLC0415
    from secagg.errors import UsageError  # noqa: PLC0415
    from secagg.experiments.experiment import plan_experiment  # noqa: PLC0415
    from secagg.experiments.output import check_folder, draw_pngs, write  # noqa: PLC0415
    from secagg.experiments.runner.experiment import compute_experiment  # noqa: PLC0415
    from secagg.experiments.summary import summarise  # noqa: PLC0415
    from secagg.experiments.sweep import read_sweep  # noqa: PLC0415

    read, processes = read_sweep(sweep), jobs or os.cpu_count() or 1
    folder = out or Path("experiments") / sweep.stem
    check_folder(folder, read.title, sweep.name)
    if png:
        find_browser("--png")  # before hours of runs
    planned = plan_experiment(read)
    if plan:
        with progress(quiet=as_json) as bar:
            once = compute_experiment(planned.pilot, lambda *_: {}, folder, processes, *bar)
        estimate = planned.estimate(once.outcomes)
        if as_json:
            print_json(estimate | {"jobs": processes})
        else:
            show_plan(estimate, processes)
        if metric := estimate["without_goal"]:
            raise UsageError("goal.metric", f"no run has {metric!r}", "Choose another metric.")
        return
    with progress(quiet=as_json) as bar:
        done = compute_experiment(planned, write, folder, processes, *bar)
    summary = summarise(planned, done)
    written = [*done.files, *(draw_pngs(done.files) if png else ())]
    if as_json:
        files = [str(file) for file in written]
        print_json({"files": files, "computed": done.computed, **summary})
        return
    show(summary)
    for file in written:
        say(file)
