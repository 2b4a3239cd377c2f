"""Private runs that are killed and go on: the same noise, paid once, nothing sent unrecorded.

`support.crashes.private_killed` kills them at every step around a release; here is what must hold
then. At the end a coordinator and sites in real processes are killed where it matters most. Killed
means SIGKILL: what was written to the system's cache survives it. Loss of power is not simulated.
"""

import hashlib
import json
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.crashes.killed import killed
from support.crashes.nursery import Nursery, nursery, quick_starts
from support.crashes.private_killed import VICTIM, releases, told
from support.crashes.resumed import APART
from support.runs.jobs import SITES, TOML, write_job

from secagg.contracts.noise import Adjacency
from secagg.core import ring
from secagg.core.frames import peek_header
from secagg.core.hash_chain_log import read_log
from secagg.core.private_files import exclusive_lock
from secagg.core.randomness import seeded_random, system_random
from secagg.evidence.integrity import verify_folder
from secagg.evidence.session_result import counted
from secagg.jobs.job import load_job
from secagg.privacy.accounting.composition import Cost
from secagg.privacy.accounting.events import epsilon_of
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.runs.run import resume, run
from secagg.sessions import fixed_point
from secagg.sessions.coordinator_state import CoordinatorState, Status
from secagg.sessions.engines.loopback import LoopbackEngine
from secagg.sessions.engines.processes import processes_in
from secagg.sessions.journal import Journal
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.rounds import COHORT, cohort_update
from secagg.sessions.session import open_session
from secagg.sessions.stored_session import resume_session

__all__ = ["nursery", "quick_starts"]  # fixtures
STAGES = (COHORT, "moments")  # of the two rounds
DELTA = 1e-6
EPSILON = 8.0  # so little noise that the count of 36 records is never below the minimum of 6
PRIVATE = f"""
[privacy]
placement = "sum"
epsilon = {EPSILON}
delta = 1e-6
"""
CAP = gaussian_epsilon(math.sqrt(4.5) * gaussian_mu(EPSILON, DELTA), DELTA)
"""Four jobs of this epsilon fit; a fifth does not."""
POLICY = f"""
min_sites = 3
min_records = 2
[budget]
period_epsilon = {CAP}
period_delta = {DELTA}
adjacency = ["add_remove"]
"""
Rows = Sequence[Mapping[str, Any]]


def private_job(place: Path) -> Path:
    job = write_job(place, TOML + PRIVATE)
    (place / f"data/{VICTIM}.policy.toml").write_text(POLICY)
    return job


def planned_as(job: Path, protocol: str, placement: str = "sum", **_: Any) -> Planned:
    return plan_job(load_job(job, {"protocol.name": protocol, "privacy.placement": placement}))


def of(rows: Rows, session: str, round_: int) -> list[Mapping[str, Any]]:
    """Return entries and re-uses of one round."""
    return [row for row in rows if (row["session"], row["round"]) == (session, round_)]


def noise_of(row: Mapping[str, Any], planned: Planned) -> np.ndarray:
    """Draw again what was drawn for an entry."""
    stage, variance = row["content"]["stage"], row["content"]["variance"]
    weights, size = planned.public.noise[stage].weights, planned.plans.of(stage).noised
    return sample_weighted(variance, weights, size, seeded_random(bytes.fromhex(row["seed"])))


def must_release(planned: Planned, ledgers: Mapping[str, Rows], session: str) -> np.ndarray:
    """Return what comes of the exact sum with the noise that the sites' ledgers have seeds of."""
    opened, sums = open_session(planned, system_random), []
    for round_, stage in enumerate(STAGES):
        plan, vectors = planned.plans.of(stage), []
        for site, side in opened.sites.items():
            if stage == COHORT:
                spec = planned.plans.stages[stage].spec
                update = cohort_update(side.rows, side.public, spec, 1)
            else:
                update, _ = side.method.contribute(
                    stage, side.rows, {}, {}, side.public, system_random
                )
            vectors.append(fixed_point.encode(plan, update))
            drawn = noise_of(of(ledgers[site], session, round_)[0], planned)
            fixed_point.add_noise(plan, vectors[-1], drawn)
        sums.append(fixed_point.decode(plan, ring.total(vectors, plan.length, plan.ring_bits))[0])
    opened.close()
    method, public = planned.method, planned.public
    state = method.aggregate(method.initial_state(public), sums[1], len(SITES))
    first = counted(planned, CoordinatorState(Status.DONE, SITES, {}, counts=sums[0]))
    matrix: np.ndarray = method.result(state, public, first).arrays["released"]
    return matrix


