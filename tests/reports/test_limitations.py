"""What a report says is not protected: of a coordinator that departs, and of other runs."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from support.methods.all_methods import CASES
from support.runs.reports import Page, copied, noised_run, page_of, small_run, void_run

from secagg.evidence.claims.disclosure import UNCHECKED
from secagg.evidence.claims.limitations import unprotected
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.jobs.registry import METHODS, Named, make_method

BOUNDED = f"{UNCHECKED}; if all of them have noise, their total cost bounds it."


def said_of(topic: str, facts: dict[str, Any]) -> str:
    (claim,) = [c for c in unprotected(facts, PrivacyClaims.of(facts)) if c.topic == topic]
    return claim.text


def other_runs(facts: dict[str, Any]) -> str:
    return said_of("Other runs", facts)


def declared(name: str, **settings: Any) -> dict[str, Any]:
    """Return the facts of a run, with what a method says of itself in place of its own."""
    facts, _ = copied(small_run("logistic", "additive"))
    method = make_method(Named.model_validate({"name": name, **CASES[name], **settings}))
    facts["method"]["disclosure"] = json.loads(json.dumps(asdict(method.disclosure)))
    return facts


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("name", "settings", "others"),
    [
        ("moments", {"centre": "pooled"}, 'with centre = "site", or of method notears_admm,'),
        ("moments", {"centre": "site"}, 'with centre = "pooled"'),
        ("notears_admm", {}, 'of method moments with centre = "pooled"'),
        ("fedlin_hm2", {"intercept": "site"}, 'of method moments with centre = "pooled"'),
    ],
)
def test_subtracting_results_is_said_to_show_how_means_differ(
    name: str, settings: dict[str, str], others: str, kept: bool
) -> None:
    facts = declared(name, **settings)
    facts |= {"ledger": {"kept": kept, "coordinator": {}}}
    assert other_runs(facts).endswith(
        f"{UNCHECKED}. For example, the difference between this result and the result of a run "
        f"{others} over the same records shows how the sites' means differ."
    )


@pytest.mark.parametrize("name", ["logistic", "gradient", "notears_mlp_admm"])
def test_nothing_is_claimed_about_other_methods(name: str) -> None:
    assert other_runs(declared(name)).endswith(f"{UNCHECKED}.")


def test_noise_is_said_to_bound_runs_together_only_if_it_protects() -> None:
    assert other_runs(noised_run("sum").facts).endswith(BOUNDED)
    assert other_runs(void_run().facts).endswith(f"{UNCHECKED}.")


DISHONEST = "A dishonest coordinator"
READS = "read a single site's X'X and X'y"


def departing(facts: dict[str, Any]) -> str:
    return said_of(DISHONEST, facts)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_states_what_a_dishonest_coordinator_learns(name: str) -> None:
    said = departing(declared(name))
    asked_once = name in ("moments", "local_graphs", "tables")
    assert ("sites are asked once" in said) is asked_once
    assert ("trusted to send what the method computes" in said) is not asked_once
    assert (READS in said) is (name in ("sparse_regression", "sparse_markov"))


def test_samplers_are_said_to_reveal_single_sites_to_dishonest_ones() -> None:
    said = departing(small_run("sparse_regression", "additive").facts)
    assert READS in said and "One sum is enough" in said
    assert "sums over all sites of the run" in said
    facts = declared("sparse_regression", step="paper")
    assert READS not in departing(facts) and "is not bounded" in departing(facts)
    facts["protocol"]["hides_from_coordinator"] = False  # then each site's draws are seen
    assert "sums over all sites of the run" not in departing(facts)


def test_noise_does_not_depend_on_what_is_sent() -> None:
    said = departing(noised_run("round").facts)
    assert "the bound on one record's part does not depend on the message" in said


def test_limitations_are_on_the_page() -> None:
    finished = small_run("moments", "additive")
    text = Page(page_of(finished)).text
    for claim in unprotected(finished.facts, PrivacyClaims.of(finished.facts)):
        assert f"{claim.topic} {claim.text}" in text
