"""`secagg budget`: the spent and the remaining budget as plain data, and setting a cap.

It works for everybody who may read a ledger: a site's data officer for that site, the user of a
simulation for all. The seeds of the noise are never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from secagg.contracts.noise import Adjacency
from secagg.errors import UsageError
from secagg.jobs.data_sources import find_sites, ledger_folder, ledger_name
from secagg.jobs.job import load_job
from secagg.privacy.accounting.composition import FREE, Cap, Cost, affordable, spent_epsilon
from secagg.privacy.accounting.events import curve, rdp_epsilon, zcdp_epsilon
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import RECORD
from secagg.sessions.session_ledgers import ALL_SITES, open_ledger

_ENDING: Final = ".ledger"
_COORDINATOR: Final = "coordinator"
DELTA: Final = 1e-6
"""Delta at which the spent epsilon is given if neither the user nor a job sets one."""

_DELTAS: Final = tuple(10.0**-i for i in range(3, 13))


@dataclass(frozen=True)
class Place:
    """The ledger file of a party, which may not exist yet.

    dataset: the name of its data set, if known
    caps: those of its policy, if known
    """

    party: str
    file: Path
    dataset: str | None = None
    caps: tuple[Cap, ...] = ()


def _delta_of_job(path: Path) -> float:
    if path.is_dir() or path.suffix == _ENDING:
        return DELTA
    return load_job(path).privacy.delta or DELTA


def find_places(path: Path) -> list[Place]:
    """Return the ledgers that a path stands for. Raises `UsageError`.

    path: a job file, a folder of ledgers or of records, or one ledger
    """
    if path.suffix == _ENDING:
        return [_place(path)]
    if path.is_dir():
        inner = path / "ledgers"  # if `path` is the folder of the records
        return _in_folder(inner if inner.is_dir() else path)
    job = load_job(path)
    folder = ledger_folder(job)
    if folder is None:
        raise UsageError(
            str(path),
            "its records are not in files, so its ledgers exist only during a run",
            "Set sites.ledgers.",
        )
    if job.sites.folder is None and job.sites.table is None:
        return _in_folder(folder)
    places = [
        Place(
            source.name,
            source.ledger or folder / ledger_name(source.dataset),
            source.dataset,
            source.caps,
        )
        for source in find_sites(job).values()
    ]
    places.append(_place(folder / ledger_name(_COORDINATOR)))
    known = {place.file for place in places}
    former = [place for place in _in_folder(folder) if place.file not in known]
    return [*places, *former]


def _in_folder(folder: Path) -> list[Place]:
    return [_place(file) for file in sorted(folder.glob(f"*{_ENDING}"))] if folder.is_dir() else []


def _place(file: Path) -> Place:
    party = unquote(file.stem)
    return Place(party, file, ALL_SITES if party == _COORDINATOR else None)


def show(path: Path, delta: float | None = None, *, in_full: bool = False) -> list[dict[str, Any]]:
    """Return, for each party and data set: releases, spent epsilon, caps, and remaining budget.

    delta: for the total epsilon; if it is not set, that of the job, or 1e-6. Each cap has its own
    in_full: add other deltas, and looser accountants
    Raises `UsageError` if there is no ledger.
    """
    if delta is None:
        delta = _delta_of_job(path)
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
    """Return what was spent; `policy`: caps in addition to those that the ledger contains."""
    costs = ledger.spent(dataset)
    return {
        "dataset": dataset,
        "releases": costs.total(),
        "exact": exact_releases(costs),
        "units": _units(ledger, dataset),
        "delta": delta,
        **{
            f"epsilon_{adjacency.value}": spent_epsilon(costs, adjacency, delta)
            for adjacency in Adjacency
        },
        "caps": [cap_status(cap, ledger, dataset) for cap in (*ledger.caps(dataset), *policy)],
    }


def _units(ledger: Ledger, dataset: str) -> list[str]:
    """Return the units of the releases that cost something."""
    entries = (line.content for line in ledger.history(dataset) if line.kind == "entry")
    paid = (entry for entry in entries if Cost.of(entry["cost"]) != FREE)
    return sorted({entry.get("unit", RECORD) for entry in paid})


def exact_releases(costs: Counter[Cost]) -> int:
    """Return how many of these releases have no finite epsilon."""
    return sum(count for cost, count in costs.items() if cost.is_exact)


def cap_status(
    cap: Cap, ledger: Ledger, dataset: str, planned: Counter[Cost] | None = None
) -> dict[str, Any]:
    """Return a cap, the epsilon spent under it, and the epsilon that one more job may claim.

    planned: the costs of a job; if given, add the epsilon that would be spent after it
    """
    costs = ledger.spent_under(dataset, cap)
    return cap.plain() | {
        "words": cap.words(),
        "spent": spent_epsilon(costs, cap.adjacency, cap.delta),
        "left": affordable(cap, costs, 0.0, cap.delta),
        **({} if planned is None else {
            "after": spent_epsilon(costs + cap.counted(planned), cap.adjacency, cap.delta)
        }),
    }  # fmt: skip


def _in_full(costs: Counter[Cost], delta: float) -> dict[str, Any]:
    """Return epsilon as a function of delta, and the epsilons of other accountants at `delta`.

    Most other software adds up Renyi or concentrated privacy. Those epsilons are upper bounds of
    secagg's, given for comparison with other software; no cap uses them.
    """
    tables: dict[str, Any] = {}
    for adjacency in Adjacency:
        events = [cost.event(adjacency) for cost in costs.elements()]
        tables[adjacency.value] = {
            "curve": curve(events, _DELTAS),
            "rdp": rdp_epsilon(events, delta),
            "zcdp": zcdp_epsilon(events, delta),
        }
    return tables


def set_cap(path: Path, party: str | None, dataset: str | None, cap: Cap) -> dict[str, Any]:
    """Set the one cap of a party's data set. This creates the ledger if there is none yet.

    Raises `UsageError` if the ledger or the data set is not clear.
    """
    places = find_places(path)
    if not places:
        advice = "Give the job instead, and --party: the name of a site, or 'coordinator'."
        raise UsageError(str(path), "there is no ledger yet", advice)
    if party is None and len(places) > 1:
        names = ", ".join(place.party for place in places)
        raise UsageError(str(path), "holds several ledgers", f"Name one with --party: {names}.")
    place = _of_party(places, party, path)[0]
    name, file = dataset or place.dataset, place.file
    if not file.exists():
        _check_name(file, name, "there is no ledger yet")
    with closing(open_ledger(file)) as ledger:
        known = ledger.datasets()
        if name is None and len(known) != 1:
            what = f"holds {len(known)} data sets" + "".join(f", {name!r}" for name in known)
            raise UsageError(str(file), what, "Name one with --dataset.")
        name = name or known[0]
        if name not in known:
            _check_name(file, name, f"has no entries for data set {name!r}")
        ledger.set_caps(name, [cap])
        return {"party": place.party, **_standing(ledger, name, policy=place.caps)}


def _of_party(places: list[Place], party: str | None, path: Path) -> list[Place]:
    """Return the places of one party, or of all; there is at least one, or `UsageError`."""
    chosen = [place for place in places if party in (None, place.party)]
    if not chosen:
        names = ", ".join(place.party for place in places)
        raise UsageError(str(path), f"no ledger of {party!r}", f"There are: {names}.")
    return chosen


def _check_name(file: Path, dataset: str | None, what: str) -> None:
    """Refuse a cap that no run would ever read. `what`: the condition that made this possible."""
    if dataset is None:
        raise UsageError(
            str(file),
            what,
            "Give the job instead, with --party; or name the data set with --dataset.",
        )
    if dataset != ALL_SITES and file.name != ledger_name(dataset):
        what += f", and a run looks for data set {dataset!r} in another file"
        raise UsageError(str(file), what, f"That file is {ledger_name(dataset)!r}.")


def opened_ledgers(path: Path, party: str | None = None) -> Iterator[tuple[Place, Ledger]]:
    """Yield each existing ledger once; several parties may share a data set.

    Raises `UsageError` if there is none.
    """
    places = [place for place in find_places(path) if place.file.exists()]
    if not places:
        advice = "The first run on these records creates it, or: secagg budget set."
        raise UsageError(str(path), "there is no ledger yet", advice)
    by_file: dict[Path, Place] = {}
    for place in _of_party(places, party, path):
        first = by_file.setdefault(place.file, place)
        more = tuple(cap for cap in place.caps if cap not in first.caps)
        by_file[place.file] = replace(first, caps=(*first.caps, *more))
    for place in by_file.values():
        with closing(open_ledger(place.file)) as ledger:
            yield place, ledger
