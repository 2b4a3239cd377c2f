"""What a report says that other runs over the same sites add to what a run tells."""

from __future__ import annotations

from typing import Any

import pytest
from support.reports import Page, copied, noised_run, page_of, small_run, void_run

from secagg.audits.limits import unprotected

NOT_EXAMINED = (
    "What the sums of this run determine together with those of other runs over the same sites is "
    "not examined"
)
BOUNDED = f"{NOT_EXAMINED}; where all have noise, what they cost together bounds it."


def other_runs(facts: dict[str, Any]) -> str:
    return " ".join(dict(unprotected(facts))["Other runs"])


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


def test_it_is_on_the_page() -> None:
    assert NOT_EXAMINED in Page(page_of(small_run("moments", "additive"))).text
