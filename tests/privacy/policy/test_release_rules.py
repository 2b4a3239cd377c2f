"""The gate's table, row by row, for each of the three times it is checked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from secagg.errors import JobError, PolicyRefusal
from secagg.privacy.policy.release_rules import (
    ReleasePolicy,
    check_invitation,
    check_records,
    check_release,
)
from secagg.privacy.policy.site_policy import read_policy

ABC = ("a", "b", "c")
THREE = ReleasePolicy(min_sites=3, min_records=10)
LENIENT = ReleasePolicy(min_sites=2, min_records=1)


def signed(threshold: int, sites: tuple[str, ...] = ABC) -> dict[str, int]:
    return dict.fromkeys(sites, threshold)


def refused(match: str) -> pytest.RaisesExc[PolicyRefusal]:
    return pytest.raises(PolicyRefusal, match=match)


# --- unset ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (ReleasePolicy(None, 10), "min_sites"),
        (ReleasePolicy(3, None), "min_records"),
        (ReleasePolicy(None, None), "min_sites"),
        (ReleasePolicy(None, None, 1), "min_sites"),
    ],
)
def test_an_unset_rule_refuses_everywhere(policy: ReleasePolicy, rule: str) -> None:
    for check in (
        lambda: check_invitation(policy, "me", ABC, None),
        lambda: check_invitation(policy, "me", ABC, 10**6),
        lambda: check_records(policy, "me", 10**6),
        lambda: check_release(policy, "me", ABC, signed(2), None),
        lambda: check_release(policy, "me", ABC, signed(2), ABC),
    ):
        with refused(f"{rule} is not set") as caught:
            check()
        assert caught.value.exit_code == 3 and caught.value.where == "me"


def test_a_refusal_says_where_its_rule_is_written(tmp_path: Path) -> None:
    file = tmp_path / "north.policy.toml"
    file.write_text("min_records = 5\n")
    policy = read_policy(file).at_least(ReleasePolicy(3, 3))
    with refused("min_sites is not set") as caught:
        check_invitation(policy.release, "me", ABC, None)
    assert caught.value.advice == f"Set min_sites in {file} (a profile sets it too)."
    file.write_text("min_sites = 3\nmin_records = 5\n")
    rules = read_policy(file).at_least(ReleasePolicy(3, 3)).release
    for check in (
        lambda: check_records(rules, "me", 4),
        lambda: check_invitation(rules, "me", ABC, 14),
    ):
        with refused(r"asks for \(5\)|15 are needed") as caught:
            check()
        advice = f"min_records in {file} (a profile sets it too) or the job's [release], whichever"
        assert f"{advice} asks for more." in caught.value.advice
    with refused("not set") as caught:
        check_records(ReleasePolicy(3, None), "me", 4)
    assert caught.value.advice == "Set min_records in the job's [release]."
    with refused("fewer complete records") as caught:
        check_records(THREE, "me", 4)
    assert (
        caught.value.advice == "Leave the site out, or change min_records in the job's [release]."
    )
    with refused("fewer complete records") as caught:
        check_records(ReleasePolicy(3, 1), "me", 0)
    assert caught.value.advice == "Leave the site out."  # no rule asks for less than one record


@pytest.mark.parametrize("sites", [1, 0, -1])
def test_a_rule_of_one_site_is_no_rule(sites: int) -> None:
    with pytest.raises(JobError, match="at least 2"):
        ReleasePolicy(sites, 1)


@pytest.mark.parametrize("records", [0, -1])
def test_a_rule_of_no_records_is_no_rule(records: int) -> None:
    with pytest.raises(JobError, match="at least 1"):
        ReleasePolicy(2, records)


# --- number of sites -----------------------------------------------------------------------------


def test_as_many_sites_as_the_rule_asks_for() -> None:
    check_invitation(THREE, "me", ABC, None)
    check_release(THREE, "me", ABC, signed(3), None)
    check_release(LENIENT, "me", ABC, {"a": 2, "b": 3, "c": 2}, ABC)


def test_one_site_fewer_than_the_rule_asks_for() -> None:
    with refused("2 sites take part, and the release rule asks for 3"):
        check_invitation(THREE, "me", ("a", "b"), None)
    with refused("2 sites take part, and the release rule asks for 3"):
        check_release(THREE, "me", ("a", "b"), signed(2), None)


@pytest.mark.parametrize("strict", ABC)
def test_the_strictest_contributor_decides(strict: str) -> None:
    with refused("3 sites take part, and the release rule asks for 4"):
        check_release(LENIENT, "me", ABC, signed(2) | {strict: 4}, None)


def test_the_opener_may_be_the_strictest() -> None:
    with refused("asks for 5"):
        check_release(ReleasePolicy(5, 1), "me", ABC, signed(2), None)


def test_a_bystander_does_not_decide() -> None:
    """Who signed a threshold but does not contribute neither counts nor raises the bar."""
    check_release(LENIENT, "me", ("a", "b"), signed(2) | {"d": 99}, None)
    with refused("asks for 3"):
        check_release(THREE, "me", ("a", "b"), signed(2, (*ABC, "d")), None)


def test_nobody() -> None:
    with refused("0 sites take part"):
        check_release(LENIENT, "me", (), {}, None)
    with refused("0 sites take part"):
        check_invitation(LENIENT, "me", (), None)


def test_a_site_named_twice() -> None:
    twice = ("a", "b", "c", "a")
    with refused("counted twice"):
        check_invitation(THREE, "me", twice, None)
    with refused("counted twice"):
        check_release(THREE, "me", twice, signed(2), None)
    with refused("counted twice"):
        check_release(LENIENT, "me", ("a", "a"), signed(2), None)


@pytest.mark.parametrize("missing", ABC)
def test_a_contributor_who_did_not_sign(missing: str) -> None:
    thresholds = {site: 2 for site in ABC if site != missing}
    with refused(f"{missing} has not signed"):
        check_release(LENIENT, "me", ABC, thresholds, None)


# --- the cohort ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [ABC, ("c", "a", "b")])
def test_the_same_cohort_again(order: tuple[str, ...]) -> None:
    check_release(LENIENT, "me", order, signed(2), list(ABC))


@pytest.mark.parametrize("first", [("a", "b"), ("a", "b", "c", "d"), ("a", "b", "d"), ()])
def test_another_cohort_than_the_first(first: tuple[str, ...]) -> None:
    """Smaller, larger, exchanged: the difference of the two sums would show the sites between."""
    with refused("the sites changed after the first release"):
        check_release(LENIENT, "me", ABC, signed(2), first)


# --- records -------------------------------------------------------------------------------------


def test_records_at_a_site() -> None:
    check_records(THREE, "me", 10)
    check_records(THREE, "me", 11)
    for records in (9, 0):
        with refused("fewer complete records than its rule asks for") as caught:
            check_records(THREE, "me", records)
        assert f" {records} " not in caught.value.line()  # the exact number stays at the site


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        (ReleasePolicy(3, 10), 30),  # implied: min_sites * min_records
        (ReleasePolicy(3, 10, 50), 50),
        (ReleasePolicy(3, 10, 20), 30),  # never below what is implied
        (ReleasePolicy(2, 1, 1), 2),
    ],
)
def test_records_in_all(policy: ReleasePolicy, least: int) -> None:
    check_invitation(policy, "me", ABC, least)
    check_invitation(policy, "me", ABC, least + 1)
    for records in (least - 1, 0, -1):
        with refused("and .* are needed"):
            check_invitation(policy, "me", ABC, records)


def test_thresholds_rise_with_the_rules() -> None:
    order = [ReleasePolicy(2, 1), ReleasePolicy(3, 1), ReleasePolicy(3, 5), ReleasePolicy(3, 5, 99)]
    for weaker, stronger in pairwise(policy.thresholds("me") for policy in order):
        assert all(a <= b for a, b in zip(weaker, stronger, strict=True)) and weaker != stronger


@pytest.mark.parametrize(
    ("own", "agreed", "effective"),
    [
        ((2, 2, None), (3, 10, None), (3, 10, None)),  # weaker than agreed: the agreed rule counts
        ((5, 50, 400), (3, 10, 100), (5, 50, 400)),  # stricter: its own
        ((None, 5, None), (3, 10, 100), (None, 10, 100)),  # unset stays unset, and refuses
        ((4, None, None), (None, None, None), (4, None, None)),
    ],
)
def test_a_sites_own_rules_can_only_be_stricter(own, agreed, effective):
    assert ReleasePolicy(*own).at_least(ReleasePolicy(*agreed)) == ReleasePolicy(*effective)
