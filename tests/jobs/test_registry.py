"""From a job's tables to methods and protocols: one line for each mistake."""

import importlib
import re
import tomllib
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import pytest

from secagg.core.validation import build, unknown_key
from secagg.errors import JobError
from secagg.jobs.registry import METHODS, Named, make_method, make_protocol, placements
from secagg.models.moments.analyses import KINDS
from secagg.models.moments.method import PooledMoments


@dataclass(frozen=True)
class Some:
    outcome: str
    names: tuple[str, ...] = ()
    level: float = 0.95
    rounds: int = 3
    kind: Literal["a", "b"] = "a"
    threshold: float | Literal["ebic"] | None = None
    derived: int = field(default=0, init=False)


def test_settings_get_defaults_and_declared_types() -> None:
    some = build(Some, {"outcome": "y", "names": ["a", "b"], "level": 1}, "method")
    assert some == Some("y", ("a", "b"), 1.0, 3)
    assert type(some.level) is float and type(some.names) is tuple


def test_intervals_have_the_same_default_level_in_all_methods() -> None:
    kinds = [getattr(importlib.import_module(module), name) for module, name in METHODS.values()]
    levels = {
        (kind.__name__, f.default)
        for kind in [*kinds, *KINDS.values()]
        for f in fields(kind)
        if f.name == "level"
    }
    assert len(levels) > 6
    assert {level for _, level in levels} == {0.95}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "outcome"),
        ({"outcome": 3}, "outcome"),
        ({"outcome": "y", "names": "abc"}, "names"),
        ({"outcome": "y", "names": [1]}, "names.0"),
        ({"outcome": "y", "level": "high"}, "level"),
        ({"outcome": "y", "rounds": 2.5}, "rounds"),
        ({"outcome": "y", "rounds": True}, "rounds"),
        ({"outcome": "y", "threshold": "abc"}, "threshold"),
        ({"outcome": "y", "kind": "c"}, "kind"),
        ({"outcome": "y", "lvel": 1}, "unknown key 'lvel'"),
        ({"outcome": "y", "derived": 1}, "unknown key 'derived'"),
    ],
)
def test_mistakes_name_their_key_on_one_line(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(JobError) as caught:
        build(Some, settings, "method")
    assert caught.value.what.partition(": ")[0] == key and "\n" not in caught.value.line()


def test_only_similar_keys_are_suggested() -> None:
    """Two thirds of the letters, as of these, may be in common by chance."""
    known = ["noise_scale", "noise_shape", "spike_ratio", "lambda_floor"]
    for key, advice in {
        "iterations": "Known keys here: lambda_floor, noise_scale, noise_shape, spike_ratio.",
        "noise": "Known keys here: ",
        "lambda": "Did you mean 'lambda_floor'?",
        "spike_ration": "Did you mean 'spike_ratio'?",
    }.items():
        assert advice in unknown_key("method", key, known).line()


METHOD_MISTAKES = [
    ({"name": "momens"}, "method.name", "", "'moments'"),
    ({"name": "svm"}, "method.name", "", "fedavg, fedlin_full,"),
    ({"name": "moments", "bits": 1}, "method", "", ""),
    ({"name": "notears_admm", "lags": ["a_1", "b_1"]}, "method", "lags", '[["age_1", "bmi_1"]]'),
    ({"name": "moments", "truth": ["a", "b"]}, "method", "truth", '[["cause", "effect"]]'),
    ({"name": "moments", "analyses": "pc"}, "method", "analyses", '[{ kind = "pc" }]'),
    ({"name": "moments", "analyses": ["pc"]}, "method", "analyses", '[{ kind = "pc" }]'),
    ({"name": "notears_admm", "lags": "a_1"}, "method", "lags", ""),
    ({"name": "notears_admm", "lags": [["a_1", 2]]}, "method", "lags.0.1", ""),
    ({"name": "notears_admm", "standardise": "comon"}, "method", "standardise", "'common'"),
    ({"name": "logistic"}, "method", "outcome", ""),
    ({"name": "notears_admm", "centre": "site"}, "method.centre", "", ""),
    ({"name": "local_graphs", "centre": "pooled"}, "method.centre", "", ""),
    ({"name": "notears_mlp_admm", "centre": "site"}, "method", "", ""),
]
PROTOCOL_MISTAKES = [
    ({"name": "aditive"}, "protocol.name", "", "'additive'"),
    ({"name": ""}, "protocol.name", "", ""),
    ({"name": "plain", "aggregators": 2}, "protocol", "", ""),
    ({"name": "additive", "aggregators": 1}, "protocol.aggregators", "", ""),
    ({"name": "additive", "aggregators": "two"}, "protocol", "aggregators", ""),
]


@pytest.mark.parametrize(
    ("make", "named", "where", "key", "advice"),
    [(make_method, *row) for row in METHOD_MISTAKES]
    + [(make_protocol, *row) for row in PROTOCOL_MISTAKES],
)
def test_errors_of_named_components_give_advice(
    make: Any, named: dict[str, Any], where: str, key: str, advice: str
) -> None:
    with pytest.raises(JobError) as caught:
        make(Named.model_validate(named))
    error = caught.value
    assert error.where == where and error.what.startswith(key and f"{key}: ")
    assert advice in error.line()


@pytest.mark.parametrize("kind", KINDS)
def test_the_listed_line_for_an_analysis_builds_it(kind: str) -> None:
    """What the line says to write is a job that is built."""
    with pytest.raises(JobError) as caught:
        make_method(Named(name=kind))
    written = caught.value.advice.removeprefix("Write: ").partition(", and put")[0]
    name, analyses = written.split(", ", 1)
    method = make_method(Named.model_validate(tomllib.loads(f"{name}\n{analyses}")))
    assert isinstance(method, PooledMoments) and method.analyses == ({"kind": kind},)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_without_noise_names_one_of_its_users_that_has_noise(name: str) -> None:
    known = placements()
    words = re.findall(r"\w+", known[name].instead)
    others = [word for word in words if word in METHODS and word != name]  # families, too
    assert known[name].where or others
    for other in others:
        assert known[other].where
