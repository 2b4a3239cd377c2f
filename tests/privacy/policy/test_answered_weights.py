"""The rule on the records that a sum, or the difference of two sums, depends on."""

from __future__ import annotations

import numpy as np
import pytest

from secagg.privacy.policy.answered_weights import AnsweredWeights, Weights
from secagg.privacy.policy.site_policy import SitePolicy

POLICY = SitePolicy(min_sites=3, min_records=10)
ONES = np.ones(40)


def changed(records: int, by: float = 0.5) -> Weights:
    weights = ONES.copy()
    weights[:records] -= by
    return weights


def allowed(*messages: Weights) -> bool:
    """Return whether the last message is answered after the others."""
    answered = AnsweredWeights()
    for weights in messages[:-1]:
        answered.add([weights])
    return all(decision.allowed for decision in answered.judge(POLICY, [messages[-1]]))


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([np.zeros(40)], True),
        ([ONES[:10]], True),
        ([ONES[:9]], False),
        ([ONES, ONES], True),
        ([ONES, ONES * (1 + 1e-15)], True),
        ([ONES, changed(1)], False),
        ([ONES, changed(9)], False),
        ([ONES, changed(10)], True),
        ([ONES, changed(40)], True),
        ([ONES, changed(40), changed(39)], False),
        ([ONES, changed(20), changed(1)], False),  # to the first sum, not to the last one
        ([ONES, changed(1, 1e-9)], False),  # exact sums show a small change, too
    ],
)
def test_each_row_of_the_table(messages: list[Weights], answer: bool) -> None:
    assert allowed(*messages) is answer


def test_each_part_of_a_sum_is_judged() -> None:
    answered = AnsweredWeights()
    answered.add([ONES, ONES])
    (decision,) = answered.judge(POLICY, [ONES, changed(2)])
    assert not decision.allowed and decision.rule == "effective_records"
    assert "2 records" in decision.text
