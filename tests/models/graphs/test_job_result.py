"""A learned graph as a job's result."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from secagg.contracts import PublicFacts, Variable
from secagg.errors import JobError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.golem import golem
from secagg.models.graphs.job_result import (
    DIRECTIONS_NOTE,
    SHRUNK_NOTE,
    UNITS_NOTE,
    check_truth,
    graph_result,
    note_indicators,
)
from secagg.models.graphs.notears import notears
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.linear_simulation import learn

ROWS = np.random.default_rng(0).normal(size=(40, 3)) @ np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
OfRows = Callable[[np.ndarray], Moments]


def notes(fit: GraphFit) -> list[str]:
    return graph_result(fit, None).summary["notes"]


def test_a_result_has_notes_on_weights_and_directions(of_rows: OfRows) -> None:
    moments = of_rows(ROWS)
    linear = notears(moments)
    for fit, result in (
        (linear, [DIRECTIONS_NOTE, SHRUNK_NOTE]),
        (notears(moments, standardise=False), [UNITS_NOTE, SHRUNK_NOTE]),
        (golem(moments, standardise=False, equal_variances=False), [SHRUNK_NOTE]),
        (notears(moments, penalty=0), [DIRECTIONS_NOTE]),
        (golem(moments, equal_variances=True), [DIRECTIONS_NOTE, SHRUNK_NOTE]),
        (learn([ROWS[:20], ROWS[20:]]), [SHRUNK_NOTE]),
        (replace(linear, weights=None, settings={"alpha": 0.05}), []),
    ):
        assert notes(fit) == [*fit.notes, *result], fit.method
        marked = graph_result(fit, None).summary.get("shrunk")
        assert marked == ("weights" if SHRUNK_NOTE in result else None)
    assert DIRECTIONS_NOTE not in graph_result(linear, None, linear=False).summary["notes"]


def test_the_note_on_a_failed_fit_comes_first(of_rows: OfRows) -> None:
    """The report shows the first note if a site alone has no result."""
    failed = replace(notears(of_rows(ROWS)), converged=False, notes=("it did not",))
    assert notes(failed) == ["it did not", DIRECTIONS_NOTE, SHRUNK_NOTE]


@pytest.mark.parametrize(("truth", "shd"), [((("a", "b"),), 0), ((("b", "a"),), 1), ((), 1)])
def test_the_score_compares_edges_with_the_truth(
    truth: tuple[tuple[str, str], ...], shd: int
) -> None:
    none = np.zeros((2, 2), dtype=np.bool_)
    directed = none.copy()
    directed[0, 1] = True
    fit = GraphFit("ges", ("a", "b"), directed, none, None, True, {"penalty": 1.0})
    summary = graph_result(fit, truth).summary
    assert summary["score"]["shd"] == shd
    assert summary["truth"] == [list(edge) for edge in truth]
    assert "score" not in graph_result(fit, None).summary


PUBLIC = PublicFacts(
    (
        Variable("age", "age", 50.0, 50.0),
        Variable("smoker=yes", "smoker", 0.5, 0.5, indicator=True),
        Variable("ward=b", "ward", 0.5, 0.5, indicator=True),
        Variable("ward=c", "ward", 0.5, 0.5, indicator=True),
    ),
    ("age", "smoker", "ward"),
    100,
    ("north", "south"),
)
ALL = ("age", "smoker=yes", "ward=b", "ward=c")


@pytest.mark.parametrize(
    ("truth", "names", "where", "named"),
    [
        ((("age", "smoker"),), ALL, "method.truth", ["smoker", "smoker", "smoker=yes"]),
        ((("ward", "age"),), ALL, "method.truth", ["ward", "ward", "ward=b", "ward=c"]),
        ((("age", "smoker"),), ("age", "ward=b"), "method.truth", ["smoker"]),
        ((("Age", "ward=b"),), ALL, "method.truth", ["Age", "age"]),
        ((("age", "ward=b"), ("ward=b", "age")), ALL, "method.truth", []),
        (None, ("age",), "method.variables", []),
    ],
)
def test_an_error_names_the_key_of_an_impossible_truth(
    truth: tuple[tuple[str, str], ...] | None, names: tuple[str, ...], where: str, named: list[str]
) -> None:
    """A column that is not a variable is named together with its indicators."""
    with pytest.raises(JobError) as caught:
        check_truth(truth, names, PUBLIC)
    assert caught.value.where == where
    assert re.findall(r"'([\w=]+)'", caught.value.line()) == named


def test_edges_between_different_indicators_are_noted() -> None:
    none = np.zeros((4, 4), dtype=np.bool_)

    def noted(*edges: tuple[int, int], undirected: bool = False) -> list[str]:
        found = none.copy()
        for edge in edges:
            found[edge] = True
        kinds = (none, found | found.T) if undirected else (found, none)
        fit = GraphFit("pc", ALL, *kinds, None, True, {})
        return note_indicators(graph_result(fit, None), PUBLIC).summary["notes"]

    assert noted((0, 1), (1, 2), (2, 2)) == []
    for undirected in (False, True):
        (note,) = noted((3, 2), undirected=undirected)
        assert "'ward'" in note
