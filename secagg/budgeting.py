"""`secagg budget`: what ledgers hold, as plain data, and how a cap is set.

Whoever may read a ledger may ask it: a site's officer its own, whoever runs a simulation all. No
seed of any noise is ever shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from secagg.errors import UsageError
from secagg.guarding import open_ledger
from secagg.job import load_job
from secagg.noise import Adjacency
from secagg.privacy.budget import Cap, affordable
from secagg.privacy.events import epsilon_of
from secagg.privacy.ledger import Ledger
from secagg.sites import find_sites, ledger_folder

_ENDING = ".ledger"
DELTA = 1e-6
"""At which spent epsilon is told where no cap names a delta."""


def ledgers_at(path: Path) -> dict[str, Path]:
    """Return the ledgers, by party, that a path stands for: a job, a folder of ledgers, or one.

    Raises `UsageError` if there is none.
    """
    if path.is_file() and path.suffix == _ENDING:
        return {unquote(path.stem): path}
    folder = path if path.is_dir() else ledger_folder(load_job(path))
    if path.is_dir() and (path / "ledgers").is_dir():  # the folder of the records
        folder = path / "ledgers"
    found = sorted(folder.glob(f"*{_ENDING}")) if folder is not None and folder.is_dir() else []
    if not found:
        raise UsageError(
            str(path), "there is no ledger yet", "It is made by the first run on these records."
        )
    return {unquote(file.stem): file for file in found}


def show(path: Path) -> list[dict[str, Any]]:
    """Return, for each party and data set: releases, epsilon spent, caps, and what is left."""
    policies: dict[str, tuple[Cap, ...]] = {}
    if path.is_file() and path.suffix != _ENDING:  # a job: its sites' policies are at hand
        for source in find_sites(load_job(path)).values():
            budget = source.policy.budget
            policies[source.dataset] = () if budget is None else budget.caps
    return [
        {"party": party, **_standing(ledger, dataset, policies.get(dataset, ()))}
        for party, ledger in _opened(path)
        for dataset in ledger.datasets()
    ]


def _standing(ledger: Ledger, dataset: str, policy: tuple[Cap, ...] = ()) -> dict[str, Any]:
    """Return what was spent; `policy` are caps beside those that the ledger itself keeps."""
    costs = ledger.spent(dataset)
    exact = sum(math.isinf(epsilon_of([c.add_remove], 0.5)) for c in costs)
    return {
        "dataset": dataset,
        "releases": len(costs),
        "exact": exact,
        "delta": DELTA,
        **{
            f"epsilon_{adjacency.value}": epsilon_of([c.event(adjacency) for c in costs], DELTA)
            for adjacency in Adjacency
        },
        "caps": [_under(cap, ledger, dataset) for cap in (*ledger.caps(dataset), *policy)],
    }


def _under(cap: Cap, ledger: Ledger, dataset: str) -> dict[str, Any]:
    """Return a cap, what was spent of it, and the epsilon that one more job may claim."""
    since = None if cap.days is None else datetime.now(UTC) - timedelta(days=cap.days)
    costs = ledger.spent(dataset, since)
    return cap.plain() | {
        "words": cap.words(),
        "spent": epsilon_of([cost.event(cap.adjacency) for cost in costs], cap.delta),
        "left": affordable(cap, costs, 0.0, cap.delta),
    }


def set_cap(path: Path, party: str | None, dataset: str | None, cap: Cap) -> dict[str, Any]:
    """Set the one cap of a party's data set; the ledger is made if it is the first thing in it."""
    if path.suffix == _ENDING and not path.exists():
        files = {unquote(path.stem): path}
    else:
        files = ledgers_at(path)
    if party is None and len(files) > 1:
        raise UsageError(str(path), "holds several ledgers", f"Name one: {', '.join(files)}.")
    name = party or next(iter(files))
    if name not in files:
        raise UsageError(str(path), f"no ledger of {name!r}", f"There is {', '.join(files)}.")
    with closing(open_ledger(files[name])) as ledger:
        known = ledger.datasets()
        if dataset is None and len(known) != 1:
            raise UsageError(
                str(files[name]), f"holds {len(known)} data sets", "Name one with --dataset."
            )
        named = dataset or known[0]
        ledger.set_caps(named, [cap])
        return {"party": name, **_standing(ledger, named)}


def history(path: Path) -> list[dict[str, Any]]:
    """Return every line of every ledger, oldest first: entries, re-uses, cohorts, decisions."""
    rows = [
        {
            "time": datetime.fromtimestamp(line.time / 1e6, UTC).isoformat(timespec="milliseconds"),
            "party": party, "dataset": dataset, "kind": line.kind, "session": line.session,
            "round": line.round, "text": _words(line.kind, line.content), "content": line.content,
        }
        for party, ledger in _opened(path)
        for dataset in ledger.datasets()
        for line in ledger.history(dataset)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: str(row["time"]))


def _words(kind: str, content: Mapping[str, Any]) -> str:
    match kind:
        case "entry" | "use":
            cohort = f" of {', '.join(content['cohort'])}" if content["cohort"] else ""
            noise = "exact" if not content["variance"] else f"noise in the {content['placement']}"
            again = "again, same noise, no cost: " if kind == "use" else ""
            return f"{again}{content['stage']}{cohort}, {noise}"
        case "cohort":
            return f"sum over {', '.join(content['cohort'])}"
        case "decision":
            return f"{'allowed' if content['allowed'] else 'REFUSED'}: {content['rule']}: " + str(
                content["text"]
            )
        case _:
            return "; ".join(Cap.of(plain).words() for plain in content["caps"]) or "no cap"


def _opened(path: Path) -> Iterator[tuple[str, Ledger]]:
    for party, file in ledgers_at(path).items():
        with closing(open_ledger(file)) as ledger:
            yield party, ledger
