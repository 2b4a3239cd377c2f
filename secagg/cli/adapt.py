"""The command `secagg adapt`: a finished run at a site that took no part in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from secagg.errors import UsageError


def adapt(
    run: Annotated[Path, typer.Argument(help="Folder of the finished run.", show_default=False)],
    table: Annotated[
        Path, typer.Argument(help="The new site's records, CSV or Parquet.", show_default=False)
    ],
    predict: Annotated[
        Path | None, typer.Option(help="Records to predict the outcome of, CSV or Parquet.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the predictions (CSV), or else for the coefficients (JSON)."),
    ] = None,
    sweeps: Annotated[
        int, typer.Option(min=2, help="Of the sampler of a sparse regression, for each draw.")
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take a finished run of sparse_regression or fedlin_hm2 to a new site; predict its records."""
    from secagg.cli import output  # noqa: PLC0415  # when it runs
    from secagg.core.private_files import write_private  # noqa: PLC0415
    from secagg.jobs.site_tables import read_file  # noqa: PLC0415
    from secagg.runs.adapt import adapt as adapt_run  # noqa: PLC0415

    if out is not None and out.exists():
        raise UsageError(str(out), "exists", "Choose another --out.")
    adapted = adapt_run(run, read_file(table), sweeps=sweeps)
    found = adapted.summary()
    written = (json.dumps(found, indent=1) + "\n").encode()
    if predict is not None:
        wanted = read_file(predict)
        predicted = adapted.predictions(wanted)
        for name, values in predicted.items():
            wanted[f"predicted_{name}"] = values
        written = wanted.to_csv(index=False).encode()
    if out is not None:
        try:
            write_private(out, written)
        except OSError as error:
            what = f"cannot be written ({error.strerror})"
            raise UsageError(str(out), what, "Choose another --out.") from None
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    elif predict is not None and out is None:
        typer.echo(written.decode(), nl=False)
        output.show_doubts(found)
    else:
        output.show_adapted(found)
        if out is not None:
            typer.echo(f"\nwritten: {out}")
