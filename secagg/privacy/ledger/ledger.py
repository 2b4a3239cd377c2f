"""A party's ledger: every release of a data set, its cost, and the seed of its noise.

Each site has a private ledger, and so has the coordinator. A release is a sum, or a site's part in
a sum. `record_release` writes a release to disk before the release leaves the party, so a release
without an entry has not left. Entries are kept after the run, under the name that the owner gave
to the data set. So the costs of all jobs on one data set count together
(`secagg.privacy.accounting.composition`).

If a release is repeated, it gets the same noise again, which is computed from the stored seed. With
new noise it would be one more release, because someone could average releases of the same numbers.
Ten of them together cost root(10) times as much as one, measured in mu (Dong, Roth and Su 2022).

Guarantees
    * All recorded releases together stay within every cap, also if several processes use the
      ledger. Each release is checked and written in one transaction, with one writer at a time.
    * `record_release` returns after its entry is on disk. If the process is killed before that,
      there are two cases. Either nothing was spent, or the cost was recorded for a release that
      never left. In the second case, when the release is tried again, its entry is found, nothing
      more is spent, and the seed is the same.
    * For one party, session and round there is one seed. `record_release` refuses another content
      for the same party, session and round, because two answers with the same noise would reveal
      their exact difference.

==================================================  ================================================
case                                                result
==================================================  ================================================
first entry of a release                            fresh seed; its cost is recorded
same (party, session, round), same content          same seed, no cost, re-use is recorded
same (party, session, round), other content         `PeerError`: an invalid request
placement `site`: same records and query, any run   same seed, no cost, re-use is recorded
placement `site`: same records under another name   `PolicyRefusal`: one data set, one name
the release, or the rest of its job, exceeds a cap  `PolicyRefusal` with what would fit; no cost
`check_budget` passes, others record meanwhile      `record_release` decides
no source of random bytes (the coordinator)         no seed
replayable noise                                    marked "privacy: void"; its cost is recorded
clock set back                                      entries dated in the future still count
a cap below what is already spent                   no further release
a second, different cohort for one release          `PolicyRefusal`
two runs at once whose cohorts differ               the later one is compared with the earlier one
connection used after a fork                        `InternalError`: SQLite forbids it
==================================================  ================================================

Not protected:

* The file contains the seeds. Whoever reads the file and knows the released sums can subtract the
  site's noise. With the files of all sites, all noise can be subtracted. Keep the file only where
  the records are.
* The owner can delete the file, restore an older copy, set the clock forward, or give one data set
  two names. Then more is released than the caps allow.
* A job reserves no budget between its check and its last round. If two jobs run at the same time,
  one of them may be refused before it is finished.
"""

from __future__ import annotations

import hmac
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from secagg.contracts.noise import Adjacency, Placement
from secagg.core.randomness import RandomBytes
from secagg.errors import EvidenceError, InternalError, PeerError, PolicyRefusal
from secagg.privacy.accounting.composition import Cap, Cost, check_caps
from secagg.privacy.ledger import store
from secagg.privacy.ledger.answers import Answers, answer, read_answers
from secagg.privacy.ledger.cost_counts import PaidCosts
from secagg.privacy.ledger.numbers import ReleasedNumbers, Reservation, read_numbers
from secagg.privacy.ledger.records import (
    PER_RELEASE_FIELDS,
    AskedQuestion,
    Cohort,
    Decision,
    Entered,
    Release,
    bound,
)
from secagg.privacy.ledger.store import Line, append, lines, microseconds, transaction

SEED_BYTES: Final = 32

Clock = Callable[[], datetime]
Compare = Callable[[Sequence[Cohort]], None]


