"""FedLin's table 1 and figure 3: HM1, a covariance between devices, on simulated records.

Yue, Al Kontar and Estrada Gomez (2022), section 5.1. We add rows that show the largest possible
gain: least squares, and the exact posterior mean given the true Omega and noise. In the paper's
cases almost no gain is possible for any method. Case V is ours; there the possible gain is large.
"""

from __future__ import annotations

from reproductions.fedlin.tasks.simulated_cases import CASES, LARGEST, SMALLEST
from reproductions.harness.figures import (
    Comparison,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    PublishedValue,
    Remark,
    Statement,
)
from secagg.experiments.runner.cells import cell

TASKS = "reproductions.fedlin.tasks"

NOISES = {  # sd if the paper's number is a standard deviation, and if a variance; V is ours
    "I": (0.05, 0.224),
    "II": (0.1, 0.316),
    "III": (0.1, 0.316),
    "IV": (0.1, 0.316),
    "V": (1.0,),
}
PUBLISHED = {  # A-RMSE of Algorithm 1 and of separate models, means over 30 runs
    "I": (0.081, 0.094),
    "II": (0.050, 0.056),
    "III": (0.044, 0.072),
    "IV": (0.035, 0.035),
}
RUNS = 30  # the paper's
ROUNDS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40)
SECONDS = {"I": 0.4, "II": 7.0, "III": 6.0, "IV": 7.0, "V": 6.0}  # rough time of a cell

NOISE_FREE = Metric("free", "A-RMSE, noise-free targets", 4)
NOISY = Metric("noisy", "A-RMSE, noisy targets", 4)
METHODS = (
    Method(
        "hm1", "HM1",
        note='the method `fedlin_hm1` by secure sums: 30 rounds of 20 steps, weight "posterior", '
        "the noise's variance estimated from residuals.",
    ),
    Method(
        "hm1-steps", "HM1, 20 steps' weight",
        note='the same with weight "steps": if 20 steps converge, up to 20 times the shrinkage of '
        "the posterior.",
    ),
    Method(
        "hm1-weight", "HM1, weight as printed", drawn=False,
        note="the same with Algorithm 1's weight, which uses 1/20 as the noise's variance.",
    ),
    Method(
        "hm1-one", "HM1, one step a round", drawn=False,
        note="600 rounds of one step, with alpha reduced accordingly: the same number of steps, "
        "and after each a share of the shrinkage. Computed with all records in one place "
        "(`centralised`), as are the rows below.",
    ),
    Method(
        "hm1-printed", "HM1, rate as printed", drawn=False,
        note="steps of 0.01 times the gradient of a device's mean of squares, weight as printed.",
    ),
    Method(
        "separate-printed", "Separate, 600 steps as printed", drawn=False,
        note="each device separately, the same steps. With few records they have not converged.",
    ),
    Method("least", "Separate, least squares", note="the limit of a device's own steps."),
    Method(
        "exact", "Exact posterior mean",
        note="with the true Omega and noise, known only in simulations: no method can have a "
        "smaller mean squared error.",
    ),
)  # fmt: skip
NOTES = (
    f"Simulated records, standard normal predictors. Case I: two devices with 20 and 200 records, "
    "5 coefficients, scored on the first. II: 30 devices with 40 records, scored, and 70 with 275; "
    "8 coefficients. III, IV: 100 devices with 20 and 200. In II to IV Omega has random orthogonal "
    f"eigenvectors and eigenvalues uniform from {SMALLEST:g} to {LARGEST:g}, the defaults of the "
    "package that the paper names; it gives no settings. V is ours: 100 devices with 20 records, "
    "noise 1, and an Omega of rank 2.",
    "Column heads give the noise's standard deviation. The paper gives noise 0.05 and 0.1 without "
    "saying whether these are standard deviations or variances, so both readings are run (square "
    "roots rounded). Nor does it say whether test targets have noise. Each of its numbers is "
    "therefore compared with four readings.",
    "If the exact posterior mean is no better than least squares, no method can gain anything from "
    "other devices. Differences between methods then only show how far their steps have converged.",
)
TITLE = "Table 1: HM1 on simulated devices"
FIGURE_TITLE = "Figure 3: distance by round"
FIGURE_METHODS = (
    *(method for method in METHODS if method.name in ("hm1", "hm1-printed")),
    Method("separate", "Separate", note="HM1's steps without its shrinkage."),
    *(method for method in METHODS if method.name == "least"),
)
FIGURE_NOTES = (
    "Cases II and III of table 1, noise 0.1 as a standard deviation. Computed with all records in "
    "one place (`centralised`), which equals the method by secure sums up to rounding.",
)


