"""docs/jobs.md names every setting under its heading, with its default, and its jobs are jobs."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
import shlex
import tomllib
from collections import Counter
from typing import Any

import pytest
from support.checkout import ROOT
from support.reports import job, tables
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.errors import JobError
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import (
    Binary,
    Categorical,
    Continuous,
    Engine,
    Job,
    Named,
    Privacy,
    Release,
    Simulation,
    Sites,
    parse_job,
)
from secagg.jobs.registry import METHODS, PROTOCOLS, make_method, make_protocol
from secagg.models.moments.analyses import KINDS, build_analysis
from secagg.models.notears_admm.coordinator import Schedule
from secagg.privacy.accounting.budget import Cap, Cost, affordable
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.runs.simulate import simulate_sites

TEXT = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
JOBS = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.M | re.S)
PLAIN = str.maketrans("", "", "`[]")

SECTIONS: dict[str, Any] = {
    "The job": Job,
    "sites": Sites,
    "continuous": Continuous,
    "binary": Binary,
    "categorical": Categorical,
    "release": Release,
    "privacy": Privacy,
    "simulation": Simulation,
    "engine": Engine,
    **{f"Method {name}": place for name, place in METHODS.items()},
    **KINDS,
    **PROTOCOLS,
}


def fields(kind: Any) -> dict[str, Any]:
    """Return the settings of a model or dataclass with their defaults (`...` where required)."""
    if isinstance(kind, tuple):
        kind = getattr(importlib.import_module(kind[0]), kind[1])
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return {
            f.name: ... if f.default is missing else f.default for f in dataclasses.fields(kind)
        }
    return {
        name: ... if field.is_required() else field.default
        for name, field in kind.model_fields.items()
    }


def documented(section: str) -> dict[str, str]:
    """Return key -> default, as written in the table of keys below this heading."""
    for part in re.split(r"^#+ ", TEXT, flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        if heading.translate(PLAIN) == section:
            table = body.partition("| key |")[2]
            rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|", table, re.M)
            return {key: default for key, default in rows if key != "name" or section == "engine"}
    raise AssertionError(f"no heading {section!r}")


def written(default: Any) -> str | None:
    """Return how the default of a key is written, or None where words describe it."""
    if default is ...:
        return "required"
    if default is None:
        return "unset"
    if isinstance(default, bool | int | float | str) or default == ("0", "1"):
        return f"`{json.dumps(default)}`"
    return None


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_documented_with_its_default(section: str) -> None:
    known, found = fields(SECTIONS[section]), documented(section)
    assert found.keys() == known.keys()
    for key, default in known.items():
        wanted = written(default)
        assert wanted is None or found[key].partition(":")[0] == wanted, key


def test_methods_and_protocols_are_named() -> None:
    assert list(Named.model_fields) == ["name"]
    row = re.findall(r"^\| `name` \|.*$", TEXT, re.M)[0]  # the other one is the engine's
    assert set(re.findall(r'"(\w+)"', row)) == {*METHODS, *PROTOCOLS}


@pytest.mark.parametrize("method", ["notears_admm", "notears_mlp_admm"])
@pytest.mark.parametrize("key", ["rho1", "rho2", "gamma1", "gamma2"])
def test_ranges_of_penalties_are_those_that_are_checked(method: str, key: str) -> None:
    section = TEXT.partition(f"## Method `{method}`")[2]
    (row,) = re.findall(rf"^\| `{key}` .*$", section.partition("\n## ")[0], re.M)
    rho = re.search(r"from (\S+) to (\S+) \|$", row)
    gamma = re.search(r"above (\S+) and at most (\S+) \|$", row)
    low, high = map(float, (rho or gamma).groups())  # type: ignore[union-attr]  # one of the two
    beyond = (0.9 * low if rho else low, 1.1 * high)
    within = (low if rho else 1.01 * low, high)
    for value in within:
        Schedule(**{key: value}).check()
    for value in beyond:
        with pytest.raises(JobError, match=key):
            Schedule(**{key: value}).check()


def test_there_are_jobs() -> None:
    assert len(JOBS) == TEXT.count("```toml") >= 3


@pytest.mark.parametrize("text", JOBS)
def test_each_job_can_be_planned(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())  # needs no causal-learn
    job = parse_job(tomllib.loads(text))
    public = public_facts(job, ("north", "south"))
    assert make_method(job.method).stages(public)
    assert make_protocol(job.protocol).name == job.protocol.name


def test_the_line_that_runs_the_example_with_noise_in_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (line,) = re.findall(r"^secagg run (.*placement=round.*)$", TEXT, re.M)
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, ["plan", *shlex.split(line), "--json"], catch_exceptions=False)
    promise = json.loads(done.stdout)["differential_privacy"]
    assert (promise["placement"], promise["feasibility"]["verdict"]) == ("round", "green")


def test_what_is_left_of_a_budget() -> None:
    """The example in policy.md, worked out."""
    policy = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    found = re.search(
        r"a cap of (\d) at delta (1e-6) a job of epsilon (\d) leaves (\S+), not 1", policy
    )
    assert found is not None
    cap, delta, spent, left = map(float, found.groups())
    paid = Gaussian(gaussian_mu(spent, delta))
    rest = affordable(Cap(cap, delta), Counter([Cost(paid, paid)]), 0.0, delta)
    assert left == math.floor(100 * rest) / 100


@pytest.mark.parametrize("name", ["sparse_regression", "sparse_directed"])
def test_what_a_site_keeps_is_described(name: str) -> None:
    told = TEXT.partition("In it:\n")[2].partition("\nA site that took no part")[0]
    table, _, directed = told.partition("`sparse_directed` leaves instead")
    words = set(re.findall(r"`(\w+)`", table if name == "sparse_regression" else directed))
    words -= {name, "scale"}
    _, kept = simulate_sites(job(name, "plain"), tables(3))
    found = set(re.findall(r'"(\w+)":', json.dumps(kept["site 0"].summary)))
    of_every_file = {"site", "title", "session", "method", "records_here"}
    assert words - {"run", "own"} - of_every_file <= found


def test_the_outcome_may_be_a_single_variable() -> None:
    """As the table of `ols` says."""
    public = public_facts(parse_job(tomllib.loads(JOBS[0])), ("north", "south"))
    build_analysis({"kind": "ols", "outcome": "ward=other", "predictors": ["age"]}, public, "here")
