"""The exact numbers that a site's records have released in rounds, beyond moments.

`secagg.privacy.policy.exact_numbers` has the rule. Before a round leaves the site, a line reserves
its numbers. Each line reserves twice as many as the one before, so a session of R rounds writes
about log2(R) lines. When the session ends, a line says how many it used. If it is killed before,
all that it reserved counts: a crash may waste numbers, but it never releases uncounted ones.

A line also has the digests of the rounds since the last line. A round with the digest of an earlier
one releases no new number. The digest covers the job, the records, the sites and all messages up to
this round (`NumberCount.add`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from secagg.core import canonical_encoding
from secagg.privacy.ledger.store import Line

RULE: Final = "exact_numbers"
_LINES: Final = "dataset = ? AND kind = 'decision' AND content LIKE '%\"reserved\"%'"


@dataclass(frozen=True)
class ReleasedNumbers:
    """What the lines of a data set say.

    by_session: numbers reserved, for each session: those of its last line
    jobs: for each session, the digest of its job
    rounds: digests of the rounds that were released
    chain: digest of the last round of the own session
    """

    by_session: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    rounds: frozenset[str] = frozenset()
    chain: str = ""

    def others(self, session: str) -> int:
        return sum(n for name, n in self.by_session.items() if name != session)

    def other_jobs(self, job: str) -> int:
        return sum(n for name, n in self.by_session.items() if self.jobs[name] != job)


@dataclass(frozen=True)
class Reservation:
    """The numbers that a session may release, in place of its last reservation.

    job: digest of the job
    reserved: all numbers of the session so far, and those that may follow
    rounds: digests of the rounds since the last reservation
    chain: digest of the last round
    """

    session: str
    job: str
    reserved: int
    rounds: list[str]
    chain: str

    def line(self, time: int, dataset: str) -> Line:
        content = {
            "rule": RULE, "allowed": True, "text": f"{self.reserved} exact numbers of this run",
            "job": self.job, "reserved": self.reserved, "rounds": self.rounds,
            "chain": self.chain,
        }  # fmt: skip
        return Line(time, "decision", dataset, self.session, content=content)


def read_numbers(where: Callable[..., list[Line]], dataset: str, session: str) -> ReleasedNumbers:
    """Return what the lines of a data set say. where: returns lines that meet a condition."""
    by_session, jobs, rounds, chain = dict[str, int](), dict[str, str](), set[str](), ""
    for line in where(_LINES, dataset):
        assert line.session is not None
        by_session[line.session] = line.content["reserved"]
        jobs[line.session] = line.content["job"]
        rounds.update(line.content["rounds"])
        if line.session == session:
            chain = line.content["chain"]
    return ReleasedNumbers(by_session, jobs, frozenset(rounds), chain)


class NumbersLedger(Protocol):
    """What a count needs of a ledger."""

    def numbers(self, dataset: str, session: str) -> ReleasedNumbers: ...

    def reserve_numbers(self, dataset: str, own: Reservation, limit: int | None) -> None: ...


@dataclass(eq=False)
class NumberCount:
    """The count of one session at a site.

    job: digest of the job; all: the largest number that the job's rounds can release
    repeatable: whether equal rounds release equal numbers
    """

    ledger: Callable[[], NumbersLedger]
    dataset: str
    session: str
    job: str
    all: int
    repeatable: bool
    _known: ReleasedNumbers | None = field(default=None, init=False)
    _used: int = field(default=0, init=False)
    _reserved: int = field(default=0, init=False)
    _chain: str = field(default="", init=False)
    _rounds: list[str] = field(default_factory=list, init=False)

    @property
    def known(self) -> ReleasedNumbers:
        """What the ledger said when it was first asked. A resumed session goes on from there."""
        if self._known is None:
            self._known = self.ledger().numbers(self.dataset, self.session)
            self._used = self._reserved = self._known.by_session.get(self.session, 0)
            self._chain = self._known.chain
        return self._known

    def add(self, answer: Sequence[object], numbers: int, limit: int | None) -> None:
        """Count a round before it leaves the site. Raises `PolicyRefusal` above the limit.

        answer: what determines the contribution besides earlier rounds: records, sites, message
        limit: for all sessions together; None for none
        """
        known = self.known
        first = "" if self.repeatable else self.session
        self._chain = canonical_encoding.digest([self._chain, first, self.job, *answer]).hex()[:32]
        if self._chain in known.rounds:
            return
        used = self._used + numbers
        if used > self._reserved:
            reserved = max(used, min(2 * used, self.all))
            if limit is not None and known.others(self.session) + reserved > limit:
                reserved = used
            self._write(reserved, limit)
        self._used = used
        self._rounds.append(self._chain)

    def close(self) -> None:
        """Write what the session used."""
        known = self._known
        if known is None:
            return
        if self._rounds or self._chain != known.chain or self._used < self._reserved:
            self._write(self._used, None)

    def _write(self, reserved: int, limit: int | None) -> None:
        own = Reservation(self.session, self.job, reserved, self._rounds, self._chain)
        self.ledger().reserve_numbers(self.dataset, own, limit)
        self._known = replace(self.known, chain=self._chain)
        self._reserved, self._rounds = reserved, []
