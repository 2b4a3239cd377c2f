"""Fewer draws from noisy moments, in a quarter of the time, where nothing hangs on how many."""

import math
from collections.abc import Iterator

import pytest

from secagg.models.moments import noisy_ols
from secagg.models.numerics import noise_posterior


def shorten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(noise_posterior, "WARM_UP", 20)
    patch.setattr(noise_posterior.draw_factors, "__defaults__", (20, None))
    patch.setattr(noisy_ols, "MAX_R_HAT", math.inf)  # so few draws need not agree


@pytest.fixture
def short_chains() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield
