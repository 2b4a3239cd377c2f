"""The commands `secagg report` and `secagg sign`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.options import AsJson
from secagg.cli.printing import print_data, print_json, say


def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of finished runs.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder.", show_default=False)
    ] = None,
    form: Annotated[
        Path | None,
        typer.Option("--form", help="The officer's answers (TOML).", show_default=False),
    ] = None,
    audits: Annotated[
        list[Path] | None,
        typer.Option("--audit", help="Folder of an audit (repeatable).", show_default=False),
    ] = None,
    experiments: Annotated[
        list[Path] | None,
        typer.Option("--experiment", help="Folder of an experiment (repeatable)."),
    ] = None,
    ledgers: Annotated[
        Path | None,
        typer.Option("--ledgers", help="Ledgers of the same records.", show_default=False),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also print report.pdf, with an installed Chromium.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Only print the JSON schema of report.json.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a compliance report: statements with their evidence, for a person who decides."""
    from importlib import resources  # noqa: PLC0415

    from secagg.compliance.report_folder import write_report  # noqa: PLC0415
    from secagg.compliance.signatures import digest_of  # noqa: PLC0415
    from secagg.errors import UsageError  # noqa: PLC0415

    if schema:
        print_data(resources.files("secagg.compliance").joinpath("report.schema.json").read_text())
        return
    if not runs or out is None:
        raise UsageError("report", "needs the folders of runs, and --out", "See --help.")
    written = write_report(out, runs, audits or (), experiments or (), ledgers, form, pdf=pdf)
    if as_json:
        print_json(written)
        return
    total = written["first_page"]["total"]
    say(written["first_page"]["claim"])
    say(", ".join(f"{number} {status}" for status, number in total.items()))
    say(out / "report.html", f"sha256 of report.json: {digest_of(out).hex()}")


def sign(
    report: Annotated[
        Path,
        typer.Argument(help="Folder of a report, an audit or an experiment.", show_default=False),
    ],
    home: Annotated[
        Path | None, typer.Option("--home", help="Sign with this party's keys.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Sign with a coordinator's key file.")
    ] = None,
) -> None:
    """Sign a report: this party saw exactly this report.

    Of an audit or an experiment: this party stands for its numbers.
    """
    from secagg.compliance.measured_folder import verify_measurement  # noqa: PLC0415
    from secagg.compliance.report_folder import verify_report  # noqa: PLC0415
    from secagg.compliance.signatures import sign_report  # noqa: PLC0415
    from secagg.core.identity import COORDINATOR  # noqa: PLC0415
    from secagg.core.key_file import read_key  # noqa: PLC0415
    from secagg.errors import UsageError  # noqa: PLC0415
    from secagg.sessions.homes.home import Home  # noqa: PLC0415

    if (home is None) == (key is None):
        raise UsageError("sign", "needs --home or --key")
    identity = Home.open(home).identity if home else read_key(Path(str(key)), COORDINATOR)
    # nobody should sign what does not hold
    is_report = (report / "report.json").exists()
    digest = verify_report(report).digest if is_report else verify_measurement(report).digest
    say(sign_report(report, bytes.fromhex(digest), identity))
