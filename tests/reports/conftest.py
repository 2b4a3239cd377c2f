"""Runs for reports to describe, made outside of the tests that come first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.reports import noised_run, small_run

from secagg.models.moments import noise_posterior


@pytest.fixture(scope="session", autouse=True)
def runs_of_all_tests() -> None:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        for protocol in ("plain", "additive", "paillier"):
            small_run("moments", protocol)
        for placement in ("sum", "site"):
            noised_run(placement)


@pytest.fixture(autouse=True)
def short_chains() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Draw less from noisy moments, in a quarter of the time: no report says how well."""
    patch.setattr(noise_posterior, "WARM_UP", 20)
    patch.setattr(noise_posterior.draw_factors, "__defaults__", (20, None))
