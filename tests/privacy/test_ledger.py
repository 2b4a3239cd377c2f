"""The ledger's tables, row by row. Crashes and races are in test_ledger_crash.py."""

from __future__ import annotations

import json
import math
import os
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.ledger_killed import CAP, numbered, part

from secagg.errors import EvidenceError, InternalError, PeerError, PolicyRefusal, UsageError
from secagg.noise import Adjacency, Placement, Touch
from secagg.privacy.budget import Cap, Cost
from secagg.privacy.events import Gaussian
from secagg.privacy.ledger import Ledger
from secagg.privacy.ledger_file import Line
from secagg.privacy.release import Cohort, Decision, Release
from secagg.randomness import replayable_random, system_random

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Time that stands still until it is set."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(path, create=True, now=clock) as opened:
        yield opened


def seed_of(ledger: Ledger, release: Release, *caps: Cap) -> bytes:
    return ledger.enter(release, caps=caps, random=system_random).seed


def entries(ledger: Ledger, dataset: str = "heart") -> list[Line]:
    return [line for line in ledger.history(dataset) if line.kind == "entry"]


def at_site(session: str, round_: int = 0, **changes: Any) -> Release:
    """Return a release whose noise belongs to the records."""
    once = replace(part(2), session=session, round=round_, placement=Placement.SITE, records="4ec")
    return replace(once, **changes)


# --- the same, and not the same ------------------------------------------------------------------


def test_a_first_entry_has_a_fresh_seed_and_costs_what_it_says(ledger: Ledger) -> None:
    entered = ledger.enter(part(2), caps=[CAP], random=system_random)
    assert len(entered.seed) == 32 and not entered.reused
    assert ledger.spent("heart") == (part(2).cost,)
    assert seed_of(ledger, numbered(1, 2)) != entered.seed


def test_again_it_has_the_same_seed_costs_nothing_and_is_recorded(ledger: Ledger) -> None:
    first = seed_of(ledger, part(1), CAP)
    for uses in (1, 2):
        again = ledger.enter(part(1), caps=[CAP], random=system_random)  # though the cap is used up
        assert again.reused and again.seed == first
        assert ledger.spent("heart") == (part(1).cost,)
        kinds = [line.kind for line in ledger.history("heart")]
        assert kinds == ["entry"] + ["use"] * uses
    assert {line.belongs for line in ledger.history("heart")[1:]} == {1}


def test_it_is_there_after_the_process_and_for_the_next_job(path: Path, clock: Clock) -> None:
    seeds = []
    for job in range(12):
        with Ledger.open(path, create=job == 0, now=clock) as ledger:
            release = replace(part(10), session=f"{job:x}")
            if job < 10:
                seeds.append(seed_of(ledger, release, CAP))
            else:
                with pytest.raises(PolicyRefusal, match="Nothing is left"):
                    seed_of(ledger, release, CAP)
            assert seed_of(ledger, replace(part(10), session="0"), CAP) == seeds[0]
    assert len(set(seeds)) == 10


