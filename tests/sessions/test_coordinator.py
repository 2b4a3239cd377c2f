"""The coordinator: when it ends a run, and that it records a release before using it."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.protocols.world import STAGE, SumNumbers, World, events, reopened, run_until

from secagg.contracts import SiteRecords, Total
from secagg.core.frames import MAX_COUNT, peek_header, write_frame
from secagg.errors import (
    DataError,
    OverflowRefusal,
    PolicyRefusal,
    ProtocolAbort,
    RecordsRefusal,
    SecaggError,
)
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.plain import Plain
from secagg.sessions.attestations import read_attestation, read_attestations
from secagg.sessions.coordinator import Requests, Step
from secagg.sessions.party import REFUSED, SiteContext
from secagg.sessions.rounds import COHORT

SITES = ("a", "b", "c", "d")
NUMBERS = {site: np.array([2.0**i, -0.5]) for i, site in enumerate(SITES)}
both = pytest.mark.parametrize("protocol", [Plain(), Additive(2)], ids=["plain", "additive"])


def world(protocol: Any = None, rounds: int = 2, **options: Any) -> World:
    return World(protocol or Plain(), NUMBERS, SumNumbers((2,), rounds=rounds), **options)


def contributes(w: World) -> str:
    return next(phase.name for phase in w.protocol.phases if phase.contributes)


def silent(name: str, round_: int, phase: str) -> Any:
    def tamper(sender: str, _: str, frame: bytes) -> Sequence[bytes]:
        return [] if (sender, *peek_header(frame)) == (name, round_, phase) else [frame]

    return tamper


def run_all(w: World) -> list[Step]:
    steps = [w.coordinator.start()]
    while not steps[-1].done:
        frames = w.engine.exchange(steps[-1].requests)
        steps.append(w.coordinator.advance(steps[-1].state, frames))
    return steps


# --- releases ------------------------------------------------------------------------------------


@both
def test_a_release_is_recorded_before_it_is_used(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step's events are on disk before the next advance, so only a later step may decode."""
    import secagg.sessions.coordinator as module

    decoded: list[Any] = []
    real = module.decode

    def spy(plan: Any, total: Any) -> Any:
        decoded.append(total)
        return real(plan, total)

    monkeypatch.setattr(module, "decode", spy)
    w = world(protocol)
    step = w.coordinator.start()
    recorded = 0
    while not step.done:
        recorded += sum(event["event"] == "release" for event in step.events)
        before = len(decoded)
        step = w.coordinator.advance(step.state, w.engine.exchange(step.requests))
        if len(decoded) > before:
            assert len(decoded) == recorded, "decoded a sum whose release was not yet recorded"
    assert recorded == len(decoded) == 3


@both
def test_counts_that_are_compared_with_a_minimum_are_not_kept(protocol: Any) -> None:
    w = world(protocol)
    step = w.coordinator.start()
    while not step.done:
        step = w.coordinator.advance(step.state, w.engine.exchange(step.requests))
    assert set(step.state.counts) == {"records", "incomplete", "outside"}


@both
def test_after_a_crash_a_release_is_not_recorded_again(protocol: Any) -> None:
    """Stopped after the release was written and resumed from that state, in another process."""
    w = world(protocol)
    step = w.coordinator.start()
    while not events([step], "release"):
        step = w.coordinator.advance(step.state, w.engine.exchange(step.requests))
    assert not step.requests and not step.done
    saved = reopened(step.state)
    for _ in range(2):  # resuming twice gives the same
        resumed = w.coordinator.advance(saved, [])
        assert not events([resumed], "release")
        assert resumed.state.released and resumed.state.records == 8


@both
def test_a_release_event_lists_contributors_and_thresholds(protocol: Any) -> None:
    w = world(protocol, policies={"b": ReleasePolicy(4, 1)})
    steps = run_all(w)
    released = events(steps, "release")
    assert [(e["round"], e["stage"]) for e in released] == [(0, COHORT), (1, STAGE), (2, STAGE)]
    for event in released:
        assert event["contributors"] == list(SITES)
        assert event["thresholds"] == {"a": 2, "b": 4, "c": 2, "d": 2}
        for site, claim in event["claims"].items():
            parts = [bytes.fromhex(part) for part in claim]
            signed = read_attestation(site, parts, event["round"], w.roster, w.session).min_sites
            assert signed == event["thresholds"][site]
        # The digest has a secret salt: without it, it would confirm guesses at unpublished sums.
        assert set(event) == {
            "event", "round", "stage", "contributors", "thresholds", "sum", "claims"
        }  # fmt: skip
    assert [e["round"] for e in events(steps, "round")] == [0, 1, 2]


