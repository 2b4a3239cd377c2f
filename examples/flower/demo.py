"""Four hospitals over Flower on one computer: `make flower-demo`.

It makes a home and a SuperNode for each hospital, runs the logistic regression of
examples/heart-disease, compares the result with a run in one process, and stops everything. The
folder of the run stays in runs/flower-demo.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from consortium import Consortium
from homes import HEART, Memory, heart_disease, running

import secagg
from secagg.evidence.integrity import verify_folder


def trips(made: Consortium) -> list[float]:
    """Return the seconds of each round trip to all parties, from the coordinator's log."""
    log = (made.homes["coordinator"].folder / "log.txt").read_text(encoding="utf-8")
    (line,) = [line for line in log.splitlines() if "seconds of calls" in line]
    calls = json.loads(line[line.index("{") :])
    return [max(each) for each in zip(*calls.values(), strict=True)]


def main() -> None:
    """Play the whole of it, and print how long each part took."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that all is stopped
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", type=Path, default=HEART / "logistic.toml")
    parser.add_argument("--protocol", default="masked")
    parser.add_argument("--deadline", type=float, default=300.0)
    parser.add_argument("--out", type=Path, default=Path("runs/flower-demo"))
    given = parser.parse_args()
    if given.out.exists():
        sys.exit(f"{given.out} already exists: delete it, or give another --out")
    (job, records), began = heart_disease(given.job, given.protocol), time.monotonic()
    job = job.model_copy(
        update={"engine": job.engine.model_copy(update={"deadline": given.deadline})}
    )

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="secagg-demo-") as folder:
        made = Consortium.make(Path(folder) / "consortium", records)
        made.approve(job)
        tell(f"{len(made.homes)} homes, certificates and keys")
        with running(made):
            memory = Memory(made)
            memory.start()
            tell("the SuperLink answers, and the SuperNodes are started")
            status = made.wait(made.submit(job, "demo"), 3600)
            tell(status)
            if not made.run_folder("demo").exists():
                for name in made.homes:
                    print(name, (made.folder / f"{name}.out").read_text()[-4000:])
                sys.exit((made.homes["coordinator"].folder / "log.txt").read_text())
        tell("everything is stopped")
        seconds = trips(made)
        print(
            f"{len(seconds)} trips: {statistics.median(seconds):.2f} s (median), "
            f"{min(seconds):.2f} to {max(seconds):.2f} s, {sum(seconds):.0f} s in all"
        )
        print(f"memory: {memory.largest / 1e9:.1f} GB in {memory.processes} processes")
        sites = job.sites.model_copy(update={"ledgers": Path(folder) / "ledgers"})
        here = Path(folder) / "here"
        secagg.run(job.model_copy(update={"sites": sites}), out=here)
        verify_folder(made.run_folder("demo"))
        for name in ("result.json", "arrays.npz"):
            if (made.run_folder("demo") / name).read_bytes() != (here / name).read_bytes():
                sys.exit(f"{name} differs from a run in one process")
            print(f"{name}: the same bits as a run in one process")
        given.out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made.run_folder("demo"), given.out)
    print(f"report  {given.out}/report.html")


if __name__ == "__main__":
    main()
