"""`secagg audit`: attack a run, and say what leaked."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secagg.cli.options import AsJson, ProtocolName, Settings, job_overrides
from secagg.cli.printing import print_json, say
from secagg.errors import UsageError

if TYPE_CHECKING:
    from secagg.audits.audit import Audit
    from secagg.audits.folder_audit import FolderAudit
    from secagg.audits.views import Who

LEAK = 5
"""The exit code if a limit is exceeded."""


def audit(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB|RUN", help="A job, or the folder of a finished run.", show_default=False
        ),
    ],
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Only this attack (repeatable); see secagg list attacks."),
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option("--view", help="Only what this party sees (repeatable), e.g. coordinator."),
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
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for audit.html and audit.json; resumes an earlier audit there."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; as many as processors if not set.")
    ] = None,
    set_aside: Annotated[
        float | None,
        typer.Option(
            help="Share of each site's records that takes no part, below 1; a fifth if not set.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws of the audit.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Attack a run, and compare with the true records.

    JOB: it is run in a scratch folder, over the records of all sites. Nothing is released, and no
    ledger is charged. RUN: what its folder shows without the records.
    """
    from secagg.audits.audit import audit_job  # noqa: PLC0415  # each command loads what it needs
    from secagg.audits.audit_file import as_plain  # noqa: PLC0415
    from secagg.audits.audited_run import SET_ASIDE  # noqa: PLC0415
    from secagg.audits.folder_audit import audit_folder  # noqa: PLC0415
    from secagg.audits.limits import read_limits  # noqa: PLC0415
    from secagg.cli.output.audit import (  # noqa: PLC0415
        check_folder,
        named,
        show,
        working,
        write_audit,
    )
    from secagg.cli.output.terminal import alike  # noqa: PLC0415
    from secagg.core import canonical_encoding  # noqa: PLC0415
    from secagg.evidence.run_folder import RunFolder  # noqa: PLC0415
    from secagg.jobs.job import read_job  # noqa: PLC0415

    chosen = {} if limits is None else read_limits(limits)
    views, attacks = [_view(name) for name in view or ()], attack or ()
    found: Audit | FolderAudit
    overrides = job_overrides(protocol, None, settings)
    if job.is_dir():
        about = str(RunFolder.open_finished(job).facts.get("session"))
    else:
        about = canonical_encoding.digest(read_job(job, overrides).model_dump_json()).hex()
    if out is not None:
        check_folder(out, about)
    with working(quiet=as_json, folder=None if job.is_dir() else out) as progress:
        if job.is_dir():
            if protocol is not None or settings or set_aside is not None:
                what = "a run is as it is; --protocol, --set and --set-aside are for jobs"
                raise UsageError(str(job), what)
            found = audit_folder(
                job, attacks=attacks, views=views, limits=chosen, seed=seed, progress=progress
            )
        else:
            found = audit_job(
                job,
                overrides=overrides,
                attacks=attacks,
                views=views,
                limits=chosen,
                seed=seed,
                set_aside=SET_ASIDE if set_aside is None else set_aside,
                jobs=jobs or os.cpu_count() or 1,
                cache=None if out is None else out / "cache",
                progress=progress,
            )
    if all(each.verdict == "not applicable" for each in found.attacked):
        reasons = alike(dict.fromkeys((each.label, each.why) for each in found.attacked))
        why = "; ".join(f"{attacks}: {reason}" for attacks, reason in reasons)
        raise UsageError(str(job), f"nothing was tested, because no attack applies. {why}")
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    content = as_plain(found) | {"about": about, "finished": finished}
    if out is not None:
        write_audit(content, out)
    if as_json:
        print_json(content)
    else:
        show(found, out)
    if found.leaks:
        say(f"secagg: leak: {', '.join(named(found.leaks))}", error=True)
        raise typer.Exit(LEAK)


def _view(name: str) -> Who:
    from secagg.audits.views import Who  # noqa: PLC0415
    from secagg.core.validation import unknown_key  # noqa: PLC0415

    known = {who.value: who for who in Who}
    if name not in known:
        raise UsageError("--view", f"no view {name!r}", unknown_key("view", name, known).advice)
    return known[name]