@both
def test_signed_claims_are_read_once_for_each_sum(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def spy(claims: Any, stage: Any, round_: int, *rest: Any) -> Any:
        read.append(round_)
        return read_attestations(claims, stage, round_, *rest)

    monkeypatch.setattr("secagg.sessions.coordinator.read_attestations", spy)
    run_all(world(protocol))
    assert read == [0, 1, 2]


class Fewer(Additive):
    """Opens a sum over other sites than it announced."""

    def server(self, phase, state, replies, context):
        state, outcome = super().server(phase, state, replies, context)
        if isinstance(outcome, Total):
            outcome = replace(outcome, contributors=self.contributors(outcome.contributors))
        return state, outcome

    def contributors(self, sites: tuple[str, ...]) -> tuple[str, ...]:
        return sites[:2]


class Twice(Fewer):
    def contributors(self, sites: tuple[str, ...]) -> tuple[str, ...]:
        return (*sites[:3], sites[0])


@pytest.mark.parametrize("protocol", [Fewer(2), Twice(2)], ids=["fewer", "twice"])
def test_a_sum_over_other_contributors_is_checked_again(protocol: Any) -> None:
    """Before its release is recorded."""
    w = world(protocol, min_sites=3)
    step = run_until(w, "open")
    with pytest.raises(PolicyRefusal):
        w.coordinator.advance(step.state, w.engine.exchange(step.requests))


@both
def test_dropouts_that_would_expose_a_site_end_the_run_before_the_sum_is_known(
    protocol: Any,
) -> None:
    """A sum over all four was released before. d does not answer after its consent."""
    w = world(protocol)
    w.coordinator = replace(w.coordinator, earlier=(frozenset(SITES),))
    w.engine.tamper = silent("d", 0, contributes(w))
    step, steps = w.coordinator.start(), []
    with pytest.raises(PolicyRefusal) as caught:
        while not step.done:
            steps.append(step)
            step = w.coordinator.advance(step.state, w.engine.exchange(step.requests))
    assert caught.value.where == "coordinator" and "= d" in caught.value.what
    opened = {phase.name for phase in w.protocol.phases if phase.opens}
    assert not opened & {delivery.phase for delivery in w.engine.transcript}
    assert events(steps, "release") == [] and step.state.total is None


# --- who is there --------------------------------------------------------------------------------


def test_rules_on_public_facts_apply_before_any_request() -> None:
    numbers = {site: NUMBERS[site] for site in "abc"}
    w = World(Plain(), numbers, SumNumbers((2,)), min_sites=4)
    with pytest.raises(PolicyRefusal) as caught:
        w.coordinator.start()
    assert (caught.value.where, caught.value.exit_code) == ("coordinator", 3)
    for unset in (ReleasePolicy(None, 1), ReleasePolicy(2, None)):
        with pytest.raises(PolicyRefusal):
            replace(world().coordinator, policy=unset).start()


def test_the_coordinator_enforces_its_rule_on_total_records() -> None:
    """The sites would continue; the coordinator knows the total first, and sends no request."""
    w = world()
    w.coordinator = replace(
        w.coordinator, policy=replace(w.coordinator.policy, min_total_records=9)
    )
    with pytest.raises(PolicyRefusal) as caught:
        run_all(w)
    assert caught.value.where == "coordinator"
    assert {delivery.round for delivery in w.engine.transcript} == {0}
    w = world()  # with 8 records, and 8 required
    w.coordinator = replace(
        w.coordinator, policy=replace(w.coordinator.policy, min_total_records=8)
    )
    run_all(w)


@both
def test_a_site_that_drops_out_of_the_first_round_is_left_out(protocol: Any) -> None:
    w = world(protocol, rounds=1)
    w.engine.tamper = silent("d", 0, contributes(w))
    steps = run_all(w)
    final = steps[-1].state
    assert final.cohort == ("a", "b", "c") and final.records == 6
    assert final.method["totals"][0].tolist() == [7.0, -1.5]
    missing = events(steps, "missing")
    assert missing == [{"event": "missing", "round": 0, "phase": contributes(w), "parties": ["d"]}]
    asked_later = {d.recipient for d in w.engine.transcript if d.round == 1}
    assert "d" not in asked_later


@pytest.mark.parametrize(
    ("count", "records"), [(-50.0, 0), (1.4, 1), (2.4, 2), (6.4, 6), (1e30, MAX_COUNT)]
)
def test_a_noised_count_is_limited_to_its_possible_range(
    count: float, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message holds at most MAX_COUNT. Two sites with a record each are needed."""
    import secagg.sessions.coordinator as module

    w = world(rounds=1)
    w.engine.tamper = silent("d", 0, contributes(w))
    noised = {"records": np.array([count])}, np.zeros(3)
    monkeypatch.setattr(module, "decode", lambda *_: noised)
    step = w.coordinator.start()
    with nullcontext() if records >= 2 else pytest.raises(PolicyRefusal):
        while step.state.records is None:
            step = w.coordinator.advance(step.state, w.engine.exchange(step.requests))
        assert step.state.records == records


def test_clip_counts_of_all_rounds_are_added() -> None:
    w = World(Plain(), dict.fromkeys(SITES, np.array([2000.0, -0.5])), SumNumbers((2,), rounds=2))
    assert run_all(w)[-1].state.clipped[STAGE].tolist() == [8.0]


@both
def test_a_site_that_drops_out_later_ends_the_run(protocol: Any) -> None:
    w = world(protocol, rounds=2)
    w.engine.tamper = silent("d", 1, contributes(w))
    with pytest.raises(ProtocolAbort) as caught:
        run_all(w)
    assert caught.value.where == "round 1" and "same sites" in caught.value.advice


@both
def test_a_run_without_any_answers_ends(protocol: Any) -> None:
    w = world(protocol)
    w.engine.tamper = lambda sender, recipient, frame: [frame] if recipient != "coordinator" else []
    with pytest.raises(PolicyRefusal):
        run_all(w)

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        return [frame] if recipient != "coordinator" or peek_header(frame)[1] == "consent" else []

    w = world(protocol)
    w.engine.tamper = tamper  # all consent, and then nobody answers
    with pytest.raises(ProtocolAbort):
        run_all(w)


def test_a_run_with_too_few_answers_ends_before_opening() -> None:
    w = world(Additive(2), min_sites=4)
    w.engine.tamper = silent("d", 0, "share")
    with pytest.raises(PolicyRefusal):
        run_all(w)
    assert all(d.phase != "open" for d in w.engine.transcript)  # no party was asked to open


# --- refusals ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("policy", [ReleasePolicy(2, 3), ReleasePolicy(5, 1)])
def test_a_site_that_refuses_ends_the_run(protocol: Any, policy: ReleasePolicy) -> None:
    w = world(protocol, policies={"c": policy})
    with pytest.raises(PolicyRefusal) as caught:
        run_all(w)
    assert (caught.value.where, caught.value.exit_code) == ("c", 3)
    assert not [d for d in w.engine.transcript if d.round == 1]


@pytest.mark.parametrize("error", [DataError("row 7", "'Smith'"), OverflowRefusal("x", "'Smith'")])
def test_a_site_with_unsuitable_data_ends_the_run(error: SecaggError) -> None:
    w = world()

    def fail() -> SiteRecords:
        raise error

    site = SiteContext(w.method, w.public, fail)
    w.engine.parties = {**w.engine.parties, "c": replace(w.engine.parties["c"], site=site)}
    with pytest.raises(RecordsRefusal) as caught:  # one error for every reason
        run_all(w)
    assert caught.value.where == "c" and "Smith" not in caught.value.line()


def refuse(w: World, party: str, code: Any, round_: int = 0) -> bytes:
    keys = w.identities[party]
    return write_frame(keys, w.session, round_, REFUSED, "coordinator", {"code": code})


@pytest.mark.parametrize("code", ["abort", "peer", "", "nonsense", None, 7, ["policy"]])
def test_refusals_for_other_reasons_count_as_no_answer(code: Any) -> None:
    w = world(rounds=1)
    step = run_until(w, "submit")
    *frames, _ = w.engine.exchange(step.requests)  # all but d's
    after = w.coordinator.advance(step.state, [*frames, refuse(w, "d", code)])
    assert events([after], "missing")[0]["parties"] == ["d"]
    assert after.state.contributors == ("a", "b", "c")


def test_a_refusal_by_a_party_not_asked_is_rejected() -> None:
    w = world(Additive(2))
    step = run_until(w, "share")
    frames = w.engine.exchange(step.requests)
    after = w.coordinator.advance(step.state, [refuse(w, "aggregator_1", "policy"), *frames])
    assert after.requests and len(events([after], "rejected")) == 1


def test_a_refusal_beside_a_valid_reply_is_ignored() -> None:
    w = world(rounds=1)
    step = run_until(w, "submit")
    frames = w.engine.exchange(step.requests)
    after = w.coordinator.advance(step.state, [refuse(w, "a", "policy"), *frames])
    assert "a" in after.state.contributors


@both
def test_a_refusal_from_an_earlier_round_is_ignored(protocol: Any) -> None:
    w = world(protocol)
    step = run_until(w, contributes(w), round_=1)
    frames = w.engine.exchange(step.requests)
    after = w.coordinator.advance(step.state, [refuse(w, "a", "policy", 0), *frames])
    assert len(events([after], "rejected")) == 1 and not events([after], "missing")


# --- requests ------------------------------------------------------------------------------------


def test_what_all_sites_get_is_encoded_once() -> None:
    """With a body for each site, directories and signatures would cost n^2 time and memory."""
    encoded = {}
    for step in run_all(world(Masked())):
        if isinstance(step.requests, Requests):
            bodies = {id(body) for body in step.requests.bodies.values()}
            encoded[step.state.round, step.state.phase] = len(bodies)
    alike = [(0, "share"), (0, "agree"), (0, "unmask"), (1, "mask"), (2, "mask")]
    assert [encoded[key] for key in alike] == [1] * len(alike)
    assert encoded[0, "mask"] == len(SITES)  # each has shares of its own
