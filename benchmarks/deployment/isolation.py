"""Show that each party opens its own files only, and that it could not read those of the others.

Needs root, strace, and a Python that other users may run. Four hospitals run a logistic regression
over NVFLARE; each party's processes have a user of their own. Then

1. strace says which files each party's processes tried to open, of those of the consortium: homes,
   startup kits, records. Only the party's own may be among them. Attempts that failed count, too:
   with users of their own, all attempts on files of others would fail.
2. strace also says which files outside these its processes wrote: none.
3. As each party's user, every file of the others is opened, and those of the administrator and of
   the provisioner, who has the keys of the consortium's certificates. Each must fail with EACCES.

As controls, one file is then made readable for all, and another party's file is asked for under
strace, by a relative path: both must be found.

Where users of their own are impossible, a line says so, only the modes of files are checked, and
the exit code is 77.

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

from secagg.evidence.integrity import verify_folder

_FIRST_USER = 40001
_NOT_CHECKED = 77  # as exit code
# A file for each thread, as lines of threads in one file interrupt each other; folders by name.
_TRACED = ("strace", "-ff", "-y", "-qq", "--seccomp-bpf", "-e", "trace=open,openat,openat2", "-o")
_OPENED = re.compile(r'open(?:at2?)?\((?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"')
_REALLY = re.compile(r" = \d+<([^>]*)>$")  # where links led
_WRITES = re.compile(r"O_(?:WRONLY|RDWR|CREAT)")
_TRY = """
import errno, os, sys
for path in sys.stdin.read().splitlines():
    try:
        os.close(os.open(path, os.O_RDONLY))
        print("readable", path)
    except OSError as error:
        print(errno.errorcode[error.errno], path)
"""


def files_of(made: Consortium, records: Path) -> dict[str, set[Path]]:
    """Return the files of each party: home, kit, records, output; then the provisioner's."""
    found = {
        name: {
            path
            for top in (home.folder, made.kit(name), records / name)
            for path in top.rglob("*")
            if path.is_file()
        }
        | {made.folder / f"{name}.out"}
        for name, home in made.homes.items()
    }
    kits = {path for path in (made.folder / "kits").rglob("*") if path.is_file()}
    return {**found, "provisioner": kits.difference(*found.values())}


def tried(traces: Path, tops: Iterable[Path]) -> set[Path]:
    """Return the files under these folders that a traced process opened, or tried to open."""
    found = set()
    for trace in traces.iterdir():
        for line in trace.read_text(errors="replace").splitlines():
            if match := _OPENED.search(line):
                found.add(os.path.normpath(Path(match[1] or "/", match[2])))
            if match := _REALLY.search(line):
                found.add(match[1])
    return {Path(path) for path in found if any(Path(path).is_relative_to(top) for top in tops)}


def written(traces: Path) -> set[Path]:
    """Return the files that a traced process opened for writing; devices and `/proc` are none."""
    lines = (line for trace in traces.iterdir() for line in trace.read_text().splitlines())
    found = (_REALLY.search(line) for line in lines if _WRITES.search(line))
    paths = {Path(match[1]) for match in found if match and match[1].startswith("/")}
    return {path for path in paths if path.parts[1] not in ("dev", "proc")}


def attempts(user: int, paths: Iterable[Path]) -> dict[Path, str]:
    """Return for each file what this user gets: an error's name, or `readable`."""
    done = subprocess.run(
        [sys.executable, "-c", _TRY], input="".join(f"{path}\n" for path in paths), text=True,
        capture_output=True, check=True, user=user, group=user, extra_groups=[],
    )  # fmt: skip
    said = (line.partition(" ") for line in done.stdout.splitlines())
    return {Path(path): outcome for outcome, _, path in said}


def open_to_others(folders: Iterable[Path]) -> list[Path]:
    """Return what is not private to its user, by its mode."""
    everything = (path for top in folders for path in (top, *top.rglob("*")))
    return [path for path in everything if path.stat().st_mode & 0o077]


