"""Federated sparse Bayesian models (Kidd, Wang, Xu and Ni, PSB 2023), on public records.

The paper's own records are not public, so its table 1 and figure 2 cannot be reproduced. These are
similar analyses: a regression of four hospitals (`heart`), a Markov random field of four studies
(`ovarian`), and a directed graph of proteins (`sachs`). A simulation tests the paper's claims about
sites that deviate (`deviating_site`). `rows` and `directed_rows` build the tables.
"""

from __future__ import annotations

from reproductions.data import heart_disease, ovarian, sachs
from reproductions.harness.figures import (
    Comparison,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    Remark,
    Statement,
)
from reproductions.harness.tables import Study
from reproductions.sparse_bayes import directed_rows as directed
from reproductions.sparse_bayes import rows as text
from secagg.experiments.runner.cells import Cell, cell
from secagg.experiments.runner.types import Plain

TASKS = "reproductions.sparse_bayes.tasks"
SEEDS, QUICK_SEEDS = 20, 3
DELTAS = (0, 0.5, 1, 2, 3)
ROUNDS = {4: 8000, 8: 3000}  # by number of sites: with four, the chains mix far more slowly
HEART_ROUNDS, OVARIAN_ROUNDS, SACHS_ROUNDS = 40000, 24000, 6000
QUICK = 20  # factor by which --quick reduces the rounds

ONE_SLAB: dict[str, Plain] = {"own_eta": False, "slab_scale": 1.0}
OWN_SLABS: dict[str, Plain] = {"own_eta": True, "slab_scale": 1.0}
NARROW_SLAB: dict[str, Plain] = {"own_eta": False, "slab_scale": 0.1}
PRIORS = {text.ONE: ONE_SLAB, text.OWN: OWN_SLABS, text.NARROW: NARROW_SLAB}

METHODS = (
    Method(
        "federated", "Sparse model",
        note="posterior means of the common coefficients, and of the deviating site's own.",
    ),
    Method(
        "pooled", "Least squares, pooled",
        note="on the records of all sites, with an intercept for each site.",
    ),
    Method(
        "others", "Least squares without the site",
        note="the same without the deviating site; possible only in a simulation.",
    ),
    Method("alone", "Least squares at the site", note="at the deviating site only."),
    Method("effect", "Effect, lost at one site", note="PIP of a coefficient that is 1 elsewhere."),
    Method(
        "gained", "Effect at one site only", note="PIP of a coefficient that is 0 elsewhere.",
    ),
    Method(
        "none", "No effect at any site", note="mean PIP of the coefficients that are 0 everywhere.",
    ),
)  # fmt: skip
METRICS = (
    Metric("error", "Error, common coefficients", 3),
    Metric("site_error", "Error, the deviating site", 3),
    Metric("pip", "PIP", 2, top=1.0),
)
COSTS = (
    Metric("r_hat", "Largest R-hat", 3),
    Metric("ess", "Smallest effective sample size", 0),
)
NOTES = (
    "Errors are root mean squares over ten coefficients, in the units of the records: of the "
    "common coefficients, and of the last site's own. The last site's first coefficient is 1 - "
    "delta and its sixth is delta; at all other sites these are 1 and 0. Predictors and noise are "
    "standard normal; each site has 60 records.",
    "Section 2.1 of the paper requires that the prior lets a site deviate if its records support "
    "it, and claims that this prior does. The comparisons that test this claim are ours. Not "
    "converged: some R-hat is above 1.01.",
    text.HYPER.format(slab=text.PRIORS[text.ONE]),
)


