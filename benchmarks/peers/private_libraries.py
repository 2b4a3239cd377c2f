"""Regressions under differential privacy by diffprivlib and Opacus, on pooled records.

diffprivlib 0.6.6. `LinearRegression`: the functional mechanism (Zhang and others 2012).
`LogisticRegression`: objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011). Both protect
replacing one record, and the number of records is public. Adding or removing one record under
epsilon implies replacing one under 2 epsilon, so callers give them 2 epsilon, which favours them.
As of this version their guarantees need care:

*   `LinearRegression` bounds the square of a column by its lower bound alone, and spends
    epsilon (1 + 1 / (p + 1)) for p predictors. Left as it is, in its favour.
*   `LogisticRegression` takes the curvature of a record of norm R as R / 4, not R^2 / 4, and does
    not penalise its intercept, which the proof needs. So records here have a norm of at most 1,
    with a constant as a column of their own.

Opacus 1.6: DP-SGD (Abadi and others 2016) with Poisson samples of a tenth of the records, its
optimiser and its PRV accountant; the mean of the second half of the iterates is the estimate. It
protects adding or removing one record; the number of records is public.

Each package is imported only when it is used.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SAMPLED = 0.1


def shortened(z: Floats, norm: float) -> Floats:
    """Return the rows, shortened to at most this norm."""
    lengths = np.sqrt((z**2).sum(axis=1, keepdims=True))
    found: Floats = z / np.maximum(lengths / norm, 1.0)
    return found


def functional_mechanism(
    z: Floats, y: Floats, low: Floats, high: Floats, bound: float, epsilon: float, seed: int
) -> Floats:
    """Return the slopes, shape (p,). low, high: of each predictor; bound: of the outcome."""
    from diffprivlib.models import LinearRegression  # type: ignore[import-not-found]  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = LinearRegression(
            epsilon=epsilon, bounds_X=(low, high), bounds_y=(-bound, bound), random_state=seed
        ).fit(z, y)
    return np.asarray(made.coef_, dtype=np.float64)


def objective_perturbation(
    z: Floats, y: Floats, norm: float, epsilon: float, C: float, seed: int
) -> Floats:
    """Return the slopes, shape (p,). norm: to which records are shortened; y: 0 or 1."""
    from diffprivlib.models import LogisticRegression  # noqa: PLC0415

    unit = math.sqrt(1 + norm**2)
    rows = np.column_stack([np.ones(len(z)), shortened(z, norm)]) / unit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = LogisticRegression(
            epsilon=epsilon, data_norm=1.0, C=C, fit_intercept=False, max_iter=500,
            random_state=seed,
        ).fit(rows, y)  # fmt: skip
    return np.asarray(made.coef_, dtype=np.float64)[0, 1:] / unit


@cache
def _noise(epsilon: float, delta: float, steps: int) -> float:
    from opacus.accountants.utils import get_noise_multiplier  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=_SAMPLED, steps=steps,
            accountant="prv",
        )  # fmt: skip
    return float(found)


def dp_sgd(
    z: Floats, y: Floats, family: str, epsilon: float, delta: float, seed: int, *,
    steps: int, clip: float, rate: float,
) -> Floats:  # fmt: skip
    """Return the slopes, shape (p,). y: 0 or 1 for logistic regression."""
    import torch  # noqa: PLC0415
    from opacus.grad_sample import GradSampleModule  # noqa: PLC0415
    from opacus.optimizers import DPOptimizer  # noqa: PLC0415

    random = torch.Generator().manual_seed(seed)
    X, t = torch.from_numpy(z).float(), torch.from_numpy(y).float()
    linear = torch.nn.Linear(z.shape[1], 1)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    model, expected = GradSampleModule(linear, loss_reduction="sum"), _SAMPLED * len(y)
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate / expected),  # of the sum of gradients
        noise_multiplier=_noise(epsilon, delta, steps), max_grad_norm=clip,
        expected_batch_size=1, loss_reduction="sum", generator=random,
    )  # fmt: skip
    logistic = torch.nn.BCEWithLogitsLoss(reduction="sum")
    total: Any = np.zeros(z.shape[1])
    for step in range(steps):
        sample = torch.rand(len(y), generator=random) < _SAMPLED
        optimiser.zero_grad(set_to_none=True)
        eta = model(X[sample])[:, 0]
        if family == "gaussian":
            loss = 0.5 * ((eta - t[sample]) ** 2).sum()
        else:
            loss = logistic(eta, t[sample])
        loss.backward()
        optimiser.step()
        if step >= steps // 2:
            total = total + linear.weight.detach().numpy()[0].astype(np.float64)
    return np.asarray(total / (steps - steps // 2))
