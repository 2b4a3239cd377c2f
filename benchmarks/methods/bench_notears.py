"""NOTEARS-ADMM: compared with torch's autograd, under every protocol, and with 1000 times the data.

    python -m benchmarks.methods.bench_notears [--quick]

The reference, `notears_reference`, needs torch (`make bench-neural`); without it only secagg runs.
"""

from __future__ import annotations

import functools
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness import Spread, number, quick_asked, section, size, table, timed, version
from benchmarks.methods.notears_cases import Case, Matrix, distance
from secagg.models.common.units import centred
from secagg.models.notears_admm import linear_simulation, mlp_simulation
from secagg.models.notears_admm.coordinator import Schedule, advance, begin
from secagg.models.notears_admm.linear_simulation import LinearGraph
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum
from secagg.models.notears_admm.mlp_simulation import MLP_RHO
from secagg.models.notears_admm.variants import Variant, variant_settings
from secagg.runs.run import run

CASES = (
    Case(10, 30, 10),
    Case(20, 60, 10),
    Case(20, 256, 8),
    Case(20, 256, 64),
    Case(50, 150, 10),
    Case(50, 256, 8),
    Case(50, 256, 64),
    Case(100, 300, 10),
)
NONLINEAR = (Case(10, 512, 4, nonlinear=True), Case(20, 512, 4, nonlinear=True))
ROUNDS, TURNS = 200, 3
REFERENCE = "reference"
VARIANTS: tuple[Variant, ...] = ("paper", "fast")
NAMES = (REFERENCE, *VARIANTS)
THEIRS = (
    ("benchmarks.peers.notears_reference", "reference"),
    ("benchmarks.peers.notears_mlp_reference", "mlp_reference"),
)
PLAIN = "plain"
PROTOCOLS = (PLAIN, "additive", "masked", "paillier")

T = TypeVar("T")
Solver = Callable[[Sequence[Matrix]], Matrix]


def linear(variant: Variant, rounds: int, sites: Sequence[Matrix]) -> Matrix:
    """Return W of the method, with all parties in one process."""
    schedule = Schedule(variant_settings(variant)["solver"], rounds=rounds)
    weights = linear_simulation.learn(sites, schedule=schedule).weights
    assert weights is not None
    return weights


def networks(variant: Variant, rounds: int, sites: Sequence[Matrix]) -> Matrix:
    """Return the same for networks."""
    solver = variant_settings(variant)["solver"]
    schedule = Schedule(solver, rho1=MLP_RHO, rho2=MLP_RHO, rounds=rounds)
    weights = mlp_simulation.learn(sites, schedule=schedule).weights
    assert weights is not None
    return weights


def solvers(rounds: int, nonlinear: bool) -> dict[str, Solver]:
    """Return ours and, where torch is installed, the reference."""
    found: dict[str, Solver] = {}
    if version("torch"):
        import_module("torch").set_num_threads(1)
        module, name = THEIRS[nonlinear]
        found[REFERENCE] = functools.partial(getattr(import_module(module), name), rounds=rounds)
    for variant in VARIANTS:
        found[variant] = functools.partial(networks if nonlinear else linear, variant, rounds)
    return found


def speed(cases: Sequence[Case], rounds: int) -> str:
    """Return the table of processor seconds and of distances from the truth."""
    rows: list[list[object]] = []
    for turn, case in enumerate(cases):
        ways = solvers(rounds, case.nonlinear)
        truth, sites = case.simulate()
        names = list(ways)[:: -1 if turn % 2 else 1]
        ran = {name: timed(functools.partial(ways[name], sites)) for name in names}
        against = ran[REFERENCE][0] if REFERENCE in ran else None
        rows.append(
            [
                *(case.d, case.n, case.K),
                *(number(ran[name][0]) if name in ran else "-" for name in NAMES),
                *(number(against / ran[name][0]) if against else "-" for name in NAMES[1:]),
                *(distance(ran[name][1], truth) if name in ran else "-" for name in NAMES),
            ]
        )
    head = ["d", "n", "K", *(f"{name} s" for name in NAMES)]
    head += [f"{REFERENCE} / {name}" for name in NAMES[1:]] + [f"SHD {name}" for name in NAMES]
    return table(head, rows)


def job(case: Case, folder: Path) -> dict[str, Any]:
    """Write the clients' records; return the job over them, without method and protocol."""
    _, sites = case.simulate()
    names = [f"x{j}" for j in range(case.d)]
    for i, rows in enumerate(sites):
        path = folder / f"site_{i:02}.csv"
        np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="")
    bound = float(np.ceil(max(np.max(np.abs(rows)) for rows in sites)))
    column = {"type": "continuous", "low": -bound, "high": bound}
    return {
        "title": str(case),
        "sites": {"folder": folder, "max_rows": case.n},
        "columns": dict.fromkeys(names, column),
        "release": {"min_sites": 2, "min_records": 1},
    }


