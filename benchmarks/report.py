"""Run every benchmark and print its tables; with --write, put them into docs/performance/ too.

    python -m benchmarks.report [--quick] [--write] [SCRIPT ...]

Each script prints Markdown and can also run alone. In the pages of docs/performance the output of a
script stands between `<!-- begin SCRIPT -->` and `<!-- end SCRIPT -->`. It begins with the stamp:
date, machine, versions and commit. Text outside these marks is written by hand and never changed.
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
PAGES = HERE.parent / "docs" / "performance"
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
    "bench_network_scale.py": [],
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


def stamp() -> str:
    """Return date, machine, versions and the commit that is measured."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=, changed"],
        cwd=HERE, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return f"*{machine()} Commit {described.stdout.strip() or 'not known'}.*"


def write(name: str, text: str) -> None:
    """Replace what stands between the marks of `name` in the page that has them."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    (page,) = (page for page in PAGES.glob("*.md") if begin in page.read_text(encoding="utf-8"))
    head, rest = page.read_text(encoding="utf-8").split(begin)
    _, tail = rest.split(end)
    page.write_text(f"{head}{begin}\n{text}\n\n{end}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="all unless named")
    parser.add_argument("--quick", action="store_true", help="small sizes, once: does it all run?")
    parser.add_argument("--write", action="store_true", help="write docs/performance")
    options = parser.parse_args()
    sections: dict[str, str] = {}
    for script in options.scripts or SCRIPTS:
        began = time.monotonic()
        before = stamp()  # the load is that of before the script
        sections[script] = f"{before}\n\n{output(script, options.quick)}"
        print(sections[script], end="\n\n", flush=True)
        print(f"{script}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    if options.write:
        for name, text in sections.items():
            write(name, text)


if __name__ == "__main__":
    main()
