"""Arguments and options that several commands share."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secagg.errors import UsageError

Ledgers = Annotated[
    Path,
    typer.Argument(help="A job, a folder of ledgers, or a ledger.", show_default=False),
]

Party = Annotated[
    str | None, typer.Option(help="Owner of the ledger: the name of a site, or 'coordinator'.")
]

JobFile = Annotated[Path, typer.Argument(help="The job, a TOML file.", show_default=False)]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key of the job, e.g. method.level=0.9."
    ),
]

ProtocolName = Annotated[
    str | None, typer.Option("--protocol", help="Run under this protocol, with its defaults.")
]

EngineName = Annotated[
    str | None, typer.Option("--engine", help="Where the parties run: memory or processes.")
]

Key = Annotated[
    Path | None, typer.Option("--key", help="The coordinator's own keys (see secagg key).")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class AdjacencyOption(StrEnum):
    """A copy of `secagg.contracts.noise.Adjacency`, whose import would load NumPy."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


def job_overrides(
    protocol: str | None, engine: str | None, settings: list[str] | None
) -> dict[str, str]:
    """Return `--set` pairs as a mapping; `--protocol` replaces the whole protocol table."""
    overrides = {} if protocol is None else {"protocol": f"{{ name = {json.dumps(protocol)} }}"}
    if engine is not None:
        overrides["engine.name"] = json.dumps(engine)
    for pair in settings or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(
                f"--set {pair}", "is not KEY=VALUE", "For example --set method.level=0.9."
            )
        overrides[key] = value
    return overrides