def timed_run(job: dict[str, Any]) -> tuple[float, float, bytes]:
    """Return wall and processor seconds of a job, and the bits of its weights."""
    began = time.perf_counter()
    seconds, done = timed(lambda: run(job))
    return time.perf_counter() - began, seconds, done.result.arrays["weights"].tobytes()


def sessions(case: Case, variants: Sequence[str], protocols: Sequence[str], turns: int) -> str:
    """Return the table of whole jobs, every protocol in turn. The bits of results are compared."""
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        common = job(case, Path(folder))
        timed_run(
            {**common, "method": {"name": "notears_admm", "standardise": False}}
        )  # imports, tables of the kernels
        for variant in variants:
            ran: dict[str, list[tuple[float, float, bytes]]] = {name: [] for name in protocols}
            for _ in range(turns):
                for name in protocols:
                    method = {"name": "notears_admm", "variant": variant, "standardise": False}
                    ran[name].append(
                        timed_run({**common, "method": method, "protocol": {"name": name}})
                    )
            bits = {weights for runs in ran.values() for _, _, weights in runs}
            assert len(bits) == 1, "weights differ between runs or protocols"
            for name, runs in ran.items():
                wall, processor, _ = map(Spread, zip(*runs, strict=True))
                plain_wall, plain_processor, _ = map(Spread, zip(*ran[PLAIN], strict=True))
                ratios = wall.over(plain_wall), processor.over(plain_processor)
                rows.append([variant, name, wall, ratios[0], processor, ratios[1]])
    return table(["", "protocol", "wall s", "x plain", "processor s", "x plain"], rows)


def peak(step: Callable[[], T]) -> tuple[int, T]:
    """Return the increase of memory in bytes while a step ran, and its result."""
    tracemalloc.start()
    result = step()
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return highest, result


def memory(d: int, records: Sequence[int]) -> str:
    """Return the table of the largest peaks in a hundred rounds, once moments are formed."""
    graph, schedule = LinearGraph(d), Schedule()
    rows: list[list[object]] = []
    for n in records:
        Q, L = spectrum(centred(np.random.default_rng(0).standard_normal((n, d))), n)
        site, state = begin_site(Q, L, d), begin(schedule, np.zeros(graph.shape))
        kept = sum(value.nbytes for value in site.values() if isinstance(value, np.ndarray))
        peaks = [0, 0]
        for _ in range(100):
            answering, (V, site) = peak(functools.partial(answer, site, state["W"], state["rho2"]))
            advancing, state = peak(functools.partial(advance, state, V, 1, graph, schedule))
            peaks = [max(peaks[0], answering), max(peaks[1], advancing)]
        rows.append([f"{n:,}", size(kept), *map(size, peaks)])
    return table(["records", "a site keeps", "its step's peak", "coordinator's peak"], rows)


def main() -> None:
    quick = quick_asked(__doc__, "tiny sizes, few rounds, once")
    missing = "" if version("torch") else " torch is not installed (make bench-neural): without it."
    section(
        "Linear NOTEARS-ADMM against torch's autograd",
        "Random graphs with about d edges (ER1), linear Gaussian records. Processor seconds of all "
        f"parties together, with one thread; one run each, in turns.{missing}",
        speed([Case(4, 40, 2)] if quick else CASES, 10 if quick else ROUNDS),
    )
    section(
        "NOTEARS-MLP-ADMM against torch's autograd",
        "The same for neural networks. Each variable is a perceptron of its causes, plus noise.",
        speed([Case(3, 40, 2, nonlinear=True)] if quick else NONLINEAR, 3 if quick else ROUNDS),
    )
    case = Case(4, 60, 3) if quick else Case(20, 260, 10)
    section(
        "Linear NOTEARS-ADMM under every protocol",
        f"Whole jobs in one process, with {case}; reading the files is included. All protocols "
        "gave the same weights, bit for bit.",
        sessions(
            case,
            ("fast",) if quick else ("fast", "paper"),
            (PLAIN, "masked") if quick else PROTOCOLS,
            1 if quick else TURNS,
        ),
    )
    section(
        "Memory of linear NOTEARS-ADMM",
        "One site, 20 variables, 100 rounds. The site's moments were computed beforehand.",
        memory(20, (100, 1000) if quick else (1000, 1_000_000)),
    )


if __name__ == "__main__":
    main()