def covariance(seeds: int, *, quick: bool) -> Figure:
    """Return table 1. quick: cases I and V, noise as a standard deviation"""
    noises = {case: NOISES[case][:1] for case in ("I", "V")} if quick else NOISES
    panels = tuple(Panel(_name(case), "noise, sd", levels) for case, levels in noises.items())
    cells = {
        (case, noise): {
            seed: cell(f"{TASKS}.hm1", SECONDS[case], case=case, noise=noise, seed=seed)
            for seed in range(seeds)
        }
        for case, levels in noises.items()
        for noise in levels
    }
    return Figure(
        name=f"table1{'-quick' if quick else ''}",
        title=TITLE,
        metrics=(NOISE_FREE, NOISY),
        costs=(),
        methods=METHODS,
        panels=panels,
        points={
            Place(_name(case), noise, method.name): runs
            for (case, noise), runs in cells.items()
            for method in METHODS
        },
        statements=_statements(noises),
        remarks=_remarks(noises),
        stated=tuple(
            PublishedValue(metric.name, Place(_name(case), noise, method), value, RUNS, 3)
            for case in PUBLISHED
            for method, value in zip(("hm1", "separate-printed"), PUBLISHED[case], strict=True)
            for metric in (NOISE_FREE, NOISY)
            for noise in noises.get(case, ())
        ),
        notes=NOTES,
    )


def by_round(seeds: int, *, quick: bool) -> Figure:
    """Return figure 3. quick: four of its rounds"""
    counts = (1, 5, 20, 40) if quick else ROUNDS
    cases = {_name(case): case for case in ("II", "III")}
    return Figure(
        name=f"figure3{'-quick' if quick else ''}",
        title=FIGURE_TITLE,
        metrics=(Metric("distance", "|Theta hat - Theta| / sqrt(K)", 4),),
        costs=(),
        methods=FIGURE_METHODS,
        panels=tuple(Panel(name, "round", counts) for name in cases),
        points={
            Place(name, count, method.name): {
                seed: cell(
                    f"{TASKS}.hm1_by_round", 0.1, case=case, noise=0.1, round=count, seed=seed,
                )
                for seed in range(seeds)
            }
            for name, case in cases.items()
            for count in counts
            for method in FIGURE_METHODS
        },
        statements=(),
        remarks=tuple(
            Remark(
                "HM1 minus least squares, the limit of separate steps.",
                "distance",
                tuple((Place(name, c, "hm1"), Place(name, c, "least")) for c in counts[-2:]),
            )
            for name in cases
        ),
        stated=(),
        notes=FIGURE_NOTES,
    )  # fmt: skip


def _name(case: str) -> str:
    return f"case {case}"


def _statements(noises: dict[str, tuple[float, ...]]) -> tuple[Statement, ...]:
    """Return section 5.1's claims, for each of the two rows that may be its "Separate"."""
    statements: list[Statement] = []
    for smaller, larger, words in (
        ("hm1", "least", "HM1 below least squares"),
        ("hm1-steps", "least", "HM1 with 20 steps' weight below least squares"),
        ("hm1-printed", "separate-printed", "all as printed, with 600 steps of the same rate"),
    ):
        statements += [
            Statement(
                f"{claim}: {words}.",
                tuple(
                    Comparison(
                        "free",
                        Place(_name(case), noise, smaller),
                        Place(_name(case), noise, larger),
                    )
                    for case in cases
                    for noise in noises.get(case, ())
                ),
            )
            for claim, cases in (
                ("Algorithm 1 yields much smaller A-RMSE (cases I to III)", ("I", "II", "III")),
                ("Not in the paper: with a large possible gain (case V)", ("V",)),
            )
        ]
    return tuple(statements)


def _remarks(noises: dict[str, tuple[float, ...]]) -> tuple[Remark, ...]:
    """Return the differences from least squares: the possible gain, and each method's gain."""
    return tuple(
        Remark(
            words,
            "free",
            tuple(
                (Place(_name(case), noise, method), Place(_name(case), noise, "least"))
                for case in CASES
                for noise in noises.get(case, ())
            ),
        )
        for method, words in (
            ("exact", "Largest possible gain: the exact posterior mean."),
            ("hm1", "Gain (below 0) or loss of HM1."),
            ("hm1-steps", "Gain or loss of HM1 with 20 steps' weight."),
            ("hm1-one", "Gain or loss of HM1 with one step a round."),
        )
    )