@dataclass
class Ledger:
    """An open ledger, for one thread of one process. Close it, or use a `with` statement.

    All functions raise `UsageError` if the file cannot be read or written at the moment.
    """

    where: str
    _db: sqlite3.Connection
    _now: Clock

    def __post_init__(self) -> None:
        self._process = os.getpid()
        self._paid_costs: dict[str, PaidCosts] = {}
        self._last = 0  # number of the last line that the totals include

    @classmethod
    def open(cls, path: Path, *, create: bool, now: Clock) -> Self:
        """Open a file. The table of `secagg.privacy.ledger.store` lists the cases.

        create: if there is no file, make an empty ledger, in which nothing is spent
        now: returns the current time, with its time zone
        """
        return cls(str(path), store.open_file(path, create=create), now)

    @classmethod
    def in_memory(cls, now: Clock) -> Self:
        """Return a ledger in memory, for simulations. It is lost when the process ends."""
        return cls("ledger in memory", store.open_memory(), now)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- releases -----------------------------------------------------------------------------

    def record_release(
        self, release: Release, caps: Sequence[Cap] = (), planned: Sequence[Cost] = (),
        random: RandomBytes | None = None, compare: Compare | None = None,
    ) -> Entered:  # fmt: skip
        """Write a release to disk, if all caps allow the release, and return its seed.

        The release must not leave the party before this function has returned.

        caps: caps in addition to those of `set_caps`
        planned: costs of the later releases of the job, which must fit the caps too
        random: random bytes for a new seed; None for the coordinator
        compare: called with the cohorts of all other releases of the data set. It raises an error
            if they exclude the cohort of this release. No other release is written meanwhile
        Raises `PolicyRefusal` if a cap would be exceeded. Raises `PeerError` if there is a release
        of this party, session and round with other content. In both cases nothing is spent.
        """
        key = release.key()
        with self._change():
            entry = self._entry(key)
            if compare is not None:
                own = (release.party, release.session, release.round)
                compare(self._costs_of(release.dataset).cohorts(excluding=own))
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
        """Raise `PolicyRefusal` if these releases together would exceed a cap. Write nothing.

        This reserves nothing. Another run may use the budget before these releases are written.

        releases: at least one release, all of one data set, in order. A release that already has an
            entry costs nothing
        caps: as for `record_release`
        planned: costs of the releases of the job after the last one of `releases`
        """
        with self._change():  # so that no other process writes between the two readings
            new = {key: r for r in releases if self._entry(key := r.key()) is None}
            costs = [*(release.cost for release in new.values()), *planned]
            first = releases[0]
            self.check_costs(first.dataset, costs, caps, first.delta, first.adjacency)

    def check_costs(
        self, dataset: str, costs: Sequence[Cost], caps: Sequence[Cap], delta: float,
        adjacency: Adjacency | None,
    ) -> None:  # fmt: skip
        """Raise `PolicyRefusal` if further releases with these costs would exceed a cap.

        costs: the costs of releases without an entry; an empty list exceeds no cap
        caps: as for `record_release`
        delta, adjacency: those of the job; 0 and None without noise
        """
        if not costs:
            return
        where = f"data set {dataset!r}"
        all_caps = (*self.caps(dataset), *caps)
        spent_under = partial(self.spent_under, dataset)
        check_caps(where, all_caps, spent_under, Counter(costs), delta, adjacency)

    def settle(
        self, party: str, session: str, round_: int, cohort: Sequence[str],
        compare: Compare | None = None,
    ) -> None:  # fmt: skip
        """Record the final cohort of a release, which is the set of sites in its sum.

        Call this before the sum is opened. A second call with the same cohort changes nothing.

        compare: as for `record_release`
        Raises `PolicyRefusal` if another cohort was recorded for this release.
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
                compare(self._costs_of(first.dataset).cohorts(excluding=(party, session, round_)))
            if not settled:
                append(self._db, Line(
                    self._time(), "cohort", first.dataset, session, round_, belongs=first.seq,
                    content={"party": party, "cohort": sites},
                ))  # fmt: skip

    def decide(
        self, dataset: str, session: str, round_: int, stage: str, decisions: Sequence[Decision]
    ) -> None:
        """Write the decisions of the rules about one request, in one transaction."""
        with self._change():
            for decision in decisions:
                content = {"round": round_, "stage": stage, **asdict(decision)}
                line = Line(self._time(), "decision", dataset, session, round_, content=content)
                append(self._db, line)

    def record_refusal(self, dataset: str, session: str, asked: str, text: str) -> None:
        """Write that a request was refused because of the records.

        asked: what the request asked; text: the reason, which never leaves the party
        """
        with self._change():
            append(self._db, answer(self._time(), dataset, session, asked, text))

    def reserve_answer(
        self, dataset: str, session: str, asked: str, days: float, limit: int
    ) -> None:
        """Write that the records are about to answer a request, if fewer than `limit` others have.

        asked: as for `record_refusal`. Raises `PolicyRefusal`.
        """
        with self._change():
            known = self.answers(dataset, days, session)
            if not known.has_released:
                if len(known.unreleased - {asked}) >= limit:
                    raise PolicyRefusal(self.where, f"{limit} answers without a release")
                append(self._db, answer(self._time(), dataset, session, asked))

    def answers(self, dataset: str, days: float, session: str = "") -> Answers:
        """Return the requests that the records answered; `session` is the own one."""
        since = microseconds(self._now() - timedelta(days=days))
        return read_answers(self._where, dataset, since, session)

    # --- exact numbers ------------------------------------------------------------------------

    def numbers(self, dataset: str, session: str) -> ReleasedNumbers:
        """Return the exact numbers of rounds that were released; `session` is the own one."""
        return read_numbers(self._where, dataset, session)

    def reserve_numbers(self, dataset: str, own: Reservation, limit: int | None) -> None:
        """Write a session's reservation, in place of its last one. Raises `PolicyRefusal`."""
        with self._change():
            numbers = self.numbers(dataset, own.session).others(own.session) + own.reserved
            if limit is not None and numbers > limit:
                raise PolicyRefusal(self.where, f"{numbers} exact numbers; {limit} are allowed")
            append(self._db, own.line(self._time(), dataset))

    # --- caps ---------------------------------------------------------------------------------

    def set_caps(self, dataset: str, caps: Sequence[Cap]) -> None:
        """Replace the caps of a data set. Earlier caps stay in its history."""
        with self._change():
            content = {"caps": [cap.plain() for cap in caps]}
            append(self._db, Line(self._time(), "caps", dataset, content=content))

    def caps(self, dataset: str) -> tuple[Cap, ...]:
        """Return the caps of a data set; () if none were set."""
        return self._costs_of(dataset).caps

    # --- reading ------------------------------------------------------------------------------

    def spent(self, dataset: str, since: datetime | None = None) -> Counter[Cost]:
        """Return how often each cost was paid, at `since` or later. Future times count too."""
        return self._costs_of(dataset).spent(None if since is None else microseconds(since))

    def spent_under(self, dataset: str, cap: Cap) -> Counter[Cost]:
        """Return how often each cost was paid that counts under a cap, within its period."""
        since = None if cap.days is None else self._now() - timedelta(days=cap.days)
        return cap.counted(self.spent(dataset, since))

    def cohorts(self, dataset: str) -> tuple[Cohort, ...]:
        """Return the known cohorts of all releases, in the order of the releases."""
        return self._costs_of(dataset).cohorts()

    def questions(self, dataset: str, session: str) -> tuple[AskedQuestion, ...]:
        """Return the questions of the exact releases of all other sessions, in order."""
        condition = "dataset = ? AND kind = 'entry' AND session <> ? AND content LIKE ?"
        found = self._where(condition, dataset, session, '%"question": {%')
        return tuple(AskedQuestion.of(line.content, line.seed) for line in found)

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

    def _costs_of(self, dataset: str) -> PaidCosts:
        """Return what a data set paid. Inside a transaction, its own lines do not count yet."""
        if not self._own().in_transaction:
            self._read_on()
        return self._paid_costs.get(dataset, PaidCosts())

    def _read_on(self) -> None:
        """Count all lines that any process has appended since the last call.

        Only committed lines may be counted, because they never change. So never call this after an
        `append` in a transaction that may still be rolled back.
        """
        for line in self._where("seq > ? AND kind <> 'decision'", self._last):
            self._paid_costs.setdefault(line.dataset, PaidCosts()).add(line)
            self._last = line.seq

    def _time(self) -> int:
        return microseconds(self._now())

    def _add(self, kind: str, release: Release, seed: bytes = b"", **more: Any) -> None:
        content = release.content() | ({"bound": bound(seed, release.records)} if seed else {})
        append(self._db, Line(
            self._time(), kind, release.dataset, release.session, release.round,
            content=content, seed=seed, **more,
        ))  # fmt: skip

    def _check_same(self, entry: Line, release: Release, random: RandomBytes | None) -> None:
        """Raise an error if the release differs from its entry in a field that must not differ."""
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
        known = str(entry.content.get("bound", ""))
        if entry.seed and not hmac.compare_digest(known, bound(entry.seed, release.records)):
            raise PeerError(self.where, "the records changed after this round was answered")
