"""Run every benchmark and print its tables; with --write, put them into docs/performance.md too.

    python -m benchmarks.report [--quick] [--write] [SCRIPT ...]

Each script prints Markdown and can also run alone. In docs/performance.md the output of a script
stands between `<!-- begin SCRIPT -->` and `<!-- end SCRIPT -->`, that of `machine` first. Text
outside these marks is written by hand and never changed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import machine

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "performance.md"
SCRIPTS = {
    "bench_protocols.py": [],
    "bench_masked.py": [],
    "bench_flower.py": [],
    "bench_paillier.py": ["--job", "200", "--values", "100", "--phe-values", "1", "--rounds", "1"],
    "bench_peers.py": [],
    "bench_additive.py": [],
    "bench_rounds.py": [],
    "bench_engines.py": [],
    "bench_noise.py": [],
    "bench_floor.py": [],
    "bench_notears.py": [],
    "bench_routes.py": [],
    "bench_sparse.py": [],
    "bench_sparse_floor.py": [],
    "bench_fedlin.py": [],
    "bench_networks.py": [],
}
"""Each script, and what makes it quick where it knows no --quick."""


def output(script: str, quick: bool) -> str:
    """Return what a script prints. Raises `CalledProcessError` if it fails."""
    options = (SCRIPTS[script] or ["--quick"]) if quick else []
    [path] = HERE.glob(f"*/{script}")
    command = [sys.executable, "-m", f"benchmarks.{path.parent.name}.{path.stem}", *options]
    done = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True)
    text = "\n".join(line for line in done.stdout.splitlines() if not is_noise(line)).strip()
    return text if text.startswith("#") else f"```text\n{text}\n```"


def is_noise(line: str) -> bool:
    """Return whether a line is what HEU's logger writes to the standard output."""
    return re.match(r"\[[\d-]+ [\d:.]+\] \[\w+\] ", line) is not None


def write(name: str, text: str) -> None:
    """Replace what stands between the marks of `name` in the document."""
    before = DOCUMENT.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    head, rest = before.split(begin)
    _, tail = rest.split(end)
    DOCUMENT.write_text(f"{head}{begin}\n{text}\n\n{end}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="all unless named")
    parser.add_argument("--quick", action="store_true", help="small sizes, once: does it all run?")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    sections = {"machine": machine()}
    print(sections["machine"], end="\n\n", flush=True)
    for script in options.scripts or SCRIPTS:
        began = time.monotonic()
        sections[script] = output(script, options.quick)
        print(sections[script], end="\n\n", flush=True)
        print(f"{script}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    if options.write:
        for name, text in sections.items():
            write(name, text)


if __name__ == "__main__":
    main()
