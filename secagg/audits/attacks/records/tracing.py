"""A9: whether a known person is among the records of a released sum of moments.

Homer and others (PLoS Genetics 2008), for means; Dwork, Smith, Steinke, Ullman and Vadhan (FOCS
2015), "Robust traceability from trace amounts", for the inner product. With z = (c, u), u the
person's scaled record, G = z z', M the released sum of G over n records plus noise, and P the
expectation of G over the population, estimated from m reference records,

    T(u) = <G - P, M / n - P>                                                                    (1)

is larger for a person among the n records, whose G is part of M. The inner product weighs each
number by the inverse of its variance in M. In the principal axes of M / n, with eigenvalues L, this
is n L_i L_j plus the variance of the noise, if records are normal; twice that on the diagonal, and
numbers above the diagonal count twice. (The noise of `moments` has this form in all axes.) c is 1,
or under differential privacy 1/2; n is then read from the noisy sum.

T is compared between the records that took part and others of the same site. All others are the
reference; for one of them, P is that of the rest, which gives (2). So T has the same mean for both
if M does not depend on who took part. The interval is that of `membership_finding`.

    T(u) = m / (m - 1) (<G - P, M / n - P> + |G - P|^2 / (m - 1)).                               (2)

With D = p (p + 3) / 2 numbers, T of members and of others is apart by about root(D / n)
root(m / (n + m)) standard deviations if there is no noise. So the attack needs at least as many
reference records as n.

The attacker knows the person's whole record and has reference records of the same population. The
sum is the same under every protocol, so every protocol has the same number; only noise lowers it.
The result does not show what an attacker can do who knows a part of the person's record.

The control is the sum of the smallest site alone, without noise. It is compared with others of this
site only: with those of all sites, a difference between sites would look like the planted leak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from secagg.audits.attacks.records.membership_finding import (
    FEW,
    RATES,
    compared,
    membership_finding,
    width_by_permutation,
)
from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.membership import area_under_roc
from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.moments.method import STAGE
from secagg.models.numerics.natural_gaussian import symmetric

_ROUNDING = 1e-12  # of the largest variance
_FEW_OF_A_SITE = 2  # (2) needs another one


class Released(NamedTuple):
    """M, the n read from it, the constant c in z, and the variance of the noise above the diagonal.

    On the diagonal, the noise has twice this variance. seed: of the draws for the interval; square:
    the largest |z|^2, if c is shortened with the record
    """

    M: Array
    n: float
    c: float = 1.0
    noise: float = 0.0
    seed: int = 0
    square: float = math.inf


class Tracing(Attack):
    """Score (1)."""

    name: ClassVar[str] = "tracing"
    title: ClassVar[str] = "Whether a known person is among the records of the pooled moments"
    source: ClassVar[str] = "Homer and others (2008); Dwork and others (2015)"
    knows: ClassVar[str] = "the person's whole record, and reference records from the same sites"
    metric: ClassVar[str] = "tracing_auc"
    meaning: ClassVar[str] = "area under the ROC curve; 0.5 is a guess"
    rates: ClassVar[Mapping[str, float]] = RATES

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if not any(seen.stage == STAGE and "moments" in seen.total for seen in view.rounds):
            return "for the sum of the method moments"
        size = len(view.planned.public.variables) + 1
        if len(_moments(view)) != size * (size + 1) // 2:
            return "for moments that are not centred within sites"
        return ""

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.6)

    def run(self, view: View, rng: np.random.Generator) -> Released:
        """Return M and what is public about it."""
        public = view.planned.public
        M = symmetric(_moments(view), len(public.variables) + 1)
        c = 1.0 if public.clip is None else public.clip.constant
        noise, K = public.noise.get(STAGE), len(view.sites)
        variance = noise.sum_variance(K, noise.site_variance(K)) if noise else 0.0
        seed = int(rng.integers(2**63))
        whole = public.clip is not None and public.clip.whole
        square = public.clip.squared_norm if public.clip is not None and whole else math.inf
        return Released(M, max(float(M[0, 0]) / c**2, 1.0), c, variance, seed, square)

    def score(self, guess: Released, view: View, truth: Truth) -> Finding:
        """Return the AUC of (1) and (2)."""
        if len(truth.others) < FEW:
            return Finding.impossible(f"fewer than {FEW} records did not take part")
        members, others, sites = compared(view, truth)
        if len(others) < _FEW_OF_A_SITE:
            why = f"fewer than {_FEW_OF_A_SITE} records of the site did not take part"
            return Finding.impossible(why)

        def areas(own: Array, others: Array) -> Array:
            return np.array([area_under_roc(*traces(guess, own, others), sites).value])

        rng = np.random.default_rng(guess.seed)
        (width,) = width_by_permutation(areas, members, others, rng, sites)
        return membership_finding(*traces(guess, members, others), float(width), sites)

    def control(self, plain: View) -> View:
        """Return the sum of the smallest site alone, without noise."""
        return min((plain.alone(site) for site in plain.sites), key=lambda v: _moments(v)[0])


def traces(released: Released, records: Array, reference: Array) -> tuple[Array, Array]:
    """Return (1) of each record, and (2) of each reference record."""
    M, n, c, noise, _, square = released
    m = len(reference)

    def with_constants(rows: Array) -> Array:
        left = np.maximum(square - np.sum(rows**2, axis=1), 0.0)
        return np.column_stack([np.minimum(c, np.sqrt(left)), rows])

    z = with_constants(reference)
    size, axes = np.linalg.eigh(M / n)
    size = np.maximum(size, 0.0)
    variance = n * np.outer(size, size) + noise
    varies = variance > _ROUNDING * np.max(variance)
    weights = np.where(varies, 1 / np.where(varies, variance, 1.0), 0.0)
    other = z @ axes
    own = with_constants(records) @ axes
    P = other.T @ other / m
    weighted = weights * (axes.T @ M @ axes / n - P)

    def inner(w: Array, matrix: Array) -> Array:
        return np.asarray(np.einsum("ij,jk,ik->i", w, matrix, w, optimize=True))

    def trace(w: Array) -> Array:
        return inner(w, weighted) - float(np.sum(weighted * P))

    squares = other * other
    lengths = inner(squares, weights) - 2 * inner(other, weights * P) + np.sum(weights * P * P)
    return trace(own), m / (m - 1) * (trace(other) + lengths / (m - 1))


def _moments(view: View) -> Array:
    """Return M's upper triangle."""
    found = [seen.total["moments"] for seen in view.rounds if "moments" in seen.total]
    return np.asarray(found[0], dtype=np.float64)
