import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from contracts.secure_sum import SecureSumContract, numbers, silence
from support.protocols.world import SumNumbers, World

from secagg.core import canonical_encoding
from secagg.core.frames import peek_header
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PolicyRefusal, ProtocolAbort
from secagg.jobs.registry import Named, make_protocol
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.keys import PrivateKey, generate_keypair
from secagg.protocols.paillier.threshold import ThresholdPaillier, run_ideal


@functools.cache
def key_of_2048_bits() -> PrivateKey:
    """An ordinary key, quick to make, whose (p-1)(q-1)/4 happens to have no factor below 23."""
    return generate_keypair(2048, replayable_random(3))


class CachedKey(ThresholdPaillier):
    """Deals one key, made once for all tests."""

    def draw_key(self, random):
        return key_of_2048_bits()


class TestThresholdPaillier(SecureSumContract):
    def make(self):
        return CachedKey(key_bits=2048)

    def ideal(self, contributions, shape):
        threshold = max(2, len(contributions) - 1)
        return run_ideal(contributions, shape, key_of_2048_bits(), threshold, replayable_random(1))


def world_of(sites: int, threshold: int | None = None, **options) -> World:
    protocol = CachedKey(key_bits=2048, threshold=threshold)
    return World(protocol, numbers(sites, 4, 5), SumNumbers((4,), rounds=3), **options)


def deciders(world: World, round_: int) -> list[str]:
    """Return the sites that answered a request to decrypt in this round, in order."""
    phases = ((d.round, d.phase, d.sender) for d in world.engine.transcript)
    return [who for r, phase, who in phases if (r, phase) == (round_, "decrypt") and "site" in who]


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("sites", "threshold"), [(2, 2), (5, 2), (6, 4)])
def test_exactly_threshold_many_sites_decrypt(sites: int, threshold: int) -> None:
    world = world_of(sites, threshold)
    total, cohort = world.sum()
    np.testing.assert_array_equal(total, world.expected(cohort))
    assert [len(deciders(world, r)) for r in range(4)] == [threshold] * 4


def test_decryption_rotates_among_the_sites() -> None:
    world = world_of(5, 2)
    world.sum()
    assert [deciders(world, r) for r in range(3)] == [
        ["site_0", "site_1"], ["site_1", "site_2"], ["site_2", "site_3"]
    ]  # fmt: skip


def test_the_default_threshold_is_more_than_two_thirds_of_sites() -> None:
    for sites, threshold in ((2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (10, 7)):
        assert ThresholdPaillier().threshold_of(sites) == threshold


def test_settings_out_of_range_are_refused() -> None:
    for setting, values in (("threshold", (1, 0, -2)), ("key_bits", (1024, 3071, 20_000))):
        for value in values:
            with pytest.raises(JobError) as caught:
                ThresholdPaillier(**{setting: value})
            assert caught.value.where == f"protocol.{setting}"
    with pytest.raises(JobError):
        world_of(4, 5).sum()


def test_a_threshold_below_the_release_rule_is_refused() -> None:
    """min_sites 5 protects against three colluding sites; three of them could decrypt.

    The sites refuse in the round that sums counts.
    """
    world = world_of(5, 3, min_sites=5)
    with pytest.raises(PolicyRefusal):
        world.sum()
    assert isinstance(world.engine.errors["site_0"], PolicyRefusal)
    assert {delivery.round for delivery in world.engine.transcript} == {0}
    world_of(5, 4, min_sites=5).sum()


# --- dropouts -------------------------------------------------------------------------------------


def test_other_sites_decrypt_in_place_of_silent_ones() -> None:
    world = world_of(6, 4, tamper=silence("site_1", "decrypt", 0))
    total, cohort = world.sum()
    np.testing.assert_array_equal(total, world.expected(cohort))
    assert len(cohort) == 6
    assert deciders(world, 0) == ["site_0", "site_2", "site_3", "site_4"]


def lose(*places: tuple[str, int, str]) -> Callable[[str, str, bytes], Sequence[bytes]]:
    """Lose what these parties answer in these rounds and phases."""
    return lambda sender, _, frame: [] if (sender, *peek_header(frame)) in places else [frame]


def test_too_few_decrypting_sites_end_the_run() -> None:
    lost = [("site_0", 1, "decrypt"), ("site_3", 1, "decrypt"), ("site_4", 1, "decrypt")]
    with pytest.raises(ProtocolAbort):
        world_of(6, 4, tamper=lose(*lost)).sum()
    world = world_of(5, tamper=lose(*((f"site_{i}", 0, "encrypt") for i in range(2))))
    with pytest.raises(ProtocolAbort):
        world.sum()
    assert not deciders(world, 0)  # no site is asked if too few have encrypted


def test_sums_survive_silent_dealers_and_key_holders() -> None:
    lost = [("site_0", 0, "deal"), ("site_1", 0, "deal"), ("site_3", 0, "install")]
    world = world_of(6, 3, tamper=lose(*lost))
    total, cohort = world.sum()
    assert cohort == ["site_2", "site_4", "site_5"]
    np.testing.assert_array_equal(total, world.expected(cohort))


# --- lies and state ------------------------------------------------------------------------------


def test_a_false_share_stops_the_sum() -> None:
    class Deceives(CachedKey):
        def _install(self, body, context):
            state = super()._install(body, context)
            return {**state, "share": state["share"] ^ (context.me == "site_1")}

    world = World(Deceives(2048), numbers(4, 4, 5), SumNumbers((4,)))
    with pytest.raises(ProtocolAbort):
        world.sum()


def test_no_site_state_contains_the_private_key() -> None:
    """After dealing, each site keeps one share: no factor of n, nor the private exponent."""
    world = world_of(4)
    world.sum()
    key = key_of_2048_bits()
    n, phi = key.public.n, (key.p - 1) * (key.q - 1)
    secrets = [key.p, key.q, phi, phi // 4, pow(n, -1, phi), pow(n, -1, phi // 4)]
    shares = set()
    for data in world.engine.states.values():
        state = canonical_encoding.loads(data)["protocol"]
        assert state.keys() == {"n", "h_s", "share", "opened"}
        shares.add(state["share"])
        for secret in secrets:
            assert secret.to_bytes(256, "little").rstrip(b"\0") not in data
    assert len(shares) == 4
    ciphertext = cryptosystem.encrypt(key.public, [5], replayable_random(1))
    for share in shares:  # nor does a single share decrypt
        assert pow(ciphertext[0] % n, share * n, n) not in (1, ciphertext[0] % n)


def test_a_run_with_a_fresh_key_gives_the_exact_sum() -> None:
    """The whole set-up as a job runs it, without a cached key."""
    named = {"name": "threshold_paillier", "key_bits": 2048, "threshold": 3}
    protocol = make_protocol(Named.model_validate(named))
    world = World(protocol, numbers(4, 4, 5), SumNumbers((4,)))
    total, cohort = world.sum()
    np.testing.assert_array_equal(total, world.expected(cohort))
