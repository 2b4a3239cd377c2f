"""The notes on learned graphs of every method, in whole sessions."""

import importlib
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import secagg
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.job_result import (
    DIRECTIONS_NOTE,
    LAGGED_DIRECTIONS_NOTE,
    NETWORKS_NOTE,
    SHRUNK_NOTE,
)
from secagg.models.notears_admm.linear import NotearsAdmm

pytestmark = pytest.mark.usefixtures("causal_learn")
NUMBER = {"type": "continuous", "low": -20, "high": 20}
WARD = {"type": "categorical", "levels": ["medical", "surgical", "other"]}
COLUMNS = {"a": NUMBER, "b": NUMBER, "ward": WARD}
GRAPHS: dict[str, dict[str, Any]] = {
    "pc": {"name": "moments", "analyses": [{"kind": "pc"}]},
    "ges": {"name": "moments", "analyses": [{"kind": "ges"}]},
    "notears": {"name": "moments", "analyses": [{"kind": "notears"}]},
    "golem": {"name": "moments", "analyses": [{"kind": "golem"}]},
    "admm": {"name": "notears_admm", "rounds": 60},
    "networks": {
        "name": "notears_mlp_admm",
        "hidden": 2,
        "threshold": 0.0,
        "zero_diagonal": True,
        "rounds": 40,
    },
    "votes": {"name": "local_graphs"},
}


def learned(method: dict[str, Any]) -> dict[str, Any]:
    """Return the graph of three sites; b depends on a, and ward on nothing."""
    rng = np.random.default_rng(1)
    sites = {}
    for name in ("north", "south", "west"):
        a, noise = rng.normal(size=(2, 60))
        ward = rng.choice(WARD["levels"], 60)
        sites[name] = pd.DataFrame({"a": a, "b": 2 * a + noise, "ward": ward})
    job = {
        "title": "t",
        "sites": {"max_rows": 100},
        "columns": COLUMNS,
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }
    summary = secagg.run(job, sites).result.summary
    return summary["analyses"][0] if "analyses" in summary else summary


def indicator_notes(graph: dict[str, Any]) -> list[str]:
    return [note for note in graph["notes"] if "'ward'" in note]


@pytest.mark.parametrize("method", GRAPHS.values(), ids=GRAPHS)
def test_edges_between_indicators_of_one_column_are_noted(method: dict[str, Any]) -> None:
    graph = learned(method)
    pairs = [{edge["from"], edge["to"]} for edge in graph["edges"]]
    assert {"ward=surgical", "ward=other"} in pairs  # otherwise there is no note
    assert len(indicator_notes(graph)) == 1


@pytest.mark.parametrize(
    "method",
    [
        {"name": "notears_mlp_admm", "hidden": 2, "rounds": 40},
        {"name": "local_graphs", "learner": "notears_mlp", "combine": "average"},
    ],
    ids=lambda method: method["name"],
)
def test_a_note_says_that_network_weights_are_not_effects(method: dict[str, Any]) -> None:
    notes = learned({**method, "variables": ["a", "b"]})["notes"]
    assert NETWORKS_NOTE in notes and not any(note.startswith("no edge") for note in notes)
    assert SHRUNK_NOTE not in notes and DIRECTIONS_NOTE not in notes


def test_notes_on_time_series_advise_no_method_without_lags() -> None:
    """`moments` learns no graph with lags."""
    lags = {"variables": ["a", "ward=other"], "lags": [["b", "ward=surgical"]]}
    method = {"name": "notears_admm", "rounds": 20, **lags}
    notes = learned({**method, "standardise": True})["notes"]
    common = learned({**method, "standardise": "common"})["notes"]
    assert LAGGED_DIRECTIONS_NOTE in notes and LAGGED_DIRECTIONS_NOTE not in common
    assert "'pc'" not in LAGGED_DIRECTIONS_NOTE
    assert DIRECTIONS_NOTE not in {*notes, *common}
    for lags, sent in (((), True), ((("b",),), False)):
        text = NotearsAdmm(lags=lags).disclosure.text
        assert ("'pc'" in text) == ("last round's sum gives" in text) == sent


@pytest.mark.parametrize("learner", ["notears", "notears_mlp"])
def test_advice_after_a_failed_search_names_no_setting_already_used(
    learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"secagg.models.graphs.{learner}")
    search = {"notears": "notears", "notears_mlp": "mlp_search"}[learner]
    monkeypatch.setattr(f"secagg.models.graphs.{search}.MAX_ROUNDS", 0)
    X = np.random.default_rng(0).normal(size=(20, 2))
    data = X if learner == "notears_mlp" else Moments(("a", "b"), 20, np.zeros(2), X.T @ X)
    for standardise in (True, False):
        fit = getattr(module, learner)(data, standardise=standardise)
        assert not fit.converged and ("Standardise" in fit.notes[0]) != standardise


@pytest.mark.parametrize("kind", ["notears", "golem"])
def test_an_empty_graph_from_one_sum_has_an_explanation(kind: str) -> None:
    for settings, reason in (({"threshold": 9.0}, "threshold 9;"), ({"penalty": 100.0}, "penalty")):
        graph = learned({"name": "moments", "analyses": [{"kind": kind, **settings}]})
        (note,) = (note for note in graph["notes"] if note.startswith("no edge"))
        assert graph["edges"] == [] and reason in note


SLOWER = {"random_inputs": True, "gamma1": 1.3, "gamma2": 1.1, "rounds": 500}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, ["random_inputs", "gamma1"]),
        ({"random_inputs": True}, ["gamma1"]),
        pytest.param(SLOWER, [], marks=pytest.mark.system),
    ],
)
def test_an_empty_graph_of_networks_has_advice(settings: dict[str, Any], named: list[str]) -> None:
    """Weights below the threshold give a note that effects may still exist."""
    empty = {"name": "notears_mlp_admm", "hidden": 2, "threshold": 50.0, "variables": ["a", "b"]}
    empty |= {"gamma1": 3.0, "gamma2": 2.0}  # fast
    notes = learned({**empty, **settings})["notes"]
    assert any(note.startswith("no edge: no weight exceeds the threshold 50") for note in notes)
    (note,) = (n for n in notes if n.startswith("no edge does not mean that there are no"))
    assert re.findall(r"method\.(\w+)", note) == named
