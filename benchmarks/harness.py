"""Shared by the benchmarks: the clock, interleaved rounds, ratios, tables, the machine's name.

Rules that make the numbers reliable on a busy or throttled machine:

* The clock is the processor time of this process, including all its threads (`time.process_time`).
* The alternatives take turns within one run, round by round. A ratio is computed in each round, and
  then the median over rounds, so that a slow minute slows both sides.
* Tables give "median (lowest to highest)" if there was more than one round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from secagg.protocols.kernels.library import available

T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)


def quick_asked(doc: str | None, what: str) -> bool:
    """Return whether the benchmark was started with its only option, --quick; what: its help."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=what)
    return bool(parser.parse_args().quick)


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing, in one unit."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __mul__(self, factor: float) -> Spread:
        return Spread(tuple(value * factor for value in self.values))

    def over(self, other: Spread) -> Spread:
        """Return the ratio to `other`, round by round."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def __str__(self) -> str:
        low, high = number(min(self.values)), number(max(self.values))
        middle = number(self.median)
        return middle if low == high else f"{middle} ({low} to {high})"


def total(parts: Sequence[Spread]) -> Spread:
    """Return the sum of the parts, round by round."""
    return Spread(tuple(map(sum, zip(*(part.values for part in parts), strict=True))))


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Return the processor seconds that `action` took, and its result."""
    began = time.process_time()
    result = action()
    return time.process_time() - began, result


def interleave(
    tasks: Mapping[Name, Callable[[], object]], rounds: int, *, warm: bool = False
) -> dict[Name, Spread]:
    """Return each task's processor seconds; in every round all tasks take their turn.

    warm: run each task once, untimed, before it is timed: for those that keep tables or buffers,
        which the other tasks may have displaced
    """
    taken: dict[Name, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            if warm:
                task()
            taken[name].append(timed(task)[0])
    return {name: Spread(tuple(seconds)) for name, seconds in taken.items()}


def number(value: float) -> str:
    """Return three significant digits, without exponents for numbers of ordinary size."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        digits = f"{value:.3g}"
        return f"{value:,.0f}" if abs(value) >= 1000 or "e" in digits else digits
    return f"{value:.2e}"


def size(count: float) -> str:
    """Return a number of bytes in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{number(count)} {unit}"
        count /= 1000
    return f"{number(count)} TB"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table, its columns padded so that it reads well in a terminal too."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * w for w in widths) + " |")
    return "\n".join(lines)


def stored_rows(file: Path) -> list[dict[str, Any]]:
    """Return the results in a file, one JSON object in each line; none if there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def store_row(file: Path, row: Mapping[str, Any]) -> None:
    """Append a result, so that an interrupted run goes on after it."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")


def with_error(values: Sequence[float], digits: int = 3) -> str:
    """Return the mean and its standard error."""
    values = [float(value) for value in values]
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.fmean(values):.{digits}f} ± {error:.{digits}f}"


def section(title: str, text: str, *tables: str) -> None:
    """Print one section of the report."""
    print("\n\n".join((f"### {title}", text, *tables)), end="\n\n", flush=True)


# --- where and when -------------------------------------------------------------------------------

CORE = ("numpy", "gmpy2", "cryptography", "phe")


def version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@contextmanager
def portable() -> Iterator[None]:
    """Switch secagg's compiled kernels off, as they are on machines that cannot run them."""
    before = os.environ.get("SECAGG_KERNELS")
    os.environ["SECAGG_KERNELS"] = "off"
    try:
        yield
    finally:
        del os.environ["SECAGG_KERNELS"]
        if before is not None:
            os.environ["SECAGG_KERNELS"] = before


def machine() -> str:
    """Return the date, the processor and the versions, in one sentence each."""
    facts = _cpu_facts()
    flags = set(facts.get("flags", "").split())
    vector = [name for name in ("avx2", "avx512f", "avx512ifma", "vaes") if name in flags]
    versions = [f"{name} {version(name)}" for name in CORE if version(name)]
    return (
        f"Measured on {datetime.now(UTC):%d %B %Y}: {os.cpu_count()} cores "
        f"{facts.get('model name', platform.processor() or 'of unknown make')} "
        f"(family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}; "
        f"{', '.join(vector) or 'no vector extensions reported'}), {_memory()}, "
        f"{platform.system()}; Python {platform.python_version()}, {', '.join(versions)}; "
        f"kernels {'on' if available() else 'off'}. "
        f"Load when this began: {os.getloadavg()[0]:.1f}."
    )


def _cpu_facts() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():  # not Linux: the platform module has to do
        return {}
    first = path.read_text(encoding="utf-8").split("\n\n", maxsplit=1)[0]
    pairs = (line.split(":", maxsplit=1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _memory() -> str:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * page / 2**30:.0f} GiB of memory"
