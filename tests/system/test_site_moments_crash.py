"""Noise once at the site: a site that is killed around its draw draws the same noise again."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.crashes.private_killed import VICTIM, told
from support.runs.jobs import TOML, write_job

from secagg.contracts.noise import SITE_MOMENTS
from secagg.core.randomness import seeded_random
from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import load_job
from secagg.privacy.sampling.sampler import sample_weighted
from secagg.sessions.planned_job import plan_job
from secagg.sessions.site_moments import site_moments_spec
from secagg.sessions.sum_plan import plan_sum

PRIVATE = """
[privacy]
placement = "site"
epsilon = 8
delta = 1e-6
"""
ABOUT = {"protocol": "masked", "placement": "site", "epsilon": 8.0}
RUNS: tuple[dict[str, Any], ...] = (
    {"how": "steps", **ABOUT},
    {"how": "delays", "deaths": 4, **ABOUT},
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toml = TOML.replace('name = "moments"', 'name = "notears_admm"\nrounds = 2')
    return write_job(tmp_path_factory.mktemp("site"), toml + PRIVATE)


@pytest.fixture(scope="module")
def saw(job: Path) -> Any:
    return told(job.parent, RUNS)


def draws(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["kind"] == kind and r["content"]["stage"] == SITE_MOMENTS]


def test_one_charge_has_one_draw(job: Path, saw: Any) -> None:
    """Over two runs, and however often the site was killed: at least 50 times."""
    asked = [one for played in saw for one in played["seen"]]
    assert sum(one["killed"] for one in asked) >= 50
    (entry,) = draws(saw[-1]["ledgers"][VICTIM], "entry")
    noise = {drawn for one in asked for drawn in one["noise"]}
    planned = plan_job(load_job(job))
    public = planned.public
    law = public.noise[SITE_MOMENTS]
    size = plan_sum(site_moments_spec(public), 1, noise=law).noised
    random = seeded_random(bytes.fromhex(entry["seed"]))
    again = sample_weighted(law.variance, law.weights, size, random)
    assert noise == {hashlib.sha256(again.tobytes()).hexdigest()}


def test_the_site_was_killed_before_and_after_its_draw(saw: Any) -> None:
    hit = Counter(one["last"] for one in saw[0]["seen"] if one["killed"])
    assert all(hit[step] for step in ("BEGIN", "INSERT entry", "COMMIT", "sample_weighted", "send"))


def test_no_contribution_leaves_before_its_charge(saw: Any) -> None:
    for played in saw:
        for one in played["seen"]:
            if one["sent"] and one["phase"] == "mask":
                assert len(draws(one["releases"], "entry")) == 1


def test_the_second_run_costs_nothing(saw: Any) -> None:
    costs = [
        row["content"]["cost"]["add_remove"]["mu"]
        for row in saw[-1]["ledgers"][VICTIM]
        if row["kind"] == "entry"
    ]
    assert sum(cost > 0 for cost in costs) == 1
    for played in saw:
        verify_folder(Path(played["out"]))
