"""A policy file is read as docs/how-to/policies.md says, or not at all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.checkout import ROOT

from secagg.contracts.noise import Adjacency
from secagg.errors import JobError
from secagg.privacy.accounting.budget import Cap
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
KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def parse(text: str) -> SitePolicy:
    return parse_policy(tomllib.loads(text), "north.policy.toml")


def wrong(match: str) -> pytest.RaisesExc[JobError]:
    return pytest.raises(JobError, match=match)


# --- reading -------------------------------------------------------------------------------------


def test_the_keys_of_before_are_still_all_that_is_needed() -> None:
    policy = parse("min_sites = 4\nmin_records = 20\nmin_total_records = 200")
    assert policy.release == ReleasePolicy(4, 20, 200)
    assert policy == policy_of(ReleasePolicy(4, 20, 200))
    unset = {k for k, v in policy.model_dump().items() if v is None}
    assert unset == set(SitePolicy.model_fields) - {
        "min_sites", "min_records", "min_total_records", "cohorts", "noise"
    }  # fmt: skip


def test_nothing_set_is_read_and_will_refuse() -> None:
    assert parse("").release == ReleasePolicy(None, None, None)
    assert parse("[dominance]\nshare = 0.5").release == ReleasePolicy(None, None, None)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "north.policy.toml"
    path.write_text("profile = 5\n", encoding="utf-8")
    assert read_policy(path).release == ReleasePolicy(3, 5)


@pytest.mark.parametrize("content", [b"min_sites = ", b"\xff\xfe", b"min_sites = 3\nmin_sites = 4"])
def test_what_cannot_be_read_is_no_policy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "north.policy.toml"
    path.write_bytes(content)
    with wrong("cannot be read"):
        read_policy(path)
    with wrong("cannot be read"):
        read_policy(tmp_path / "none.policy.toml")
    with wrong("cannot be read"):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("min_site = 3", "unknown key 'min_site'. Did you mean 'min_sites'"),
        ("min_site = 3\nmin_sites = 1", "unknown key 'min_site'"),  # explains the other
        ("[budget]\nepsilons = 1", "unknown key 'budget.epsilons'. Did you mean 'epsilon'"),
        ("[keys]\ncoordinator = []", "unknown key 'keys.coordinator'. Did you mean 'coordinators'"),
        ("[dominance]\nn = 2", "unknown key 'dominance.n'. Known keys here: largest, remainder"),
        ("release = {min_sites = 3}", "unknown key 'release'"),
        ("min_sites = 1", "min_sites: .* greater than or equal to 2"),
        ("min_records = 0", "min_records: "),
        ("min_level_records = 0", "min_level_records: "),
        ("min_residual_dof = 0", "min_residual_dof: "),
        ("max_parameters_ratio = 0", "max_parameters_ratio: "),
        ("max_parameters_ratio = inf", "max_parameters_ratio: .*finite"),
        ("max_site_share = 1.5", "max_site_share: "),
        ("max_site_share = nan", "max_site_share: "),
        ("profile = 4", "profile: input should be 3, 5, 7, 10 or 11"),
        ('profile = "10"', "profile: input should be 3, 5, 7, 10 or 11"),
        ("profile = [10]", "profile: input should be 3, 5, 7, 10 or 11"),
        ("profile = true", "profile: input should be 3, 5, 7, 10 or 11"),
        ('methods = "moments"', "methods: must be a list"),
        ('columns = [""]', "columns.0: "),
        ('dataset = ""', "dataset: "),
        ('cohorts = "any"', "cohorts: input should be 'checked' or 'fixed'"),
        ('noise = "off"', "noise: input should be 'any', 'required' or 'own'"),
        ("dominance = 0.5", "dominance: must be a table"),
        ("profile = 10\ndominance = 0.5", "dominance: must be a table"),
        ("[dominance]\nlargest = 2", "dominance: set share, remainder, or both"),
        ("[dominance]\nshare = 0", "dominance.share: "),
        ("[dominance]\nremainder = nan", "dominance.remainder: "),
        ("[budget]", "budget: set epsilon and delta, or "),
        ("[budget]\nepsilon = 1", "budget: epsilon and delta belong together"),
        ("[budget]\ndelta = 1e-6", "budget: epsilon and delta belong together"),
        ("[budget]\nepsilon = inf\ndelta = 1e-6", "budget.epsilon: "),
        ("[budget]\nepsilon = nan\ndelta = 1e-6", "budget.epsilon: "),
        ("[budget]\nepsilon = 1\ndelta = 1", "budget.delta: "),
        ("[budget]\nperiod_delta = 1e-6", "period_epsilon and period_delta belong together"),
        ("[budget]\nepsilon = 1\ndelta = 1e-6\nperiod_days = 3", "period_days needs"),
        ("[budget]\nepsilon = 1\ndelta = 1e-6\nadjacency = []", "budget.adjacency: "),
        ('[budget]\nepsilon = 1\ndelta = 1e-6\nunit = ["site"]', "budget.unit.0: "),
        ('[keys]\ncoordinators = ["0g"]', "is not hexadecimal"),
        ('[keys]\ncoordinators = ["00ff"]', "32 bytes, not 2"),
        ("[keys]\ncoordinators = []", "keys.coordinators: "),
        ("[keys]", "keys.coordinators: is required"),
    ],
)
def test_one_line_says_what_is_wrong(text: str, match: str) -> None:
    with wrong(match) as caught:
        parse(text)
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
        sites, records, ratio, dof, dominance = [cell.strip() for cell in row.split("|")[:5]]
        found = policy.dominance
        shown = f"{found.largest}, {found.share}, {found.remainder}" if found else "not set"
        assert (sites, records) == (str(policy.min_sites), str(policy.min_records))
        assert ratio == str(policy.max_parameters_ratio)
        assert dof == str(policy.min_residual_dof or "not set") and dominance == shown


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_sets_what_refuses_when_unset(profile: int) -> None:
    min_sites, min_records, _ = parse(f"profile = {profile}").release.thresholds("north")
    assert min_sites >= 3 and min_records >= profile


@pytest.mark.parametrize("profile", PROFILES)
def test_stricter_keys_stand_and_looser_ones_are_errors(profile: int) -> None:
    asked = PROFILES[profile]
    flat = {(key,): value for key, value in asked.items() if key != "dominance"}
    flat |= {("dominance", key): value for key, value in asked.get("dominance", {}).items()}
    for path, value in flat.items():
        smaller_is_stricter = path[-1] in ("max_parameters_ratio", "share")
        step = 0.01 if isinstance(value, float) else 1
        strict, loose = (value - step, value + step)[:: 1 if smaller_is_stricter else -1]
        key, head = path[-1], "[dominance]\n" if len(path) == 2 else ""
        if (key, loose) != ("min_sites", 1):
            with wrong(f"{'.'.join(path)} = .* is looser than the profile's {value}"):
                parse(f"profile = {profile}\n{head}{key} = {loose}")
        for allowed in (strict, value):
            policy: Any = parse(f"profile = {profile}\n{head}{key} = {allowed}")
            assert getattr(policy.dominance if head else policy, key) == allowed


def test_without_a_profile_anything_may_be_written() -> None:
    policy = parse("min_sites = 2\nmin_records = 1\nmax_parameters_ratio = 9")
    assert policy.release == ReleasePolicy(2, 1) and policy.max_parameters_ratio == 9


# --- with a job's rules --------------------------------------------------------------------------


def test_a_job_can_only_make_it_stricter() -> None:
    policy = parse('profile = 10\nmethods = ["moments"]')
    assert policy.at_least(ReleasePolicy(2, 3)).release == ReleasePolicy(3, 10)
    stricter = policy.at_least(ReleasePolicy(5, 30, 400))
    assert stricter.release == ReleasePolicy(5, 30, 400)
    assert stricter.methods == ("moments",) and stricter.dominance == policy.dominance
    assert policy.at_least(ReleasePolicy(None, None)).release == policy.release


def test_a_job_does_not_fill_in_what_is_unset() -> None:
    assert parse("min_records = 5").at_least(ReleasePolicy(3, 3)).release.min_sites is None


# --- budgets -------------------------------------------------------------------------------------


def test_a_period_is_a_cap_for_the_ledger() -> None:
    text = "[budget]\nperiod_epsilon = 4\nperiod_delta = 1e-5\n"
    both = parse(text + "period_days = 365").budget
    assert both is not None
    assert both.caps == tuple(Cap(4.0, 1e-5, 365.0, adjacency) for adjacency in Adjacency)
    ever = parse(text + 'adjacency = ["add_remove"]').budget
    assert ever is not None and ever.caps == (Cap(4.0, 1e-5, None, Adjacency.ADD_REMOVE),)
    job = parse("[budget]\nepsilon = 1\ndelta = 1e-6").budget
    assert job is not None and job.caps == ()


# --- docs/how-to/policies.md ---------------------------------------------------------------------


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_example_is_a_policy_that_allows_something(text: str) -> None:
    min_sites, min_records, _ = parse(text).release.thresholds("north")
    assert min_sites >= 2 and min_records >= 1


def test_there_is_an_example_for_each_profile() -> None:
    assert {parse(text).profile for text in EXAMPLES} == {None, *PROFILES}
    used = {key for text in EXAMPLES for key in tomllib.loads(text)}
    assert used >= set(SitePolicy.model_fields) - {"min_residual_dof"}
