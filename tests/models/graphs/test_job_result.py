"""A learned graph as a job's result."""

from __future__ import annotations

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
    check_truth,
    graph_result,
    note_indicators,
)
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import pc
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.linear_simulation import learn

ROWS = np.random.default_rng(0).normal(size=(40, 3)) @ np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
OfRows = Callable[[np.ndarray], Moments]


def notes(fit: GraphFit) -> list[str]:
    return graph_result(fit, None).summary["notes"]


def test_penalised_weights_say_that_they_are_shrunk(of_rows: OfRows) -> None:
    moments = of_rows(ROWS)
    for fit in (notears(moments), golem(moments), learn([ROWS[:20], ROWS[20:]])):
        assert notes(fit)[-1] == SHRUNK_NOTE, fit.method
        assert fit.notes == tuple(note for note in notes(fit)[:-1] if note != DIRECTIONS_NOTE)


def test_weights_without_a_penalty_and_edges_without_weights_do_not(of_rows: OfRows) -> None:
    moments = of_rows(ROWS)
    for fit in (notears(moments, penalty=0), pc(moments)):
        assert SHRUNK_NOTE not in notes(fit), fit.method


def test_standardised_linear_scores_say_that_they_hardly_tell_directions(of_rows: OfRows) -> None:
    moments = of_rows(ROWS)
    for fit in (notears(moments, penalty=0), golem(moments, equal_variances=True)):
        assert DIRECTIONS_NOTE in notes(fit), fit.method
    own, mlp = notears(moments, standardise=False), replace(notears(moments), method="notears_mlp")
    assert DIRECTIONS_NOTE not in notes(own)
    assert DIRECTIONS_NOTE not in notes(pc(moments))
    assert DIRECTIONS_NOTE not in graph_result(mlp, None, linear=False).summary["notes"]


def test_why_a_fit_failed_comes_first(of_rows: OfRows) -> None:
    """The report shows the first note if a site alone has no result."""
    failed = replace(notears(of_rows(ROWS)), converged=False, notes=("it did not",))
    assert notes(failed) == ["it did not", DIRECTIONS_NOTE, SHRUNK_NOTE]


@pytest.mark.parametrize(("truth", "shd"), [((("a", "b"),), 0), ((("b", "a"),), 1), ((), 1)])
def test_the_score_is_of_edges_and_truth(truth: tuple[tuple[str, str], ...], shd: int) -> None:
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
    ("truth", "names", "line"),
    [
        (
            (("age", "smoker"),),
            ALL,
            "method.truth: 'smoker' is not one of the graph's variables. Column 'smoker' is the "
            "variable 'smoker=yes'. Variables are age, smoker=yes, ward=b, ward=c.",
        ),
        (
            (("ward", "age"),),
            ALL,
            "method.truth: 'ward' is not one of the graph's variables. Column 'ward' is the "
            "variables 'ward=b' and 'ward=c'. Variables are age, smoker=yes, ward=b, ward=c.",
        ),
        (
            (("age", "smoker"),),
            ("age", "ward=b"),
            "method.truth: 'smoker' is not one of the graph's variables. Variables are age, "
            "ward=b.",
        ),
        (
            (("age", "ward=b"), ("ward=b", "age")),
            ALL,
            "method.truth: the true edges form a cycle. Leave one of them out.",
        ),
        (
            None,
            ("age",),
            "method.variables: a graph needs at least two variables. Variables are age.",
        ),
    ],
)
def test_a_truth_that_cannot_be_is_named_by_its_key(
    truth: tuple[tuple[str, str], ...] | None, names: tuple[str, ...], line: str
) -> None:
    with pytest.raises(JobError) as caught:
        check_truth(truth, names, PUBLIC)
    assert caught.value.line() == line


def test_edges_between_indicators_are_noted_but_not_those_to_themselves() -> None:
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
        assert "an edge between two indicators of 'ward'" in note
