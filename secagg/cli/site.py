"""`secagg site check`: what a site finds out for itself, before a run; and its other commands."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.home import COMMANDS
from secagg.cli.options import AsJson, JobFile, Settings, job_overrides
from secagg.cli.printing import print_json, say

site = typer.Typer(help="What a site does for itself: check a job, keep its keys, approve jobs.")
for command in COMMANDS:
    site.command()(command)


@site.command(name="check")
def site_check(
    job: JobFile,
    name: Annotated[
        str | None, typer.Option("--site", help="Only this site (default: every site found).")
    ] = None,
    draft: Annotated[
        bool,
        typer.Option(
            "--draft", help="Write a draft of SITE.policy.toml from the job. Needs --site."
        ),
    ] = False,
    home: Annotated[
        Path | None,
        typer.Option("--home", help="A site's own home, with its records, rules and ledger."),
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Read the records and say whether the site would take part, and why not.

    With --home, also say whether the job is approved.

    Without --site and --home, also check all sites together: copies of files, and levels that are
    rare over all sites. Exit code 0: a run would go on; 2: records cannot be used, or with noise
    would be used although they are wrong; 3: a rule refuses.
    """
    from secagg.cli import output  # noqa: PLC0415
    from secagg.deploy.nvflare_kit import kit_certificate  # noqa: PLC0415
    from secagg.errors import UsageError  # noqa: PLC0415
    from secagg.jobs.job import load_job  # noqa: PLC0415
    from secagg.runs.checks.all_sites_check import check_folder  # noqa: PLC0415
    from secagg.runs.checks.home_check import check_home, coordinator_key  # noqa: PLC0415
    from secagg.runs.checks.site_check import check_sites, draft_policy  # noqa: PLC0415
    from secagg.sessions.homes.approvals import Approval, check_approved  # noqa: PLC0415
    from secagg.sessions.homes.home import Home  # noqa: PLC0415
    from secagg.sessions.homes.own_source import (  # noqa: PLC0415
        check_party,
        named_sites,
        plan_at_home,
    )
    from secagg.sessions.planned_job import plan_job  # noqa: PLC0415

    if draft and name is None:
        raise UsageError("--draft", "needs a site", "Add --site NAME.")
    if home is not None and name is not None:
        raise UsageError("--home", "is of one site", "Leave out --site.")
    loaded = load_job(job, job_overrides(None, None, settings))
    at_home = key = None
    if home is None:
        planned = plan_job(loaded)
    else:
        own = Home.open(home)
        planned = plan_at_home(own, loaded, named_sites(loaded))
        check_party(own, planned)
        if own.name not in planned.sources:
            raise UsageError(str(home), "is not a site's home, so it has no records to check")
        key, at_home = coordinator_key(own), check_home(own, loaded)
        if at_home.approval is Approval.BY_POLICY:
            check_approved(own, loaded)
    checks = check_sites(planned, name, key)
    certificate = None if home is None else kit_certificate(Home.open(home), datetime.now(UTC))
    written = draft_policy(loaded, planned.sources[str(name)]) if draft else None
    together = check_folder(planned) if name is None and home is None else None
    if as_json:
        all_sites = None if together is None else together.plain()
        standing: dict[str, Any] = {} if at_home is None else {"home": at_home.plain()}
        standing |= {} if certificate is None else {"certificate": certificate.plain()}
        sites = [check.plain() for check in checks]
        print_json({"sites": sites, "together": all_sites, **standing})
    else:
        say(*(() if certificate is None else certificate.lines))
        output.show_site_checks(checks, together, written, at_home)
    wrong = [bool(check.problem or check.mistakes) for check in checks]
    if any(wrong) or (together and (together.problem or together.mistakes)):
        raise typer.Exit(2)
    if not all(check.passes for check in checks) or (together and together.refusals):
        raise typer.Exit(3)
