"""A statement of the report, its status, and where its evidence is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from secagg.evidence.claims.claim import Status

__all__ = ["Evidence", "Section", "Statement", "Status", "Table"]


@dataclass(frozen=True)
class Evidence:
    """A place in a file of the report's folder.

    file: below the folder `evidence`; where: `line 12` of a log, or keys of a JSON or TOML file
        with slashes, such as `privacy/epsilon`; "" for the whole file
    """

    file: str
    where: str = ""

    def plain(self) -> dict[str, str]:
        """Return it as plain data."""
        return {"file": self.file, "where": self.where}


@dataclass(frozen=True)
class Statement:
    """One sentence or a few, about one thing.

    topic: what it is about, a few words; run: the run that it is about, "" for all
    """

    topic: str
    text: str
    status: Status
    evidence: tuple[Evidence, ...] = ()
    run: str = ""

    def plain(self, identity: str) -> dict[str, Any]:
        """Return it as plain data, under a name that is unique in the report."""
        return {
            "id": identity, "topic": self.topic, "text": self.text, "status": self.status.value,
            "evidence": [each.plain() for each in self.evidence], "run": self.run,
        }  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of text under heads; numbers: the positions of columns that are aligned to the right."""

    caption: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    numbers: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "caption": self.caption, "head": list(self.head),
            "rows": [list(row) for row in self.rows], "numbers": list(self.numbers),
            "evidence": [each.plain() for each in self.evidence],
        }  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A section of the report. serves: which rules ask for it, for the annex"""

    number: int
    title: str
    serves: str
    statements: tuple[Statement, ...]
    tables: tuple[Table, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        """Return it as plain data; statements are named by section and position."""
        return {
            "number": self.number, "title": self.title, "serves": self.serves,
            "statements": [
                each.plain(f"{self.number}.{i}") for i, each in enumerate(self.statements, start=1)
            ],
            "tables": [each.plain() for each in self.tables],
        }  # fmt: skip
