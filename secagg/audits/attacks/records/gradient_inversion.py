"""A10: records recovered from gradients of a network's loss.

Zhu, Liu and Han (NeurIPS 2019), "Deep leakage from gradients", section 3: search for records whose
gradient, at the parameters that were sent, is the one that was seen. With G_t the gradient seen in
round t, theta_t its parameters, and g the gradient of one record's loss,

    G_t = sum_i g(x_i; theta_t)    for all t,                                                    (1)

is solved for the records x_i by least squares (Levenberg and Marquardt), from random starts. (1)
has as many equations as parameters in every round, so for few records it has one solution up to
their order. It is solved if the residual is as small as rounding; then the records are exact. (For
one record, a first linear layer gives x directly, as its gradient of weights over that of biases:
Phong and others 2018, section 3. The search finds the same.)

What is inverted: the contribution of each site, if it can be read, or else the opened sum, which
has the gradient over all records together. So a secure sum protects nothing if all sites together
have few records; but (1) then does not tell whose record is whose. For `notears_mlp_admm`, the
gradient is at the site's local optimum, which follows from its messages
(`secagg.audits.attacks.records.gradient_view`).

For `notears_mlp_admm` in clear with three columns and the paper's penalties, all values of 1, 4, 6
and 8 records of a site are found to 2e-12, 1e-10, 2e-9 and 3e-7 standard deviations; those of 8
records of two sites together, from masked sums, to 4e-9. With 8 records, the derivatives of (1)
have a condition of about 1e6, so a search takes some thousand steps; about half of the searches end
elsewhere. With the default penalties, 6 records of two sites together are found to 1e-6.

The attacker knows the method's settings. The search is tried for up to 8 records. That it is not
tried for more does not mean that larger sites are safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import least_squares, linear_sum_assignment

from secagg.audits.attacks.records.gradient_view import Gradients, seen_gradients
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import View
from secagg.core.arrays import Array

MOST_RECORDS = 8
_STEPS, _LONGEST = 16_000, 4_000  # of all searches together, and of one
_STEP = 1e-5  # of the derivatives, in standard deviations
SOLVED = 1e-8
"""Relative residual of (1), below which a search has reached its solution: gradients have 40 bits
after the point, and local optima of ADMM an error of 1e-8 or less, if rho2 reached 1e3."""
_ALL = "all sites"
_NONE = f"no gradient covers {MOST_RECORDS} records or fewer"


class Recovered(NamedTuple):
    """Records in stored units, shape (records, columns), and the relative residual of (1)."""

    records: Array
    columns: tuple[int, ...]
    misfit: float


class GradientInversion(Attack):
    """Solve (1)."""

    name: ClassVar[str] = "gradient_inversion"
    title: ClassVar[str] = "Gradients of a network, solved for the records"
    source: ClassVar[str] = "Zhu and others (2019)"
    knows: ClassVar[str] = "the method's settings"
    metric: ClassVar[str] = "record_error"
    meaning: ClassVar[str] = "largest error of a value, in standard deviations; of the best site"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if seen_gradients(view) is None:
            return "for exact gradients of networks, of a loss that is smooth in all columns"
        return "" if _few_records(view) else _NONE

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.5, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> dict[str, Recovered]:
        """Return the records of each site if they can be read; otherwise of all together."""
        return {name: recover(gradients, rng) for name, gradients in _few_records(view).items()}

    def score(self, guess: dict[str, Recovered], view: View, truth: Truth) -> Finding:
        """Return the error of the site whose records are recovered best."""
        if not guess:
            return Finding.impossible(_NONE)
        together = np.concatenate([truth.sites[site].values for site in view.sites])
        true = {site: truth.sites[site].values for site in view.sites} | {_ALL: together}
        deviations = together.std(axis=0)
        deviations[deviations == 0] = 1.0
        errors, baselines = dict[str, float](), dict[str, float]()
        gradients = seen_gradients(view)
        columns = list(gradients.columns) if gradients else []
        scaled = {name: (each / deviations)[:, columns] for name, each in true.items()}
        mean = scaled[_ALL].mean(axis=0)
        for name, found in guess.items():
            errors[name] = largest_error(found.records / deviations[columns], scaled[name])
            baselines[name] = float(np.max(np.abs(scaled[name] - mean)))
        best = min(errors, key=lambda name: errors[name])
        misfits = {name: each.misfit for name, each in guess.items()}
        unsolved, value = min(misfits.values()) > SOLVED, errors[best]
        failed = "no search reached the gradients; another one may" if unsolved else ""
        return Finding.failure(failed, value, baselines[best], errors=errors, misfits=misfits)

    def without_truth(self, guess: Mapping[str, Recovered], view: View) -> Finding | None:
        """Return 0, the error of records that have exactly these gradients, if there are any."""
        solved = [name for name, each in guess.items() if each.misfit <= SOLVED]
        return Finding.exact(0.0, float("nan"), solved=solved) if solved else None


def _few_records(view: View) -> dict[str, Gradients]:
    """Return the gradients over few records: of single sites in clear, otherwise of all together.

    One small site among large ones is enough.
    """
    seen = {site: view.alone(site) for site in view.sites} if view.in_clear else {_ALL: view}
    found = {name: seen_gradients(each) for name, each in seen.items()}
    return {
        name: each
        for name, each in found.items()
        if each is not None and 1 <= round(each.records) <= MOST_RECORDS
    }


def recover(gradients: Gradients, rng: np.random.Generator) -> Recovered:
    """Solve (1) from random starts, and return the best solution."""
    n, size = round(gradients.records), float(np.linalg.norm(gradients.observed))
    shape, spread = (n, len(gradients.columns)), gradients.spread

    def misfits(unknown: Array) -> Array:
        X = unknown.reshape(shape) * spread
        return np.asarray((gradients.of_each(X).sum(axis=0) - gradients.observed) / size)

    def slopes(unknown: Array) -> Array:
        """Return the derivatives of (1); a record changes only its own term."""
        X, along = unknown.reshape(shape), _STEP * np.eye(shape[1])
        ahead, behind = ((X[:, None] + s * along).reshape(-1, shape[1]) * spread for s in (1, -1))
        change = gradients.of_each(ahead) - gradients.of_each(behind)
        return np.asarray(change.T / (2 * _STEP * size))

    best, misfit = np.zeros(shape), np.inf
    left = _STEPS
    while left > 0 and misfit >= SOLVED:
        start = rng.normal(size=n * shape[1])
        found = least_squares(
            misfits, start, jac=slopes, method="lm", x_scale="jac", max_nfev=min(left, _LONGEST),
            ftol=1e-15, xtol=1e-15, gtol=1e-15,
        )  # fmt: skip
        left -= found.nfev
        if (reached := float(np.linalg.norm(found.fun))) < misfit:
            best, misfit = found.x.reshape(shape) * spread, reached
    return Recovered(best / gradients.scale + gradients.centre, gradients.columns, misfit)


def largest_error(found: Array, true: Array) -> float:
    """Return the largest error of a value, in the order of records that fits best."""
    if len(found) != len(true):
        return float("inf")
    apart = np.max(np.abs(true[:, None] - found[None]), axis=2)
    return float(np.max(apart[linear_sum_assignment(apart)]))
