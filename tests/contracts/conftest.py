"""Every registered method, one test each."""

import pytest
from support.runs.reports import NEURAL

from secagg.jobs.registry import METHODS


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.neural if name in NEURAL else ())
        for name in sorted(METHODS)
    ]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
