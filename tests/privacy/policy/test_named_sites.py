"""Each row of the table of its module; families of sessions are in `tests/attacks`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import PolicyRefusal
from secagg.privacy.policy.named_sites import NamedSites

NAMES = tuple("gfedcba")  # in the job's order
GROUPED = NamedSites.of(NAMES, 2, 3)  # gf, ed, cba
TOGETHER = NamedSites.of(NAMES, None, 3)


@pytest.mark.parametrize(
    ("named", "sites", "allowed"),
    [
        (GROUPED, "abcdefg", True), (TOGETHER, "abcdefg", True),
        (GROUPED, "abcdef", False), (GROUPED, "acdefg", False), (TOGETHER, "abcdef", False),
        (GROUPED, "abcde", True), (GROUPED, "defg", True), (GROUPED, "abc", True),
        (GROUPED, "fg", False), (GROUPED, "de", False),  # whole groups, but fewer than 3 sites
        (TOGETHER, "abcde", False), (TOGETHER, "", False), (GROUPED, "", False),
        (GROUPED, "abcdefgh", False), (GROUPED, "abch", False), (TOGETHER, "abcdefgh", False),
        (NamedSites.of(NAMES, 4, 3), "abcd", False),  # fewer than 2 * 4 sites: one group
    ],
)  # fmt: skip
def test_which_sites_a_sum_may_cover(named: NamedSites, sites: str, allowed: bool) -> None:
    assert (named.fault(sites) == "") is allowed
    if allowed:
        named.check("a", sites, 2)
        return
    with pytest.raises(PolicyRefusal) as caught:
        named.check("a", sites, 2)
    assert caught.value.where == "a" and named.fault(sites) in caught.value.what


@pytest.mark.parametrize(
    ("named", "who", "min_sites", "allowed"),
    [
        (GROUPED, "g", 2, True), (GROUPED, "g", 3, False), (GROUPED, "a", 3, True),
        (GROUPED, "a", 4, False), (TOGETHER, "g", 7, True), (GROUPED, "g", None, True),
        (GROUPED, "aggregator_1", 5, True),  # it contributes nothing
    ],
)  # fmt: skip
def test_a_sites_own_rule_must_fit_its_group(
    named: NamedSites, who: str, min_sites: int | None, allowed: bool
) -> None:
    if allowed:
        named.check(who, NAMES, min_sites)
        return
    with pytest.raises(PolicyRefusal):
        named.check(who, NAMES, min_sites)


def test_sites_go_with_their_whole_group() -> None:
    assert GROUPED.whole_groups("abcdf") == ("a", "b", "c")
    assert GROUPED.whole_groups("abdeg") == ("d", "e")
    assert TOGETHER.whole_groups("abcdef") == ()


@given(st.integers(2, 40), st.integers(2, 12), st.integers(2, 40))
def test_groups_are_large_enough_and_have_all_sites_once(n: int, k: int, least: int) -> None:
    names = tuple(f"s{i}" for i in range(n))
    named = NamedSites.of(names, k, least)
    assert [site for group in named.groups for site in group] == list(names)
    assert len(named.groups) == 1 or min(map(len, named.groups)) >= k
    assert named.fewest == n or least <= named.fewest < n
