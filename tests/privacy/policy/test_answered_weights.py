"""The rule on the records that a sum, or the difference of two sums, depends on."""

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


LEVEL = np.where(np.arange(40) >= 28, 1.0, 0.0)
"""A level of 12 of the records."""
COLUMNS: Weights = np.stack([np.ones(40), LEVEL], axis=1)


def in_level(weight: float, *, other: float = 1.0) -> Weights:
    """Return weights of which one record of the level has 1, and its others so much."""
    weights = np.where(LEVEL == 1, weight, other)
    weights[-1] = 1.0
    return weights


def allowed(*messages: Weights) -> bool:
    """Return whether the last message is answered after the others."""
    answered = AnsweredWeights()
    for weights in messages[:-1]:
        answered.add([weights])
    last = messages[-1]
    return all(d.allowed for d in answered.judge(POLICY, [last], np.ones((len(last), 1))))


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
    (decision,) = answered.judge(POLICY, [ONES, changed(2)], np.ones((40, 1)))
    assert not decision.allowed and decision.rule == "effective_records"
    assert "2 records" in decision.text


@pytest.mark.parametrize(
    ("messages", "max_leverage", "answer"),
    [
        ([in_level(1)], 0.9, True),
        ([in_level(0.1)], 0.9, True),
        ([in_level(1e-3)], 0.9, False),
        ([in_level(0)], 0.9, False),
        ([in_level(1e-3)], 1.0, True),
        ([in_level(0)], None, True),
        ([np.full(40, 0.5), in_level(0.5)], 0.9, False),  # equal changes elsewhere
        ([np.full(40, 0.5), in_level(0.6)], 0.9, True),
    ],
)
def test_no_record_has_nearly_all_weight_of_its_level(
    messages: list[Weights], max_leverage: float | None, answer: bool
) -> None:
    policy = POLICY.model_copy(update={"max_leverage": max_leverage})
    answered = AnsweredWeights()
    for weights in messages[:-1]:
        answered.add([weights])
    decisions = answered.judge(policy, [messages[-1]], COLUMNS)
    assert decisions[0].rule == "effective_records" and decisions[0].allowed  # 28 other records
    assert all(decision.allowed for decision in decisions) is answer


def test_the_records_of_one_person_do_not_have_nearly_all_weight_of_a_level() -> None:
    weights = np.where(LEVEL == 1, 1e-3, 1.0)
    weights[-4:] = 1.0
    persons = np.minimum(np.arange(40), 36)  # the last four records are of one person
    by_row = AnsweredWeights().judge(POLICY, [weights], COLUMNS)
    by_person = AnsweredWeights().judge(POLICY, [weights], COLUMNS, persons)
    assert by_row[1].allowed and not by_person[1].allowed


def test_changes_that_may_be_rounding_have_no_leverage() -> None:
    answered = AnsweredWeights()
    answered.add([ONES])
    weights = np.where(LEVEL == 1, ONES, 0.5)
    weights[-1] += 1e-15
    decisions = answered.judge(POLICY, [weights], COLUMNS)
    assert all(decision.allowed for decision in decisions)
