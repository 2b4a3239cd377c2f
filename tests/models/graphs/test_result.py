import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from secagg.errors import UsageError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.golem import golem
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import ges, pc
from secagg.models.graphs.result import GraphFit

DIRECTED = np.array([[False, True, False], [False] * 3, [False] * 3])
LINE = np.zeros((3, 3), dtype=bool)
LINE[1, 2] = LINE[2, 1] = True
FIT = GraphFit(
    method="pc",
    names=("a", "b", "c"),
    directed=DIRECTED,
    undirected=LINE,
    weights=None,
    converged=True,
    settings={"alpha": 0.05},
)


def test_each_edge_is_listed_once() -> None:
    assert FIT.edges() == [
        {"from": "a", "to": "b", "kind": "directed", "weight": None},
        {"from": "b", "to": "c", "kind": "undirected", "weight": None},
    ]
    weights = np.arange(9.0).reshape(3, 3)
    assert replace(FIT, weights=weights).edges()[0]["weight"] == weights[0, 1]


def test_to_dict_survives_json() -> None:
    weighted = replace(FIT, weights=np.eye(3), diagnostics={"h": 1e-9}, notes=("note",))
    for fit in (FIT, weighted):
        assert json.loads(json.dumps(fit.to_dict(), allow_nan=False)) == fit.to_dict()


def moments(scatter: list[list[float]], n: int = 10) -> Moments:
    p = len(scatter)
    return Moments(tuple("abcd"[:p]), n, np.zeros(p), np.array(scatter, dtype=float))


GOOD = moments([[10, 5, 1], [5, 10, 1], [1, 1, 10]])


def test_input_selects_variables_in_the_given_order() -> None:
    data = graph_input(GOOD, ["c", "a"], standardise=False)
    assert data.names == ("c", "a")
    np.testing.assert_array_equal(data.matrix, [[1, 0.1], [0.1, 1]])


def test_standardised_input_has_a_unit_diagonal() -> None:
    data = graph_input(moments([[40, 2], [2, 90]]), None, standardise=True)
    np.testing.assert_allclose(data.matrix, [[1, 2 / 60], [2 / 60, 1]], rtol=1e-15)  # rounding


def test_singular_input_is_marked_and_refused_on_request() -> None:
    data = graph_input(moments([[1, 1], [1, 1]]), None, standardise=False)
    assert not data.full_rank
    with pytest.raises(UsageError, match="linearly independent"):
        data.require_full_rank("GES")
    assert graph_input(GOOD, None, standardise=False).full_rank


@pytest.mark.parametrize(
    ("bad", "variables"),
    [
        (GOOD, ["a"]),
        (GOOD, ["a", "a"]),
        (moments([[1]]), None),
        (GOOD, ["a", "z"]),
        (moments([[1, 0], [0, 1]], n=1), None),
        (moments([[1, np.nan], [np.nan, 1]]), None),
        (moments([[1, 0], [0, np.inf]]), None),
        (moments([[1, 0], [0, 0]]), None),
        (moments([[1, 2], [2, 1]]), None),
    ],
)
def test_unusable_moments_are_refused(bad: Moments, variables) -> None:
    with pytest.raises(UsageError):
        graph_input(bad, variables, standardise=False)


@pytest.mark.parametrize(
    ("learner", "setting", "value"),
    [(notears, "penalty", -1.0), (notears, "penalty", np.nan), (notears, "threshold", -0.1),
     (notears, "tolerance", 0.0), (golem, "penalty", -1.0), (golem, "dag_penalty", np.nan),
     (golem, "threshold", -0.1), (pc, "alpha", 0.0), (pc, "alpha", 1.0), (pc, "alpha", np.nan),
     (ges, "penalty", 0.0)],
)  # fmt: skip
def test_settings_out_of_range_are_refused(
    learner: Callable[..., GraphFit], setting: str, value: float
) -> None:
    with pytest.raises(UsageError, match=setting):
        learner(GOOD, **{setting: value})
