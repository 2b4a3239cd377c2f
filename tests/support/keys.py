"""Paillier keys that are drawn once for many runs: a fresh one takes up to a second."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import pytest

from secagg.protocols import djn_keys, paillier, threshold_keys
from secagg.protocols.djn_keys import PrivateKey
from secagg.protocols.paillier import Paillier
from secagg.protocols.threshold_paillier import ThresholdPaillier
from secagg.randomness import RandomBytes, replayable_random

Generate = Callable[[int, RandomBytes], PrivateKey]


@functools.cache
def two_keys(generate: Generate) -> tuple[PrivateKey, PrivateKey]:
    first, second = (generate(2048, replayable_random(seed)) for seed in (1, 2))
    return first, second


@pytest.fixture
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deal two keys in turn, and check each once: a run that deals twice still has two."""

    def turns(generate: Generate) -> Callable[[object, RandomBytes], PrivateKey]:
        keys: Iterator[PrivateKey] = itertools.cycle(two_keys(generate))
        return lambda protocol, random: next(keys)

    monkeypatch.setattr(Paillier, "draw_key", turns(djn_keys.generate_keypair))
    monkeypatch.setattr(ThresholdPaillier, "draw_key", turns(threshold_keys.generate_keypair))
    check = functools.cache(paillier.check_private_key)
    monkeypatch.setattr(paillier, "check_private_key", check)
