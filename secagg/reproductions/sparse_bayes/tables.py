"""Federated sparse Bayesian models (Kidd, Wang, Xu and Ni, PSB 2023), on records that can be had.

The paper's own records are not public, so that its table 1 and figure 2 cannot be made again. What
is made here is of their kind: a regression of four hospitals (`heart`), a Markov random field of
four studies (`ovarian`), a directed graph of proteins (`sachs`), and, simulated, what the paper
says of sites that deviate (`deviating_site`). `sparse_bayes_text` and `sparse_directed_text` write
the tables.
"""

from __future__ import annotations

from secagg.reproductions.data import heart_disease, ovarian, sachs
from secagg.reproductions.harness.cells import Cell, cell
from secagg.reproductions.harness.figures import (
    Comparison,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    Remark,
    Statement,
)
from secagg.reproductions.harness.tables import Study
from secagg.reproductions.harness.types import Plain
from secagg.reproductions.sparse_bayes import directed_rows as directed
from secagg.reproductions.sparse_bayes import rows as text

TASKS = "secagg.reproductions.sparse_bayes.tasks"
SEEDS, QUICK_SEEDS = 20, 3
DELTAS = (0, 0.5, 1, 2, 3)
ROUNDS = {4: 8000, 8: 3000}  # by number of sites: with four the chains mix far more slowly
HEART_ROUNDS, OVARIAN_ROUNDS, SACHS_ROUNDS = 40000, 24000, 6000
QUICK = 20  # so many times fewer rounds

ONE_SLAB: dict[str, Plain] = {"own_eta": False, "slab_scale": 1.0}
OWN_SLABS: dict[str, Plain] = {"own_eta": True, "slab_scale": 1.0}
NARROW_SLAB: dict[str, Plain] = {"own_eta": False, "slab_scale": 0.1}
PRIORS = {text.ONE: ONE_SLAB, text.OWN: OWN_SLABS, text.NARROW: NARROW_SLAB}

METHODS = (
    Method(
        "federated", "Sparse model",
        note="posterior means of the coefficients in common, and of the deviating site's own.",
    ),
    Method(
        "pooled", "Least squares, pooled",
        note="on the records of all sites, with an intercept for each.",
    ),
    Method(
        "others", "Least squares without the site",
        note="the same without the deviating site, which only a simulation can leave out.",
    ),
    Method("alone", "Least squares at the site", note="at the deviating site alone."),
    Method("effect", "Effect, lost at one site", note="PIP of a coefficient that is 1 elsewhere."),
    Method("gained", "None, but at one site", note="PIP of a coefficient that is 0 elsewhere."),
    Method("none", "None at any site", note="mean PIP of the coefficients that are 0 everywhere."),
)  # fmt: skip
METRICS = (
    Metric("error", "Error in common", 3),
    Metric("site_error", "Error, the deviating site", 3),
    Metric("pip", "PIP", 2, top=1.0),
)
COSTS = (
    Metric("r_hat", "Largest R-hat", 3),
    Metric("ess", "Least effective sample size", 0),
)
NOTES = (
    "Errors are root mean squares over ten coefficients, in the units of the records: of what is "
    "in common, and of the last site's own. The last site's first coefficient is 1 - delta where "
    "the others' is 1, and its sixth is delta where theirs is 0. Standard normal predictors and "
    "noise, 60 records at each site.",
    "What the paper says: in section 2.1 it asks of the prior that a site may deviate where its "
    "records support it, and holds that this one does; the comparisons by which to check that are "
    "ours. Not converged: some R-hat is above 1.01.",
    text.HYPER.format(slab=text.PRIORS[text.ONE]),
)


def study(name: str, *, quick: bool = False) -> Study:
    """Return the tables "heart", "ovarian" or "sachs". Raises `UsageError` without the records.

    quick: with so few rounds that chains have not mixed
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
    chosen: dict[str, Plain] = {"method": "sparse", "rounds": rounds, "seed": 0}
    return cell(f"{TASKS}.{task}", rounds * seconds, **chosen, **prior)


def deviating_site(seeds: int, *, quick: bool = False) -> Figure:
    """Return the figure of one deviating site with `seeds` runs.

    quick: four sites only, three columns, few rounds
    """
    deltas = (0, 1, 3) if quick else DELTAS
    sites = (4,) if quick else tuple(ROUNDS)
    panels = {
        many: Panel(f"{many} sites", "delta, of one site", tuple(map(float, deltas)))
        for many in sites
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
                seed: _deviating(many, delta, seed, QUICK if quick else 1) for seed in range(seeds)
            }
            for many, panel in panels.items()
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
    chosen: dict[str, Plain] = {"sites": sites, "delta": delta, "rounds": rounds, "seed": seed}
    return cell(f"{TASKS}.outlying_site", rounds * 1e-3, **chosen, **ONE_SLAB)


def _statements(panels: tuple[Panel, ...]) -> tuple[Statement, ...]:
    """Return what section 2.1 claims of the prior, as comparisons at each number of sites."""
    found: list[Statement] = []
    for panel in panels:
        far = [delta for delta in panel.columns if delta >= 1]
        for words, metric, other in (
            ("A deviation at one site is accommodated: what is in common has less error than "
             "pooled least squares", "error", "pooled"),
            ("The deviating site's own coefficients are found: with less error than from its own "
             "records", "site_error", "alone"),
        ):  # fmt: skip
            comparisons = tuple(
                Comparison(
                    metric,
                    Place(panel.name, delta, "federated"),
                    Place(panel.name, delta, other),
                )
                for delta in far
            )
            found.append(Statement(f"{words} ({panel.name}, delta of 1 and more).", comparisons))
    return tuple(found)


def _remarks(panels: tuple[Panel, ...]) -> tuple[Remark, ...]:
    """Return what a deviation costs: with it, less without any."""
    words = {
        "error": ("federated", "What delta adds to the error in common of the sparse model."),
        "pip": ("effect", "What delta adds to the PIP of an effect that one site has lost."),
    }
    return tuple(
        Remark(
            said,
            metric,
            tuple(
                (Place(panel.name, delta, method), Place(panel.name, 0, method))
                for panel in panels
                for delta in panel.columns
                if delta
            ),
        )
        for metric, (method, said) in words.items()
    )
