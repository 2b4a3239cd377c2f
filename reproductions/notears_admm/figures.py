"""The figures of Ng and Zhang (AISTATS 2022), "Towards Federated Bayesian Network Structure
Learning with Continuous Optimization": section 6 and appendix C.

What the paper does not state, and our choices:

* The penalty of the baselines (NOTEARS on all data and at each site). We take 0.1, as in the
  program of Zheng et al. (2018). ADMM has the paper's 0.01.
* FGES is a faster search for GES with the same score. GES-Voting stands in for FGES-Voting.
* The scaling of Sachs's data. We run raw, standardised and log-transformed values.
* NOTEARS on all data does not need the data in one place: its least squares depend on the records
  only through their moments, so it is *identical* to NOTEARS after one secure sum of moments. We
  add GOLEM, PC and GES on the same moments.
* The FDR of a graph without edges, which is 0/0. We exclude such runs from the FDR's means, and
  count them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from reproductions.data import sachs
from reproductions.harness.figures import Figure, Method, Metric, Panel, Place
from reproductions.notears_admm.paper_claims import (
    RUNS,
    remarks_of,
    stated_of,
    statements_of,
)
from secagg.errors import UsageError
from secagg.experiments.runner.cells import Cell, cell
from secagg.experiments.runner.types import Plain

TASKS = "reproductions.notears_admm.tasks"
SEEDS, QUICK_SEEDS = RUNS, 3
ADMM_PENALTY, ADMM_MLP_PENALTY = 0.01, 0.001  # appendix B
LOCAL_PENALTY, LOCAL_MLP_PENALTY = 0.1, 0.01  # of the programs of Zheng et al.
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
    Metric("kilobytes", "kB sent by each site", 1),
    Metric("seconds", "CPU seconds", 2),
)

LINEAR = (
    Method("admm-paper", "NOTEARS-ADMM", note="the paper's method with the paper's settings."),
    Method(
        "admm-fast", "NOTEARS-ADMM, fast", drawn=False,
        note="the same problem, solved by proximal steps that stop at tolerances.",
    ),
    Method(
        "admm-slower", "NOTEARS-ADMM, slower growth", drawn=False,
        note='the variant "fast" with penalties that grow by 1.3 and 1.1 per round instead of 1.75 '
        "and 1.25.",
    ),
    Method(
        "notears-alldata", "NOTEARS-AllData",
        note="NOTEARS on the pooled moments: the one-shot route, one secure sum.",
    ),
    Method("voting", "NOTEARS-Voting", note="edges found by more than half of the sites."),
    Method("average", "NOTEARS-Avg", note="mean of the sites' weights, thresholded."),
    Method(
        "best", "NOTEARS-Best",
        note="the site's graph closest to the truth, which is known only in simulations.",
    ),
    Method("pc-voting", "PC-Voting", note="votes on the sites' equivalence classes by PC."),
    Method(
        "ges-voting", "GES-Voting",
        note="votes on the sites' equivalence classes by GES, which stands in for FGES.",
    ),
    Method("golem-ev", "GOLEM-EV, one shot", drawn=False, note="on the pooled moments."),
    Method("pc", "PC, one shot", drawn=False, note="on the pooled moments."),
    Method("ges", "GES, one shot", drawn=False, note="on the pooled moments."),
)  # fmt: skip
NEURAL = (
    Method(
        "mlp-admm",
        "NOTEARS-MLP-ADMM",
        note="the paper's settings, and the random start of its program.",
    ),
    Method(
        "mlp-admm-former",
        "NOTEARS-MLP-ADMM, former default",
        drawn=False,
        note="starts without edges; proximal steps that stop at tolerances, with the paper's "
        "numbers: the defaults before their calibration.",
    ),
    Method("mlp-alldata", "NOTEARS-MLP-AllData", note="NOTEARS-MLP on the records of all sites."),
    Method("mlp-voting", "NOTEARS-MLP-Voting", note="edges found by more than half of the sites."),
    Method("mlp-average", "NOTEARS-MLP-Avg", note="mean of the sites' weights, thresholded."),
    Method("mlp-best", "NOTEARS-MLP-Best", note="the site's graph closest to the truth."),
)
SCALINGS = {"raw": "raw values", "standardised": "standardised", "log": "logarithms"}
NOTES = (
    "Within a run, all methods share their data. The paper does not state the penalty of AllData, "
    f"Voting, Avg and Best. It is {LOCAL_PENALTY:g} here, nonlinear {LOCAL_MLP_PENALTY:g}, as in "
    "the programs of Zheng et al. A site that cannot learn a graph votes for no edge.",
    "The FDR of a graph without edges is 0/0, and the paper does not define it. The FDR's means "
    "exclude such runs, and comparisons of FDRs use the runs in which both methods found an edge.",
    "kB sent by each site: eight bytes per number, before the overhead of a protocol. CPU seconds: "
    "one thread. Voting, Avg and Best share the sites' fits; each row includes that time.",
)
SACHS_NOTES = (
    "Each seed draws 512 of the same 853 cells without replacement. Standard errors and intervals "
    "describe repeated draws from these cells, not other cells. Runs share most of their cells, so "
    "they differ less than new experiments would.",
)


SCALE_FREE = ("pc-voting", "ges-voting", "pc", "ges")  # use correlations only
POOLED = ("notears-alldata", "golem-ev", "pc", "ges", "mlp-alldata")  # do not depend on K
EACH_SITE = (
    "voting", "average", "best", "pc-voting", "ges-voting", "mlp-voting", "mlp-average", "mlp-best",
)  # fmt: skip
SLOW_METHODS = ("ges", "ges-voting")  # at 100 variables slower than all others together
SECONDS = {
    # Rough measurements: seconds at d = 10, and the power of d at which they grow; for EACH_SITE,
    # per site. They affect only the order of the work.
    "admm-paper": (0.8, 1.7),
    "admm-fast": (0.1, 0.6),
    "admm-slower": (0.2, 0.6),
    "notears-alldata": (0.24, 1.3),
    "voting": (0.24, 1.3),
    "average": (0.24, 1.3),
    "best": (0.24, 1.3),
    "pc-voting": (0.02, 2.0),
    "ges-voting": (0.06, 2.9),
    "golem-ev": (0.04, 2.0),
    "pc": (0.01, 2.6),
    "ges": (0.05, 3.4),
    "mlp-admm": (3.0, 2.5),
    "mlp-admm-former": (2.0, 2.3),
    "mlp-alldata": (0.9, 1.0),
    "mlp-voting": (0.7, 1.0),
    "mlp-average": (0.7, 1.0),
    "mlp-best": (0.7, 1.0),
}
TITLES = {
    1: "Figure 1 (and 5): linear Gaussian graphs, n = 3 d records over 10 sites",
    2: "Figure 2 (and 6): linear Gaussian graphs, n = 256 records over K sites",
    3: "Figure 3 (and 7): proteins of Sachs et al., n = 512 cells over K sites",
    4: "Figure 4 (and 8): nonlinear graphs (perceptrons), n = 512 records over K sites",
}


@dataclass(frozen=True)
class _Setting:
    """The data of one column: see `reproductions.notears_admm.tasks.data`."""

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

    quick: fewer columns; full: figure 4 also with the paper's d = 50
    skip: names of methods to leave out
    Raises `UsageError` for an unknown name in `skip`, and for figure 3 without its data.
    """
    if number == 3:
        sachs.source()
    settings = _settings(number, quick=quick, full=full)
    known = NEURAL if number == 4 else LINEAR
    if unknown := sorted(set(skip) - {method.name for method in known}):
        names = ", ".join(method.name for method in known)
        raise UsageError("--skip", f"unknown method {unknown[0]!r}", f"Known methods: {names}.")
    panels = tuple(settings)
    return Figure(
        name=f"figure{number}{'-quick' if quick else ''}",
        title=TITLES[number],
        metrics=METRICS,
        costs=COSTS,
        methods=known,
        panels=panels,
        points={
            Place(panel.name, column, method.name): {
                seed: _cell(method.name, setting, seed) for seed in range(seeds)
            }
            for panel, columns in settings.items()
            for column, setting in columns.items()
            for method in known
            if method.name not in skip
        },
        statements=statements_of(number, panels),
        remarks=remarks_of(number, panels),
        stated=stated_of(number, panels),
        notes=NOTES + SACHS_NOTES if number == 3 else NOTES,
    )


