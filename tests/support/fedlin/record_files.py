"""Files in the formats of FedLin's own records, and whether a package of records is installed."""

from importlib import metadata
from pathlib import Path

import pytest

from reproductions.data import fedlin


def needs(distribution: str) -> None:
    """Skip the test where it is not."""
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")


def write_engines(folder: Path, lengths: tuple[int, ...] = (5, 12), columns: int = 26) -> None:
    """In the format of NASA's file: 26 numbers a line, spaces between and at the end."""
    lines = []
    for unit, cycles in enumerate(lengths, 1):
        for cycle in range(1, cycles + 1):
            values = [100 * unit + cycle + j / 100 for j in range(columns - 2)]
            lines.append(" ".join([f"{unit} {cycle}", *(f"{v:.4f}" for v in values)]) + "  \n")
    (folder / fedlin.ENGINES).write_text("".join(lines))