def study(name: str, *, quick: bool = False) -> Study:
    """Return the study "heart", "ovarian" or "sachs". Raises `UsageError` without the records.

    quick: with too few rounds for the chains to mix
    """
    {"heart": heart_disease, "ovarian": ovarian, "sachs": sachs}[name].source()
    divisor, file = (QUICK, f"{name}-quick") if quick else (1, name)
    match name:
        case "heart":
            fits = _fits("regression", HEART_ROUNDS // divisor, 1.3e-3)
            fits[text.LEAST] = cell(f"{TASKS}.regression", 1.0, method="least-squares", seed=0)
            return Study(file, text.HEART_TITLE, fits, text.heart_tables, text.HEART_NOTES)
        case "ovarian":
            fits = _fits("markov_random_field", OVARIAN_ROUNDS // divisor, 2e-2)
            fits[text.PARTIAL] = cell(f"{TASKS}.markov_random_field", 1.0, method="partial", seed=0)
            return Study(file, text.OVARIAN_TITLE, fits, text.ovarian_tables, text.OVARIAN_NOTES)
        case _:
            fits = {text.ONE: _fit("directed_graph", SACHS_ROUNDS // divisor, 4e-2, ONE_SLAB)}
            fits[directed.NOTEARS] = cell(f"{TASKS}.directed_graph", 1.0, method="notears", seed=0)
            return Study(file, directed.TITLE, fits, directed.tables, directed.NOTES)


def _fits(task: str, rounds: int, seconds: float) -> dict[str, Cell]:
    return {label: _fit(task, rounds, seconds, prior) for label, prior in PRIORS.items()}


def _fit(task: str, rounds: int, seconds: float, prior: dict[str, Plain]) -> Cell:
    settings: dict[str, Plain] = {"method": "sparse", "rounds": rounds, "seed": 0}
    return cell(f"{TASKS}.{task}", rounds * seconds, **settings, **prior)


def deviating_site(seeds: int, *, quick: bool = False) -> Figure:
    """Return the figure of one deviating site with `seeds` runs.

    quick: four sites only, three columns, few rounds
    """
    deltas = (0, 1, 3) if quick else DELTAS
    sites = (4,) if quick else tuple(ROUNDS)
    panels = {
        count: Panel(f"{count} sites", "delta, of one site", tuple(map(float, deltas)))
        for count in sites
    }
    return Figure(
        name=f"deviating-site{'-quick' if quick else ''}",
        title="One site that deviates from all others",
        metrics=METRICS,
        costs=COSTS,
        methods=METHODS,
        panels=tuple(panels.values()),
        points={
            Place(panel.name, delta, method.name): {
                seed: _deviating(count, delta, seed, QUICK if quick else 1) for seed in range(seeds)
            }
            for count, panel in panels.items()
            for delta in panel.columns
            for method in METHODS
        },
        statements=_statements(tuple(panels.values())),
        remarks=_remarks(tuple(panels.values())),
        stated=(),
        notes=NOTES,
    )


def _deviating(sites: int, delta: float, seed: int, divisor: int) -> Cell:
    rounds = ROUNDS[sites] // divisor
    settings: dict[str, Plain] = {"sites": sites, "delta": delta, "rounds": rounds, "seed": seed}
    return cell(f"{TASKS}.outlying_site", rounds * 1e-3, **settings, **ONE_SLAB)


def _statements(panels: tuple[Panel, ...]) -> tuple[Statement, ...]:
    """Return section 2.1's claims about the prior, as comparisons at each number of sites."""
    statements: list[Statement] = []
    for panel in panels:
        large = [delta for delta in panel.columns if delta >= 1]
        for words, metric, other in (
            ("The model accommodates a deviation at one site: the common coefficients have a "
             "smaller error than pooled least squares", "error", "pooled"),
            ("The model finds the deviating site's own coefficients: they have a smaller error "
             "than estimates from its records only", "site_error", "alone"),
        ):  # fmt: skip
            comparisons = tuple(
                Comparison(
                    metric,
                    Place(panel.name, delta, "federated"),
                    Place(panel.name, delta, other),
                )
                for delta in large
            )
            statements.append(
                Statement(f"{words} ({panel.name}, delta of 1 and more).", comparisons)
            )
    return tuple(statements)


def _remarks(panels: tuple[Panel, ...]) -> tuple[Remark, ...]:
    """Return the cost of a deviation: results with it minus results without any."""
    words = {
        "error": (
            "federated",
            "Increase with delta of the sparse model's error in the common coefficients.",
        ),
        "pip": ("effect", "Increase with delta of the PIP of an effect that one site has lost."),
    }
    return tuple(
        Remark(
            text_of_remark,
            metric,
            tuple(
                (Place(panel.name, delta, method), Place(panel.name, 0, method))
                for panel in panels
                for delta in panel.columns
                if delta
            ),
        )
        for metric, (method, text_of_remark) in words.items()
    )
