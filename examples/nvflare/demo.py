"""Four hospitals over NVFLARE on one computer: `make deploy-demo`.

It makes a home and a startup kit for each hospital, starts them, runs the logistic regression of
examples/heart-disease, and stops everything. The folder of the run stays in runs/deploy-demo.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from consortium import Consortium
from homes import HEART, heart_disease, running


def main() -> None:
    """Play the whole of it, and print how long each part took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", type=Path, default=HEART / "logistic.toml")
    parser.add_argument("--protocol", default="masked")
    parser.add_argument("--aggregators", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/deploy-demo"))
    given = parser.parse_args()
    if given.out.exists():
        sys.exit(f"{given.out} already exists: delete it, or give another --out")
    (job, records), began = heart_disease(given.job, given.protocol), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="secagg-demo-") as folder:
        made = Consortium.make(Path(folder) / "consortium", records, given.aggregators)
        made.approve(job)
        print(f"{len(made.homes)} homes and kits: {time.monotonic() - began:.0f} s", flush=True)
        with running(made):
            print(f"all parties are connected: {time.monotonic() - began:.0f} s", flush=True)
            status = made.wait(made.submit(job, "demo"))
            print(f"{status}: {time.monotonic() - began:.0f} s", flush=True)
            if not made.run_folder("demo").exists():
                sys.exit((made.homes["coordinator"].folder / "log.txt").read_text())
            given.out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(made.run_folder("demo"), given.out)
    print(
        f"everything is stopped: {time.monotonic() - began:.0f} s\nreport  {given.out}/report.html"
    )


if __name__ == "__main__":
    main()
