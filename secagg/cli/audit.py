"""`secagg audit`: attack a run of a job, and say what leaked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.options import AsJson, JobFile, ProtocolName, Settings, job_overrides, print_json

LEAK = 5
"""The exit code if a limit is exceeded."""


def audit(
    job: JobFile,
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Only this attack (repeatable); see secagg list attacks."),
    ] = None,
    limits: Annotated[
        Path | None,
        typer.Option(
            "--limits",
            help='TOML file of limits, such as excess_share = "<= 0.1".',
            show_default=False,
        ),
    ] = None,
    protocol: ProtocolName = None,
    settings: Settings = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws of the audit.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a job in a scratch folder, attack the run, and compare with the true records.

    It needs the records of all sites, or simulated ones. It releases nothing and charges no ledger.
    """
    from secagg.audits.audit import audit_job  # noqa: PLC0415  # each command loads what it needs
    from secagg.audits.limits import read_limits  # noqa: PLC0415
    from secagg.cli.output.audit import as_plain, show_audit, working  # noqa: PLC0415

    chosen = {} if limits is None else read_limits(limits)
    with working(quiet=as_json) as progress:
        found = audit_job(
            job,
            overrides=job_overrides(protocol, None, settings),
            attacks=attack or (),
            limits=chosen,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print_json(as_plain(found))
    else:
        show_audit(found)
    for leak in found.leaks:
        assert leak.finding is not None
        text = f"{leak.attack.name}, as {leak.who.value}: {leak.attack.metric} is "
        text += f"{leak.finding.value:.4g}, and the limit is {leak.limit}"
        typer.echo(f"secagg: leak: {text}", err=True)
    if found.leaks:
        raise typer.Exit(LEAK)
