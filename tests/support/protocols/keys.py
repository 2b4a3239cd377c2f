"""Threshold keys that are drawn once for many runs, because a fresh one takes most of a second."""

import functools
import itertools

import pytest

from secagg.core.randomness import replayable_random
from secagg.protocols.paillier import key_shares
from secagg.protocols.paillier.keys import PrivateKey
from secagg.protocols.paillier.threshold import ThresholdPaillier


@functools.cache
def two_keys() -> tuple[PrivateKey, PrivateKey]:
    first, second = (key_shares.generate_keypair(2048, replayable_random(i)) for i in (1, 2))
    return first, second


@pytest.fixture
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deal two keys in turn, so that a run that deals twice has two."""
    keys = itertools.cycle(two_keys())
    monkeypatch.setattr(ThresholdPaillier, "draw_key", lambda protocol, random: next(keys))