def released(out: Path) -> np.ndarray:
    matrix: np.ndarray = np.load(out / "arrays.npz")["released"]
    return matrix


def session_of(out: Path) -> str:
    return str(json.loads((out / "run.json").read_text())["session"])


def spent(rows: Rows) -> float:
    costs = [Cost.of(row["content"]["cost"]) for row in rows if row["kind"] == "entry"]
    return epsilon_of([cost.event(Adjacency.ADD_REMOVE) for cost in costs], DELTA)


def check_whole(planned: Planned, out: Path, ledgers: Mapping[str, Rows]) -> None:
    """The run is sound; each party has one entry a round, at its cost; the noise is that of them.

    Not for noise that an earlier run has paid for.
    """
    verify_folder(out)
    session = session_of(out)
    assert planned.private is not None
    for rows in ledgers.values():
        for round_, stage in enumerate(STAGES):
            first, *others = of(rows, session, round_)
            assert first["kind"] == "entry" and {row["kind"] for row in others} <= {"use"}
            assert {row["seed"] for row in others} <= {first["seed"]}
            assert first["content"]["cost"] == planned.private.mechanisms[stage].cost().plain()
        assert {row["round"] for row in rows if row["session"] == session} == {0, 1}
    assert set(ledgers) == {*SITES, "coordinator"}
    assert np.array_equal(released(out), must_release(planned, ledgers, session))


# --- a site is killed before each step of its answers, and after random delays --------------------

SUM = {"placement": "sum", "epsilon": EPSILON}
SITE = {"placement": "site", "epsilon": EPSILON}
RUNS: tuple[dict[str, Any], ...] = (
    {"how": "steps", "protocol": "masked", **SUM},
    {"how": "delays", "protocol": "masked", **SUM, "deaths": 4},
    {"how": "steps", "protocol": "additive", **SUM},
    {"how": "steps", "protocol": "plain", **SITE},
    {"how": "delays", "protocol": "plain", **SITE, "deaths": 4},
    {"how": "steps", "protocol": "masked", **SUM},
)
FREE, REFUSED = 4, 5
"""Numbers of the run that uses its predecessor's noise again, and of that beyond the budget."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return private_job(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def saw(job: Path) -> Any:
    return told(job.parent, RUNS)


def asked(saw: Any) -> Iterator[tuple[int, Any]]:
    """Yield, for each time that the site was asked, the run's number and what was seen."""
    for number, played in enumerate(saw):
        for one in played["seen"]:
            yield number, one


def test_parties_were_killed_at_each_step(saw: Any) -> None:
    hit = Counter(one["last"] for _, one in asked(saw) if one["killed"] and not one["timed"])
    assert all(hit[step] for step in (
        "BEGIN", "INSERT decision", "INSERT entry", "INSERT cohort", "COMMIT", "ROLLBACK", "link",
        "sample_weighted", "add_noise", "fsync", "replace", "send", "end",
    ))  # fmt: skip
    timed = sum(one["killed"] and one["timed"] for _, one in asked(saw))
    assert timed > 10 and hit.total() + timed >= 200


def test_every_sent_answer_has_an_entry_with_its_cost(job: Path, saw: Any) -> None:
    plans = [planned_as(job, **about) for about in RUNS]
    contributes = [{p.name for p in plan.protocol.phases if p.contributes} for plan in plans]
    sent = [(n, one) for n, one in asked(saw) if one["sent"] and one["phase"] in contributes[n]]
    assert {number for number, _ in sent} == set(range(REFUSED))
    for number, one in sent:
        rows = of(one["releases"], session_of(Path(saw[number]["out"])), one["round"])
        stage, private = STAGES[one["round"]], plans[number].private
        assert private is not None and rows
        for row in rows:
            assert row["content"]["cost"] == private.mechanisms[stage].cost().plain()
            assert row["content"]["stage"] == stage