CHANGES: list[dict[str, Any]] = [
    {"dataset": "lung"},
    {"stage": "gradient"},
    {"query": "other"},
    {"placement": Placement.ROUND},
    {"cost": Cost(Gaussian(1e-3), Gaussian(1e-3))},
    {"cost": replace(part(2).cost, distance=1e-12)},
    {"delta": 1e-9},
    {"cohort": ("east", "north")},
    {"touch": Touch(1.0, 1.5)},
    {"variance": 10**12 + 1},
    {"fraction_bits": 33},
    {"replayable": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: next(iter(c)))
def test_other_content_in_the_same_round_is_refused(ledger: Ledger, change: dict[str, Any]) -> None:
    seed_of(ledger, part(2))
    with pytest.raises((PeerError, PolicyRefusal)) as caught:
        seed_of(ledger, replace(part(2), **change))
    assert caught.type is (PolicyRefusal if "dataset" in change else PeerError)
    assert len(ledger.history("heart")) == 1 and not ledger.history("lung")


@pytest.mark.parametrize("change", [{"party": "east"}, {"session": "6e55"}, {"round": 1}])
def test_other_party_session_or_round_is_another_release(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    first = seed_of(ledger, part(2))
    other = ledger.enter(replace(part(2), **change), random=system_random)
    assert other.seed != first and not other.reused and len(ledger.spent("heart")) == 2


def test_the_order_of_a_cohort_does_not_matter(ledger: Ledger) -> None:
    seed = seed_of(ledger, part(2))
    assert seed_of(ledger, replace(part(2), cohort=("west", "north", "east"))) == seed


# --- noise of a site ------------------------------------------------------------------------------


def test_a_sites_own_noise_is_the_same_in_every_run_and_paid_once(ledger: Ledger) -> None:
    first = seed_of(ledger, at_site("a"), CAP)
    again = at_site("b", 3, cohort=("north", "south"), delta=1e-9)
    assert ledger.enter(again, caps=[CAP], random=system_random).reused
    assert seed_of(ledger, again) == first and len(ledger.spent("heart")) == 1
    assert {line.session for line in ledger.history("heart")} == {"a", "b"}


@pytest.mark.parametrize(
    "change",
    [
        {"records": "other"}, {"party": "east"},
        *(c for c in CHANGES if not {"dataset", "placement", "delta", "cohort"} & set(c)),
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_other_records_or_query_have_their_own_noise_and_cost(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    first = seed_of(ledger, at_site("a"))
    assert seed_of(ledger, at_site("b", **change)) != first
    assert len(ledger.spent("heart")) == 2


def test_one_data_set_has_one_name(ledger: Ledger) -> None:
    seed_of(ledger, at_site("a"))
    with pytest.raises(PolicyRefusal, match="in the ledger as data set 'heart'"):
        seed_of(ledger, at_site("b", dataset="heart2"))
    assert ledger.datasets() == ("heart",)


def test_noise_of_a_site_needs_records_which_are_not_stored(path: Path, ledger: Ledger) -> None:
    with pytest.raises(InternalError, match="records"):
        seed_of(ledger, at_site("a", records=""))
    seed_of(ledger, at_site("a", records="f1d6e4" * 10))
    assert b"f1d6e4" not in path.read_bytes()


# --- budget ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["argument", "set", "both"])
def test_exactly_the_affordable_number_gets_in_wherever_the_cap_is(
    ledger: Ledger, given: str
) -> None:
    loose = Cap(50.0, 1e-6)
    if given != "argument":
        ledger.set_caps("heart", [loose, CAP] if given == "set" else [CAP])
    caps = [CAP] if given == "argument" else [loose]
    for number in range(7):
        ledger.enter(numbered(number, 7), caps=caps, random=system_random)
    before = ledger.history("heart")
    with pytest.raises(PolicyRefusal, match="epsilon 1 at delta 1e-06 for ever"):
        ledger.enter(numbered(7, 7), caps=caps, random=system_random)
    assert ledger.history("heart") == before  # a refusal costs nothing
    ledger.enter(replace(numbered(7, 7), dataset="lung"), caps=caps, random=system_random)


def test_a_refused_release_draws_no_seed(ledger: Ledger) -> None:
    def never(_: int) -> bytes:
        raise AssertionError("drawn")

    with pytest.raises(PolicyRefusal):
        ledger.enter(part(1), caps=[Cap(0.5, 1e-6)], random=never)


def test_the_whole_job_is_checked_before_its_first_entry(ledger: Ledger) -> None:
    with pytest.raises(PolicyRefusal, match=r"with this job it would have given away epsilon 1\.1"):
        ledger.enter(part(5), caps=[CAP], planned=[part(5).cost] * 5, random=system_random)
    assert not ledger.spent("heart")
    for number in range(5):
        rest = [part(5).cost] * (4 - number)
        ledger.enter(numbered(number, 5), caps=[CAP], planned=rest, random=system_random)


def test_what_is_affordable_is_said_and_gets_in(ledger: Ledger) -> None:
    from secagg.privacy.gaussian import gaussian_mu

    seed_of(ledger, numbered(0, 2), CAP)
    with pytest.raises(PolicyRefusal) as caught:
        seed_of(ledger, numbered(1, 1), CAP)
    epsilon = float(caught.value.mend.split()[6])
    mu = gaussian_mu(epsilon, CAP.delta)
    assert 0.6 < epsilon < 0.75
    seed_of(ledger, replace(numbered(1, 2), cost=Cost(Gaussian(mu), Gaussian(mu))), CAP)


def test_adjacencies_are_accounted_apart(ledger: Ledger) -> None:
    add = replace(CAP, adjacency=Adjacency.ADD_REMOVE)
    for number in range(4):  # of which two fit under replace-one: its mu is root 2 larger
        seed_of(ledger, numbered(number, 2), add)
    with pytest.raises(PolicyRefusal, match=r"\(add_remove\)"):
        seed_of(ledger, numbered(4, 2), add)
    with pytest.raises(PolicyRefusal, match=r"\(replace\)"):
        seed_of(ledger, numbered(4, 2), CAP)


def test_an_exact_release_counts_as_infinite(ledger: Ledger) -> None:
    exact = replace(part(2), cost=Cost(Gaussian(math.inf), Gaussian(math.inf)), variance=0)
    with pytest.raises(PolicyRefusal, match=r"no finite epsilon.*suffices for epsilon"):
        seed_of(ledger, exact, CAP)
    seed_of(ledger, exact)
    assert ledger.spent("heart") == (exact.cost,)
    with pytest.raises(PolicyRefusal, match="Nothing is left"):
        seed_of(ledger, numbered(1, 1000), CAP)


def test_caps_keep_their_history_and_bind_at_once(ledger: Ledger, clock: Clock) -> None:
    assert ledger.caps("heart") == ()
    seed_of(ledger, numbered(0, 2))
    generous, tight = Cap(8.0, 1e-6, 365.0, Adjacency.ADD_REMOVE), Cap(0.5, 1e-6)
    for caps in ([generous], [tight, generous], []):
        ledger.set_caps("heart", caps)
        assert ledger.caps("heart") == tuple(caps)
    ledger.set_caps("heart", [tight])  # below what is spent
    with pytest.raises(PolicyRefusal, match="Nothing is left"):
        seed_of(ledger, numbered(1, 10**6))
    kept = [line.content["caps"] for line in ledger.history("heart") if line.kind == "caps"]
    assert [len(caps) for caps in kept] == [1, 2, 0, 1]
    assert Cap.of(kept[0][0]) == generous


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moved", "counts"),
    [
        (timedelta(days=30), True),  # on the last moment of its period
        (timedelta(days=30, microseconds=1), False),
        (timedelta(days=-10_000), True),  # a clock set back
        (timedelta(0), True),
    ],
)
def test_a_period_ends_after_its_days_and_never_by_a_clock_set_back(
    ledger: Ledger, clock: Clock, moved: timedelta, counts: bool
) -> None:
    month = replace(CAP, days=30)
    seed_of(ledger, numbered(0, 1), month)
    clock.time = START + moved
    if counts:
        with pytest.raises(PolicyRefusal, match="in 30 days"):
            seed_of(ledger, numbered(1, 1), month)
    else:
        seed_of(ledger, numbered(1, 1), month)
    with pytest.raises(PolicyRefusal, match="for ever"):
        seed_of(ledger, numbered(2, 1), CAP)


def test_spent_since(ledger: Ledger, clock: Clock) -> None:
    for day in range(3):
        clock.time = START + timedelta(days=day)
        seed_of(ledger, numbered(day, day + 1))
    costs = [part(of).cost for of in (1, 2, 3)]
    for day in range(3):
        assert ledger.spent("heart", START + timedelta(days=day)) == tuple(costs[day:])
    assert ledger.spent("heart") == tuple(costs) and ledger.spent("lung") == ()


def test_times_are_kept_in_utc_and_need_a_zone(ledger: Ledger, clock: Clock) -> None:
    from datetime import timezone

    clock.time = START.astimezone(timezone(timedelta(hours=5)))
    seed_of(ledger, part(2))
    assert ledger.history("heart")[0].when == START
    clock.time = datetime(2026, 1, 1)
    with pytest.raises(InternalError, match="zone"):
        seed_of(ledger, numbered(1, 2))
    assert len(ledger.history("heart")) == 1


# --- seeds ----------------------------------------------------------------------------------------


def test_a_coordinator_has_no_seeds(ledger: Ledger) -> None:
    for reused in (False, True):
        entered = ledger.enter(part(2), caps=[CAP], random=None)
        assert entered.seed == b"" and entered.reused == reused
    with pytest.raises(InternalError, match="seed"):
        ledger.enter(part(2), random=system_random)


def test_a_site_is_never_answered_without_a_seed(ledger: Ledger) -> None:
    seed_of(ledger, part(2))
    with pytest.raises(InternalError, match="seed"):
        ledger.enter(part(2), random=None)
    for broken in (b"", bytes(31), bytes(33)):
        with pytest.raises(InternalError, match="no seed"):
            ledger.enter(numbered(1, 2), random=lambda _, b=broken: b)
    assert len(ledger.spent("heart")) == 1


def test_history_shows_no_seed(ledger: Ledger) -> None:
    seed = seed_of(ledger, part(2))
    line = ledger.history("heart")[0]
    assert repr(seed) not in repr(ledger.enter(part(2), random=system_random))
    assert line.seed == b"" and seed.hex() not in repr(line) and repr(seed) not in repr(line)
    assert "seed" not in repr(replace(line, seed=seed))


def test_replayable_noise_is_marked(ledger: Ledger) -> None:
    ledger.enter(part(2), random=system_random)
    rehearsed = replace(numbered(1, 2), replayable=True)
    ledger.enter(rehearsed, random=replayable_random(1))
    marks = [line.content.get("privacy") for line in ledger.history("heart")]
    assert marks == [None, "void (replayable noise)"]
    assert len(ledger.spent("heart")) == 2


# --- cohorts and decisions ------------------------------------------------------------------------


def test_cohorts_are_those_settled_or_else_those_entered(ledger: Ledger) -> None:
    seed_of(ledger, part(9))
    seed_of(ledger, replace(numbered(1, 9), cohort=()))
    seed_of(ledger, replace(numbered(2, 9), cohort=("b", "a")))
    one, three = (
        Cohort(frozenset(sites), "5e55", n)
        for n, sites in ((0, ["east", "north", "west"]), (2, "ab"))
    )
    assert ledger.cohorts("heart") == (one, three)  # the second is not known yet
    ledger.settle("north", "5e55", 1, ["c", "b", "a"])
    ledger.settle("north", "5e55", 0, ["east", "north"])  # one dropped out
    two = Cohort(frozenset("abc"), "5e55", 1)
    assert set(ledger.cohorts("heart")) == {
        replace(one, sites=frozenset({"east", "north"})),
        two,
        three,
    }
    seed_of(ledger, part(9))  # a retry does not bring the dropped one back
    assert replace(one, sites=frozenset({"east", "north"})) in ledger.cohorts("heart")
    assert len(ledger.cohorts("heart")) == 3 and ledger.cohorts("lung") == ()


def test_cohorts_of_later_uses_count(ledger: Ledger) -> None:
    for session, cohort in (("a", "abc"), ("b", "ab"), ("c", "")):
        seed_of(ledger, at_site(session, cohort=tuple(cohort)))
    ledger.settle("north", "c", 0, "bcd")
    assert [c.sites for c in ledger.cohorts("heart")] == [set("abc"), set("ab"), set("bcd")]


def test_a_release_has_one_cohort(ledger: Ledger) -> None:
    seed_of(ledger, part(2))
    for _ in range(2):
        ledger.settle("north", "5e55", 0, ["a", "b", "c"])
    with pytest.raises(PolicyRefusal, match="second cohort"):
        ledger.settle("north", "5e55", 0, ["a", "b"])
    with pytest.raises(InternalError, match="nothing of east"):
        ledger.settle("east", "5e55", 0, ["a", "b"])
    assert [line.kind for line in ledger.history("heart")] == ["entry", "cohort"]


def test_a_cohort_is_compared_with_all_others_before_it_is_entered(ledger: Ledger) -> None:
    seen: list[set[frozenset[str]]] = []

    def note(earlier: Sequence[Cohort]) -> None:
        seen.append({cohort.sites for cohort in earlier})

    def refuse(_: Sequence[Cohort]) -> None:
        raise PolicyRefusal("differencing", "would show c")

    for number, cohort in enumerate(("abc", "", "abd")):
        release = replace(numbered(number, 9), cohort=tuple(cohort))
        ledger.enter(release, random=system_random, compare=note)
    abc, abd = frozenset("abc"), frozenset("abd")
    assert seen == [set(), {abc}, {abc}]
    again = replace(part(9), cohort=tuple("abc"))
    ledger.enter(again, random=system_random, compare=note)  # not with itself
    ledger.settle("north", "5e55", 0, "ab", note)
    assert seen[3:] == [{abd}, {abd}]
    before = ledger.history("heart")
    for release in (replace(numbered(3, 9), cohort=tuple("ab")), again):
        with pytest.raises(PolicyRefusal, match="would show c"):
            ledger.enter(release, random=system_random, compare=refuse)
    with pytest.raises(PolicyRefusal, match="would show c"):
        ledger.settle("north", "5e55", 1, "ab", refuse)
    assert ledger.history("heart") == before


def test_between_comparing_and_entering_nobody_else_enters(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.privacy.ledger_file._PATIENCE", 0.05)
    with Ledger.open(path, create=False, now=Clock()) as other:

        def meanwhile(_: Sequence[Cohort]) -> None:
            with pytest.raises(UsageError, match="in use"):
                seed_of(other, numbered(1, 9))

        ledger.enter(part(9), random=system_random, compare=meanwhile)
        ledger.settle("north", "5e55", 0, "abc", meanwhile)
    assert len(ledger.spent("heart")) == 1


def test_decisions_are_kept_in_full_and_all_at_once(ledger: Ledger) -> None:
    said = [
        Decision("heart", "5e55", 4, "moments", rule, allowed, text)
        for rule, allowed, text in (("min_records", True, ""), ("budget", False, "é: 3 of 4"))
    ]
    ledger.decide(*said)
    kept = ledger.history("heart")
    assert [line.kind for line in kept] == ["decision"] * 2
    for line, decision in zip(kept, said, strict=True):
        assert (line.session, line.round) == ("5e55", 4)
        assert Decision(line.dataset, str(line.session), **line.content) == decision
    assert not ledger.spent("heart")


def test_in_memory_it_is_the_same(clock: Clock) -> None:
    with Ledger.in_memory(clock) as ledger:
        seed = seed_of(ledger, part(1), CAP)
        assert seed_of(ledger, part(1), CAP) == seed
        with pytest.raises(PolicyRefusal):
            seed_of(ledger, numbered(1, 1), CAP)


# --- the file -------------------------------------------------------------------------------------


def test_the_file_and_its_journal_are_private(path: Path, ledger: Ledger) -> None:
    before = os.umask(0)
    try:
        modes = {}

        def look(_: int) -> bytes:
            ledger._db.execute("PRAGMA cache_spill = 1")
            return system_random(32)

        ledger._db.set_trace_callback(
            lambda _: modes.update(
                {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
            )
        )
        ledger.enter(part(2), random=look)
    finally:
        os.umask(before)
    assert modes == {"ledger": 0o600, "ledger-journal": 0o600}


def test_it_is_synchronised_before_enter_returns(ledger: Ledger) -> None:
    settings = {
        name: ledger._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("synchronous", "journal_mode", "foreign_keys", "trusted_schema")
    }
    assert settings == {
        "synchronous": 3, "journal_mode": "delete", "foreign_keys": 1, "trusted_schema": 0,
    }  # fmt: skip


@pytest.mark.parametrize("change", ["UPDATE lines SET dataset = 'x'", "DELETE FROM lines"])
def test_lines_are_only_appended(ledger: Ledger, change: str) -> None:
    seed_of(ledger, part(2))
    with pytest.raises(sqlite3.IntegrityError, match="only appended"):
        ledger._db.execute(change)


def refused(path: Path, error: type[Exception], match: str, *, create: bool = False) -> None:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error, match=match):
        Ledger.open(path, create=create, now=Clock()).close()
    assert before is None or path.read_bytes() == before  # nothing is mended by guessing


def test_a_missing_file_is_made_only_if_asked(path: Path) -> None:
    refused(path, UsageError, "there is no ledger")
    assert not path.exists()
    refused(path / "below", UsageError, "cannot be made", create=True)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda p: p.mkdir(), UsageError, "is not a file"),
        (lambda p: p.symlink_to(p.with_name("real")), UsageError, "is not a file"),
        (lambda p: os.mkfifo(p, 0o600), UsageError, "is not a file"),
        (lambda p: p.touch(0o600), EvidenceError, "another program's, or empty"),
        (lambda p: (p.write_bytes(b"x" * 5000), p.chmod(0o600)), EvidenceError, "not a ledger"),
    ],
    ids=["folder", "link", "pipe", "empty", "text"],
)
def test_what_is_no_ledger(
    path: Path, make: Callable[[Path], object], error: type[Exception], match: str, create: bool
) -> None:
    Ledger.open(path.with_name("real"), create=True, now=Clock()).close()
    make(path)
    refused(path, error, match, create=create)


def test_a_database_of_another_program(path: Path) -> None:
    path.touch(0o600)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE lines (seq)")
    db.close()
    refused(path, EvidenceError, "another program's")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_open_to_others(path: Path, ledger: Ledger, mode: int) -> None:
    path.chmod(mode)
    refused(path, UsageError, "open to other users")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (["PRAGMA user_version = 2"], "version 2.*knows version 1"),
        (["PRAGMA user_version = 0"], "version 0"),
        (["DROP TRIGGER never_removed"], "its tables"),
        (["DROP TABLE lines"], "its tables"),
        (["CREATE VIEW other AS SELECT 1"], "its tables"),
        (["UPDATE lines SET time = time + 1 WHERE seq = 2"], "line 2 is not as"),
        (["UPDATE lines SET content = replace(content, '0.0', '0.1')"], "line 1 is not as"),
        (["UPDATE lines SET seed = x'00' WHERE seq = 3"], "line 3 is not as"),
        (["DELETE FROM lines WHERE seq = 1"], "line 1 is not as"),
        (["DELETE FROM lines WHERE seq = 2"], "line 2 is not as"),
        (["UPDATE lines SET content = x'ff' WHERE seq = 1"], "line 1 is not as"),
        (["UPDATE lines SET dataset = CAST(x'ff' AS TEXT) WHERE seq = 1"], "damaged"),
        (["PRAGMA foreign_keys = OFF", "UPDATE lines SET belongs = 9"], "SQLite finds"),
    ],
)  # fmt: skip
def test_changed_files(path: Path, ledger: Ledger, changes: list[str], match: str) -> None:
    for number in range(3):
        seed_of(ledger, numbered(number, 9))
    ledger.close()
    db = sqlite3.connect(path)
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    with db:
        for change in changes:
            lines = change.startswith(("UPDATE", "DELETE"))
            for name, _ in triggers if lines else ():
                db.execute(f"DROP TRIGGER {name}")
            db.execute(change)
            for _, sql in triggers if lines else ():
                db.execute(sql)
    db.close()
    refused(path, EvidenceError, match)


