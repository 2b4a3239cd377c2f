"""Names of columns in a method's settings: found, refused, or answered with a similar name."""

import pytest
from support.runs.jobs import small_job

from secagg.contracts import Outcome, PublicFacts, Variable
from secagg.errors import JobError
from secagg.jobs.design_matrix import public_facts
from secagg.models.common.variables import choose, outcome_index

PUBLIC = public_facts(small_job(), ("a", "b"))  # age, sex=male, grade=mid, grade=high


def test_a_column_or_a_variable_can_be_named() -> None:
    assert choose(PUBLIC, None, "here").tolist() == [0, 1, 2, 3]
    assert choose(PUBLIC, ["grade", "age"], "here").tolist() == [2, 3, 0]
    assert choose(PUBLIC, ["grade=high"], "here").tolist() == [3]


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("Age", "'age'"),
        ("grades", "'grade'"),
        ("grade=hgih", "'grade=high'"),
        ("sex=man", "'sex=male'"),
        ("weight", None),
    ],
)
def test_an_unknown_name_is_answered_with_a_similar_one(name: str, similar: str | None) -> None:
    with pytest.raises(JobError) as caught:
        choose(PUBLIC, ["sex", name], "here")
    assert caught.value.where == "here" and repr(name) in caught.value.what
    hint, found, _ = caught.value.advice.rpartition("Columns are")
    assert found and (similar in hint if similar else hint == "")


@pytest.mark.parametrize("names", [[], ["age", "age"], ["grade", "grade=mid"], ["sex"]])
def test_unusable_choices_are_refused(names: list[str]) -> None:
    with pytest.raises(JobError):
        choose(PUBLIC, names, "here", other_than="sex")


def test_an_outcome_in_log_units_is_refused_where_the_family_has_a_log_link() -> None:
    public = PublicFacts((Variable("cost", "cost", 1.0, 1.0, log=True),), ("cost",), 9, ("a", "b"))
    assert outcome_index(public, "cost", Outcome.NUMBER) == 0
    with pytest.raises(JobError) as refused:
        outcome_index(public, "cost", Outcome.NUMBER, log=False)
    assert refused.value.where == "method.outcome"