def check_modes() -> bool:
    """Check the modes of all homes, without users; return whether they are as they must be."""
    with tempfile.TemporaryDirectory(prefix="secagg-modes-") as scratch:
        made = Consortium.make(Path(scratch) / "consortium", RECORDS)
        homes = [home.folder for home in made.homes.values()]
        found = open_to_others(homes)
        planted = homes[0] / "site.toml"
        planted.chmod(0o644)
        control = planted in open_to_others(homes)
    print(f"{len(homes)} homes: {len(found)} files or folders that others may enter or read")
    print(f"control, one file readable for all: {'found' if control else 'NOT FOUND'}")
    return control and not found


def may_run_as(user: int) -> bool:
    """Return whether another user can run this Python."""
    try:
        done = subprocess.run([sys.executable, "-c", ""], user=user, check=False)
    except OSError:
        return False
    return done.returncode == 0


def controls(records: Path, traces: Path, user: int) -> bool:
    """Return whether both checks find what they must find."""
    planted = records / "hungary" / "hungary.csv"
    traces.mkdir()
    subprocess.run(  # as root, so that only the trace can notice
        [*_TRACED, str(traces / "opened"), "head", "-c", "1", "../hungary/hungary.csv"],
        cwd=records / "cleveland", check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    seen = planted in tried(traces, (records,))
    planted.parent.chmod(0o711)
    planted.chmod(0o644)
    readable = attempts(user, [planted])[planted] == "readable"
    print(f"\ncontrol, one file readable for all: {'found' if readable else 'NOT FOUND'}")
    print(f"control, a relative path to another's file: {'found' if seen else 'NOT FOUND'}")
    return seen and readable


def is_apart(made: Consortium, name: str, records: Path, traces: Path, others: set[Path]) -> bool:
    """Print a party's line, and return whether it kept to its own files, and can open no others."""
    user, tops = made.users[name], (records, made.folder / "homes", made.folder / "kits")
    touched, wrote = tried(traces, tops), written(traces)
    mine = (made.homes[name].folder, made.kit(name), records / name)
    own = {path for path in touched if any(path.is_relative_to(top) for top in mine)}
    elsewhere = {path for path in wrote if not any(path.is_relative_to(top) for top in mine)}
    outcomes = attempts(user, sorted(others))
    refused = {path for path, outcome in outcomes.items() if outcome == "EACCES"}
    numbers = map(len, (own, touched - own, elsewhere, others, refused))
    print(f"| {name} | {user} | {' | '.join(map(str, numbers))} |")
    for path in sorted(touched - own):
        print(f"  {path}: tried")
    for path in sorted(elsewhere):
        print(f"  {path}: written")
    for path in sorted(others - refused):
        print(f"  {path}: {outcomes.get(path, 'no answer')}")
    has_read = name not in RECORDS or records / name / f"{name}.csv" in own
    return touched == own and refused == others and not elsewhere and bool(wrote) and has_read


def main() -> None:
    """Run the job, then print a table."""
    if os.geteuid() != 0 or not shutil.which("strace") or not may_run_as(_FIRST_USER):
        needs = f"root, strace, and that all users may run {sys.executable}"
        print(f"users of their own: NOT CHECKED (needs {needs})")
        sys.exit(_NOT_CHECKED if check_modes() else 1)
    job = CASES[0].job()
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
        wrong = status != "FINISHED:COMPLETED"
        print("| party | user | own files opened | tried of others | written elsewhere "
              "| files of others | refused |")  # fmt: skip
        print("|---|---|---|---|---|---|---|")
        everyone = files_of(made, records)
        for name in users:
            others = set().union(*(found for who, found in everyone.items() if who != name))
            wrong |= not is_apart(made, name, records, traces / name, others)
        wrong |= not controls(records, traces / "control", users["cleveland"])
    sys.exit(wrong)


if __name__ == "__main__":
    main()
