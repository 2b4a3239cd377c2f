"""The figures of Ng and Zhang (AISTATS 2022), "Towards Federated Bayesian Network Structure
Learning with Continuous Optimization": section 6 and appendix C.

What the paper leaves open, and what was taken here:

* The penalty of the baselines (NOTEARS on all data and at each site) is not stated. Here 0.1, the
  choice of the program of Zheng et al. (2018); ADMM has the paper's 0.01.
* FGES is GES with the same score, searched faster; GES-Voting stands for FGES-Voting.
* The scaling of Sachs's data is not stated: all of raw, standardised and logarithms are run.
* NOTEARS on all data needs no data at one place: least squares read the records through their
  moments, so it *is* NOTEARS after one secure sum of moments. GOLEM, PC and GES on the same moments
  stand beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from secagg.errors import UsageError
from secagg.reproductions.cells import Cell, Plain, cell
from secagg.reproductions.figures import Figure, Method, Metric, Panel, Place
from secagg.reproductions.notears_admm_text import stated_of, statements_of

TASKS = "secagg.reproductions.graphs"
SEEDS, QUICK_SEEDS = 30, 2
ADMM_PENALTY, LOCAL_PENALTY = 0.01, 0.1
SITES = (2, 4, 8, 16, 32, 64)

METRICS = (
    Metric("shd", "SHD", 1),
    Metric("tpr", "TPR", 2, top=1.0),
    Metric("fdr", "FDR", 2, top=1.0),
)
EDGES = Metric("edges", "Edges", 1)
COSTS = (
    EDGES,
    Metric("abstained", "Sites that could not learn a graph", 1),
    Metric("kilobytes", "kB that a site sends", 1),
    Metric("seconds", "CPU seconds", 2),
)

LINEAR = (
    Method("admm-paper", "NOTEARS-ADMM", note="the paper's method with the paper's settings."),
    Method(
        "admm-fast", "NOTEARS-ADMM, fast", drawn=False,
        note="the same problem, solved by proximal steps, ended at tolerances.",
    ),
    Method(
        "notears-alldata", "NOTEARS-AllData",
        note="NOTEARS on the pooled moments: the one-shot route, one secure sum.",
    ),
    Method("voting", "NOTEARS-Voting", note="edges found by more than half of the sites."),
    Method("average", "NOTEARS-Avg", note="mean of the sites' weights, over the threshold."),
    Method(
        "best", "NOTEARS-Best",
        note="the site's graph closest to the truth, which only a simulation knows.",
    ),
    Method("pc-voting", "PC-Voting", note="votes on the sites' equivalence classes by PC."),
    Method(
        "ges-voting", "GES-Voting",
        note="votes on the sites' equivalence classes by GES, in the place of FGES.",
    ),
    Method("golem-ev", "GOLEM-EV, one shot", drawn=False, note="on the pooled moments."),
    Method("pc", "PC, one shot", drawn=False, note="on the pooled moments."),
    Method("ges", "GES, one shot", drawn=False, note="on the pooled moments."),
)  # fmt: skip
NEURAL = (
    Method("mlp-admm", "NOTEARS-MLP-ADMM", note="the paper's method with the paper's settings."),
    Method("mlp-alldata", "NOTEARS-MLP-AllData", note="NOTEARS-MLP on the records of all sites."),
    Method("mlp-voting", "NOTEARS-MLP-Voting", note="edges found by more than half of the sites."),
    Method("mlp-average", "NOTEARS-MLP-Avg", note="mean of the sites' weights, thresholded."),
    Method("mlp-best", "NOTEARS-MLP-Best", note="the site's graph closest to the truth."),
)
SCALINGS = {"raw": "raw values", "standardised": "standardised", "log": "logarithms"}
NOTES = (
    "Methods of one run share their data. The penalty of NOTEARS-AllData, Voting, Avg and Best, "
    f"which the paper does not give, is {LOCAL_PENALTY:g}.",
    "kB that a site sends: eight bytes a number, before what a protocol adds. CPU seconds: one "
    "thread; Voting, Avg and Best share the sites' fits, whose time stands at each.",
)


TITLES = {
    1: "Figure 1 (and 5): linear Gaussian graphs, n = 3 d records over 10 sites",
    2: "Figure 2 (and 6): linear Gaussian graphs, n = 256 records over K sites",
    3: "Figure 3 (and 7): proteins of Sachs et al., n = 512 cells over K sites",
    4: "Figure 4 (and 8): nonlinear graphs (perceptrons), n = 512 records over K sites",
}


@dataclass(frozen=True)
class _Setting:
    """One column's data: see `secagg.reproductions.graphs.data`."""

    figure: int
    data: str
    d: int
    n: int
    sites: int


