"""The contract of every `SecureSum`. A protocol inherits these tests by one subclass."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protocols.mutations import resigned, with_odd_values
from support.protocols.world import SumNumbers, World

from secagg.contracts import Context, SecureSum, Shape
from secagg.core import canonical_encoding, ring
from secagg.core.frames import Header, peek_header, write_frame
from secagg.errors import InternalError, JobError, PolicyRefusal, ProtocolAbort, SecaggError
from secagg.privacy.policy.release_rules import ReleasePolicy

FEW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
)
FUZZED = settings(
    deadline=None, suppress_health_check=[*HealthCheck]
)  # the profile sets max_examples


def numbers(sites: int, size: int, seed: int, spread: float = 100.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"site_{i}": rng.normal(0, spread, size) for i in range(sites)}


class SecureSumContract:
    """A subclass makes the protocol and its ideal functionality."""

    def make(self) -> SecureSum:
        raise NotImplementedError

    def ideal(self, contributions: dict[str, ring.RingVector], shape: Shape) -> ring.RingVector:
        raise NotImplementedError

    def world(self, values: dict[str, np.ndarray], **options: Any) -> World:
        size = len(next(iter(values.values())))
        method = options.pop("method", SumNumbers((size,)))
        return World(self.make(), values, method, **options)

    # --- the sum is exact --------------------------------------------------------------------

    @FEW
    @given(
        sites=st.integers(2, 5),
        size=st.integers(1, 40),
        ring_bits=st.sampled_from(ring.RING_BITS),
        seed=st.integers(0, 99),
    )
    def test_sum_is_exact(self, sites: int, size: int, ring_bits: int, seed: int) -> None:
        method = SumNumbers((size,), fraction_bits={32: 10, 64: 40, 128: 90}[ring_bits])
        world = self.world(numbers(sites, size, seed), method=method)
        assert world.plans.of("numbers").ring_bits == ring_bits
        total, cohort = world.sum()
        assert cohort == sorted(world.numbers)
        np.testing.assert_array_equal(total, world.expected(cohort))

    def test_sums_of_extreme_values_are_exact(self) -> None:
        edge = np.array([1000.0, -1000.0, 0.0, -0.0, 5e-324, -1e-30, 1e308, -1e308, 999.9999999])
        world = self.world({f"s{i}": edge for i in range(4)})
        total, cohort = world.sum()
        np.testing.assert_array_equal(total, world.expected(cohort))
        np.testing.assert_array_equal(total[:4], [4000.0, -4000.0, 0.0, 0.0])

    def test_sums_of_many_rounds_are_exact(self) -> None:
        world = self.world(numbers(3, 5, 1), method=SumNumbers((5,), rounds=4))
        total, cohort = world.sum()
        np.testing.assert_array_equal(total, world.expected(cohort))

    @FEW
    @given(
        values=st.lists(
            st.lists(st.integers(-(2**40), 2**40), min_size=3, max_size=3), min_size=2, max_size=6
        ),
        bits=st.sampled_from(ring.RING_BITS),
    )
    def test_the_ideal_functionality_sums_in_the_ring(
        self, values: list[list[int]], bits: int
    ) -> None:
        value_bits = 42
        if bits == 32:
            values, value_bits = [[v >> 15 for v in row] for row in values], 27
        contributions = {f"s{i}": ring.from_integers(v, bits) for i, v in enumerate(values)}
        total = self.ideal(contributions, Shape(bits, 3, value_bits))
        assert ring.to_integers(total) == [sum(column) for column in zip(*values, strict=True)]

    # --- faults ------------------------------------------------------------------------------

    def phases(self) -> list[str]:
        return [phase.name for phase in (*self.make().setup, *self.make().phases)]

    def test_one_silent_party_gives_the_survivors_sum_or_an_abort(self) -> None:
        """Each party is silent once: the survivors' exact sum, or an abort."""
        outcomes = set()
        parties = [(name, i) for i, (name, _) in enumerate(self.make().parties()[:2])]
        for phase in self.phases():
            for name, round_ in [("site_0", 0), ("site_2", 1), *parties]:
                outcomes.add(self.check_faulty(silence(name, phase, round_)))
        assert "summed" in outcomes

    @pytest.mark.fuzz
    @FUZZED
    @given(data=st.data())
    def test_tampered_frames_never_give_a_wrong_sum(self, data: st.DataObject) -> None:
        """Frames are changed, cut, repeated, replaced or lost: never a wrong sum."""
        chosen = data.draw(st.dictionaries(st.integers(0, 40), tampering, min_size=1, max_size=3))
        self.check_faulty(Script(chosen))

    def check_faulty(self, tamper: Any) -> str:
        world = self.world(numbers(4, 6, 3), min_sites=3, tamper=tamper)
        try:
            total, cohort = world.sum()
        except (ProtocolAbort, PolicyRefusal) as error:
            assert error.what
            return "refused"
        assert len(cohort) >= 3
        np.testing.assert_array_equal(total, world.expected(cohort))
        return "summed"

    # --- release rules -----------------------------------------------------------------------

    def test_a_site_with_an_unmet_or_unset_release_rule_refuses(self) -> None:
        for options in (
            {"min_sites": 5},
            {"policies": {"site_1": ReleasePolicy(5, 1)}},  # stricter than the job
            {"policies": {"site_1": ReleasePolicy(None, 1)}},
        ):
            with pytest.raises(PolicyRefusal):
                self.world(numbers(4, 2, 0), **options).sum()

    def test_dropout_below_the_threshold_is_refused(self) -> None:
        contributes = next(p.name for p in self.make().phases if p.contributes)
        world = self.world(numbers(4, 2, 0), min_sites=4, tamper=silence("site_3", contributes, 0))
        with pytest.raises(PolicyRefusal):
            world.sum()

    # --- messages ----------------------------------------------------------------------------

    @pytest.mark.fuzz
    @FUZZED
    @given(data=st.data())
    def test_malformed_requests_are_typed_errors(self, data: st.DataObject) -> None:
        """For any signed body from the coordinator, a party answers or refuses; no crash."""
        world = self.world(numbers(3, 2, 0))
        name = data.draw(st.sampled_from(sorted(world.engine.parties)))
        phase = data.draw(st.sampled_from(self.phases()))
        body = data.draw(st.dictionaries(st.sampled_from(keys), plain_data, max_size=6))
        request = write_frame(world.identities["coordinator"], world.session, 0, phase, name, body)
        party = world.engine.parties[name]
        handled = party.handle(request, party.first_state())
        assert handled.reply

    @pytest.mark.fuzz
    @FUZZED
    @given(data=st.data())
    def test_malformed_replies_are_typed_errors(self, data: st.DataObject) -> None:
        """For any signed body from a party, the coordinator continues or refuses."""
        turn = data.draw(st.integers(0, 8))
        body = data.draw(st.dictionaries(st.sampled_from(keys), plain_data, max_size=4))
        world = self.world(numbers(3, 2, 0))

        def lie(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
            nonlocal turn
            if recipient != "coordinator":
                return [frame]
            turn -= 1
            if turn != -1:
                return [frame]
            round_, phase = peek_header(frame)
            who = world.identities[sender]
            return [
                write_frame(who, world.session, round_, phase, recipient, body, {"min_sites": 2})
            ]

        world.engine.tamper = lie
        try:
            world.sum()  # may be wrong: see the protocol's `unprotected`
        except SecaggError as error:
            assert error.exit_code != 1

    @pytest.mark.fuzz
    @FUZZED
    @given(data=st.data())
    def test_mutated_messages_are_typed_errors(self, data: st.DataObject) -> None:
        """One well-signed message of any party is wrong: no crash.

        The sum may then be wrong (a party that lies can always spoil it), but a step may fail only
        with an error that names who is at fault.
        """
        world = self.world(numbers(4, 3, 0), min_sites=3, method=SumNumbers((3,), rounds=2))
        turn = data.draw(st.integers(0, 24 + 8 * len(self.phases())))

        def lie(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
            nonlocal turn
            turn -= 1
            if turn != -1:
                return [frame]
            return [resigned(data.draw, frame, world.identities[sender], world.session)]

        world.engine.tamper = lie
        try:
            world.sum()
        except SecaggError as error:
            assert error.exit_code != 1, error.line()
        codes = {error.code for error in world.engine.errors.values()}
        assert "internal" not in codes, world.engine.errors

    @pytest.mark.fuzz
    def test_unusual_values_in_requests_are_typed_errors(self) -> None:
        """Each node of a request to one party in each phase is replaced by each odd value."""
        world = self.world(numbers(3, 2, 0), method=SumNumbers((2,), rounds=2))
        coordinator = world.identities["coordinator"]
        step = world.coordinator.start()
        while not step.done:
            for name, request in list(step.requests.items())[:1]:
                header, body = opened(request)
                party, where = world.engine.parties[name], (header.round, header.phase, name)
                state = world.engine.states.get(name) or party.first_state()
                for odd in with_odd_values(body):
                    handled = party.handle(
                        write_frame(coordinator, world.session, *where, odd), state
                    )
                    assert handled.error is None or handled.error.code != "internal", where
            step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))

    @pytest.mark.fuzz
    def test_unusual_values_in_replies_are_typed_errors(self) -> None:
        """The same for the first reply in each phase and its signed note."""
        world = self.world(numbers(3, 2, 0), method=SumNumbers((2,), rounds=2))
        step = world.coordinator.start()
        while not step.done:
            frames = world.engine.exchange(step.requests)
            for frame, others in [(frames[0], frames[1:])] if frames else []:
                header, body = opened(frame)
                where = (header.round, header.phase, header.recipient)
                odd_ones = [(odd, header.note) for odd in with_odd_values(body)]
                odd_ones += [(body, odd) for odd in with_odd_values(dict(header.note))]
                for odd in odd_ones:
                    lie = write_frame(world.identities[header.sender], world.session, *where, *odd)
                    try:
                        world.coordinator.advance(step.state, [lie, *others])
                    except SecaggError as error:
                        assert error.exit_code != 1, (where, error.line())
            step = world.coordinator.advance(step.state, frames)

    # --- form ----------------------------------------------------------------------------------

    def test_parameters_are_named_as_in_the_contract(self) -> None:
        for function in ("client", "server", "parties", "guarantee_text", "least_sites"):
            signature = inspect.signature(getattr(type(self.make()), function))
            contract = inspect.signature(getattr(SecureSum, function))
            assert list(signature.parameters) == list(contract.parameters)

    def test_capabilities_cover_every_role(self) -> None:
        capabilities = self.make().capabilities
        roles = {"coordinator", "site"} | {role.value for _, role in self.make().parties()}
        assert set(capabilities.sees) == roles
        assert capabilities.unprotected
        assert [p for p in self.make().phases if p.contributes]

    def test_the_guarantee_text_names_the_number_of_sites(self) -> None:
        for sites in (2, 3, 4, 10, 40, 100):
            assert str(sites) in self.make().guarantee_text(sites)

    def test_a_session_without_some_sites_has_at_least_two_and_never_needs_more_than_all(
        self,
    ) -> None:
        least = [self.make().least_sites(sites) for sites in range(3, 12)]
        assert all(2 <= n <= sites for n, sites in zip(least, range(3, 12), strict=True))
        assert least == sorted(least)

    def test_unknown_steps_are_internal_errors(self) -> None:
        world = self.world(numbers(2, 2, 0))
        shape = world.plans.of("numbers").shape
        context = Context(
            world.session, 0, world.identities["site_0"], world.roster, shape, world.random
        )
        contributes = next(p.name for p in self.make().phases if p.contributes)
        for phase in ("nonsense", contributes):  # without a contribution
            with pytest.raises(InternalError):
                self.make().client(phase, {}, {}, context)

    def test_an_infinite_bound_is_refused_before_reading_data(self) -> None:
        with pytest.raises(JobError):
            self.world(numbers(2, 2, 0), method=SumNumbers((2,), bound=float("inf")))