def _settings(number: int, *, quick: bool, full: bool) -> dict[Panel, dict[int, _Setting]]:
    """Return the figure's panels, and the data of each of their columns."""
    if number == 1:
        sizes = (10, 20) if quick else (10, 20, 50, 100)
        panel = Panel("K = 10", "variables d", sizes)
        return {panel: {d: _Setting(1, "linear", d, 3 * d, 10) for d in sizes}}
    sites: tuple[int, ...] = (2, 8, 64) if quick else SITES
    if number == 2:
        return {
            Panel(f"d = {d}", "sites K", sites): {
                K: _Setting(2, "linear", d, 256, K) for K in sites
            }
            for d in ((10,) if quick else (10, 20, 50))
        }
    if number == 3:
        return {
            Panel(name, "sites K", sites): {K: _Setting(3, data, 11, 512, K) for K in sites}
            for data, name in list(SCALINGS.items())[: 1 if quick else None]
        }
    sites = (8,) if quick else (2, 4, 8, 16)
    return {
        Panel(f"d = {d}", "sites K", sites): {K: _Setting(4, "mlp", d, 512, K) for K in sites}
        for d in ((10,) if quick else (20, 50) if full else (20,))
    }


def _cell(method: str, setting: _Setting, seed: int) -> Cell:
    """Return the cell with the method's numbers; several methods may share one cell."""
    chosen: Mapping[str, Plain]
    match method:
        case "admm-paper" | "admm-fast" | "admm-slower":
            task, chosen = "admm", {"method": method, "penalty": ADMM_PENALTY}
        case "notears-alldata":
            task, chosen = "pooled_moments", {"method": method, "penalty": LOCAL_PENALTY}
        case "golem-ev" | "pc" | "ges":
            task, chosen = "pooled_moments", {"method": method}
        case "voting" | "average" | "best":
            task, chosen = "local_graphs", {"learner": "notears", "penalty": LOCAL_PENALTY}
        case "pc-voting" | "ges-voting":
            task, chosen = "local_graphs", {"learner": method.removesuffix("-voting")}
        case "mlp-admm" | "mlp-admm-former":
            task, chosen = "mlp", {"method": method, "penalty": ADMM_MLP_PENALTY}
        case "mlp-alldata":
            task, chosen = "mlp", {"method": method, "penalty": LOCAL_MLP_PENALTY}
        case _:
            task, chosen = "mlp", {"method": "mlp-local", "penalty": LOCAL_MLP_PENALTY}
    data = asdict(setting) | {"seed": seed}
    if method in POOLED:
        del data["sites"]
    if method in SCALE_FREE and setting.data == "standardised":
        data["data"] = "raw"
    at_ten, power = SECONDS[method]
    fits = setting.sites if method in EACH_SITE else 1
    seconds = fits * at_ten * (setting.d / 10) ** power
    return replace(cell(f"{TASKS}.{task}", seconds, **chosen, **data), late=method in SLOW_METHODS)
