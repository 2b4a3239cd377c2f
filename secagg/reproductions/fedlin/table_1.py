"""FedLin's table 1 and figure 3: HM1, a covariance between devices, on simulated records.

Yue, Al Kontar and Estrada Gomez (2022), section 5.1. Beside the paper's two rows stand what tells
how much there is to gain: least squares, and the exact posterior mean for whoever knows Omega and
the noise. In the paper's cases that is next to nothing, whatever the method; case V is ours, with
much to gain.
"""

from __future__ import annotations

from secagg.reproductions.fedlin.tasks.simulated_cases import CASES, LARGEST, LEAST
from secagg.reproductions.harness.cells import cell
from secagg.reproductions.harness.figures import (
    Comparison,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    Remark,
    Stated,
    Statement,
)

TASKS = "secagg.reproductions.fedlin.tasks"

NOISES = {  # of the paper's number, read as a standard deviation, and as a variance; V is ours
    "I": (0.05, 0.224),
    "II": (0.1, 0.316),
    "III": (0.1, 0.316),
    "IV": (0.1, 0.316),
    "V": (1.0,),
}
PUBLISHED = {  # A-RMSE of Algorithm 1 and of separate models, of 30 runs
    "I": (0.081, 0.094),
    "II": (0.050, 0.056),
    "III": (0.044, 0.072),
    "IV": (0.035, 0.035),
}
RUNS = 30  # the paper's
ROUNDS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40)
SECONDS = {"I": 0.4, "II": 7.0, "III": 6.0, "IV": 7.0, "V": 6.0}  # of a cell, about

NOISE_FREE = Metric("free", "A-RMSE, noise-free targets", 4)
NOISY = Metric("noisy", "A-RMSE, noisy targets", 4)
METHODS = (
    Method(
        "hm1", "HM1",
        note='the method `fedlin_hm1` by secure sums: 30 rounds of 20 steps, weight "posterior", '
        "the noise's variance from residuals.",
    ),
    Method(
        "hm1-steps", "HM1, 20 steps' weight",
        note='the same with weight "steps": where 20 steps come to their end, up to 20 times the '
        "shrinkage of the posterior.",
    ),
    Method(
        "hm1-weight", "HM1, weight as printed", drawn=False,
        note="the same with Algorithm 1's weight, which takes 1/20 for the noise's variance.",
    ),
    Method(
        "hm1-one", "HM1, one step a round", drawn=False,
        note="600 rounds of one step, alpha smaller accordingly: as many steps, each with its "
        "share of the prior after it. Computed with all records at hand (`dense`), as are the "
        "rows below.",
    ),
    Method(
        "hm1-printed", "HM1, rate as printed", drawn=False,
        note="steps of 0.01 times the gradient of a device's mean of squares, weight as printed.",
    ),
    Method(
        "separate-printed", "Separate, 600 steps as printed", drawn=False,
        note="each device by itself, the same steps. With few records they are not at their end.",
    ),
    Method("least", "Separate, least squares", note="where a device's own steps end."),
    Method(
        "exact", "Exact posterior mean",
        note="with the true Omega and noise, which nobody has outside of simulations: no method "
        "can have a smaller mean square of its errors.",
    ),
)  # fmt: skip
NOTES = (
    f"Simulated records, standard normal predictors. Case I: two devices with 20 and 200 records, "
    "5 coefficients, scored on the first. II: 30 devices with 40 records, scored, and 70 with 275; "
    "8 coefficients. III, IV: 100 devices with 20 and 200. In II to IV Omega has random orthogonal "
    f"eigenvectors and eigenvalues uniform from {LEAST:g} to {LARGEST:g}, the defaults of the "
    "package that the paper names; it gives no settings. V is ours: 100 devices with 20 records, "
    "noise 1, and an Omega of rank 2.",
    "A column's head is the noise's standard deviation. The paper says noise 0.05 and 0.1, not of "
    "what: both readings are run, as standard deviation and, rounded, as variance. It does not say "
    "whether test targets have noise either. So its numbers are held against four readings each.",
    "Where the exact posterior mean is no better than least squares, there is nothing to be gained "
    "from other devices, by any method: differences between methods are then of how far their "
    "steps have come.",
)
TITLE = "Table 1: HM1 on simulated devices"
FIGURE_TITLE = "Figure 3: distance by round"
FIGURE_METHODS = (
    *(method for method in METHODS if method.name in ("hm1", "hm1-printed")),
    Method("separate", "Separate", note="HM1's steps without its shrinkage."),
    *(method for method in METHODS if method.name == "least"),
)
FIGURE_NOTES = (
    "Cases II and III of table 1, noise 0.1 as a standard deviation. Computed with all records at "
    "hand (`dense`), which is to rounding what the method does by secure sums.",
)


def covariance(seeds: int, *, quick: bool) -> Figure:
    """Return table 1. quick: cases I and V, noise as a standard deviation"""
    noises = {case: NOISES[case][:1] for case in ("I", "V")} if quick else NOISES
    panels = tuple(Panel(_name(case), "noise, sd", of) for case, of in noises.items())
    cells = {
        (case, noise): {
            seed: cell(f"{TASKS}.hm1", SECONDS[case], case=case, noise=noise, seed=seed)
            for seed in range(seeds)
        }
        for case, of in noises.items()
        for noise in of
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
            Stated(metric.name, Place(_name(case), noise, method), value, RUNS, 3)
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
                "HM1 less least squares, whose steps would have come to their end.",
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
    """Return what section 5.1 says, against each of the two rows that may be its "Separate"."""
    found: list[Statement] = []
    for smaller, larger, words in (
        ("hm1", "least", "HM1 below least squares"),
        ("hm1-steps", "least", "HM1 with 20 steps' weight below least squares"),
        ("hm1-printed", "separate-printed", "all as printed, with 600 steps of the same rate"),
    ):
        found += [
            Statement(
                f"{said}: {words}.",
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
            for said, cases in (
                ("Algorithm 1 yields much smaller A-RMSE (cases I to III)", ("I", "II", "III")),
                ("Not of the paper: where there is much to gain (case V)", ("V",)),
            )
        ]
    return tuple(found)


def _remarks(noises: dict[str, tuple[float, ...]]) -> tuple[Remark, ...]:
    """Return how far methods are from least squares: what there is to gain, and what they gain."""
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
            ("exact", "What there is to gain at most: the exact posterior mean."),
            ("hm1", "What HM1 gains (below 0) or loses."),
            ("hm1-steps", "What HM1 gains or loses with 20 steps' weight."),
            ("hm1-one", "What HM1 gains or loses with one step a round."),
        )
    )