def opened(frame: bytes) -> tuple[Header, dict[str, Any]]:
    """Return header and body of a frame, unverified."""
    header, _, content = canonical_encoding.loads(frame)
    return Header.from_bytes(header), canonical_encoding.loads(content)


def silence(name: str, phase: str, round_: int) -> Any:
    """Return a tamper function that loses the reply of `name` in that phase and round."""

    def tamper(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        return [] if (sender, *peek_header(frame)) == (name, round_, phase) else [frame]

    return tamper


class Script:
    """Tampers with the n-th frames of a run, each in the drawn way."""

    def __init__(self, chosen: dict[int, tuple[str, int]]) -> None:
        self.chosen, self.turn, self.seen = chosen, -1, [b""]

    def __call__(self, sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        self.turn += 1
        self.seen.append(frame)
        kind, where = self.chosen.get(self.turn, ("pass", 0))
        at = where % len(frame)
        match kind:
            case "flip":
                return [frame[:at] + bytes([frame[at] ^ (1 << where % 8)]) + frame[at + 1 :]]
            case "cut":
                return [frame[:at]]
            case "lose":
                return []
            case "twice":
                return [frame, frame]
            case "replay":
                return [self.seen[where % len(self.seen)], frame]
            case "replace":
                return [self.seen[where % len(self.seen)]]
        return [frame]


tampering = st.tuples(
    st.sampled_from(["flip", "cut", "lose", "twice", "replay", "replace"]), st.integers(0, 10**6)
)
keys = [
    "stage", "cohort", "records", "message", "contributors", "claims", "envelopes", "held", "share",
    "values", "key", "ciphertexts", "plaintexts", "x",
]  # fmt: skip
plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.binary(max_size=4)
    | st.sampled_from(["numbers", "cohort", "site_0", "aggregator_1", ""])
    | st.sampled_from([np.zeros(2), np.zeros((3, 1), dtype=np.uint64)]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["site_0", "site_1", "vector"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
