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


def sums(made: Consortium, name: str) -> int:
    """Return how many sums the coordinator has released in a run."""
    done = made.run_folder(name)
    for folder in (done, done.with_name(f"{name}.partial")):
        if (folder / "log.jsonl").exists():
            return (folder / "log.jsonl").read_bytes().count(b'"event":"release"')
    return 0


def main() -> None:
    """Play the whole of it, and say what happens and when."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", type=Path, default=HEART / "logistic.toml")
    parser.add_argument("--protocol", default="masked")
    parser.add_argument("--aggregators", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/deploy-demo"))
    given = parser.parse_args()
    if given.out.exists():
        sys.exit(f"{given.out} already exists: delete it, or give another --out")
    (job, records), began, released = heart_disease(given.job, given.protocol), time.monotonic(), 0

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {text}", flush=True)

    def tell_sums() -> None:
        nonlocal released
        if (now := sums(made, "demo")) > released:
            released = now
            tell(f"secure sums so far: {released}")

    with tempfile.TemporaryDirectory(prefix="secagg-demo-") as folder:
        tell("making a home and a startup kit for each party")
        made = Consortium.make(Path(folder) / "consortium", records, given.aggregators)
        made.approve(job)
        tell(f"{len(made.homes)} homes and kits are made, and every party has approved the job")
        tell("starting the server and the clients")
        with running(made):
            tell("all clients are connected to the server")
            submitted = made.submit(job, "demo")
            tell("the job is submitted")
            status = made.wait(submitted, meanwhile=tell_sums)
            tell(f"the job has ended: {status}")
            if not made.run_folder("demo").exists():
                sys.exit((made.homes["coordinator"].folder / "log.txt").read_text())
            given.out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(made.run_folder("demo"), given.out)
        tell("all processes are stopped; homes and kits are deleted")
    print(f"report  {given.out}/report.html")


if __name__ == "__main__":
    main()
