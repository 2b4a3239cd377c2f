"""Show that each party opens its own files only, and that it could not read those of the others.

Needs root, strace, and a Python that other users may run. Four hospitals run a logistic regression
over NVFLARE; each party's processes have a user of their own. Then

1. strace says which files each client's processes opened, of those that belong to any party: homes,
   startup kits, records. Only the party's own may be among them.
2. As each party's user, every file of the others is opened. Each attempt must fail.

As a control, one file is then made readable for all: the second check must find it.

It needs the extra `nvflare`:  python benchmarks/deployment/isolation.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from same_bits import CASES, RECORDS, Consortium, running

from secagg.audits.run_integrity import verify_folder

_FIRST_USER = 40001
_TRACED = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=open,openat,openat2", "-o")
_OPENED = re.compile(r'open(?:at|at2)?\((?:AT_FDCWD, |\d+, )?"([^"]+)".* = \d+$')


def files_of(made: Consortium, records: Path) -> dict[str, set[Path]]:
    """Return the files of each party: its home, its kit, its records."""
    return {
        name: {
            path
            for top in (home.folder, made.kit(name), records / name)
            for path in top.rglob("*")
            if path.is_file()
        }
        for name, home in made.homes.items()
    }


def opened(trace: Path, tops: Iterable[Path]) -> set[Path]:
    """Return the files under these folders that were opened."""
    found = {Path(match[1]) for line in trace.open() if (match := _OPENED.search(line.strip()))}
    return {path for path in found if any(path.is_relative_to(top) for top in tops)}


def readable_as(user: int, paths: Iterable[Path]) -> list[Path]:
    """Return the files that this user can open."""
    names = "".join(f"{path}\n" for path in paths)
    done = subprocess.run(
        ["sh", "-c", 'while read -r f; do head -c 1 "$f" >/dev/null 2>&1 && echo "$f"; done'],
        input=names, text=True, capture_output=True, user=user, group=user, extra_groups=[],
        check=False,
    )  # fmt: skip
    return [Path(line) for line in done.stdout.splitlines()]


def may_run_as(user: int) -> bool:
    """Return whether another user can run this Python."""
    try:
        done = subprocess.run([sys.executable, "-c", ""], user=user, check=False)
    except OSError:
        return False
    return done.returncode == 0


def main() -> None:
    """Run the job, then print a table."""
    if os.geteuid() != 0 or not shutil.which("strace") or not may_run_as(_FIRST_USER):
        print("not checked: needs root, strace, and a Python that every user may run")
        return
    job, wrong = CASES[0].job(), False
    with tempfile.TemporaryDirectory(prefix="secagg-users-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o711)
        records, traces = folder / "records", folder / "traces"
        traces.mkdir()
        own = {}
        for name, path in RECORDS.items():
            (records / name).mkdir(parents=True)
            own[name] = Path(shutil.copy(path, records / name))
        made = Consortium.make(folder / "consortium", own)
        made.approve(job)
        users = {name: _FIRST_USER + number for number, name in enumerate(made.homes)}
        made.give_to_users(users)
        for name, user in users.items():
            (traces / name).mkdir()
            os.chown(traces / name, user, user)
            made.prefix = {**made.prefix, name: (*_TRACED, str(traces / name / "opened"))}
            for path in (records / name, records / name / f"{name}.csv"):
                if path.exists():
                    os.chown(path, user, user)
                    path.chmod(0o700 if path.is_dir() else 0o600)
        with running(made):
            status = made.wait(made.submit(job, "users"), 300)
            verify_folder(made.run_folder("users"))
        print(f"run: {status}, verified\n")
        print("| party | user | own files opened | of others | others' files tried | readable |")
        print("|---|---|---|---|---|---|")
        everyone = files_of(made, records)
        for name, user in users.items():
            tops = (records, made.folder / "homes", *(made.kit(other) for other in made.homes))
            touched = opened(traces / name / "opened", tops)
            mine = (made.homes[name].folder, made.kit(name), records / name)
            of_others = {p for p in touched if not any(p.is_relative_to(top) for top in mine)}
            others = set().union(*(found for who, found in everyone.items() if who != name))
            readable = readable_as(user, others)
            wrong |= bool(of_others or readable) or not touched
            print(
                f"| {name} | {user} | {len(touched)} | {len(of_others)} | {len(others)} | "
                f"{len(readable)} |"
            )
            for path in (*of_others, *readable):
                print(f"  {path}")
        planted = records / "hungary" / "hungary.csv"
        planted.parent.chmod(0o711)
        planted.chmod(0o644)
        control = readable_as(users["cleveland"], [planted])
        print(f"\ncontrol, one file readable for all: {'found' if control else 'NOT FOUND'}")
    sys.exit(wrong or not control)


if __name__ == "__main__":
    main()
