"""A table as lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(head: Sequence[str], body: Sequence[Sequence[str]], right: bool = True) -> Iterator[str]:
    """Yield the lines of a table and an empty line; right: align all but the first column right."""
    if not body:
        yield "None.\n"
        return
    mark = "--:" if right else "---"
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join(["---", *[mark] * (len(head) - 1)]) + " |"
    for row in body:
        yield "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
    yield ""
