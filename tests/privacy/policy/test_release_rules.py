"""The release rules' table, row by row, for each of the three times they are checked."""

from collections.abc import Callable, Sequence
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
TWO = {"a": 2, "b": 2, "c": 2}
THREE = ReleasePolicy(min_sites=3, min_records=10)
LENIENT = ReleasePolicy(min_sites=2, min_records=1)


def refused(check: Callable[..., None], *arguments: object) -> PolicyRefusal:
    with pytest.raises(PolicyRefusal) as caught:
        check(*arguments)
    assert caught.value.exit_code == 3 and caught.value.where == "me"
    return caught.value


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (ReleasePolicy(None, 10), "min_sites"),
        (ReleasePolicy(3, None), "min_records"),
        (ReleasePolicy(None, None, 1), "min_sites"),
    ],
)
def test_an_unset_rule_always_refuses(policy: ReleasePolicy, rule: str) -> None:
    for check, *arguments in (
        (check_invitation, ABC, None),
        (check_invitation, ABC, 10**6),
        (check_records, 10**6),
        (check_release, ABC, TWO, None),
        (check_release, ABC, TWO, ABC),
    ):
        assert rule in refused(check, policy, "me", *arguments).what


def test_a_refusal_says_where_its_rule_is_written(tmp_path: Path) -> None:
    file = tmp_path / "north.policy.toml"
    for text in ("min_records = 5\n", "min_sites = 3\nmin_records = 5\n"):
        file.write_text(text)
        rules = read_policy(file).at_least(ReleasePolicy(3, 3)).release
        assert str(file) in refused(check_invitation, rules, "me", ABC, 14).advice
    assert str(file) in refused(check_records, rules, "me", 4).advice
    assert "[release]" in refused(check_records, THREE, "me", 4).advice
    # no rule accepts less than one record, so there is nothing to change
    assert "min_records" not in refused(check_records, ReleasePolicy(3, 1), "me", 0).advice


@pytest.mark.parametrize(("sites", "records"), [(1, 1), (0, 1), (-1, 1), (2, 0), (2, -1)])
def test_rules_that_protect_nobody_are_errors(sites: int, records: int) -> None:
    with pytest.raises(JobError):
        ReleasePolicy(sites, records)


# --- sites ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "sites", "signed", "first", "allowed"),
    [
        (THREE, ABC, {"a": 3, "b": 3, "c": 3}, None, True),
        (LENIENT, ABC, {"a": 2, "b": 3, "c": 2}, ABC, True),
        (THREE, ("a", "b"), TWO, None, False),  # one site fewer than the rule requires
        *((LENIENT, ABC, TWO | {strict: 4}, None, False) for strict in ABC),
        (ReleasePolicy(5, 1), ABC, TWO, None, False),  # the opener may be the strictest
        # a site that signed but does not contribute neither counts nor decides
        (LENIENT, ("a", "b"), TWO | {"d": 99}, None, True),
        (THREE, ("a", "b"), TWO | {"d": 2}, None, False),
        (LENIENT, (), {}, None, False),
        (THREE, ("a", "b", "c", "a"), TWO, None, False),  # named twice
        (LENIENT, ("a", "a"), TWO, None, False),
        *((LENIENT, ABC, {s: 2 for s in ABC if s != missing}, None, False) for missing in ABC),
        (LENIENT, ("c", "a", "b"), TWO, ABC, True),  # the same cohort again
        (LENIENT, ABC, TWO, ("a", "b"), False),  # larger, smaller, exchanged
        (LENIENT, ABC, TWO, ("a", "b", "c", "d"), False),
        (LENIENT, ABC, TWO, ("a", "b", "d"), False),
        (LENIENT, ABC, TWO, (), False),
    ],
)
def test_opening_a_sum_needs_enough_sites(
    policy: ReleasePolicy,
    sites: Sequence[str],
    signed: dict[str, int],
    first: Sequence[str] | None,
    allowed: bool,
) -> None:
    if allowed:
        check_release(policy, "me", sites, signed, first)
    else:
        refused(check_release, policy, "me", sites, signed, first)


def test_an_invitation_counts_sites_like_an_opening() -> None:
    check_invitation(THREE, "me", ABC, None)
    for policy, sites in ((THREE, ("a", "b")), (LENIENT, ()), (THREE, ("a", "b", "c", "a"))):
        refused(check_invitation, policy, "me", sites, None)


# --- records -------------------------------------------------------------------------------------


def test_records_at_a_site_are_checked() -> None:
    check_records(THREE, "me", 10)
    for records in (9, 0):
        line = refused(check_records, THREE, "me", records).line()
        assert f" {records} " not in line  # the exact number stays at the site


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        (ReleasePolicy(3, 10), 30),  # implied: min_sites * min_records
        (ReleasePolicy(3, 10, 50), 50),
        (ReleasePolicy(3, 10, 20), 30),  # never below what is implied
        (ReleasePolicy(2, 1, 1), 2),
    ],
)
def test_total_records_are_checked(policy: ReleasePolicy, least: int) -> None:
    check_invitation(policy, "me", ABC, least)
    for records in (least - 1, 0, -1):
        refused(check_invitation, policy, "me", ABC, records)


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