def test_a_damaged_byte_is_found_or_changes_nothing(path: Path, ledger: Ledger) -> None:
    for number in range(3):
        seed_of(ledger, numbered(number, 9))
    ledger.set_caps("heart", [CAP])
    ledger.settle("north", "5e55", 0, "abc")
    whole = json.dumps([vars(line) | {"seed": line.seed.hex()} for line in ledger._where("TRUE")])
    ledger.close()
    data = path.read_bytes()
    chance = random.Random(7)
    used = [at for at in range(len(data)) if data[at]]
    found = 0
    for at in (*range(0, 100, 3), *chance.sample(used, 200), *chance.sample(range(len(data)), 30)):
        damaged = bytearray(data)
        damaged[at] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            with Ledger.open(path, create=False, now=Clock()) as opened:
                kept = [vars(n) | {"seed": n.seed.hex()} for n in opened._where("TRUE")]
                assert json.dumps(kept) == whole, at
        except EvidenceError:
            found += 1
    assert found > 150
    path.write_bytes(data[: len(data) // 2])
    refused(path, EvidenceError, "damaged")


def test_a_full_disk_enters_nothing(ledger: Ledger) -> None:
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    got_in: dict[int, bytes] = {}
    with pytest.raises(UsageError, match=r"full.*Make room"):
        for number in range(100):
            got_in[number] = seed_of(ledger, numbered(number, 1000))
    assert 0 < len(got_in) == len(ledger.spent("heart"))
    ledger._db.execute(f"PRAGMA max_page_count = {pages + 10}")
    assert seed_of(ledger, numbered(0, 1000)) == got_in[0]
    seed_of(ledger, numbered(len(got_in), 1000))


def test_a_ledger_in_use_says_so(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.privacy.ledger_file._PATIENCE", 0.05)
    with Ledger.open(path, create=False, now=Clock()) as other:
        ledger._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageError, match="in use by another process"):
            seed_of(other, part(2))
        ledger._db.execute("ROLLBACK")
        seed_of(other, part(2))


def test_a_ledger_is_of_one_process(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)  # as after a fork
    for use in (lambda: seed_of(ledger, part(2)), lambda: ledger.spent("heart")):
        with pytest.raises(InternalError, match="another process"):
            use()


def test_a_name_with_odd_characters(tmp_path: Path, clock: Clock) -> None:
    odd = tmp_path / "ä b?mode=memory#%41"
    with Ledger.open(odd, create=True, now=clock) as ledger:
        seed_of(ledger, part(2))
    assert odd.is_file()
    with Ledger.open(odd, create=False, now=clock) as ledger:
        assert len(ledger.spent("heart")) == 1
