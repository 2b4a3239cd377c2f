"""Runs with parties in processes of their own, and something done before each exchange."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from secagg.core.frames import peek_header
from secagg.runs.run import Run, run
from secagg.sessions.engines.loopback import LoopbackEngine

Before = Callable[[LoopbackEngine, int, str], None]


def overrides(protocol: str, **changed: Any) -> dict[str, str]:
    small = {"paillier": ", key_bits = 2048", "threshold_paillier": ", key_bits = 2048"}
    named = f'{{ name = "{protocol}"{small.get(protocol, "")} }}'
    return {"protocol": named, **{key: str(value) for key, value in changed.items()}}


def processes(job: Path, protocol: str = "plain", out: str = "out", **changed: Any) -> Run:
    settings = overrides(protocol, **changed) | {"engine.name": "processes"}
    return run(job, out=job.parent / out, overrides=settings)


def before_each(monkeypatch: pytest.MonkeyPatch, act: Before) -> list[float]:
    """Have `act(engine, round, phase)` done before each exchange; return how long each took."""
    real, took = LoopbackEngine.exchange, list[float]()

    def exchange(self: LoopbackEngine, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        if not requests:
            return real(self, requests)
        act(self, *peek_header(next(iter(requests.values()))))
        began = time.monotonic()
        replies = real(self, requests)
        took.append(time.monotonic() - began)
        return replies

    monkeypatch.setattr(LoopbackEngine, "exchange", exchange)
    return took


def same_bits(a: Path, b: Path) -> bool:
    return all(
        (a / name).read_bytes() == (b / name).read_bytes() for name in ("result.json", "arrays.npz")
    )
