"""A party's ledger: every release of a data set, its cost, and the seed of its noise.

Each site has a private ledger, and so has the coordinator. `record_release` writes a release to
disk before it leaves (DESIGN.md's invariant 5). A release that is repeated gets the same noise; a
release without an entry has not left. Entries are kept by data set, under the name that its owner
declares, and they outlive runs. So ten jobs on one data set compose
(`secagg.privacy.accounting.budget`). Noise is re-used because each fresh draw would be one more
release. Ten of them, which could be averaged, cost root(10) times as much as one, in the parameter
mu of Gaussian differential privacy (composition: Dong, Roth and Su 2022).

Guarantees
    * All recorded releases together keep every cap, with any number of processes: each release is
      checked and written in one transaction, with one writer at a time.
    * `record_release` returns after its entry is on disk. A process killed earlier has spent
      nothing or, at worst, has paid for a release that never left. The retry finds the entry, pays
      nothing, and gets the same seed.
    * One key (party, session, round) has one seed. `record_release` refuses other content under
      the key of an earlier release: two answers with the same noise reveal their exact difference.

==================================================  ================================================
case                                                result
==================================================  ================================================
first entry of a release                            fresh seed; pays its cost
same (party, session, round), same content          same seed, no cost, re-use is recorded
same (party, session, round), other content         `PeerError`: an invalid request
placement `site`: same records and query, any run   same seed, no cost, re-use is recorded
placement `site`: same records under another name   `PolicyRefusal`: one data set, one name
the release, or the rest of its job, exceeds a cap  `PolicyRefusal` with what would fit; no cost
`check_budget` passes, others record meanwhile      `record_release` decides: a check reserves
                                                    nothing
no generator given (the coordinator)                never a seed
replayable noise                                    marked "privacy: void"; pays its cost
clock set back                                      entries dated in the future still count
cap set below what is spent                         no further release
a second, different cohort for one release          `PolicyRefusal`
two runs at once whose cohorts differ               the later one is compared with the earlier one
connection used after a fork                        `InternalError`: SQLite forbids it
==================================================  ================================================

Not protected. The file holds the seeds. Anyone who reads it and the released sums can subtract that
site's noise, and with the other sites' files all noise. Keep it with the records, and nowhere else.
Its owner can delete it, restore an older copy, set the clock forward, or give one data set two
names; each of these gains budget that is not there. A job reserves no budget between its check and
its last round: of two jobs that run at once, the later one may be refused half-way.
"""

from __future__ import annotations

import hmac
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

from secagg.contracts.noise import Adjacency, Placement
from secagg.core.randomness import RandomBytes
from secagg.errors import EvidenceError, InternalError, PeerError, PolicyRefusal
from secagg.privacy.accounting.budget import Cap, Cost, check_caps
from secagg.privacy.ledger.records import PER_RELEASE_FIELDS, Cohort, Decision, Entered, Release
from secagg.privacy.ledger.store import Line, append, lines, open_file, open_memory, transaction
from secagg.privacy.ledger.totals import Tally

SEED_BYTES: Final = 32

Clock = Callable[[], datetime]
Compare = Callable[[Sequence[Cohort]], None]


