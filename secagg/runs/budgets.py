"""`secagg budget`: what was spent and what is left, as plain data, and how a cap is set.

Whoever may read a ledger may ask it: a site's officer its own, whoever runs a simulation all. No
seed of any noise is ever shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from secagg.contracts.noise import Adjacency
from secagg.errors import UsageError
from secagg.jobs.data_sources import find_sites, ledger_folder, ledger_name
from secagg.jobs.job import load_job
from secagg.privacy.accounting.budget import Cap, Cost, affordable, spent_epsilon
from secagg.privacy.accounting.events import curve, rdp_epsilon, zcdp_epsilon
from secagg.privacy.ledger.ledger import Ledger
from secagg.runtime.session_ledgers import ALL_SITES, open_ledger

_ENDING: Final = ".ledger"
_COORDINATOR: Final = "coordinator"
DELTA: Final = 1e-6
"""At which spent epsilon is told where neither a cap nor whoever asks names a delta."""

_DELTAS: Final = tuple(10.0**-i for i in range(3, 13))


@dataclass(frozen=True)
class Place:
    """Where a party keeps count, whether there is a file yet or not.

    dataset: the name of its records, and caps: those of its policy, as far as they are at hand
    """

    party: str
    file: Path
    dataset: str | None = None
    caps: tuple[Cap, ...] = ()


def find_places(path: Path) -> list[Place]:
    """Return what a path stands for: a job, a folder of ledgers or of records, or one ledger.

    Raises `UsageError`.
    """
    if path.suffix == _ENDING:
        return [_place(path)]
    if path.is_dir():
        inner = path / "ledgers"  # of the folder of the records
        return _in_folder(inner if inner.is_dir() else path)
    job = load_job(path)
    folder = ledger_folder(job)
    if folder is None:
        raise UsageError(str(path), "its records are in no file, so that no ledger outlives a run")
    if job.sites.folder is None and job.sites.table is None:
        return _in_folder(folder)
    places = [
        Place(
            source.name,
            source.ledger or folder / ledger_name(source.dataset),
            source.dataset,
            () if source.policy.budget is None else source.policy.budget.caps,
        )
        for source in find_sites(job).values()
    ]
    places.append(_place(folder / ledger_name(_COORDINATOR)))
    known = {place.file for place in places}
    gone = [place for place in _in_folder(folder) if place.file not in known]
    return [*places, *gone]


def _in_folder(folder: Path) -> list[Place]:
    return [_place(file) for file in sorted(folder.glob(f"*{_ENDING}"))] if folder.is_dir() else []


def _place(file: Path) -> Place:
    party = unquote(file.stem)
    return Place(party, file, ALL_SITES if party == _COORDINATOR else None)


def show(path: Path, delta: float = DELTA, *, in_full: bool = False) -> list[dict[str, Any]]:
    """Return, for each party and data set: releases, epsilon spent, caps, and what is left.

    delta: at which the epsilon of everything is told; each cap is told at its own
    in_full: also at other deltas, and by looser accountants
    Raises `UsageError` if there is no ledger.
    """
    if not 0.0 < delta < 1.0:
        raise UsageError("--delta", f"{delta:g} is not between 0 and 1", "For example 1e-6.")
    return [
        {
            "party": place.party,
            **_standing(ledger, dataset, delta, place.caps if dataset == place.dataset else ()),
            **({"in_full": _in_full(ledger.spent(dataset), delta)} if in_full else {}),
        }
        for place, ledger in opened_ledgers(path)
        for dataset in ledger.datasets()
    ]


def _standing(
    ledger: Ledger, dataset: str, delta: float = DELTA, policy: tuple[Cap, ...] = ()
) -> dict[str, Any]:
    """Return what was spent; `policy` are caps beside those that the ledger itself keeps."""
    costs = ledger.spent(dataset)
    return {
        "dataset": dataset,
        "releases": costs.total(),
        "exact": exact_releases(costs),
        "delta": delta,
        **{
            f"epsilon_{adjacency.value}": spent_epsilon(costs, adjacency, delta)
            for adjacency in Adjacency
        },
        "caps": [under(cap, ledger, dataset) for cap in (*ledger.caps(dataset), *policy)],
    }


def exact_releases(costs: Counter[Cost]) -> int:
    """Return how many of these releases no epsilon bounds."""
    return sum(often for cost, often in costs.items() if _is_exact(cost))


def _is_exact(cost: Cost) -> bool:
    return math.isinf(spent_epsilon(Counter([cost]), Adjacency.ADD_REMOVE, 0.5))


def under(cap: Cap, ledger: Ledger, dataset: str) -> dict[str, Any]:
    """Return a cap, what was spent of it, and the epsilon that one more job may claim."""
    since = None if cap.days is None else datetime.now(UTC) - timedelta(days=cap.days)
    costs = ledger.spent(dataset, since)
    return cap.plain() | {
        "words": cap.words(),
        "spent": spent_epsilon(costs, cap.adjacency, cap.delta),
        "left": affordable(cap, costs, 0.0, cap.delta),
    }


def _in_full(costs: Counter[Cost], delta: float) -> dict[str, Any]:
    """Return epsilon as a function of delta, and as other software would tell it at `delta`.

    Renyi and concentrated privacy are what most other accountants add up. Their epsilons are upper
    bounds of ours, to be put beside what these say of the same releases; no cap goes by them.
    """
    found: dict[str, Any] = {}
    for adjacency in Adjacency:
        events = [cost.event(adjacency) for cost in costs.elements()]
        found[adjacency.value] = {
            "curve": curve(events, _DELTAS),
            "rdp": rdp_epsilon(events, delta),
            "zcdp": zcdp_epsilon(events, delta),
        }
    return found


def set_cap(path: Path, party: str | None, dataset: str | None, cap: Cap) -> dict[str, Any]:
    """Set the one cap of a party's data set; the ledger is made if it is the first thing in it.

    Raises `UsageError` where it is not clear whose ledger, or which data set, is meant.
    """
    places = find_places(path)
    names = ", ".join(place.party for place in places)
    if not places:
        advice = "Give the job instead, and --party: the name of a site, or 'coordinator'."
        raise UsageError(str(path), "there is no ledger yet", advice)
    if party is None and len(places) > 1:
        raise UsageError(str(path), "holds several ledgers", f"Name one with --party: {names}.")
    meant = [place for place in places if party in (None, place.party)]
    if not meant:
        raise UsageError(str(path), f"no ledger of {party!r}", f"There is {names}.")
    named, file = dataset or meant[0].dataset, meant[0].file
    if not file.exists():
        _check_name(file, named, "there is no ledger yet")
    with closing(open_ledger(file)) as ledger:
        known = ledger.datasets()
        if named is None and len(known) != 1:
            what = f"holds {len(known)} data sets" + "".join(f", {name!r}" for name in known)
            raise UsageError(str(file), what, "Name one with --dataset.")
        named = named or known[0]
        if named not in known:
            _check_name(file, named, f"holds nothing of data set {named!r}")
        ledger.set_caps(named, [cap])
        return {"party": meant[0].party, **_standing(ledger, named, policy=meant[0].caps)}


def _check_name(file: Path, dataset: str | None, what: str) -> None:
    """Refuse a cap that no run would ever look at, where `what` is so."""
    if dataset is None:
        raise UsageError(
            str(file),
            what,
            "Give the job instead, with --party; or name with --dataset whose records it is for.",
        )
    if dataset != ALL_SITES and file.name != ledger_name(dataset):
        what += f", and is not where a run looks for data set {dataset!r}"
        raise UsageError(str(file), what, f"That is {ledger_name(dataset)!r}.")


def opened_ledgers(path: Path, party: str | None = None) -> Iterator[tuple[Place, Ledger]]:
    """Yield the ledgers there are, each once: parties may have one data set between them.

    Raises `UsageError` if there is none.
    """
    places = [place for place in find_places(path) if place.file.exists()]
    if not places:
        advice = "It is made by the first run on these records, or by: secagg budget set."
        raise UsageError(str(path), "there is no ledger yet", advice)
    meant = [place for place in places if party in (None, place.party)]
    if not meant:
        names = ", ".join(place.party for place in places)
        raise UsageError(str(path), f"no ledger of {party!r}", f"There is {names}.")
    once: dict[Path, Place] = {}
    for place in meant:
        first = once.setdefault(place.file, place)
        more = tuple(cap for cap in place.caps if cap not in first.caps)
        once[place.file] = replace(first, caps=(*first.caps, *more))
    for place in once.values():
        with closing(open_ledger(place.file)) as ledger:
            yield place, ledger
