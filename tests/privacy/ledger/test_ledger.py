"""The ledger's tables, row by row. Crashes and races are in tests/system/test_ledger_crash.py."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledgers import CAP, Clock, numbered, part, seed_of

from secagg.contracts.noise import Placement
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import EvidenceError, InternalError, PeerError, PolicyRefusal, UsageError
from secagg.privacy.accounting.composition import Cost
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.records import Cohort, Decision, Release


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


def at_site(session: str, round_: int = 0, **changes: Any) -> Release:
    """Return a release whose noise belongs to the records."""
    once = replace(part(2), session=session, round=round_, placement=Placement.SITE, records="4ec")
    return replace(once, **changes)


# --- the same, and not the same ------------------------------------------------------------------


def test_a_repeated_release_has_the_same_seed_and_costs_nothing(ledger: Ledger) -> None:
    first = seed_of(ledger, part(1), CAP)
    for uses in (1, 2):
        again = ledger.record_release(
            part(1), caps=[CAP], random=system_random
        )  # though the cap is used up
        assert again.seed == first
        assert ledger.spent("heart") == {part(1).cost: 1}
        kinds = [line.kind for line in ledger.history("heart")]
        assert kinds == ["entry"] + ["use"] * uses
    assert {line.belongs for line in ledger.history("heart")[1:]} == {1}


def test_entries_persist_across_processes_and_jobs(path: Path, clock: Clock) -> None:
    seeds = []
    for job in range(12):
        with Ledger.open(path, create=job == 0, now=clock) as ledger:
            release = replace(part(10), session=f"{job:x}")
            if job < 10:
                seeds.append(seed_of(ledger, release, CAP))
            else:
                with pytest.raises(PolicyRefusal):
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
    {"variance": 10**12 + 1},
    {"fraction_bits": 33},
    {"replayable": True},
]


@pytest.mark.parametrize("change", [*CHANGES, {"records": "other"}], ids=lambda c: next(iter(c)))
def test_different_content_in_the_same_round_is_refused(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    seed_of(ledger, part(2))
    with pytest.raises((PeerError, PolicyRefusal)) as caught:
        seed_of(ledger, replace(part(2), **change))
    assert caught.type is (PolicyRefusal if "dataset" in change else PeerError)
    assert len(ledger.history("heart")) == 1 and not ledger.history("lung")


@pytest.mark.parametrize("change", [{"party": "east"}, {"session": "6e55"}, {"round": 1}])
def test_another_party_session_or_round_is_another_release(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    first = seed_of(ledger, part(2))
    other = ledger.record_release(replace(part(2), **change), random=system_random)
    assert other.seed != first and ledger.spent("heart").total() == 2


def test_the_order_of_a_cohort_does_not_matter(ledger: Ledger) -> None:
    seed = seed_of(ledger, part(2))
    assert seed_of(ledger, replace(part(2), cohort=("west", "north", "east"))) == seed


# --- noise of a site ------------------------------------------------------------------------------


def test_a_sites_own_noise_is_the_same_in_every_run_and_paid_once(ledger: Ledger) -> None:
    first = seed_of(ledger, at_site("a"), CAP)
    again = at_site("b", 3, cohort=("north", "south"), delta=1e-9)
    assert seed_of(ledger, again, CAP) == first and ledger.spent("heart").total() == 1
    assert {line.session for line in ledger.history("heart")} == {"a", "b"}


@pytest.mark.parametrize(
    "change",
    [
        {"records": "other"}, {"party": "east"},
        *(c for c in CHANGES if not {"dataset", "placement", "delta", "cohort"} & set(c)),
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_other_records_or_queries_have_their_own_noise_and_cost(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    first = seed_of(ledger, at_site("a"))
    assert seed_of(ledger, at_site("b", **change)) != first
    assert ledger.spent("heart").total() == 2


def test_a_ledger_accepts_one_name_for_its_data_set(ledger: Ledger) -> None:
    seed_of(ledger, at_site("a"))
    with pytest.raises(PolicyRefusal):
        seed_of(ledger, at_site("b", dataset="heart2"))
    assert ledger.datasets() == ("heart",)


def test_noise_at_a_site_needs_a_records_digest_that_is_not_stored(
    path: Path, ledger: Ledger
) -> None:
    with pytest.raises(InternalError):
        seed_of(ledger, at_site("a", records=""))
    seed_of(ledger, at_site("a", records="f1d6e4" * 10))
    assert b"f1d6e4" not in path.read_bytes()


# --- seeds ----------------------------------------------------------------------------------------


def test_a_coordinators_releases_have_no_seeds(ledger: Ledger) -> None:
    for _ in ("first", "again"):
        assert ledger.record_release(part(2), caps=[CAP], random=None).seed == b""
    with pytest.raises(InternalError):
        ledger.record_release(part(2), random=system_random)


def test_a_site_release_without_a_valid_seed_is_an_error(ledger: Ledger) -> None:
    seed_of(ledger, part(2))
    with pytest.raises(InternalError):
        ledger.record_release(part(2), random=None)
    for broken in (b"", bytes(31), bytes(33)):
        with pytest.raises(InternalError):
            ledger.record_release(numbered(1, 2), random=lambda _, b=broken: b)
    assert ledger.spent("heart").total() == 1


def test_history_shows_no_seed(ledger: Ledger) -> None:
    seed = seed_of(ledger, part(2))
    line = ledger.history("heart")[0]
    assert repr(seed) not in repr(ledger.record_release(part(2), random=system_random))
    assert line.seed == b"" and seed.hex() not in repr(line) and repr(seed) not in repr(line)
    assert "seed" not in repr(replace(line, seed=seed))


def test_replayable_noise_is_marked_in_the_ledger(ledger: Ledger) -> None:
    ledger.record_release(part(2), random=system_random)
    rehearsed = replace(numbered(1, 2), replayable=True)
    ledger.record_release(rehearsed, random=replayable_random(1))
    marks = [line.content.get("privacy") for line in ledger.history("heart")]
    assert marks == [None, "void (replayable noise)"]
    assert ledger.spent("heart").total() == 2


# --- cohorts and decisions ------------------------------------------------------------------------


def test_a_release_has_one_cohort(ledger: Ledger) -> None:
    seed_of(ledger, part(2))
    for _ in range(2):
        ledger.settle("north", "5e55", 0, ["a", "b", "c"])
    with pytest.raises(PolicyRefusal):
        ledger.settle("north", "5e55", 0, ["a", "b"])
    with pytest.raises(EvidenceError):
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
        ledger.record_release(release, random=system_random, compare=note)
    abc, abd = frozenset("abc"), frozenset("abd")
    assert seen == [set(), {abc}, {abc}]
    again = replace(part(9), cohort=tuple("abc"))
    ledger.record_release(again, random=system_random, compare=note)  # not with itself
    ledger.settle("north", "5e55", 0, "ab", note)
    assert seen[3:] == [{abd}, {abd}]
    before = ledger.history("heart")
    for release in (replace(numbered(3, 9), cohort=tuple("ab")), again):
        with pytest.raises(PolicyRefusal):
            ledger.record_release(release, random=system_random, compare=refuse)
    with pytest.raises(PolicyRefusal):
        ledger.settle("north", "5e55", 1, "ab", refuse)
    assert ledger.history("heart") == before


def test_no_other_entry_is_made_between_comparison_and_entry(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.privacy.ledger.store._LOCK_SECONDS", 0.05)
    with Ledger.open(path, create=False, now=Clock()) as other:

        def meanwhile(_: Sequence[Cohort]) -> None:
            with pytest.raises(UsageError):
                seed_of(other, numbered(1, 9))

        ledger.record_release(part(9), random=system_random, compare=meanwhile)
        ledger.settle("north", "5e55", 0, "abc", meanwhile)
    assert ledger.spent("heart").total() == 1


def test_decisions_are_stored_in_full_and_in_one_transaction(ledger: Ledger) -> None:
    decisions = [Decision("min_records", True, ""), Decision("budget", False, "é: 3 of 4")]
    ledger.decide("heart", "5e55", 4, "moments", decisions)
    lines = ledger.history("heart")
    assert [(line.kind, line.session, line.round) for line in lines] == [
        ("decision", "5e55", 4)
    ] * 2
    assert [line.content for line in lines] == [
        {"round": 4, "stage": "moments", "rule": d.rule, "allowed": d.allowed, "text": d.text}
        for d in decisions
    ]
    assert not ledger.spent("heart")
