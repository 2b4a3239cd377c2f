"""The command `secagg adapt`: apply a finished run to a site that took no part in it."""

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
        int, typer.Option(min=2, help="Sweeps of a sparse regression's sampler for each draw.")
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Apply a finished run of sparse_regression or fedlin_hm2 to a new site; predict records."""
    from secagg.cli import output  # noqa: PLC0415  # load only for this command
    from secagg.core.private_files import write_private  # noqa: PLC0415
    from secagg.jobs.site_tables import read_file  # noqa: PLC0415
    from secagg.runs.adapt import adapt as adapt_run  # noqa: PLC0415

    if out is not None and out.exists():
        raise UsageError(str(out), "exists", "Choose another --out.")
    adapted = adapt_run(run, read_file(table), sweeps=sweeps)
    summary = adapted.summary()
    contents = (json.dumps(summary, indent=1) + "\n").encode()
    if predict is not None:
        records = read_file(predict)
        for name, values in adapted.predictions(records).items():
            records[f"predicted_{name}"] = values
        contents = records.to_csv(index=False).encode()
    if out is not None:
        try:
            write_private(out, contents)
        except OSError as error:
            what = f"cannot be written ({error.strerror})"
            raise UsageError(str(out), what, "Choose another --out.") from None
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
    elif predict is not None and out is None:
        typer.echo(contents.decode(), nl=False)
        output.show_doubts(summary)
    else:
        output.show_adapted(summary)
        if out is not None:
            typer.echo(f"\nwritten: {out}")
