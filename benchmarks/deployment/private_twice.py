"""Ask four hospitals twice for a result under differential privacy, over NVFLARE, with one budget.

Each hospital's own policy has a budget that one run fits and two do not. The second run must be
refused, under another name and title; and again after new startup kits are installed, because
homes, and so ledgers, lie outside the kits. What is spent must stay as it was, to the digit.

It needs the extra `nvflare`:  python benchmarks/deployment/private_twice.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from same_bits import COORDINATOR, RECORDS, Case, Consortium, running

from secagg.jobs.job import Job
from secagg.runs import budgets

POLICY = """
min_sites = 3
min_records = 10
dataset = "heart"
[budget]
period_epsilon = 13.0
period_delta = 1e-5
"""


def spent(made: Consortium) -> dict[str, str]:
    """Return what `secagg budget show` has for each hospital."""
    return {
        name: f"{row['releases']} releases, epsilon {row['epsilon_add_remove']!r}"
        for name in RECORDS
        for row in budgets.show(made.homes[name].folder / "ledgers", None, in_full=False)
    }


def ask(made: Consortium, job: Job, name: str) -> str:
    """Run the job, and return NVFLARE's status, and the coordinator's line if it failed."""
    made.approve(job)
    log = made.homes[COORDINATOR].folder / "log.txt"
    known = len(log.read_text()) if log.exists() else 0
    status = made.wait(made.submit(job, name))
    said = log.read_text()[known:].strip().partition(" ")[2].partition(". ")[0]
    return f"{status}; {said}"


def main() -> None:
    """Play it, and print what happens."""
    job = Case("", "private.toml").job()
    other = job.model_copy(update={"title": "The same question under another title"})
    with tempfile.TemporaryDirectory(prefix="secagg-twice-") as scratch:
        made = Consortium.make(Path(scratch) / "consortium", RECORDS)
        for name in RECORDS:
            (made.homes[name].folder / "policy.toml").write_text(POLICY)
        with running(made):
            print(f"first run: {ask(made, job, 'first')}")
            before = spent(made)
            print(f"  {before}\nsecond run: {ask(made, other, 'second')}")
        made.install_kits()
        with running(made):
            print(f"new kits, third run: {ask(made, other, 'third')}\n  {spent(made)}")
            released = [name for name in ("second", "third") if made.run_folder(name).exists()]
            wrong = bool(released) or not made.run_folder("first").exists() or spent(made) != before
    sys.exit(wrong)


if __name__ == "__main__":
    main()
