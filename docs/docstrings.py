"""Docstrings say `name: meaning`, a line each; on the site these lines become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

LINE = re.compile(r"^(\w+(?:, \w+)*): (?=\S)")


class ListsOfNames(griffe.Extension):
    """Rewrites each docstring when it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Turn lines that begin with names into the items of a list."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)


def as_list(text: str) -> str:
    """Return the text with its lines `name: meaning` as a Markdown list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if found := LINE.match(line):
            if not inside:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            lines.append(f"- {names}: {line[found.end() :]}")
            inside = True
        else:
            if inside and line and not line.startswith(" "):
                lines.append("")
                inside = False
            lines.append(line)
    return "\n".join(lines)
