"""Run checks of parties over NVFLARE, each in a process of its own, and print which ones hold.

The exit code is 1 if one does not hold. "partly" means that this computer cannot do all of a check;
what it printed says which part is missing.

It needs the extra `nvflare`:  python benchmarks/deployment/checks.py [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

CHECKS = ("same_bits", "kills", "isolation", "refusals", "planted_exception", "private_twice")
_SAID = {0: "yes", 77: "partly"}


def main() -> None:
    """Run the checks, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or of {', '.join(CHECKS)}")
    names = parser.parse_args().names or CHECKS
    if unknown := sorted(set(names) - set(CHECKS)):
        parser.error(f"no such check: {', '.join(unknown)}")
    lines = []
    for name in names:
        print(f"== {name}", flush=True)
        began, script = time.monotonic(), Path(__file__).with_name(f"{name}.py")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, str(script)], env=environment, check=False)
        said = _SAID.get(done.returncode, "NO")
        lines.append(f"| {name} | {said} | {time.monotonic() - began:.0f} |")
    print("\n| check | holds | seconds |\n|---|---|---|", *lines, sep="\n")
    sys.exit(any("| NO |" in line for line in lines))


if __name__ == "__main__":
    main()
