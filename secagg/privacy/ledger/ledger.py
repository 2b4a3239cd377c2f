"""A party's ledger: what has left, what it cost, and the noise that it left with.

Each site has one, private to it, and so has the coordinator. Before anything leaves,
`record_release` puts
it on the disk: what is released twice, is released with the same noise; what is not in the ledger,
has not left. It is kept by data set, by the name that its owner declares, and outlives runs, so
that ten jobs on one data set compose (`secagg.privacy.accounting.budget`). Entry before release is
DESIGN.md's invariant 5. The noise of an earlier answer is used again because each fresh draw is a
release more: ten of them, averaged, are worth the root of ten in mu (composition: Dong, Roth and Su
    2022).

Guarantees
    * Of releases entered by any number of processes, those that got in keep to every cap: each is
      checked and written in one transaction, and one writer is let in at a time.
    * `record_release` returns after its entry is on the disk. A process killed before has spent
      nothing or, at worst, paid for what never left; the next try finds the entry, pays nothing,
      and gets the same seed.
    * One key has one seed. Asked for something else under the key of an earlier release,
      `record_release` refuses, because two answers with one noise differ by their exact difference.

==================================================  ================================================
case                                                outcome
==================================================  ================================================
first entry of a release                            fresh seed; costs what it says
same (party, session, round) again, same content    same seed, costs nothing, re-use is recorded
same (party, session, round), other content         `PeerError`: nobody may ask that
placement `site`: same records and query, any run   same seed, costs nothing, re-use is recorded
placement `site`: same records, other data set      `PolicyRefusal`: one data set, one name
a cap would be passed by it or the rest of its job  `PolicyRefusal`, what is affordable; no cost
`check_budget` allows it, others record meanwhile   `record_release` decides: asking claims nothing
no generator given (the coordinator)                no seed, ever
replayable noise                                    marked "privacy: void", yet it costs the same
clock set back                                      entries dated in the future count: none is freed
cap set lower than what is spent                    nothing more leaves
a second, different cohort for one release          `PolicyRefusal`
two runs at once whose cohorts differ               the later one is compared with the earlier one
connection used after a fork                        `InternalError`: SQLite forbids it
==================================================  ================================================

Not protected. The file holds the seeds: who reads it and the released sums can take that site's
noise away, and with the other sites' files all of it; it belongs beside the records, and nowhere
else. Its owner can delete it, put back an older copy, set the clock forward, or give one data set
two names; each of these gives him budget he has not. Between its check and its last round a job
holds no claim on the budget: of two that run at once, the later one may be refused half-way.
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
    """An open ledger; for one thread of one process. Close it, or use it in a `with`.

    All of its functions raise `UsageError` where the file cannot be read or written now.
    """

    where: str
    _db: sqlite3.Connection
    _now: Clock

    def __post_init__(self) -> None:
        self._process = os.getpid()
        self._tallies: dict[str, Tally] = {}
        self._last = 0  # the line up to which they count

    @classmethod
    def open(cls, path: Path, *, create: bool, now: Clock) -> Self:
        """Open a file, as the table of `secagg.privacy.ledger.store` says.

        create: make one if there is none; without a ledger to begin with, nothing was ever spent
        now: the time, with its zone
        """
        return cls(str(path), open_file(path, create=create), now)

    @classmethod
    def in_memory(cls, now: Clock) -> Self:
        """Return one that ends with the process: for simulations."""
        return cls("ledger in memory", open_memory(), now)

    def close(self) -> None:
        """Let the file go."""
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
        """Put a release on the disk, if it may leave. Only then may it.

        caps: to hold beside those of `set_caps`
        planned: costs of the rest of the job, which has to fit too
        random: where a seed is drawn, if one is needed; None for the coordinator
        compare: is given the cohorts of all other releases of the data set, and raises if one with
            this release's cohort must not follow them; nobody else enters one meanwhile
        Raises `PolicyRefusal` where a cap would be passed, and `PeerError` for an answer that was
        given before with other content; either costs nothing.
        """
        key = release.key()
        with self._change():
            entry = self._entry(key)
            if compare is not None:
                own = (release.party, release.session, release.round)
                compare(self._tally(release.dataset).cohorts(but=own))
            if entry is None:
                costs = (release.cost, *planned)
                self.check_costs(release.dataset, costs, caps, release.delta, release.adjacency)
                seed = b"" if random is None else random(SEED_BYTES)
                if random is not None and len(seed) != SEED_BYTES:
                    raise InternalError(self.where, f"{len(seed)} bytes are no seed")
                self._add("entry", release, key=key, seed=seed)
            else:
                seed = entry.seed
                self._check_same(entry, release, random)
                self._add("use", release, belongs=entry.seq)
        return Entered(seed)

    def check_budget(
        self, releases: Sequence[Release], caps: Sequence[Cap] = (), planned: Sequence[Cost] = ()
    ) -> None:
        """Raise `PolicyRefusal` where to enter all of these would pass a cap; write nothing.

        It is no claim: what another run enters meanwhile is gone when these are entered.

        releases: of one data set, in order, at least one; what has an entry already costs nothing
        caps, planned: as for `record_release`, `planned` after the last of `releases`
        """
        with self._change():  # one state of the file, for keys and for costs
            new = {key: r for r in releases if self._entry(key := r.key()) is None}
            wanted = [*(release.cost for release in new.values()), *planned]
            first = releases[0]
            self.check_costs(first.dataset, wanted, caps, first.delta, first.adjacency)

    def check_costs(
        self, dataset: str, costs: Sequence[Cost], caps: Sequence[Cap], delta: float,
        adjacency: Adjacency | None,
    ) -> None:  # fmt: skip
        """Raise `PolicyRefusal` if a cap would be passed; what costs nothing passes none.

        costs: of releases that have no entry; the rest as for `record_release`
        delta, adjacency: of their job; 0 and None for one without noise
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
        """Put down whose sum it is that a release went into, once that is known; repeatable.

        compare: as for `record_release`; call this before the sum is opened
        Raises `PolicyRefusal` for a second cohort of the same release.
        """
        sites = sorted(set(cohort))
        with self._change():
            of = [
                line
                for line in self._where("session = ? AND round = ?", session, round_)
                if line.kind != "decision" and line.content["party"] == party
            ]
            if not of:
                raise EvidenceError(
                    self.where,
                    f"has no entry of {party} for that round",
                    "Put back the ledger that the run began with, or begin again (--overwrite).",
                )
            known = [line for line in of if line.kind == "cohort"]
            if known and known[0].content["cohort"] != sites:
                raise PolicyRefusal(self.where, "a second cohort for one release is not allowed")
            first = of[0]
            if compare is not None:
                compare(self._tally(first.dataset).cohorts(but=(party, session, round_)))
            if not known:
                append(self._db, Line(
                    self._time(), "cohort", first.dataset, session, round_, belongs=first.seq,
                    content={"party": party, "cohort": sites},
                ))  # fmt: skip

    def decide(self, *decisions: Decision) -> None:
        """Put down what rules said, all at once."""
        with self._change():
            for made in decisions:
                said = {k: v for k, v in asdict(made).items() if k not in ("dataset", "session")}
                line = Line(
                    self._time(), "decision", made.dataset, made.session, made.round, content=said
                )
                append(self._db, line)

    # --- caps ---------------------------------------------------------------------------------

    def set_caps(self, dataset: str, caps: Sequence[Cap]) -> None:
        """Replace the caps of a data set; the earlier ones stay in its history."""
        with self._change():
            content = {"caps": [cap.plain() for cap in caps]}
            append(self._db, Line(self._time(), "caps", dataset, content=content))

    def caps(self, dataset: str) -> tuple[Cap, ...]:
        """Return the caps of a data set; () if none were set."""
        return self._tally(dataset).caps

    # --- reading ------------------------------------------------------------------------------

    def spent(self, dataset: str, since: datetime | None = None) -> Counter[Cost]:
        """Return how often each cost was paid at `since` or later, in the future too."""
        return self._tally(dataset).spent(None if since is None else _microseconds(since))

    def cohorts(self, dataset: str) -> tuple[Cohort, ...]:
        """Return the cohort of each release whose cohort is known, in order.

        Where one was settled, that; otherwise the one that it was entered with.
        """
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
        found = self._where("key = ?", key)
        return found[0] if found else None

    def _tally(self, dataset: str) -> Tally:
        """Return what the lines of a data set come to; inside a transaction, those before it."""
        if not self._own().in_transaction:
            self._read_on()
        return self._tallies.get(dataset, Tally())

    def _read_on(self) -> None:
        """Count the lines that were appended since the last time, by whichever process.

        Never after an `append` of a transaction that may yet be rolled back: so all that is counted
        was committed, and what is committed never changes.
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
        """Raise unless the release is what was entered, but for what may differ."""
        if entry.dataset != release.dataset:
            raise PolicyRefusal(
                f"data set {release.dataset!r}",
                f"these records are in the ledger as data set {entry.dataset!r}",
                "One data set has one name, and one budget.",
            )
        free = ("bound", *(PER_RELEASE_FIELDS if release.placement is Placement.SITE else ()))
        then, asked = (
            {name: value for name, value in content.items() if name not in free}
            for content in (entry.content, release.content())
        )
        if then != asked:
            raise PeerError(self.where, "something else was asked for, and answered, in that round")
        if bool(entry.seed) != (random is not None):
            raise InternalError(self.where, "has a seed for a coordinator, or none for a site")
        bound = str(entry.content.get("bound", ""))
        if entry.seed and not hmac.compare_digest(bound, _bound(entry.seed, release)):
            raise PeerError(self.where, "the records changed since they answered in that round")


def _bound(seed: bytes, release: Release) -> str:
    """Return what tells, to whoever has the seed, whether it was drawn for the same records."""
    return hmac.digest(seed, release.records.encode(), "sha256").hex()


def _microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise InternalError("ledger", "a time without its zone")
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
