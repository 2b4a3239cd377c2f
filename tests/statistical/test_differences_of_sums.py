"""200 random exact jobs: no difference of two sums is made of fewer records than profiles allow.

The strictest profile needs 11 records. A row is a record here: the heart records name no persons.
"""

import numpy as np
import pytest
from support.privacy.random_jobs import STRICTEST, examine, random_method

pytestmark = [pytest.mark.neural, pytest.mark.attack]


@pytest.mark.parametrize("seed", range(200))
def test_differences_of_any_two_sums_are_made_of_many_records(seed: int) -> None:
    rng = np.random.default_rng([38, seed])
    found = examine(random_method(rng), rng)
    assert found.fewest is None or found.fewest.effective >= STRICTEST, found
