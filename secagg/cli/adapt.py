"""The command `secagg adapt`: apply a finished run to a site that took no part in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from secagg.cli.printing import print_data, print_json, say
from secagg.errors import UsageError

if TYPE_CHECKING:
    from secagg.runs.adapt.site_networks import SiteNetworks


def adapt(
    run: Annotated[Path, typer.Argument(help="Folder of the finished run.", show_default=False)],
    table: Annotated[
        Path, typer.Argument(help="The new site's records, CSV or Parquet.", show_default=False)
    ],
    columns: Annotated[
        str | None,
        typer.Option(
            help="TOML file that declares the site's own columns, after fedngm or fedngr; `job` "
            "for those in the job's table [partial]."
        ),
    ] = None,
    predict: Annotated[
        Path | None,
        typer.Option(
            help="Records to predict: the outcome, own columns, or columns that it lacks."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions (CSV), or else for the result (JSON). Networks are "
            "written beside it (NPZ)."
        ),
    ] = None,
    sweeps: Annotated[
        int, typer.Option(min=2, help="Sweeps of a sparse regression's sampler for each draw.")
    ] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Apply a run of sparse_regression, fedlin_hm2, fedngm or fedngr to a site's records."""
    from secagg.cli import output  # noqa: PLC0415  # load only for this command
    from secagg.core.private_files import write_private  # noqa: PLC0415
    from secagg.jobs.site_tables import read_file  # noqa: PLC0415
    from secagg.runs.adapt import adapt as adapt_run  # noqa: PLC0415
    from secagg.runs.adapt import gives_networks  # noqa: PLC0415

    networks = predict is None and gives_networks(run)
    places = _free_places(out, networks=networks)
    adapted = adapt_run(run, read_file(table), columns=columns, sweeps=sweeps)
    summary = adapted.summary()
    contents = [(json.dumps(summary, indent=1) + "\n").encode()]
    if predict is not None:
        records = read_file(predict)
        for name, values in adapted.predictions(records).items():
            records[f"predicted_{name}"] = values
        contents = [records.to_csv(index=False).encode()]
    elif networks:
        contents.append(cast("SiteNetworks", adapted).arrays_file())
    for place, content in zip(places, contents, strict=False):
        try:
            write_private(place, content)
        except OSError as error:
            what = f"cannot be written ({error.strerror})"
            raise UsageError(str(place), what, "Choose another --out.") from None
    if as_json:
        print_json(summary)
    elif predict is not None and out is None:
        print_data(contents[0].decode())
        output.show_doubts(summary)
    else:
        output.show_adapted(summary)
        if places:
            say("", f"written: {', '.join(map(str, places))}")


def _free_places(out: Path | None, *, networks: bool) -> list[Path]:
    """Return the files to write, none of which exists: `out`, and an NPZ file for networks."""
    if out is None:
        return []
    if networks and out.suffix != ".json":
        raise UsageError(str(out), "is not the name of a JSON file", "Choose NAME.json.")
    places = [out, out.with_suffix(".npz")] if networks else [out]
    for place in places:
        if place.exists():
            raise UsageError(str(place), "exists", "Choose another --out.")
    return places
