"""Begin a run again without sites that are lost, if the job's rule `sites.lost` says so.

After the first release, the sites of a session are fixed: the difference of two sums over different
sites is a sum over the sites that changed. So a lost site stops the session. With
`sites.lost = "leave_out"`, a new session of the same job begins, over the sites that answer. Its
method starts from the beginning, because what the method has computed so far depends on the lost
sites. The result is therefore that of a run over the other sites, to the bit.

Guarantees
    * The release rules of the coordinator, with all sums of its ledger and of the lost session, are
      asked before the first session is given up. Then each site asks its own rules and its ledger,
      which has the sums and the costs of the first session, before it consents to the second.
    * If the second session ends before it released a sum, the first one is put back, so that it can
      go on when the sites return.
    * The log says which session came before, which sites were lost, and how many sums it released.

Files: the first session waits in `OUT.lost-SESSION`. When the second one is finished, only the log
of the first is kept, as `OUT.failed-SESSION`.

Not protected: a coordinator can say that a site was lost although it answered. It can as well start
another job; both times the rules and the ledgers of the sites decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from secagg.core.hash_chain_log import RunLog
from secagg.errors import SecaggError, SitesLost
from secagg.runs.run_folder import delete, give_up, has_released, partial_path, utc_now
from secagg.runs.session_loop import Run

Begin = Callable[[Sequence[dict[str, Any]]], Run]
"""Begin(events) runs a new session, whose log starts with these events about the one before."""


def without_lost_sites(target: Path, run: Callable[[], Run], begin: Begin) -> Run:
    """Return run(); if it loses sites, begin again without them, unless the rules forbid it.

    target: of the run
    Raises `SitesLost` if they do, and the errors of each session.
    """
    try:
        finished = run()
    except SitesLost as lost:
        if lost.forbidden:
            lost.advice = f"Without them the run is not allowed: {lost.forbidden}. {lost.advice}"
            raise
        return _begin_again(lost, target, begin)
    for aside in sorted(target.parent.iterdir()):
        if aside.name.startswith(f"{target.name}.lost-"):
            give_up(aside, target)
    return finished


def _begin_again(lost: SitesLost, target: Path, begin: Begin) -> Run:
    """Set the stopped session aside and run another; put it back if that releases nothing."""
    place = partial_path(target)
    log = RunLog.reopen(place / "log.jsonl", utc_now)
    session = log.events[0]["session"]
    releases = sum(event["event"] == "release" for event in log.events)
    about = {
        "event": "began_again", "round": 0, "session": session, "head": log.head,
        "lost": list(lost.sites), "releases": releases,
    }  # fmt: skip
    aside = target.with_name(f"{target.name}.lost-{session[:8]}")
    place.rename(aside)
    try:
        return without_lost_sites(target, lambda: begin([about]), begin)
    except BaseException as error:
        if not has_released(place):
            if place.exists():
                delete(place)
            aside.rename(place)
            if isinstance(error, SecaggError):
                more = f"The session before goes on if {', '.join(lost.sites)} return."
                error.advice = f"{error.advice} {more}".strip()
        raise
