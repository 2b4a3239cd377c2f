"""From a job's tables to methods and protocols: one line for each mistake."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from secagg.core.validation import build, unknown_key
from secagg.errors import JobError
from secagg.jobs.job import Named
from secagg.jobs.registry import (
    METHODS,
    PROTOCOLS,
    describe,
    make_method,
    make_protocol,
    settings_of,
)
from secagg.models.moments.analyses import KINDS
from secagg.models.moments.method import PooledMoments


@dataclass(frozen=True)
class Some:
    outcome: str
    names: tuple[str, ...] = ()
    level: float = 0.95
    rounds: int = 3
    kind: Literal["a", "b"] = "a"
    derived: int = field(default=0, init=False)


def test_defaults_and_types() -> None:
    some = build(Some, {"outcome": "y", "names": ["a", "b"], "level": 1}, "method")
    assert some == Some("y", ("a", "b"), 1.0, 3)
    assert type(some.level) is float and type(some.names) is tuple


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "method: outcome: is required"),
        ({"outcome": 3}, "method: outcome: input should be a valid string (got 3)"),
        ({"outcome": "y", "names": "abc"}, "method: names: "),
        ({"outcome": "y", "names": [1]}, "method: names.0: "),
        ({"outcome": "y", "level": "high"}, "method: level: "),
        ({"outcome": "y", "rounds": 2.5}, "method: rounds: "),
        ({"outcome": "y", "kind": "c"}, "method: kind: "),
        ({"outcome": "y", "lvel": 1}, "method: unknown key 'lvel'. Did you mean 'level'?"),
        ({"outcome": "y", "zzz": 1}, "Known keys here: kind, level, names, outcome, rounds."),
        ({"outcome": "y", "derived": 1}, "unknown key 'derived'"),
    ],
)
def test_mistakes(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as caught:
        build(Some, settings, "method")
    assert line in caught.value.line() and "\n" not in caught.value.line()


def test_only_what_is_close_is_suggested() -> None:
    """Two thirds of the letters, as of these, may be in common by chance."""
    known = ["noise_scale", "noise_shape", "spike_ratio", "lambda_floor"]
    for key, advice in {
        "iterations": "Known keys here: lambda_floor, noise_scale, noise_shape, spike_ratio.",
        "noise": "Known keys here: ",
        "lambda": "Did you mean 'lambda_floor'?",
        "spike_ration": "Did you mean 'spike_ratio'?",
    }.items():
        assert advice in unknown_key("method", key, known).line()


def test_nothing_to_set() -> None:
    assert "Known keys here: none." in unknown_key("protocol", "x", []).line()


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ({"name": "momens"}, "method.name: no method 'momens'. Did you mean 'moments'?"),
        (
            {"name": "svm"},
            "method.name: no method 'svm'. Known keys here: fedavg, fedlin_hm1,",
        ),
        ({"name": "moments", "bits": 1}, "method: unknown key 'bits'"),
        (
            {"name": "NOTEARS", "threshold": 0.1},
            "method.name: 'NOTEARS' is an analysis of the method 'moments'. Write: "
            'name = "moments", analyses = [{ kind = "notears" }], with the settings',
        ),
        (
            {"name": "notears_admm", "lags": ["a_1", "b_1"]},
            'method: lags: must be a list of lists, for example [["age_1", "bmi_1"]] (got \'a_1\')',
        ),
        (
            {"name": "moments", "truth": ["a", "b"]},
            'method: truth: must be a list of lists, for example [["cause", "effect"]] ',
        ),
        (
            {"name": "moments", "analyses": "pc"},
            'method: analyses: must be a list, for example [{ kind = "pc" }] ',
        ),
        (
            {"name": "moments", "analyses": ["pc"]},
            'method: analyses: must be a list of tables, for example [{ kind = "pc" }] ',
        ),
        ({"name": "notears_admm", "lags": "a_1"}, "method: lags: must be a list, for example"),
        ({"name": "notears_admm", "lags": [["a_1", 2]]}, "method: lags.0.1: input should be a"),
        ({"name": "logistic"}, "method: outcome: is required"),
        (
            {"name": "notears_admm", "centre": "site"},
            "method.centre: notears_admm always subtracts each site's own means. Leave it out.",
        ),
        (
            {"name": "local_graphs", "centre": "pooled"},
            "method.centre: local_graphs always subtracts",
        ),
        ({"name": "notears_mlp_admm", "centre": "site"}, "method: unknown key 'centre'"),
    ],
)
def test_methods_by_name(named: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as caught:
        make_method(Named.model_validate(named))
    assert line in caught.value.line()


@pytest.mark.parametrize("kind", KINDS)
def test_how_to_ask_for_an_analysis(kind: str) -> None:
    """What the line says to write is a job that is built."""
    with pytest.raises(JobError, match="is an analysis of the method 'moments'") as caught:
        make_method(Named(name=kind))
    written = caught.value.advice.removeprefix("Write: ").partition(", with")[0]
    name, analyses = written.split(", ", 1)
    method = make_method(Named.model_validate(tomllib.loads(f"{name}\n{analyses}")))
    assert isinstance(method, PooledMoments) and method.analyses == ({"kind": kind},)


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ({"name": "aditive"}, "protocol.name: no protocol 'aditive'. Did you mean 'additive'?"),
        ({"name": ""}, "no protocol ''"),
        ({"name": "plain", "aggregators": 2}, "protocol: unknown key 'aggregators'"),
        ({"name": "additive", "aggregators": 1}, "protocol.aggregators: "),
        ({"name": "additive", "aggregators": "two"}, "protocol: aggregators: "),
    ],
)
def test_protocols_by_name(named: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as caught:
        make_protocol(Named.model_validate(named))
    assert line in caught.value.line()


def test_settings_are_shown_with_their_defaults() -> None:
    assert settings_of(make_protocol(Named(name="additive"))) == {"aggregators": 2}


@pytest.mark.parametrize("listed", [METHODS, PROTOCOLS])
def test_everything_listed_can_be_described(listed: dict[str, tuple[str, str]]) -> None:
    described = dict(describe(listed))
    assert described.keys() == listed.keys()
    assert all(len(text) > 20 and text.endswith(".") for text in described.values())
