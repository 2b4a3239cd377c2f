"""What an open ledger has counted, against all its lines counted anew; whoever wrote them."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.privacy.ledgers import CAP, START, Clock, numbered, part, seed_of

from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal
from secagg.privacy.accounting.composition import Cap, Cost
from secagg.privacy.ledger import ledger as ledger_module
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Cohort
from secagg.privacy.ledger.store import Line
from secagg.privacy.policy.differencing import exposed

DATASETS = ("heart", "lung")


class Refused(Exception):
    """What a comparison of cohorts raises here."""


def refuse(_: Sequence[Cohort]) -> None:
    raise Refused


def counted_anew(lines: Sequence[Line], since: datetime | None) -> tuple[Any, Any, Any]:
    """Return costs, cohorts and caps by going through all lines of a data set."""
    costs = Counter(
        Cost.of(line.content["cost"])
        for line in lines
        if line.kind == "entry" and (since is None or line.when >= since)
    )
    releases = [line for line in lines if line.kind in ("entry", "use", "cohort")]
    cohorts = dict.fromkeys(of(line) for line in releases)  # in the order of their first lines
    for kinds in (("entry", "use"), ("cohort",)):  # where one was settled, that
        for line in releases:
            if line.kind in kinds and line.content["cohort"]:
                cohorts[of(line)] = frozenset(line.content["cohort"])
    caps = [line.content["caps"] for line in lines if line.kind == "caps"]
    known = [cohort for cohort in cohorts.values() if cohort]
    return costs, known, tuple(map(Cap.of, caps[-1])) if caps else ()


def of(line: Line) -> tuple[str, str | None, int | None]:
    return line.content["party"], line.session, line.round


def check(ledger: Ledger, since: datetime | None) -> None:
    for dataset in DATASETS:
        costs, cohorts, caps = counted_anew(ledger.history(dataset), since)
        assert ledger.spent(dataset, since) == costs
        assert [c.sites for c in ledger.cohorts(dataset)] == cohorts
        assert ledger.caps(dataset) == caps


# which of two ledgers open on one file; what is done; data set; round; days that the clock moves
Step = tuple[int, str, str, int, int]
steps = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["enter", "refused", "settle", "unsettled", "cap", "over the cap"]),
        st.sampled_from(DATASETS),
        st.integers(0, 4),
        st.integers(-40, 40),
    ),
    max_size=12,
)


def do(ledger: Ledger, what: str, dataset: str, round_: int) -> None:
    release = replace(
        numbered(round_, 5 + round_ % 2), dataset=dataset, cohort=("a", "b", "c")[: round_ % 4]
    )
    release = replace(release, session=dataset)
    match what:
        case "enter":  # or use again
            seed_of(ledger, release)
        case "refused":
            ledger.record_release(release, random=system_random, compare=refuse)
        case "settle":
            ledger.settle("north", dataset, round_, ["a", "c"])
        case "unsettled":
            ledger.settle("north", dataset, round_, ["a", "b"], refuse)
        case "cap":
            ledger.set_caps(dataset, [replace(CAP, epsilon=1.0 + round_)])
        case _:
            seed_of(ledger, replace(release, session="other"), replace(CAP, epsilon=1e-3))


AGAIN: list[Step] = [(0, what, "heart", 3, 0) for what in ("enter", "settle", "enter")]
"""A retry after its cohort was settled, which says again what it was entered with."""


@settings(max_examples=25, deadline=None)
@example(taken=AGAIN, since=None)
@given(taken=steps, since=st.none() | st.integers(-60, 60))
def test_totals_count_each_committed_entry_once(
    tmp_path_factory: pytest.TempPathFactory, taken: list[Step], since: int | None
) -> None:
    path, clock = tmp_path_factory.mktemp("ledger") / "n.ledger", Clock()
    with ExitStack() as stack:
        opened = [stack.enter_context(Ledger.open(path, create=True, now=clock)) for _ in range(2)]
        for ledger in opened:  # a wait for the disk at each of hundreds of steps is not needed here
            ledger._db.execute("PRAGMA synchronous = OFF")
        for which, what, dataset, round_, days in taken:
            clock.time += timedelta(days=days)
            with suppress(Refused, PolicyRefusal, ledger_module.EvidenceError):
                do(opened[which], what, dataset, round_)
            check(opened[which], None if since is None else START + timedelta(days=since))
        for ledger in opened:
            check(ledger, None if since is None else START + timedelta(days=since))


def test_rolled_back_entries_are_not_counted(tmp_path: Path) -> None:
    """Found if a ledger counts its own lines before they are committed."""

    def asks(_: Sequence[Cohort]) -> None:
        assert not ledger.cohorts("heart") and not ledger.spent("heart")
        raise Refused

    with Ledger.open(tmp_path / "n.ledger", create=True, now=Clock()) as ledger:
        with pytest.raises(Refused), ledger._change():
            ledger._add("entry", part(2), seed=bytes(32), key=part(2).key())
            asks(())
        assert not ledger.spent("heart") and not ledger.history("heart")
        seed_of(ledger, part(2), CAP)
        assert ledger.spent("heart") == {part(2).cost: 1}


def test_a_refusal_numbers_releases_in_their_order_of_entry() -> None:
    """A count of records is entered first, and whose it is, is settled later than all else."""
    with Ledger.in_memory(Clock()) as ledger:
        for session, sites in (("01", "abc"), ("02", "abd")):
            first = replace(numbered(0, 9), session=session, cohort=())
            seed_of(ledger, first)
            seed_of(ledger, replace(first, round=1, cohort=tuple(sites)))
            ledger.settle("north", session, 0, sites)
        seed_of(ledger, replace(numbered(0, 9), session="03", cohort=()))  # whose, is not known yet
        told = [(c.session, c.round) for c in ledger.cohorts("heart")]
        assert told == [("01", 0), ("01", 1), ("02", 0), ("02", 1)]
        earlier = [c.sites for c in ledger.cohorts("heart")]
    found = exposed(earlier, frozenset("abde"), 2)
    assert found is not None
    assert found.line().startswith("this release - release 3 = e: one site")


def test_a_clock_set_back_hides_no_spending() -> None:
    clock, days = Clock(), (0, -10, 5, -3)
    with Ledger.in_memory(clock) as ledger:
        for number, day in enumerate(days):
            clock.time = START + timedelta(days=day)
            seed_of(ledger, numbered(number, 9))  # of one cost
        for since in range(-11, 7):
            spent = ledger.spent("heart", START + timedelta(days=since))
            assert spent.total() == sum(day >= since for day in days)


def test_each_ledger_line_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(*args: Any) -> list[Line]:
        found = lines(*args)
        read.append(len(found))
        return found

    lines = ledger_module.lines
    with Ledger.in_memory(Clock()) as ledger:
        for number in range(50):
            seed_of(ledger, numbered(number, 60), CAP)
        monkeypatch.setattr(ledger_module, "lines", counting)
        ledger.record_release(numbered(50, 60), [CAP, replace(CAP, days=30)], random=system_random,
                     compare=lambda _: None)  # fmt: skip
        assert ledger.cohorts("heart") and ledger.spent("heart") and not ledger.caps("heart")
    assert sum(read) <= 2  # the entry before this one, and this one