@dataclass
class Ledger:
    """An open ledger, for one thread of one process. Close it, or use it in a `with`.

    All functions raise `UsageError` if the file cannot be read or written now.
    """

    where: str
    _db: sqlite3.Connection
    _now: Clock

    def __post_init__(self) -> None:
        self._process = os.getpid()
        self._tallies: dict[str, Tally] = {}
        self._last = 0  # the last line that the tallies include

    @classmethod
    def open(cls, path: Path, *, create: bool, now: Clock) -> Self:
        """Open a file, as the table of `secagg.privacy.ledger.store` says.

        create: make an empty ledger if there is none; then nothing counts as spent
        now: returns the time, with its zone
        """
        return cls(str(path), open_file(path, create=create), now)

    @classmethod
    def in_memory(cls, now: Clock) -> Self:
        """Return a ledger that ends with the process, for simulations."""
        return cls("ledger in memory", open_memory(), now)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- releases -----------------------------------------------------------------------------

    def record_release(
        self,
        release: Release,
        caps: Sequence[Cap] = (),
        planned: Sequence[Cost] = (),
        random: RandomBytes | None = None,
        compare: Compare | None = None,
    ) -> Entered:
        """Write a release to disk, if it may leave. It may leave only after that.

        caps: in addition to those of `set_caps`
        planned: costs of the rest of the job, which must fit too
        random: source of a seed, if one is needed; None for the coordinator
        compare: gets the cohorts of all other releases of the data set, and raises if this
            release's cohort may not follow them; no other release is entered meanwhile
        Raises `PolicyRefusal` if a cap would be exceeded, and `PeerError` if this answer was given
        before with other content. Neither costs anything.
        """
        key = release.key()
        with self._change():
            entry = self._entry(key)
            if compare is not None:
                own = (release.party, release.session, release.round)
                compare(self._tally(release.dataset).cohorts(excluding=own))
            if entry is None:
                costs = (release.cost, *planned)
                self.check_costs(release.dataset, costs, caps, release.delta, release.adjacency)
                seed = b"" if random is None else random(SEED_BYTES)
                if random is not None and len(seed) != SEED_BYTES:
                    raise InternalError(self.where, f"a seed has {SEED_BYTES} bytes: {len(seed)}")
                self._add("entry", release, key=key, seed=seed)
            else:
                seed = entry.seed
                self._check_same(entry, release, random)
                self._add("use", release, belongs=entry.seq)
        return Entered(seed)

    def check_budget(
        self, releases: Sequence[Release], caps: Sequence[Cap] = (), planned: Sequence[Cost] = ()
    ) -> None:
        """Raise `PolicyRefusal` if entering all of these would exceed a cap; write nothing.

        This reserves nothing: another run may use the budget before these releases are entered.

        releases: of one data set, in order, at least one; those with an entry cost nothing
        caps, planned: as for `record_release`, `planned` after the last of `releases`
        """
        with self._change():  # one state of the file, for keys and for costs
            new = {key: r for r in releases if self._entry(key := r.key()) is None}
            costs = [*(release.cost for release in new.values()), *planned]
            first = releases[0]
            self.check_costs(first.dataset, costs, caps, first.delta, first.adjacency)

    def check_costs(
        self, dataset: str, costs: Sequence[Cost], caps: Sequence[Cap], delta: float,
        adjacency: Adjacency | None,
    ) -> None:  # fmt: skip
        """Raise `PolicyRefusal` if a cap would be exceeded; an empty list exceeds none.

        costs: of releases without an entry; caps: as for `record_release`
        delta, adjacency: of their job; 0 and None without noise
        """
        if not costs:
            return

        tally, now = self._tally(dataset), self._now()

        def spent_under(cap: Cap) -> Counter[Cost]:
            since = None if cap.days is None else now - timedelta(days=cap.days)
            return tally.spent(None if since is None else _microseconds(since))

        where = f"data set {dataset!r}"
        all_caps = (*tally.caps, *caps)
        check_caps(where, all_caps, spent_under, Counter(costs), delta, adjacency)

    def settle(
        self,
        party: str,
        session: str,
        round_: int,
        cohort: Sequence[str],
        compare: Compare | None = None,
    ) -> None:
        """Record the cohort of a release's sum, once it is known; repeatable.

        Call this before the sum is opened. compare: as for `record_release`
        Raises `PolicyRefusal` for a second cohort of the same release.
        """
        sites = sorted(set(cohort))
        with self._change():
            entered = [
                line
                for line in self._where("session = ? AND round = ?", session, round_)
                if line.kind != "decision" and line.content["party"] == party
            ]
            if not entered:
                raise EvidenceError(
                    self.where,
                    f"has no entry of {party} for that round",
                    "Restore the ledger with which the run began, or start again (--overwrite).",
                )
            settled = [line for line in entered if line.kind == "cohort"]
            if settled and settled[0].content["cohort"] != sites:
                raise PolicyRefusal(self.where, "a second cohort for one release is not allowed")
            first = entered[0]
            if compare is not None:
                compare(self._tally(first.dataset).cohorts(excluding=(party, session, round_)))
            if not settled:
                append(self._db, Line(
                    self._time(), "cohort", first.dataset, session, round_, belongs=first.seq,
                    content={"party": party, "cohort": sites},
                ))  # fmt: skip

    def decide(
        self, dataset: str, session: str, round_: int, stage: str, decisions: Sequence[Decision]
    ) -> None:
        """Record the decisions of rules about one request, in one transaction."""
        with self._change():
            for decision in decisions:
                content = {"round": round_, "stage": stage, **asdict(decision)}
                line = Line(self._time(), "decision", dataset, session, round_, content=content)
                append(self._db, line)

    # --- caps ---------------------------------------------------------------------------------

    def set_caps(self, dataset: str, caps: Sequence[Cap]) -> None:
        """Replace the caps of a data set. Earlier caps stay in its history."""
        with self._change():
            content = {"caps": [cap.plain() for cap in caps]}
            append(self._db, Line(self._time(), "caps", dataset, content=content))

    def caps(self, dataset: str) -> tuple[Cap, ...]:
        """Return the caps of a data set; () if none were set."""
        return self._tally(dataset).caps

    # --- reading ------------------------------------------------------------------------------

    def spent(self, dataset: str, since: datetime | None = None) -> Counter[Cost]:
        """Return how often each cost was paid at `since` or later, future times included."""
        return self._tally(dataset).spent(None if since is None else _microseconds(since))

    def cohorts(self, dataset: str) -> tuple[Cohort, ...]:
        """Return the known cohorts of all releases, in order, as `Tally.cohorts` does."""
        return self._tally(dataset).cohorts()

    def history(self, dataset: str) -> tuple[Line, ...]:
        """Return all lines of a data set, in order, without their seeds."""
        return tuple(line.without_seed() for line in self._where("dataset = ?", dataset))

    def datasets(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        return tuple(sorted({line.dataset for line in self._where("TRUE")}))

    # --- inside -------------------------------------------------------------------------------

    @contextmanager
    def _change(self) -> Iterator[None]:
        with transaction(self._own(), self.where):
            self._read_on()
            yield

    def _where(self, condition: str, *values: str | int) -> list[Line]:
        return lines(self._own(), self.where, condition, values)

    def _own(self) -> sqlite3.Connection:
        if os.getpid() != self._process:
            raise InternalError(self.where, "was opened by another process")
        return self._db

    def _entry(self, key: str) -> Line | None:
        entries = self._where("key = ?", key)
        return entries[0] if entries else None

    def _tally(self, dataset: str) -> Tally:
        """Return the totals of a data set; inside a transaction, those before it."""
        if not self._own().in_transaction:
            self._read_on()
        return self._tallies.get(dataset, Tally())

    def _read_on(self) -> None:
        """Add the lines that any process has appended since the last call.

        Never call this after an `append` in a transaction that may still be rolled back. So only
        committed lines are counted, and those never change.
        """
        for line in self._where("seq > ? AND kind <> 'decision'", self._last):
            self._tallies.setdefault(line.dataset, Tally()).add(line)
            self._last = line.seq

    def _time(self) -> int:
        return _microseconds(self._now())

    def _add(self, kind: str, release: Release, seed: bytes = b"", **more: Any) -> None:
        content = release.content() | ({"bound": _bound(seed, release)} if seed else {})
        append(self._db, Line(
            self._time(), kind, release.dataset, release.session, release.round,
            content=content, seed=seed, **more,
        ))  # fmt: skip

    def _check_same(self, entry: Line, release: Release, random: RandomBytes | None) -> None:
        """Raise unless the release equals the entered one in all fields that must not differ."""
        if entry.dataset != release.dataset:
            raise PolicyRefusal(
                f"data set {release.dataset!r}",
                f"these records are in the ledger as data set {entry.dataset!r}",
                "Use that name: one data set has one name and one budget.",
            )
        ignored = ("bound", *(PER_RELEASE_FIELDS if release.placement is Placement.SITE else ()))
        first, repeated = (
            {name: value for name, value in content.items() if name not in ignored}
            for content in (entry.content, release.content())
        )
        if first != repeated:
            raise PeerError(self.where, "this round was already answered with other content")
        if bool(entry.seed) != (random is not None):
            raise InternalError(self.where, "has a seed for a coordinator, or none for a site")
        bound = str(entry.content.get("bound", ""))
        if entry.seed and not hmac.compare_digest(bound, _bound(entry.seed, release)):
            raise PeerError(self.where, "the records changed after this round was answered")


def _bound(seed: bytes, release: Release) -> str:
    """Return a digest that ties the seed to the records; it reveals nothing without the seed."""
    return hmac.digest(seed, release.records.encode(), "sha256").hex()


def _microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise InternalError("ledger", "a time without a zone")
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
