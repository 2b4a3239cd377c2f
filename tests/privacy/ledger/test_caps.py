"""Caps in the ledger: what gets in, for how long it counts, and what a refusal says."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from support.privacy.ledgers import CAP, START, Clock, numbered, part, seed_of

from secagg.contracts.noise import Adjacency, Placement
from secagg.core.randomness import system_random
from secagg.errors import InternalError, PolicyRefusal
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.ledger.ledger import Ledger


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Iterator[Ledger]:
    with Ledger.in_memory(clock) as opened:
        yield opened


@pytest.mark.parametrize("given", ["argument", "set", "both"])
def test_exactly_the_affordable_number_of_releases_is_entered(ledger: Ledger, given: str) -> None:
    loose = Cap(50.0, 1e-6)
    if given != "argument":
        ledger.set_caps("heart", [loose, CAP] if given == "set" else [loose])
    caps = [loose] if given == "set" else [CAP]
    for number in range(7):
        ledger.record_release(numbered(number, 7), caps=caps, random=system_random)
    before = ledger.history("heart")
    with pytest.raises(PolicyRefusal):
        ledger.record_release(numbered(7, 7), caps=caps, random=system_random)
    assert ledger.history("heart") == before  # a refusal costs nothing
    ledger.record_release(replace(numbered(7, 7), dataset="lung"), caps=caps, random=system_random)


def test_a_whole_job_is_checked_before_its_first_entry(ledger: Ledger) -> None:
    with pytest.raises(PolicyRefusal):
        ledger.record_release(part(5), caps=[CAP], planned=[part(5).cost] * 5, random=system_random)
    assert not ledger.spent("heart")
    for number in range(5):
        rest = [part(5).cost] * (4 - number)
        ledger.record_release(numbered(number, 5), caps=[CAP], planned=rest, random=system_random)


def test_new_caps_apply_at_once_and_earlier_caps_stay_in_the_history(
    ledger: Ledger, clock: Clock
) -> None:
    assert ledger.caps("heart") == ()
    seed_of(ledger, numbered(0, 2))
    generous, tight = Cap(8.0, 1e-6, 365.0, Adjacency.ADD_REMOVE), Cap(0.5, 1e-6)
    for caps in ([generous], [tight, generous], []):
        ledger.set_caps("heart", caps)
        assert ledger.caps("heart") == tuple(caps)
    ledger.set_caps("heart", [tight])  # below what is spent
    with pytest.raises(PolicyRefusal):
        seed_of(ledger, numbered(1, 10**6))
    kept = [line.content["caps"] for line in ledger.history("heart") if line.kind == "caps"]
    assert [len(caps) for caps in kept] == [1, 2, 0, 1]
    assert Cap.of(kept[0][0]) == generous


# --- asking before anything is entered ------------------------------------------------------------


@pytest.mark.parametrize(("spent", "split"), [(0, 1), (3, 1), (4, 2), (4, 3), (5, 1), (5, 3)])
def test_check_budget_refuses_exactly_if_an_entry_would_be_refused(
    ledger: Ledger, spent: int, split: int
) -> None:
    ledger.set_caps("heart", [CAP])
    for number in range(spent):
        seed_of(ledger, numbered(number, 7))
    job = [numbered(10 + number, 7) for number in range(3)]
    planned = [release.cost for release in job[split:]]
    before = ledger.history("heart")
    if spent + 3 <= 7:
        ledger.check_budget(job[:split] * 2, (), planned)  # named twice, it is paid once
        assert ledger.history("heart") == before
        for number, release in enumerate(job):
            rest = [later.cost for later in job[number + 1 :]]
            ledger.record_release(release, (), rest, random=system_random)
        return
    with pytest.raises(PolicyRefusal) as refused:
        ledger.check_budget(job[:split], (), planned)
    assert ledger.history("heart") == before
    with pytest.raises(PolicyRefusal) as entered:
        rest = [later.cost for later in job[1:]]
        ledger.record_release(job[0], (), rest, random=system_random)
    assert str(refused.value) == str(entered.value)


def test_check_budget_charges_nothing_for_a_release_with_an_entry(ledger: Ledger) -> None:
    same = replace(part(1), placement=Placement.SITE, records="r")
    seed_of(ledger, same, CAP)  # uses up the cap
    again = replace(same, session="a9a1", round=3)
    ledger.check_budget([again, again], [CAP])
    ledger.check_budget([again], [replace(CAP, epsilon=0.1)])  # a cap set lower than what is spent
    with pytest.raises(PolicyRefusal):
        ledger.check_budget([again], [CAP], [part(1000).cost])
    with pytest.raises(PolicyRefusal):
        ledger.check_budget([again, replace(again, records="others")], [CAP])


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
def test_a_period_ends_after_its_days_even_if_the_clock_is_set_back(
    ledger: Ledger, clock: Clock, moved: timedelta, counts: bool
) -> None:
    month = replace(CAP, days=30)
    seed_of(ledger, numbered(0, 1), month)
    clock.time = START + moved
    if counts:
        with pytest.raises(PolicyRefusal):
            seed_of(ledger, numbered(1, 1), month)
    else:
        seed_of(ledger, numbered(1, 1), month)
    with pytest.raises(PolicyRefusal):
        seed_of(ledger, numbered(2, 1), CAP)


def test_times_need_a_time_zone_and_are_stored_in_utc(ledger: Ledger, clock: Clock) -> None:
    from datetime import timezone

    clock.time = START.astimezone(timezone(timedelta(hours=5)))
    seed_of(ledger, part(2))
    assert ledger.history("heart")[0].when == START
    clock.time = datetime(2026, 1, 1)
    with pytest.raises(InternalError):
        seed_of(ledger, numbered(1, 2))
    assert len(ledger.history("heart")) == 1
