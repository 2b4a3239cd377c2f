"""A policy file is read as docs/how-to/policies.md says, or not at all."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.runs.checkout import ROOT

from secagg.contracts.noise import Adjacency
from secagg.errors import JobError
from secagg.jobs.columns import Count
from secagg.jobs.design_matrix import declarations
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.policy import site_policy
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.privacy.policy.site_policy import (
    PROFILES,
    SitePolicy,
    parse_policy,
    policy_of,
    read_policy,
)

DOCS = (ROOT / "docs" / "how-to" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", DOCS, re.M | re.S)
TABLE = site_policy.__doc__ or ""
KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def parse(text: str) -> SitePolicy:
    return parse_policy(tomllib.loads(text), "north.policy.toml")


# --- reading -------------------------------------------------------------------------------------


def test_a_policy_needs_only_its_three_original_keys() -> None:
    policy = parse("min_sites = 4\nmin_records = 20\nmin_total_records = 200")
    assert policy.release == ReleasePolicy(4, 20, 200)
    off = {"min_level_records": 1, "min_cell_records": 1, "min_level_sites": 1}
    off |= {"max_exact_share": None, "protocols": ("any",), "modules": ("any",)}
    agreed = policy_of(policy.release)
    assert policy.model_copy(update=off).model_dump() == agreed.model_dump()
    assert (policy.is_own, agreed.is_own) == (True, False)
    assert policy.at_least(ReleasePolicy(5, 30)).is_own
    assert not agreed.at_least(ReleasePolicy(5, 30)).is_own
    assert (policy.on_record_sets, agreed.on_record_sets) == ((20, 0.9, False), (20, 0.9, True))
    assert policy_of(ReleasePolicy(2, 1)).max_leverage is None  # one record may be released
    unset = {k for k, v in policy.model_dump().items() if v is None}
    assert unset == set(SitePolicy.model_fields) - {
        "min_sites", "min_records", "min_total_records", "cohorts", "noise", "max_levels",
        "max_clipped_share", "max_refusals", "max_unreleased", "refusal_days", "max_leverage",
        "modules", "max_exact_share",
    }  # fmt: skip


def test_a_policy_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "north.policy.toml"
    path.write_text("profile = 5\n", encoding="utf-8")
    assert read_policy(path).release == ReleasePolicy(3, 5)


@pytest.mark.parametrize("content", [b"min_sites = ", b"\xff\xfe", b"min_sites = 3\nmin_sites = 4"])
def test_unreadable_policies_are_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "north.policy.toml"
    path.write_bytes(content)
    for unreadable in (path, tmp_path / "none.policy.toml", tmp_path):
        with pytest.raises(JobError):
            read_policy(unreadable)


WRONG = {
    "'min_site'": ["min_site = 3", "min_site = 3\nmin_sites = 1"],  # explains the other
    "'budget.epsilons'": ["[budget]\nepsilons = 1"],
    "'keys.coordinator'": ["[keys]\ncoordinator = []"],
    "'dominance.n'": ["[dominance]\nn = 2"],
    "'release'": ["release = {min_sites = 3}"],
    "min_sites": ["min_sites = 1"],
    "min_records": ["min_records = 0"],
    "min_level_records": ["min_level_records = 0"],
    "min_residual_dof": ["min_residual_dof = 0"],
    "max_parameters_ratio": ["max_parameters_ratio = 0", "max_parameters_ratio = inf"],
    "max_exact_share": ["max_exact_share = 0", "max_exact_share = inf"],
    "max_site_share": ["max_site_share = 1.5", "max_site_share = nan"],
    "profile": ["profile = 4", 'profile = "10"', "profile = [10]", "profile = true"],
    "methods": ['methods = "moments"'],
    "columns.0": ['columns = [""]'],
    "dataset": ['dataset = ""'],
    "cohorts": ['cohorts = "any"'],
    "noise": ['noise = "off"'],
    "dominance": ["dominance = 0.5", "profile = 10\ndominance = 0.5", "[dominance]\nlargest = 2"],
    "dominance.share": ["[dominance]\nshare = 0"],
    "dominance.remainder": ["[dominance]\nremainder = nan"],
    "budget": [
        "[budget]", "[budget]\nepsilon = 1", "[budget]\ndelta = 1e-6",
        "[budget]\nperiod_delta = 1e-6", "[budget]\nepsilon = 1\ndelta = 1e-6",
        "[budget]\nepsilon = 1\ndelta = 1e-6\nperiod_days = 3",
        "profile = 10\nbudget = 2", "profile = 10\n[budget]\nperiod_days = 365",
        "profile = 10\n[budget]\nperiod_epsilon = 4.1",
        'profile = 3\n[budget]\nepsilon = 4.1\nexact_jobs = "by_rules"',
    ],
    "budget.epsilon": ["[budget]\nepsilon = inf\ndelta = 1e-6",
                       "[budget]\nepsilon = nan\ndelta = 1e-6"],
    "budget.delta": ["[budget]\nepsilon = 1\ndelta = 1"],
    "budget.adjacency": ["[budget]\nepsilon = 1\ndelta = 1e-6\nadjacency = []"],
    "budget.unit.0": ['[budget]\nepsilon = 1\ndelta = 1e-6\nunit = ["site"]'],
    "keys.coordinators": ['[keys]\ncoordinators = ["0g"]', '[keys]\ncoordinators = ["00ff"]',
                          "[keys]\ncoordinators = []", "[keys]"],
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_an_error_is_one_line_that_names_the_key(key: str) -> None:
    for text in WRONG[key]:
        with pytest.raises(JobError) as caught:
            parse(text)
        assert key in caught.value.what, text
        assert caught.value.where == "north.policy.toml" and "\n" not in caught.value.line()


def test_keys_may_be_written_in_capitals() -> None:
    policy = parse(f'[keys]\ncoordinators = ["{KEY.upper()}"]')
    assert policy.keys is not None and policy.keys.coordinators == (KEY,)


# --- profiles ------------------------------------------------------------------------------------


def test_profiles_are_as_documented() -> None:
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", DOCS, re.M)
    assert [int(number) for number, _ in rows] == list(PROFILES)
    for number, row in rows:
        policy = parse(f"profile = {number}")
        sites, records, ratio, exact, dof, dominance, budget = map(str.strip, row.split("|")[:7])
        found = policy.dominance
        shown = f"{found.largest}, {found.share}, {found.remainder}" if found else "not set"
        assert (sites, records) == (str(policy.min_sites), str(policy.min_records))
        assert (ratio, exact) == (str(policy.max_parameters_ratio), str(policy.max_exact_share))
        assert dof == str(policy.min_residual_dof or "not set") and dominance == shown
        own = policy.budget
        assert own is not None and own.exact_jobs == "by_rules" and own.period_days is None
        assert budget == f"{own.epsilon:g}, {own.period_epsilon:g}"
        assert own.delta == own.period_delta == 1e-5
        assert re.search(rf"^{number} .* {own.epsilon:g}, {own.period_epsilon:g}  ", TABLE, re.M)


@pytest.mark.parametrize("profile", PROFILES)
def test_keys_stricter_than_the_profile_apply_and_looser_ones_are_errors(profile: int) -> None:
    asked = PROFILES[profile]
    tables = ("dominance", "budget")
    flat = {(key,): value for key, value in asked.items() if key not in tables}
    flat |= {(table, key): v for table in tables for key, v in asked.get(table, {}).items()}
    for path, value in flat.items():
        smaller = ("max_parameters_ratio", "max_exact_share", "share")
        smaller_is_stricter = path[0] == "budget" or path[-1] in smaller
        step = value / 50 if isinstance(value, float) else 1
        strict, loose = (value - step, value + step)[:: 1 if smaller_is_stricter else -1]
        key, head = path[-1], f"[{path[0]}]\n" if len(path) == 2 else ""
        if (key, loose) != ("min_sites", 1):
            with pytest.raises(JobError):
                parse(f"profile = {profile}\n{head}{key} = {loose}")
        for allowed in (strict, value):
            policy: Any = parse(f"profile = {profile}\n{head}{key} = {allowed}")
            assert getattr(getattr(policy, path[0]) if head else policy, key) == allowed


# --- with a job's rules --------------------------------------------------------------------------


def test_a_job_can_only_make_a_policy_stricter() -> None:
    policy = parse('profile = 10\nmethods = ["moments"]')
    assert policy.at_least(ReleasePolicy(2, 3)).release == ReleasePolicy(3, 10)
    stricter = policy.at_least(ReleasePolicy(5, 30, 400))
    assert stricter.release == ReleasePolicy(5, 30, 400)
    assert stricter.methods == ("moments",) and stricter.dominance == policy.dominance
    assert policy.at_least(ReleasePolicy(None, None)).release == policy.release


def test_a_job_does_not_set_unset_policy_keys() -> None:
    assert parse("min_records = 5").at_least(ReleasePolicy(3, 3)).release.min_sites is None


# --- budgets -------------------------------------------------------------------------------------


def test_a_period_is_a_cap_for_the_ledger() -> None:
    text = "[budget]\nperiod_epsilon = 4\nperiod_delta = 1e-5\n"
    both = parse(text + "period_days = 365").budget
    assert both is not None
    assert both.caps == tuple(Cap(4.0, 1e-5, 365.0, adjacency) for adjacency in Adjacency)
    ever = parse(text + 'adjacency = ["add_remove"]').budget
    assert ever is not None and ever.caps == (Cap(4.0, 1e-5, None, Adjacency.ADD_REMOVE),)


def test_the_caps_of_a_profile_leave_exact_jobs_to_the_rules_on_records() -> None:
    policy, refusing = parse("profile = 10"), parse("profile = 10\n[budget]\nepsilon = 1")
    caps = tuple(Cap(4.0, 1e-5, None, each, noised_only=True) for each in Adjacency)
    assert (policy.caps(exact=False), policy.caps(exact=True)) == (caps, ())
    caps = tuple(replace(cap, noised_only=False) for cap in caps)
    assert refusing.caps(exact=False) == refusing.caps(exact=True) == caps
    assert parse("min_sites = 3").caps(exact=False) == ()


# --- docs/how-to/policies.md ---------------------------------------------------------------------


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_example_policy_allows_a_job(text: str) -> None:
    min_sites, min_records, _ = parse(text).release.thresholds("north")
    assert min_sites >= 2 and min_records >= 1


def test_each_profile_has_an_example() -> None:
    assert {parse(text).profile for text in EXAMPLES} == {None, *PROFILES}
    used = {key for text in EXAMPLES for key in tomllib.loads(text)}
    assert used >= set(SitePolicy.model_fields) - {"min_residual_dof"}


LOGGED = {"high": 50, "transform": "log"}


def test_a_count_is_pinned_with_its_bound() -> None:
    def pinned(**keys: Any) -> SitePolicy:
        return parse_policy({"columns": {"falls": {"type": "count", **keys}}}, "policy.toml")

    policy = pinned(high=50)
    declared = declarations({"falls": Count(type="count", high=50, unit="falls")})["falls"]
    assert not policy.forbids("falls", declared)
    assert policy.forbids("falls", declared | {"high": 51})
    for wrong in ({}, {"high": 50, "low": 0}, {"high": 50, "levels": ["0", "1"]}, LOGGED):
        with pytest.raises(JobError):
            pinned(**wrong)
