"""Whole runs under differential privacy: what leaves has noise, of the size that was promised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.jobs import raw_job, tables

import secagg
from secagg.errors import CapabilityError, JobError, OverflowRefusal
from secagg.job import parse_job
from secagg.running import Run

HIDING = ("additive", "masked", "paillier", "threshold_paillier")
KEYS = {"key_bits": 2048}


def private(placement: str = "sum", protocol: str = "additive", **changed: Any) -> dict[str, Any]:
    """Return a small job of moments under differential privacy."""
    settings = {"placement": placement, "epsilon": 2.0, "delta": 1e-6} | changed
    more = KEYS if "paillier" in protocol else {}
    return raw_job(privacy=settings, protocol={"name": protocol, **more})


def moments(run: Run) -> np.ndarray:
    """Return what the coordinator decoded, from the arrays that the result keeps."""
    return np.concatenate([[float(run.result.arrays["n"])], run.result.arrays["mean"]])


@pytest.mark.parametrize("protocol", HIDING)
@pytest.mark.parametrize("placement", ["sum", "site"])
def test_every_protocol_carries_noise(placement: str, protocol: str) -> None:
    run = secagg.run(private(placement, protocol), tables())
    exact = secagg.run(raw_job(), tables())
    assert run.facts["privacy"]["placement"] == placement
    assert not np.array_equal(moments(run), moments(exact))
