"""A regression of a family that the attacks do not know."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.methods.regressions import REGRESSIONS
from support.methods.toy_method import UpperShare

from secagg.audits.attacks.records.released_regression import why_no_regression
from secagg.audits.catalogue import make_attacks
from secagg.audits.views import View
from secagg.contracts import MethodFacts, PublicFacts, Variable
from secagg.jobs.registry import Named, make_method


def view(facts: MethodFacts | None = None, **table: Any) -> View:
    variables = tuple(Variable(name, name, 0.0, 1.0) for name in ("y", "x"))
    row = {"outcome": "y", "terms": [{"term": "x", "estimate": 0.5}]}
    summary = {"method": "planted", **row, **table}
    return cast(
        "View",
        SimpleNamespace(
            planned=SimpleNamespace(
                public=PublicFacts(variables, ("y", "x"), 10, ("a", "b")),
                facts=facts or UpperShare("x").facts,
            ),
            result=SimpleNamespace(summary=summary),
        ),
    )


@pytest.mark.parametrize("name", ["coefficient_tracing", "attribute_inference"])
@pytest.mark.parametrize("family", ["poisson", "gamma", ""])
def test_an_unknown_family_is_not_applicable(name: str, family: str) -> None:
    (attack,) = make_attacks([name])
    assert attack.why_not(view(family=family)) == "family unknown"


@pytest.mark.parametrize(
    ("named", "known"),
    [
        (Named(name="logistic", outcome="y", predictors=["x"]), True),
        (Named(name="moments"), True),  # a regression from moments alone is linear
        (None, False),
    ],
)
def test_a_family_that_no_table_states_is_that_of_the_facts(
    named: Named | None, known: bool
) -> None:
    facts = UpperShare("x").facts if named is None else make_method(named).facts
    assert why_no_regression(view(facts)) == ("" if known else "family unknown")


_NO_MODEL = "the result has no coefficients of one model"


@pytest.mark.parametrize("name", ["moments", *REGRESSIONS])
def test_known_families_are_attacked(name: str) -> None:
    settings = {"outcome": "y", "predictors": ["x"]} if name in REGRESSIONS else {}
    facts = make_method(Named.model_validate({"name": name, **settings})).facts
    own = {} if facts.regression is None else {"family": facts.regression.family.name}
    for table in (own, {}):
        assert why_no_regression(view(facts, **table)) == ""
        assert why_no_regression(view(facts, **table, terms=[])) == _NO_MODEL
    assert why_no_regression(view(facts, family="other")) == "family unknown"
