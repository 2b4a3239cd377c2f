"""The command `secagg settings`: the keys of a job's tables, of a method or of a policy."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from secagg.cli.options import AsJson
from secagg.cli.printing import print_json, say

LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def settings(
    name: Annotated[
        str | None, typer.Argument(help="A table, method, analysis or protocol.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the keys of a table of a job, a method, a protocol or a policy; or all names."""
    from dataclasses import asdict  # noqa: PLC0415  # each command loads only what it needs

    from secagg.jobs.settings import GROUPS, settings_of_table  # noqa: PLC0415

    if name is None:
        names = {group: list(tables) for group, tables in GROUPS.items()}
        if as_json:
            print_json(names)
        for group, tables in () if as_json else names.items():
            say(f"{group}: {', '.join(tables)}")
        return
    found = settings_of_table(name)
    if as_json:
        print_json([asdict(key) for key in found])
        return
    if not found:
        say(f"{name} has no keys")
    for key in found:
        say(f"{key.name}: {_plain(key.type)} ({_plain(key.default)})")
        say(f"    {' '.join(_plain(key.meaning).split())}")


def _plain(markdown: str) -> str:
    return LINK.sub(r"\1", markdown).replace("`", "")
