"""Verdicts of numbers that no comparison holds of."""

import math

import pytest

from secagg.contracts.findings import Finding, Limit, Verdict, judge

CONTROL = Finding.exact(1.0, 0.0)


@pytest.mark.attack
def test_an_undefined_end_of_an_interval_is_inconclusive() -> None:
    limit = Limit(0.5)
    known, unknown = (
        Finding(value=0.1, low=0.0, high=high, baseline=0.0) for high in (0.2, math.nan)
    )
    assert judge(known, limit, CONTROL, limit)[0] is Verdict.NO_LEAK_FOUND
    assert judge(unknown, limit, CONTROL, limit)[0] is Verdict.INCONCLUSIVE
