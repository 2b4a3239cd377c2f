"""Compare runs over NVFLARE with runs in one process: the same bits, for each job and protocol.

One consortium on this computer: four hospitals and two aggregators, each with a process, a startup
kit with mutual TLS and a home. Each job runs there, and then in this process. For jobs with random
draws at the sites (`sparse_regression`, noise), both sides draw from the same seeds, which is what
the hook `replay` is for; a real run draws from the operating system.

Printed for each job: whether result.json and arrays.npz are equal byte for byte, whether the run
folder verifies, the trips (one phase to all its parties, and their answers) with their median,
smallest and largest time, and the seconds from submission to the end. Then the largest memory of
all processes together. The exit code is 1 if anything differs.

It needs the extra `nvflare`:  python benchmarks/deployment/same_bits.py [--only NAME]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from hooked import install_hooks

EXAMPLES = Path(__file__).parents[2] / "examples"
HEART = EXAMPLES / "heart-disease"
sys.path.insert(0, str(EXAMPLES / "nvflare"))

from consortium import Consortium  # noqa: E402
from homes import Memory, running  # noqa: E402

import secagg  # noqa: E402
from secagg.core.hash_chain_log import RunLog  # noqa: E402
from secagg.core.identity import COORDINATOR, Identity, Role, Roster  # noqa: E402
from secagg.core.randomness import seeded_random, system_random  # noqa: E402
from secagg.evidence.integrity import verify_folder  # noqa: E402
from secagg.jobs.job import Job, load_job  # noqa: E402
from secagg.runs.output_folder import utc_now  # noqa: E402
from secagg.runs.run_end import finish_folder  # noqa: E402
from secagg.runs.session_loop import play_session  # noqa: E402
from secagg.sessions.engines.memory import MemoryEngine  # noqa: E402
from secagg.sessions.parties import make_coordinator, make_party  # noqa: E402
from secagg.sessions.planned_job import plan_job, roles, session_of  # noqa: E402
from secagg.sessions.session import Session  # noqa: E402

RECORDS = {path.stem: path for path in sorted((HEART / "data").glob("*.csv"))}
FILES = ("result.json", "arrays.npz")
HM2 = '{ name = "fedlin_hm2", outcome = "max_heart_rate" }'


@dataclass(frozen=True)
class Case:
    """A job file with changes; drawn: whether the sites draw random numbers."""

    name: str
    file: str
    changes: dict[str, str] = field(default_factory=dict)
    drawn: bool = False

    def job(self, deadline: float = 120.0, **more: str) -> Job:
        """Return the job, with the names of its sites; more: changes of the section `release`."""
        names = {
            "sites.names": json.dumps(sorted(RECORDS)), "simulation.site_alone": "false",
            "engine.deadline": str(deadline),
        }  # fmt: skip
        release = {f"release.{key}": value for key, value in more.items()}
        return load_job(HEART / self.file, names | self.changes | release)


CASES = (
    *(
        Case(f"logistic, {protocol}", "logistic.toml", {"protocol": f'{{ name = "{protocol}" }}'})
        for protocol in ("masked", "additive", "threshold_paillier", "plain")
    ),
    Case("fedlin_hm2, masked", "sparse.toml", {"method": HM2}, drawn=True),
    Case("sparse_regression, 200 rounds", "sparse.toml", {"method.rounds": "200"}, drawn=True),
    Case("private.toml", "private.toml", drawn=True),
)


def in_one_process(job: Job, out: Path, *, drawn: bool) -> None:
    """Run the job here, into `out`; its ledgers are beside it."""
    sites = job.sites.model_copy(update={"ledgers": out.with_suffix(".ledgers")})
    job = job.model_copy(update={"sites": sites})
    if not drawn:
        secagg.run(job, out=out)
        return
    planned = plan_job(job, None)
    everyone = {COORDINATOR: Role.COORDINATOR} | roles(planned)
    keys = {name: Identity.generate(name, role, system_random) for name, role in everyone.items()}
    roster = Roster({name: identity.public for name, identity in keys.items()})
    nonce = system_random(16)
    session = session_of(planned, roster, nonce)
    parties = {}
    for name in roles(planned):
        random = seeded_random(hashlib.sha256(name.encode()).digest())  # as the hook `replay`
        parties[name] = make_party(planned, keys[name], roster, session, random, random)
    leader = make_coordinator(planned, keys[COORDINATOR], roster, session, system_random)
    own = {name: party.site for name, party in parties.items() if party.site is not None}
    engine = MemoryEngine(COORDINATOR, parties)
    out.mkdir()
    log = RunLog(out / "log.jsonl", utc_now)
    played = Session(planned, nonce, leader, engine, own)
    finish_folder(out, play_session(played, log, None, None, out, out).facts, log)


def main() -> None:
    """Play all cases, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--aggregators", type=int, default=2, help="0: without `additive`")
    given = parser.parse_args()
    wrong = False
    with tempfile.TemporaryDirectory(prefix="secagg-bits-") as scratch:
        folder = Path(scratch)
        orders = folder / "orders"
        orders.mkdir()
        install_hooks(orders)
        made = Consortium.make(folder / "consortium", RECORDS, given.aggregators)
        print("| job | same bits | verified | trips | median s (lowest to highest) | seconds |")
        print("|---|---|---|---|---|---|")
        with running(made):
            memory = Memory(made)
            memory.start()
            for number, case in enumerate(case for case in CASES if given.only in case.name):
                job, name = case.job(), f"case{number}"
                (orders / "replay").touch() if case.drawn else (orders / "replay").unlink(True)
                (orders / "trips.csv").unlink(missing_ok=True)
                made.approve(job)
                began = time.monotonic()
                status = made.wait(made.submit(job, name), 600)
                seconds = time.monotonic() - began
                if status != "FINISHED:COMPLETED":
                    print((made.homes[COORDINATOR].folder / "log.txt").read_text()[-2000:])
                    wrong = True
                    continue
                here, there = folder / name, made.run_folder(name)
                in_one_process(job, here, drawn=case.drawn)
                same = all((here / f).read_bytes() == (there / f).read_bytes() for f in FILES)
                verify_folder(there)
                lines = (orders / "trips.csv").read_text().splitlines()
                trips = [float(line.rpartition(",")[2]) for line in lines]
                wrong |= not same
                print(
                    f"| {case.name} | {'yes' if same else 'NO'} | yes | {len(trips)} | "
                    f"{statistics.median(trips):.3f} ({min(trips):.3f} to {max(trips):.3f}) | "
                    f"{seconds:.1f} |", flush=True,
                )  # fmt: skip
            memory.ended.set()
            print(f"\nlargest memory: {memory.largest / 1e6:.0f} MB, {memory.processes} processes")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
