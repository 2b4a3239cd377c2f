"""Ask for what must be refused, over NVFLARE: print who refuses, the exit code and the line.

One consortium on this computer: four hospitals, two aggregators, and a client of NVFLARE that no
roster has. In each case the job must fail in NVFLARE, leave no run folder, and release no sum
beyond those before the case. secagg's exit code, the coordinator's line and the log that says why
must be those of the case. As controls, code runs at a site that allows it, and at the end the
agreed job runs, of which the client that no roster has gets nothing although NVFLARE's job includes
it. The exit code is 1 if one of these is not so.

It needs the extra `nvflare`:  python benchmarks/deployment/refusals.py [--only NAME]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import refused_cases as cases
import stranger_cases as strangers
from hooked import install_hooks
from refused_cases import SITE, Stage
from same_bits import CASES, COORDINATOR, RECORDS, Consortium, running
from stranger_cases import STRANGER, add_stranger, received

_SAID = re.compile(r"\w+: ended with exit code (\d): (.*)")


@dataclass(frozen=True)
class Case:
    """A case, and what must be said of it.

    exit_code: of secagg; "-" if NVFLARE ends the job before secagg runs
    line: how the coordinator's line begins; log, said: whose log says why, and what
    sums: how many entries ledgers get, at all parties
    """

    name: str
    play: Callable[[Stage], str]
    exit_code: str
    line: str
    log: str
    said: str
    sums: int = 0


REFUSES = "cleveland: refuses"
CASES_REFUSED = (
    Case(
        "unapproved job",
        cases.unapproved,
        "3",
        f"{REFUSES} (policy)",
        "cleveland",
        "is not approved",
    ),
    Case("changed job", cases.changed, "3", f"{REFUSES} (policy)", "cleveland", "is not approved"),
    Case("unpinned key", cases.unpinned, "4", "hungary: has other keys", COORDINATOR, "other keys"),
    Case(
        "forged roster", cases.forged, "4", f"{REFUSES} (peer)", "cleveland", "not the pinned one"
    ),
    Case("job with code", cases.code, "-", "-", COORDINATOR, "BYOC not permitted"),
    Case(
        "the same, server allows it",
        cases.code_let_through,
        "-",
        "-",
        COORDINATOR,
        f"{SITE}: NVFLARE_ERROR: BYOC not permitted",
    ),
    Case(
        "removed site", cases.removed, "3", "coordinator: the pinned roster", COORDINATOR, "no site"
    ),
    # Before the first sum, after which the coordinator's ledger would refuse one more site.
    Case(
        "planted site",
        strangers.planted,
        "3",
        "coordinator: the pinned roster",
        COORDINATOR,
        f"no site '{STRANGER}'",
    ),
    Case(
        "the same, coordinator pins it",
        strangers.planted_by_coordinator,
        "4",
        f"{REFUSES} (peer)",
        "cleveland",
        f"the key of {STRANGER}",
    ),
    # The count and one sum, at five parties, come before the records change.
    Case(
        "changed records",
        cases.records,
        "3",
        "hungary: refuses (records)",
        SITE,
        "records changed",
        10,
    ),
    Case(
        "missing aggregator", cases.missing, "4", "aggregator_2: cannot be", COORDINATOR, "reached"
    ),
    Case(
        "old version of secagg", cases.old, "2", "hungary: runs secagg 0.0.9", COORDINATOR, "0.0.9"
    ),
    Case(
        "stolen home, another client",
        strangers.stolen,
        "4",
        "hungary: cannot be",
        COORDINATOR,
        "reached",
    ),
    Case(
        "client with another's home",
        strangers.wrong_home,
        "2",
        "hungary: refuses (usage)",
        SITE,
        f"is the home of {STRANGER}",
    ),
)


def logs(made: Consortium) -> dict[Path, list[str]]:
    """Return the lines that the parties have said."""
    paths = (path for name in made.homes for path in logs_of(made, name))
    return {path: path.read_text().splitlines() for path in paths if path.exists()}


def logs_of(made: Consortium, name: str) -> tuple[Path, ...]:
    """Return where a party says something: its home, its kit, its output."""
    home, kit = made.homes[name].folder, made.kit(name)
    return home / "log.txt", kit / "log.txt", made.folder / f"{name}.out"


def play(case: Case, stage: Stage) -> bool:
    """Play a case, print its line, and return whether all is as it must be."""
    made, sums, before = stage.made, stage.entries(), logs(stage.made)
    status = case.play(stage)
    new = {path: lines[len(before.get(path, ())) :] for path, lines in logs(made).items()}

    def said_by(name: str, text: str) -> str:
        lines = [line for path in logs_of(made, name) for line in new.get(path, ())]
        return next((line for line in lines if text in line), "NOTHING")

    found = _SAID.search(said_by(COORDINATOR, "ended with"))
    exit_code, line = found.groups() if found else ("-", "-")
    said = said_by(case.log, case.said)
    more = stage.entries() - sums
    at = max(said.find(case.said) - 40, 0)
    why = said[at:].partition(" ")[2].partition(". ")[0][:100]
    line = line.partition(". ")[0]
    print(
        f"| {case.name} | {status} | {exit_code} | {line} | {case.log}: {why} | {more} |",
        flush=True,
    )
    return (
        status.startswith("FINISHED:") and status != "FINISHED:COMPLETED"
        and (exit_code, more) == (case.exit_code, case.sums) and line.startswith(case.line)
        and said != "NOTHING" and not made.run_folder(case.play.__name__).exists()
        and not (stage.orders / "code-ran").exists()
    )  # fmt: skip


def controls(stage: Stage) -> bool:
    """Return whether code runs where it is allowed, and the agreed job where nothing is wrong."""
    with stage.loosened(COORDINATOR, SITE):
        cases.submit_code(stage, [SITE])
    ran = (stage.orders / "code-ran").exists()
    before = received(stage)
    status = stage.submit("agreed", more=(STRANGER,))
    done = status == "FINISHED:COMPLETED" and stage.made.run_folder("agreed").exists()
    print(f"\ncontrol, code at a site that allows it: {'runs' if ran else 'DOES NOT RUN'}")
    nothing = received(stage) == before
    print(f"control, the agreed job: {status}")
    print(f"the client that no roster has got {'nothing' if nothing else 'SOMETHING'}")
    return ran and done and nothing


def main() -> None:
    """Play all cases, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=[case.name for case in CASES_REFUSED])
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="secagg-refusals-") as scratch:
        folder = Path(scratch)
        orders = folder / "orders"
        orders.mkdir()
        own = {name: Path(shutil.copy(path, folder)) for name, path in RECORDS.items()}
        install_hooks(orders)
        made = Consortium.make(folder / "consortium", own, aggregators=2)
        job = CASES[1].job()
        add_stranger(made)
        made.approve(job)
        with running(made):
            stage = Stage(made, orders, job, folder / "spare")
            print("| case | NVFLARE | exit code | the coordinator's log | whose log says | sums |")
            print("|---|---|---|---|---|---|")
            chosen = [case for case in CASES_REFUSED if not only or case.name == only]
            failed = [case.name for case in chosen if not play(case, stage)]
            failed += [] if only or controls(stage) else ["controls"]
        print(f"not as it must be: {', '.join(failed) or 'nothing'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