def figure(
    number: int,
    seeds: int,
    *,
    quick: bool = False,
    full: bool = False,
    skip: Collection[str] = (),
) -> Figure:
    """Return one of the four figures with `seeds` runs.

    quick: with fewer columns; full: figure 4 with the paper's d = 50 beside d = 20
    skip: names of methods to leave out. Raises `UsageError` for a name that is none.
    """
    settings = _settings(number, quick=quick, full=full)
    known = NEURAL if number == 4 else LINEAR
    if unknown := sorted(set(skip) - {method.name for method in known}):
        names = ", ".join(method.name for method in known)
        raise UsageError("--skip", f"there is no method {unknown[0]!r}", f"They are {names}.")
    methods = tuple(method for method in known if method.name not in skip)
    panels = tuple(settings)
    return Figure(
        name=f"figure{number}{'-quick' if quick else ''}",
        title=TITLES[number],
        metrics=METRICS,
        costs=COSTS,
        methods=methods,
        panels=panels,
        points={
            Place(panel.name, column, method.name): {
                seed: _cell(method.name, setting, seed) for seed in range(seeds)
            }
            for panel, columns in settings.items()
            for column, setting in columns.items()
            for method in methods
        },
        statements=statements_of(number, panels),
        stated=stated_of(number, panels),
        notes=NOTES,
    )


def _settings(number: int, *, quick: bool, full: bool) -> dict[Panel, dict[int, _Setting]]:
    """Return the figure's panels, and the data of each of their columns."""
    if number == 1:
        sizes = (10, 20) if quick else (10, 20, 50, 100)
        panel = Panel("K = 10", "variables d", sizes)
        return {panel: {d: _Setting(1, "linear", d, 3 * d, 10) for d in sizes}}
    many: tuple[int, ...] = (2, 8) if quick else SITES
    if number == 2:
        return {
            Panel(f"d = {d}", "sites K", many): {K: _Setting(2, "linear", d, 256, K) for K in many}
            for d in ((10,) if quick else (10, 20, 50))
        }
    if number == 3:
        return {
            Panel(name, "sites K", many): {K: _Setting(3, data, 11, 512, K) for K in many}
            for data, name in SCALINGS.items()
        }
    many = (8,) if quick else (2, 4, 8, 16)
    return {
        Panel(f"d = {d}", "sites K", many): {K: _Setting(4, "mlp", d, 512, K) for K in many}
        for d in ((10,) if quick else (20, 50) if full else (20,))
    }


def _cell(method: str, setting: _Setting, seed: int) -> Cell:
    """Return the cell in which the method's numbers are; several methods may share one."""
    data: dict[str, Plain] = {
        "figure": setting.figure, "data": setting.data, "d": setting.d, "n": setting.n,
        "seed": seed,
    }  # fmt: skip
    K, size = setting.sites, setting.d / 10
    local = 0.24 * size**1.3  # seconds of one NOTEARS; all of these only order the work
    if method == "notears-alldata":
        return cell(f"{TASKS}.pooled", local, method=method, penalty=LOCAL_PENALTY, **data)
    if method in ("golem-ev", "pc", "ges"):
        return cell(f"{TASKS}.pooled", 0.06 * size**2.8, method=method, **data)
    if method in ("admm-paper", "admm-fast"):
        seconds = 0.9 * size**1.6 if method == "admm-paper" else 0.1 * size**0.6
        task, penalty = f"{TASKS}.consensus", ADMM_PENALTY
        return cell(task, seconds, method=method, penalty=penalty, sites=K, **data)
    if method in ("pc-voting", "ges-voting"):
        learner = method.removesuffix("-voting")
        return cell(f"{TASKS}.local", K * 0.03 * size**2.5, learner=learner, sites=K, **data)
    if method in ("voting", "average", "best"):
        task, penalty = f"{TASKS}.local", LOCAL_PENALTY
        return cell(task, K * local, learner="notears", penalty=penalty, sites=K, **data)
    fitted = {"mlp-admm": "admm", "mlp-alldata": "pooled"}.get(method, "local")
    sites = {} if fitted == "pooled" else {"sites": K}
    return cell(f"{TASKS}.neural", 20 * size**2, fit=fitted, **sites, **data)
