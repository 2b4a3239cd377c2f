"""Analyses: settings that are wrong by themselves are refused before data are read."""

import sys
from typing import Any

import pytest

from secagg.contracts import PublicFacts, Variable
from secagg.errors import JobError
from secagg.models.glm.logistic import Logistic
from secagg.models.moments.analyses import build_analysis

PUBLIC = PublicFacts(
    (
        Variable("x", "x", 0.0, 1.0),
        Variable("y", "y", 0.0, 1.0),
        Variable("s=m", "s", 0.5, 0.5, indicator=True),
        Variable("g=b", "g", 0.5, 0.5, indicator=True),
        Variable("g=c", "g", 0.5, 0.5, indicator=True),
    ),
    ("x", "y", "s", "g"),
    100,
    ("north", "south"),
)
XY = {"outcome": "y", "predictors": ["x"]}
NAN, INF = float("nan"), float("inf")


def build(table: dict[str, Any], truth: Any = None) -> Any:
    return build_analysis(table, PUBLIC, "method.analyses[1]", truth)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        *[(XY | {"kind": kind, "level": level}, "level")
          for kind in ("ols", "ridge") for level in (2, 0, 1, -0.5, NAN)],
        *[(XY | {"kind": kind, "penalty": penalty}, "penalty")
          for kind in ("ridge", "lasso") for penalty in (-1, 0, NAN, INF)],
        *[({"kind": "graphical_lasso", "penalty": penalty}, "penalty")
          for penalty in (-1, 0, NAN, INF, "bic")],
        *[({"kind": "graphical_lasso", "gamma": gamma}, "gamma") for gamma in (-1, NAN, INF)],
        (XY | {"kind": "ridge", "penalty": "bic"}, "penalty"),
        (XY | {"kind": "lasso", "penalty": "gcv"}, "penalty"),
        *[({"kind": "pc", "alpha": alpha}, "alpha") for alpha in (0, 1, NAN)],
        *[({"kind": "ges", "penalty": penalty}, "penalty") for penalty in (0, NAN, INF)],
        *[({"kind": kind, key: value}, key)
          for kind in ("notears", "golem") for key in ("penalty", "threshold")
          for value in (-1, NAN, INF)],
        *[({"kind": kind, "variables": ["x"]}, "variables")
          for kind in ("pc", "ges", "notears", "golem", "graphical_lasso")],
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(table: dict[str, Any], key: str) -> None:
    with pytest.raises(JobError, match=key) as caught:
        build(table)
    assert caught.value.where.startswith("method.analyses[1]")
    build({k: v for k, v in table.items() if k != key})  # with its default


@pytest.mark.parametrize(
    "truth",
    [[["x", "x"]], [["x", "y"], ["y", "x"]], [["x", "y"], ["y", "s=m"], ["s=m", "x"]]],
    ids=["loop", "two ways", "cycle"],
)
def test_a_true_graph_with_a_cycle_is_refused(truth: Any) -> None:
    with pytest.raises(JobError):
        build({"kind": "notears"}, truth)
    build({"kind": "notears"}, truth[1:] if len(truth) == 3 else None)


def test_an_error_names_the_key_of_a_wrong_true_graph() -> None:
    wrong = [["s", "x"]]
    with pytest.raises(JobError, match="'s=m'") as caught:
        build({"kind": "golem"}, wrong)
    assert caught.value.where == "method.truth, for method.analyses[1]"
    with pytest.raises(JobError) as caught:
        build({"kind": "golem", "truth": wrong}, None)
    assert caught.value.where == "method.analyses[1].truth"


@pytest.mark.parametrize("kind", ["pc", "ges"])
def test_a_missing_package_is_reported_before_reading_data(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "causallearn", None)
    with pytest.raises(JobError):
        build({"kind": kind})


@pytest.mark.parametrize(
    ("outcome", "predictor"), [("s", "s"), ("s=m", "s"), ("s", "s=m"), ("s=m", "s=m"), ("g=b", "g")]
)
def test_an_indicator_of_the_outcome_is_refused_as_a_predictor(
    outcome: str, predictor: str
) -> None:
    with pytest.raises(JobError):
        build({"kind": "ols", "outcome": outcome, "predictors": ["x", predictor]})
    with pytest.raises(JobError):
        Logistic(outcome, ("x", predictor)).stages(PUBLIC)
