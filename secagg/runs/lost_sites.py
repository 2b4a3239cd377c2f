"""Begin a run again without sites that are lost, if the job's rule `sites.lost` says so.

After the first release, the sites of a session are fixed: the difference of two sums over different
sites is a sum over the sites that changed. So a lost site stops the session. With
`sites.lost = "leave_out"`, a new session of the same job begins, over the groups of sites that
answer (`secagg.privacy.policy.named_sites`). Its method starts from the beginning, because what the
method has computed so far depends on the lost sites. The result is therefore that of a run over the
other sites, to the bit.

Guarantees
    * The release rules of the coordinator, with all sums of its ledger and of the lost session, are
      asked before the first session is given up. Then each site asks its own rules and its ledger,
      which has the sums and the costs of the first session, before it consents to the second.
    * If an error ends the second session before it released a sum, the first one is put back, so
      that it can go on when the sites return.
    * The log says which session came before, which sites were lost, and how many sums it released.

Files: a session that lost sites waits in `OUT.lost-SESSION`. When a later one is finished, only its
log is kept, as `OUT.failed-SESSION`. Which sessions came before is read from these folders, so that
a coordinator that was killed in between knows it, too.

    * A session that has a part of a group, or fewer sites than the protocol needs to withstand as
      many colluding sites, is opened by no site. So a coordinator that says that a site was lost
      although it answered can choose groups only. All sums of all its sessions together depend on
      whole groups, each of at least `min_sites` sites, whatever the ledgers know.
    * Also the `min_sites` that the lost sites signed with the sums of this session must be met.

Not protected: sums of other jobs, over other sites. A site's ledger has only the sums that the site
is part of.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from secagg.core.hash_chain_log import RunLog, read_log
from secagg.core.private_files import exclusive_lock
from secagg.errors import EvidenceError, SecaggError, SitesLost, UsageError
from secagg.runs.output_folder import delete, give_up, has_released, partial_path, utc_now
from secagg.runs.session_loop import Run

_LOG = "log.jsonl"


def without_lost_sites(target: Path, run: Callable[[], Run], begin: Callable[[], Run]) -> Run:
    """Return run(); if it loses sites, begin again without them, unless the rules forbid it.

    target: of the run; begin: runs a new session, whose log starts with `earlier_sessions`
    Raises `SitesLost` if they forbid it, or if the same sites, which were ready again, are lost in
    a second session; and the errors of each session.
    """
    before = set[tuple[str, ...]]()
    while True:
        try:
            finished = run()
            break
        except SitesLost as lost:
            if lost.forbidden:
                lost.advice = (
                    f"Without them the run is not allowed: {lost.forbidden}. {lost.advice}"
                )
                raise
            if lost.sites in before:
                raise
            before.add(lost.sites)
            _set_aside(target)
            run = begin
        except SecaggError as error:  # not an interrupt: the new session goes on after it
            if _put_back(target):
                more = "The session before goes on if the lost sites return."
                error.advice = f"{error.advice} {more}".strip()
            raise
    _give_up_all(target)
    return finished


def tidy(target: Path) -> None:
    """Complete what a coordinator that was killed between two sessions left undone."""
    if os.path.lexists(target):
        _give_up_all(target)
    elif not (partial_path(target) / "journal").exists():
        _put_back(target)


def _give_up_all(target: Path) -> None:
    for aside in _asides(target):
        with suppress(OSError):  # the run itself is finished
            give_up(aside, target)


def earlier_sessions(target: Path) -> list[dict[str, Any]]:
    """Return an event for each session that lost sites, for the log of the one that follows."""
    return [_about(read_log(aside / _LOG)) for aside in _asides(target)]


def _about(events: list[dict[str, Any]]) -> dict[str, Any]:
    lost = [event["parties"] for event in events if event["event"] == "missing"]
    return {
        "event": "began_again", "round": 0, "session": events[0]["session"],
        "head": events[-1]["hash"], "lost": lost[-1] if lost else [],
        "releases": sum(event["event"] == "release" for event in events),
    }  # fmt: skip


def _asides(target: Path) -> list[Path]:
    """Return the folders of the sessions that lost sites, the oldest first."""
    start = f"{target.name}.lost-"
    if not target.parent.is_dir():
        return []
    found = [path for path in target.parent.iterdir() if path.name.startswith(start)]
    return sorted((path for path in found if (path / "journal").is_file()), key=_earlier)


def _earlier(aside: Path) -> int:
    """Return how many sessions came before this one. Raises `EvidenceError` without its log."""
    try:
        return (aside / _LOG).read_bytes().count(b'"event":"began_again"')
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        advice = "Restore it: it says which sums the session released. Or choose another --out."
        raise EvidenceError(str(aside / _LOG), what, advice) from None


def _set_aside(target: Path) -> None:
    place = partial_path(target)
    with exclusive_lock(place / "lock"):
        session = RunLog.reopen(place / _LOG, utc_now).events[0]["session"]
        place.rename(target.with_name(f"{target.name}.lost-{session[:8]}"))


def _put_back(target: Path) -> bool:
    """Put the last session that lost sites back, if the one after it has released nothing."""
    place, asides = partial_path(target), _asides(target)
    if not asides or has_released(place) or os.path.lexists(target):
        return False
    with suppress(UsageError):  # another process runs it
        if place.exists():
            with exclusive_lock(place / "lock"):
                delete(place)
        asides[-1].rename(place)
        return True
    return False
