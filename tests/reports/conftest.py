"""Runs for reports to describe, made outside of the tests that come first."""

import pytest
from support.methods.short_chains import short_chains, shorten
from support.runs.reports import noised_run, small_run

__all__ = ["short_chains"]  # a fixture


@pytest.fixture(scope="session")
def runs_of_all_tests() -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        for protocol in ("plain", "additive", "paillier"):
            small_run("moments", protocol)
        for placement in ("sum", "site"):
            noised_run(placement)


@pytest.fixture(autouse=True)
def prepared(runs_of_all_tests: None, short_chains: None) -> None:
    """No report says how many draws there were."""