def test_repeated_answers_are_identical(saw: Any) -> None:
    """To the byte: the noise, and also keys and shares, once they were sent."""
    answers: dict[tuple[int, int, str], set[str]] = {}
    for number, one in asked(saw):
        if one["sent"]:
            answers.setdefault((number, one["round"], one["phase"]), set()).add(one["sent"])
    assert Counter(number for number, *_ in answers) == {0: 9, 1: 9, 2: 5, 3: 5, 4: 5}
    assert all(len(same) == 1 for same in answers.values())


def test_the_noise_of_a_release_is_identical_after_each_kill(job: Path, saw: Any) -> None:
    """Of answers that were sent and of those that were lost: what the ledger's seed stands for."""
    drawn: dict[tuple[int, int], list[str]] = {}
    for number, one in asked(saw):
        drawn.setdefault((number, one["round"]), []).extend(one["noise"])
    for number, played in enumerate(saw[:REFUSED]):
        session, planned = session_of(Path(played["out"])), planned_as(job, **RUNS[number])
        for round_ in (0, 1):
            noise = noise_of(of(played["ledgers"][VICTIM], session, round_)[0], planned)
            assert len(drawn[number, round_]) > (4 if RUNS[number]["how"] == "steps" else 0)
            assert set(drawn[number, round_]) == {hashlib.sha256(noise.tobytes()).hexdigest()}
    assert not drawn[REFUSED, 0]


@pytest.mark.parametrize("number", [n for n in range(REFUSED) if n != FREE])
def test_the_run_finishes_completely(job: Path, saw: Any, number: int) -> None:
    out, ledgers = Path(saw[number]["out"]), saw[number]["ledgers"]
    check_whole(planned_as(job, **RUNS[number]), out, ledgers)


def test_noise_at_a_site_is_reused_without_cost(saw: Any) -> None:
    """By another run on the same records, killed as often."""
    out, ledgers = Path(saw[FREE]["out"]), saw[FREE]["ledgers"]
    assert np.array_equal(released(out), released(Path(saw[FREE - 1]["out"])))
    assert {r["kind"] for r in ledgers[VICTIM] if r["session"] == session_of(out)} == {"use"}
    verify_folder(out)


def test_the_ledger_only_grows(saw: Any) -> None:
    before: list[Any] = []
    for _, one in asked(saw):
        assert one["releases"][: len(before)] == before
        before = one["releases"]
    entries = [row for row in before if row["kind"] == "entry"]
    assert len({row["seed"] for row in entries}) == len(entries) == 2 * FREE


def test_the_budget_is_never_overspent(saw: Any) -> None:
    assert max(spent(one["releases"]) for _, one in asked(saw)) <= CAP
    fully = gaussian_epsilon(2.0 * gaussian_mu(EPSILON, DELTA), DELTA)
    assert spent(saw[-1]["ledgers"][VICTIM]) == pytest.approx(fully, rel=1e-2)
    assert not Path(saw[REFUSED]["out"]).exists()


# --- all parties are killed at once ---------------------------------------------------------------


def test_a_run_recovers_if_all_parties_are_killed_repeatedly(tmp_path: Path) -> None:
    """Coordinator and sites die together, and go on together."""
    job = private_job(tmp_path)
    kinds = (("additive", "sum"), ("plain", "site"))
    runs = [
        {
            "how": "all",
            "protocol": protocol,
            "placement": placement,
            "epsilon": EPSILON,
            "longest": 80,
        }
        for protocol, placement in kinds
    ]
    died: Counter[str] = Counter()
    for about, played in zip(runs, told(tmp_path, runs), strict=True):
        died.update(played["deaths"])
        assert len(played["deaths"]) > 1
        check_whole(planned_as(job, **about), Path(played["out"]), played["ledgers"])
    assert died.total() >= 10


# --- in processes of their own --------------------------------------------------------------------


def ledgers_of(job: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.stem: releases(path) for path in (job.parent / "data/ledgers").glob("*.ledger")}


def wait_until_alone(place: Path) -> None:
    for folder in (place / "parties").iterdir():
        with exclusive_lock(folder / "lock", 20.0):
            pass


def events_of(path: Path) -> list[tuple[str, int | None]]:
    return [(event["event"], event.get("round")) for event in read_log(path)]


def kept_state(place: Path) -> CoordinatorState:
    with resume_session(place, None, processes_in(place, None)) as (session, _):
        return Journal(place / "journal", session.session).read().step.state


