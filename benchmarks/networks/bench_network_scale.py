"""Networks at the paper's size: whole commands, their processor time and their largest memory.

    python -m benchmarks.networks.bench_network_scale [--quick]

Chajewska and Shrivastava (2023), section 4: about 500 inputs and 1,000 hidden units. Here 20
continuous columns and 240 with three levels are 500 inputs, at three sites. Each command is a
process of its own. In `secagg run`, that process is the coordinator and all sites.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.harness import number, quick_asked, section, size, table, version

RECORDS, ROUNDS, EVERY = 2000, 20, 10
NETWORKS = ("masked", "paper")
LEVELS, CUTS = ("low", "middle", "high"), (-0.43, 0.43)
MISSING = "torch is not installed (make bench-neural): not measured."
TEXT = (
    "Method `fedngm`, protocol `masked`, 3 sites of {records:,} records, {rounds} rounds, the "
    "graph by votes. `masked` networks: {each} units for each of {columns} columns. `paper`: one "
    "network with a hidden layer of {units:,} units. Processor seconds of the whole command. The "
    "process of `secagg run` has all parties. Training has not converged after so few rounds."
)

_NOT_CONVERGED = 7  # exit code


class Size(NamedTuple):
    """How many columns there are, of each type, and hidden units for each column."""

    continuous: int
    coded: int
    units: int

    @property
    def columns(self) -> int:
        return self.continuous + self.coded

    @property
    def inputs(self) -> int:
        return self.continuous + self.coded * (len(LEVELS) - 1)


PAPER, QUICK = Size(20, 240, 4), Size(2, 2, 2)


@dataclass(frozen=True)
class Used:
    """What a command used. seconds: of processors; memory: the largest resident set, in bytes"""

    seconds: float
    memory: int


def tables(kind: Size, records: int) -> dict[str, pd.DataFrame]:
    """Return sites whose columns are chains of `EVERY` columns, each correlated with the next."""
    rng, found = np.random.default_rng(1), {}
    for site in "abc":
        z = rng.normal(size=(records, kind.columns))
        for j in range(1, kind.columns):
            if j % EVERY:
                z[:, j] = 0.6 * z[:, j - 1] + 0.8 * z[:, j]
        names = [f"x{j}" for j in range(kind.columns)]
        table = pd.DataFrame(np.clip(z, -5, 5).round(3), columns=names)
        for name in names[kind.continuous :]:
            table[name] = np.array(LEVELS)[np.searchsorted(CUTS, table[name])]
        found[site] = table
    return found


def write_jobs(folder: Path, kind: Size, records: int, rounds: int) -> None:
    """Write the sites' tables, and a job for each network."""
    (folder / "data").mkdir()
    for site, records_ in tables(kind, records).items():
        records_.to_csv(folder / "data" / f"{site}.csv", index=False)
    number_ = '{ type = "continuous", low = -5, high = 5 }'
    coded = '{ type = "categorical", levels = ["low", "middle", "high"] }'
    columns = "\n".join(
        f"x{j} = {number_ if j < kind.continuous else coded}" for j in range(kind.columns)
    )
    for network, hidden in zip(NETWORKS, (kind.units, _all_units(kind)), strict=True):
        (folder / f"{network}.toml").write_text(
            f'title = "Networks at scale"\n[sites]\nfolder = "data"\nmax_rows = 5000\n'
            f'[columns]\n{columns}\n[method]\nname = "fedngm"\nedges = "votes"\n'
            f'network = "{network}"\n'
            f'hidden = [{hidden}]\nrounds = {rounds}\n[protocol]\nname = "masked"\n'
            "[release]\nmin_sites = 3\nmin_records = 10\n"
        )


def _all_units(kind: Size) -> int:
    """Return 1000 units for the paper's size; a few where the size is a trial."""
    return 1000 if kind == PAPER else 8


def used(folder: Path, *arguments: str) -> Used:
    """Run a command of secagg, which may end before it has converged.

    Raises `CalledProcessError` if it fails.
    """
    command = [str(Path(sys.executable).with_name("secagg")), *arguments]
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, _NOT_CONVERGED):
        text = (folder / "output.txt").read_text()
        raise subprocess.CalledProcessError(process.returncode, command, text)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def rows(
    kind: Size, records: int, rounds: int, networks: tuple[str, ...] = NETWORKS
) -> list[list[object]]:
    """Return what each command used, for each network."""
    found: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_jobs(folder, kind, records, rounds)
        given = ("--given", "x0=1", "--given", "x1=-1", "--of", "x2")
        for network in networks:
            out = ("--out", network)
            commands: dict[str, tuple[str, ...]] = {
                "plan": ("plan", f"{network}.toml"),
                "run": ("run", f"{network}.toml", *out),
                "verify": ("verify", network),
            }
            if network == "masked":
                commands["query"] = ("query", network, *given)
            for command, arguments in commands.items():
                cost = used(folder, *arguments)
                found.append([network, command, number(cost.seconds), size(cost.memory)])
            files = sum(file.stat().st_size for file in (folder / network).iterdir())
            found.append([network, "files of the run", "-", size(files)])
    return found


def main() -> None:
    quick = quick_asked(__doc__, "a small network: does it all run?")
    kind, records, rounds = (QUICK, 100, 2) if quick else (PAPER, RECORDS, ROUNDS)
    if version("torch") is None:
        print(MISSING)
        return
    text = TEXT.format(
        records=records, rounds=rounds, each=kind.units, columns=kind.columns,
        units=_all_units(kind),
    )  # fmt: skip
    head = ("network", "command", "processor s", "memory or size")
    networks = NETWORKS[:1] if quick else NETWORKS
    cells = rows(kind, records, rounds, networks)
    section(f"Networks: {kind.inputs} inputs", text, table(head, cells))


if __name__ == "__main__":
    main()
