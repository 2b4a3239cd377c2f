"""What a report says is not protected: of a coordinator that departs, and of other runs."""

from __future__ import annotations

from typing import Any

import pytest
from support.reports import Page, copied, noised_run, page_of, small_run, void_run

from secagg.jobs.registry import METHODS
from secagg.reports.dp_claims import PrivacyClaims
from secagg.reports.limitations import unprotected

NOT_EXAMINED = (
    "What the sums of this run determine together with those of other runs over the same sites is "
    "not examined"
)
BOUNDED = f"{NOT_EXAMINED}; where all have noise, what they cost together bounds it."


def other_runs(facts: dict[str, Any]) -> str:
    return " ".join(dict(unprotected(facts, PrivacyClaims.of(facts)))["Other runs"])


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("name", "settings", "others"),
    [
        ("moments", {"centre": "pooled"}, 'with centre = "site", or of method notears_admm,'),
        ("moments", {"centre": "site"}, 'with centre = "pooled"'),
        ("notears_admm", {}, 'of method moments with centre = "pooled"'),
    ],
)
def test_how_the_means_scatter_shows_by_subtraction(
    name: str, settings: dict[str, str], others: str, kept: bool
) -> None:
    facts, _ = copied(small_run("moments", "additive"))
    facts |= {"ledger": {"kept": kept, "coordinator": {}}}
    facts["method"] |= {"name": name, "settings": settings}
    assert other_runs(facts).endswith(
        f"{NOT_EXAMINED}. For one, a run {others} over the same records shows by subtraction how "
        "the sites' means scatter."
    )


@pytest.mark.parametrize("name", ["logistic", "gradient", "local_graphs", "notears_mlp_admm"])
def test_of_other_methods_nothing_is_claimed(name: str) -> None:
    facts, _ = copied(small_run("logistic", "additive"))
    facts["method"]["name"] = name
    assert other_runs(facts).endswith(f"{NOT_EXAMINED}.")


def test_noise_bounds_what_runs_tell_together_where_it_protects() -> None:
    assert other_runs(noised_run("sum").facts).endswith(BOUNDED)
    assert other_runs(void_run().facts).endswith(f"{NOT_EXAMINED}.")


DEPARTS = "If the coordinator departs from the method"
READS = "read a single site's X'X and X'y"


def departing(facts: dict[str, Any]) -> str:
    return " ".join(dict(unprotected(facts, PrivacyClaims.of(facts)))[DEPARTS])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_a_coordinator_that_departs_may_read(name: str) -> None:
    facts, _ = copied(small_run("logistic", "additive"))
    sums_products = name in ("sparse_regression", "sparse_markov")
    settings = {"step": "collapsed"} if sums_products else {}
    facts["method"] |= {"name": name, "settings": settings}
    said = departing(facts)
    asked_once = name in ("moments", "local_graphs")
    assert ("sites are asked once" in said) is asked_once
    assert ("trusted to send what the method computes" in said) is not asked_once
    assert (READS in said) is sums_products


def test_a_sampler_answers_what_one_site_shows() -> None:
    run = small_run("sparse_regression", "additive")
    said = departing(run.facts)
    assert READS in said and "sums over 4 sites" in said and "in some tens of rounds" in said
    facts, _ = copied(run)
    facts["method"]["settings"]["step"] = "paper"
    assert READS not in departing(facts) and "is not bounded" in departing(facts)
    facts["protocol"]["hides_from_coordinator"] = False  # then each site's draws are seen
    assert "sums over 4 sites" not in departing(facts)


def test_noise_does_not_depend_on_what_is_sent() -> None:
    assert "bounds one record's part" in departing(noised_run("round").facts)


def test_it_is_on_the_page() -> None:
    assert DEPARTS in Page(page_of(small_run("moments", "additive"))).text
    assert NOT_EXAMINED in Page(page_of(small_run("moments", "additive"))).text