def test_a_run_recovers_if_the_coordinator_is_killed_at_a_release(
    tmp_path: Path, quick_starts: Nursery
) -> None:
    """It is entered, logged and used, in this order; whatever was not is done after a resume."""
    job, out, place = private_job(tmp_path), tmp_path / "out", tmp_path / "out.partial"
    log, book = place / "log.jsonl", tmp_path / "data/ledgers/coordinator.ledger"
    masked = APART | {"protocol.name": "masked"}

    def entered() -> int:
        wait_until_alone(place)
        return sum(row["kind"] == "entry" for row in releases(book))

    assert killed(quick_starts, run=[job, out, masked], what="log", number=3, after=False)
    assert entered() == 1 and ("release", 0) not in events_of(log)
    assert killed(quick_starts, resume=out, what="log", number=0, after=True)
    assert entered() == 1 and events_of(log)[-1] == ("release", 0)
    # on from the release: its own step again, consent, the next round's, and that one's release
    assert killed(quick_starts, resume=out, what="journal", number=3, after=False)
    assert entered() == 2 and kept_state(place).total is None  # entered before it is kept anywhere
    assert killed(quick_starts, resume=out, what="journal", number=1, after=True)
    assert entered() == 2 and ("release", 1) not in events_of(log)
    with resume_session(place, None, processes_in(place, None)) as (session, _):
        state = Journal(place / "journal", session.session).read().step.state
        last = session.coordinator.advance(state, ()).state
        planned = session.planned
        found = planned.method.result(last.method, planned.public, counted(planned, last))
        kept = found.arrays
    assert killed(quick_starts, resume=out, what="log", number=0, after=False)
    assert entered() == 2 and ("release", 1) not in events_of(log)
    resume(out)
    check_whole(planned_as(job, "masked"), out, ledgers_of(job))
    assert np.array_equal(released(out), kept["released"])
    assert Counter(name for name, _ in events_of(out / "log.jsonl"))["release"] == 2


@pytest.mark.usefixtures("quick_starts")
def test_a_run_recovers_if_a_site_is_killed_before_its_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each round another one, while it writes its state; its engine starts it again.

    It writes into a pipe that nobody reads from, and so is still at it when it is killed.
    """
    job, exchange = private_job(tmp_path), LoopbackEngine.exchange
    victims, dead = iter((VICTIM, "west")), []

    def kill(engine: LoopbackEngine, name: str, pipe: Path, round_: int) -> None:
        ledger = tmp_path / f"data/ledgers/{name}.ledger"
        until = time.monotonic() + 30.0
        while time.monotonic() < until and not any(r["round"] == round_ for r in releases(ledger)):
            time.sleep(0.01)
        (before,) = [row for row in releases(ledger) if row["round"] == round_]
        engine._launcher.processes[name].send_signal(signal.SIGSTOP)  # or it would go on
        pipe.unlink()
        engine._launcher.processes[name].kill()
        dead.append((name, round_, before["seed"]))

    def hindered(self: LoopbackEngine, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        header = next((peek_header(request) for request in requests.values()), None)
        if header is None or header[1] != "mask":
            return exchange(self, requests)
        name = next(victims)
        pipe = self._launcher.folders[name] / "state.new"
        os.mkfifo(pipe)
        killer = threading.Thread(target=kill, args=(self, name, pipe, header[0]))
        killer.start()
        try:
            return exchange(self, requests)
        finally:
            killer.join()

    monkeypatch.setattr(LoopbackEngine, "exchange", hindered)
    masked = APART | {"protocol.name": "masked"}
    run(job, out=tmp_path / "out", overrides=masked)
    ledgers = ledgers_of(job)
    check_whole(planned_as(job, "masked"), tmp_path / "out", ledgers)
    assert [(name, round_) for name, round_, _ in dead] == [(VICTIM, 0), ("west", 1)]
    for name, round_, seed in dead:
        rows = [row for row in ledgers[name] if row["round"] == round_]
        assert [(row["kind"], row["seed"]) for row in rows] == [("entry", seed), ("use", seed)]
    restarted = [
        (event["party"], event["round"])
        for event in read_log(tmp_path / "out/log.jsonl")
        if event["event"] == "restarted"
    ]
    assert restarted == [(VICTIM, 0), ("west", 1)]
