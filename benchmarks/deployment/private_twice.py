"""Ask four hospitals twice for a result under differential privacy, over NVFLARE, with one budget.

Each hospital's own policy has a budget that one run fits and two do not. The second run must be
refused by each hospital's ledger, under another name and title; and again after new startup kits
are installed, because homes, and so ledgers, lie outside the kits. What `secagg budget show` prints
as spent must stay as it was, to the digit. As a control, the same job runs on the new kits once the
hospitals raise their budgets, and then more is spent. The exit code is 1 if anything is not so.

It needs the extra `nvflare`:  python benchmarks/deployment/private_twice.py
"""

from __future__ import annotations

import subprocess
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
period_epsilon = {epsilon}
period_delta = 1e-5
"""
_OVER = "its cap is epsilon 13 "  # what a ledger says that refuses


def set_budgets(made: Consortium, epsilon: float) -> None:
    """Write each hospital's policy."""
    for name in RECORDS:
        (made.homes[name].folder / "policy.toml").write_text(POLICY.format(epsilon=epsilon))


def spent(made: Consortium) -> dict[str, str]:
    """Return what `secagg budget show` prints for each hospital, and what it rounds."""
    shown = {}
    for name in RECORDS:
        place = made.homes[name].folder / "ledgers"
        command = [sys.executable, "-m", "secagg.cli", "budget", "show", str(place)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        exact = [row["epsilon_add_remove"] for row in budgets.show(place)]
        shown[name] = f"{done.stdout}not rounded: {exact}"
    return shown


def ask(made: Consortium, job: Job, name: str) -> tuple[bool, bool]:
    """Run the job, and print what is said; return whether it ran, and whether all refused."""
    made.approve(job)
    logs = [made.homes[party].folder / "log.txt" for party in (COORDINATOR, *RECORDS)]
    known = {log: len(log.read_text()) if log.exists() else 0 for log in logs}
    status = made.wait(made.submit(job, name), 300)
    new = {log: log.read_text()[known[log] :] if log.exists() else "" for log in logs}
    print(f"{name}: {status}", flush=True)
    for log, text in new.items():
        for line in text.splitlines():
            print(f"  {log.parent.name}: {line.partition(' ')[2].partition('. ')[0][:160]}")
    refused = "ended with exit code 3" in new[logs[0]]
    by_ledger = all(_OVER in new[log] for log in logs[1:])
    return status == "FINISHED:COMPLETED" and made.run_folder(name).exists(), refused and by_ledger


def main() -> None:
    """Play it, and print what happens."""
    job = Case("", "private.toml").job()
    other = job.model_copy(update={"title": "The same question under another title"})
    with tempfile.TemporaryDirectory(prefix="secagg-twice-") as scratch:
        made = Consortium.make(Path(scratch) / "consortium", RECORDS)
        set_budgets(made, 13.0)
        with running(made):
            first = ask(made, job, "first")
            before = spent(made)
            second = ask(made, other, "second")
            after_second = spent(made)
        made.install_kits()
        with running(made):
            third = ask(made, other, "third")
            after_third = spent(made)
            set_budgets(made, 40.0)
            control = ask(made, other, "control")
            more = spent(made)
    print(f"\nspent, as shown at cleveland:\n{before['cleveland']}")
    checks = {
        "the first run is done": first == (True, False),
        "all ledgers refuse the second": second == (False, True),
        "all ledgers refuse the third, with new kits": third == (False, True),
        "nothing more is spent by either": before == after_second == after_third,
        "control, with a larger budget: the third is done": control == (True, False),
        "control, then more is spent": all(more[name] != before[name] for name in RECORDS),
    }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':3} {what}")
    sys.exit(not all(checks.values()))


if __name__ == "__main__":
    main()
