"""The coordinator writes the job: any value in it is accepted or named as an error of the job."""

import copy
import datetime
import random
import tomllib
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from support.runs.checkout import ROOT

from secagg.errors import InternalError, JobError, SecaggError
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job

ODD: list[Any] = [
    ["x"], [[1]], [], {}, {"a": 1}, [True], [None], ["age", "age"], True, 0, -1, 3, 1.5,
    float("nan"), float("inf"), -1e308, 10**30, "", "age", "x" * 5000, datetime.date(2020, 1, 1),
]  # fmt: skip
JOBS = sorted(  # and no file of an experiment
    path for path in ROOT.glob("examples/*/*.toml") if "\n[method]\n" in path.read_text("utf-8")
)


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return where the values of a job are, tables and lists included."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


def replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    whole = copy.deepcopy(node)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return whole


def plan(raw: dict[str, Any]) -> None:
    columns = raw["columns"] if isinstance(raw.get("columns"), dict) else {}
    plan_job(parse_job(raw), {name: pd.DataFrame({c: [] for c in columns}) for name in "abc"})


def check(seed: int, times: int) -> None:
    choose = random.Random(seed)
    for _ in range(times):
        raw = tomllib.loads(choose.choice(JOBS).read_text(encoding="utf-8"))
        raw["sites"] = {"max_rows": 1000}  # the tables come from Python
        path, value = choose.choice([*paths(raw)]), choose.choice(ODD)
        try:
            plan(replaced(raw, path, value))
        except InternalError as error:
            raise AssertionError((path, value)) from error
        except SecaggError as error:
            assert error.where and error.what, (path, value)
        except Exception as error:
            raise AssertionError((path, value)) from error


def test_a_kind_that_is_no_text_is_an_error_of_the_job() -> None:
    raw = tomllib.loads((ROOT / "examples/heart-disease/linear.toml").read_text(encoding="utf-8"))
    raw["sites"] = {"max_rows": 1000}
    raw["method"]["analyses"] = [{"kind": ["x"]}]
    with pytest.raises(SecaggError) as caught:
        plan(raw)
    assert caught.value.where == "method.analyses[1]"


@pytest.mark.neural
def test_a_date_among_a_modules_settings_is_an_error_of_the_job() -> None:
    column = {"type": "continuous", "low": -1, "high": 1}
    since = datetime.date(2020, 1, 1)
    method = {"name": "torch_module", "outcome": "y", "module_settings": {"since": since}}
    raw = {
        "title": "t", "sites": {"max_rows": 1000}, "columns": {"x": column, "y": column},
        "method": method, "release": {"min_sites": 3, "min_records": 5},
    }  # fmt: skip
    with pytest.raises(JobError) as caught:
        plan(raw)
    assert caught.value.where == "method.module_settings"


def test_odd_values_are_named() -> None:
    check(seed=1, times=40)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(4))
def test_many_odd_values_are_named(seed: int) -> None:
    check(seed, times=2500)
