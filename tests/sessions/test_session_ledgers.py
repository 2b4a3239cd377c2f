"""Two runs at the same time: the second one is compared with the releases of the first."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.runs.jobs import raw_job

from secagg.contracts.noise import Adjacency
from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal, SecaggError
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.composition import Cap
from secagg.runs import budgets, ledger_history
from secagg.sessions.coordinator import Step
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session import Session, open_session
from secagg.sessions.session_ledgers import ALL_SITES, CoordinatorLedger


def begin(folder: Path, ledgers: Path) -> Session:
    """Open a session over all sites of a folder; the coordinator's ledger is read here."""
    sites = {"folder": folder, "max_rows": 100, "ledgers": ledgers}
    job = parse_job(raw_job(sites=sites, protocol={"name": "additive"}))
    return open_session(plan_job(job), system_random)


def releases(session: Session) -> Iterator[tuple[dict[str, Any], Step]]:
    """Play a session; stop before each release is entered in the coordinator's ledger."""
    step = session.coordinator.start()
    while not step.done:
        for event in step.events:
            if event["event"] == "release":
                yield event, step
        frames = session.engine.exchange(step.requests)
        step = session.coordinator.advance(step.state, frames)


def book_of(session: Session) -> CoordinatorLedger:
    assert session.ledger is not None
    return session.ledger


def test_a_concurrent_run_is_compared_with_the_first_run(tmp_path: Path) -> None:
    """Only the coordinator's ledger can refuse here, and only when it enters the sum.

    Both coordinators read an empty ledger when they began. Under `additive` aggregators open the
    first sum, so that a site hears of its cohort in the next round: no site's ledger holds one yet.
    """
    ledgers = tmp_path / "ledgers"
    all_five = begin(folder_with(tmp_path), ledgers)
    without_e = begin(folder_with(tmp_path / "other", FIVE[:4]), ledgers)
    with closing(all_five), closing(without_e):
        assert book_of(all_five).earlier == book_of(without_e).earlier == ()
        event, step = next(releases(without_e))
        larger, full = next(releases(all_five))
        assert event["contributors"] == list("abcd") and larger["contributors"] == list(FIVE)
        book_of(all_five).record_release(larger, full.state.total)
        with pytest.raises(PolicyRefusal) as refused:
            book_of(without_e).record_release(event, step.state.total)
        assert refused.value.where == "coordinator"
        book_of(all_five).record_release(larger, full.state.total)  # again, as a resumed run does
        for session in (all_five, without_e):
            book_of(session).close()


def test_a_resumed_session_enters_an_exact_sum_once_and_no_other_sum_instead(
    tmp_path: Path,
) -> None:
    """A coordinator that was killed after the entry: sites may be missing when it goes on."""
    session = begin(folder_with(tmp_path), tmp_path / "ledgers")
    with closing(session):
        event, step = next(releases(session))
        total = step.state.total
        book_of(session).record_release(event, total)
        book_of(session).close()
        first = book_of(session)
        resumed = CoordinatorLedger.of(
            first.job,
            first.facts,
            first.private,
            first.stages,
            session.session,
            tmp_path / "ledgers",
        )
        with closing(resumed):
            resumed.record_release(event, total)
            with pytest.raises(SecaggError):
                resumed.record_release({**event, "contributors": list(FIVE[:3])}, total)
        other = CoordinatorLedger.of(
            first.job, first.facts, first.private, first.stages, bytes(32), tmp_path / "ledgers"
        )
        with closing(other):
            assert not other.recorded
    rows = ledger_history.history(tmp_path / "ledgers", "coordinator")
    assert sum(row["kind"] == "entry" for row in rows) == 1


def test_concurrent_runs_over_the_same_sites_both_finish(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    one, other = (begin(folder, tmp_path / "ledgers") for _ in range(2))
    with closing(one), closing(other):
        for (event, step), session in zip(
            (next(releases(one)), next(releases(other))), (one, other), strict=True
        ):
            book_of(session).record_release(event, step.state.total)
            book_of(session).close()


@pytest.mark.parametrize(("private", "entries"), [(False, 2), (True, 4)])
def test_every_noised_sum_is_recorded_and_of_exact_sums_the_first(
    tmp_path: Path, private: bool, entries: int
) -> None:
    """The count, and three rounds of one stage."""
    data = folder_with(tmp_path)
    method = {"name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial"}
    privacy = noised(placement="round") if private else {}
    done = run(data, method=method | {"rounds": 3}, privacy=privacy)
    assert sum(event["event"] == "release" for event in done.events) == 4
    rows = ledger_history.history(data / "ledgers", "coordinator")
    assert sum(row["kind"] == "entry" for row in rows) == entries


def test_a_run_beyond_the_coordinators_cap_does_not_start(tmp_path: Path) -> None:
    """Its cap is asked for the whole run: otherwise sites would pay for what is thrown away."""
    data = folder_with(tmp_path)
    (data / "ledgers").mkdir(mode=0o700)
    for privacy in (noised(), {}):
        cap = Cap(0.5, DELTA, None, Adjacency.ADD_REMOVE)
        budgets.set_cap(data / "ledgers/coordinator.ledger", None, ALL_SITES, cap)
        with pytest.raises(PolicyRefusal):
            run(data, privacy=privacy)
    rows = ledger_history.history(data / "ledgers")
    assert {row["kind"] for row in rows} == {"caps"}
    run(data, privacy=noised(0.4))


def test_the_coordinators_cap_counts_every_round(tmp_path: Path) -> None:
    """The first rounds alone would fit the cap, and sites would pay for them in vain."""
    data = folder_with(tmp_path)
    (data / "ledgers").mkdir(mode=0o700)
    cap = Cap(0.9, DELTA, None, Adjacency.ADD_REMOVE)
    budgets.set_cap(data / "ledgers/coordinator.ledger", None, ALL_SITES, cap)
    method = {"name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial"}
    with pytest.raises(PolicyRefusal):
        run(data, method=method | {"rounds": 5}, privacy=noised(placement="round"))
    assert {row["kind"] for row in ledger_history.history(data / "ledgers")} == {"caps"}
