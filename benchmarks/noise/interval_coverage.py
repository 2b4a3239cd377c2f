"""The coverage and length of 90 % intervals from noisy moments.

    python -m benchmarks.noise.interval_coverage [--quick]

Records are simulated, clipped, counted, summed to moments and released with the Gaussian noise that
(epsilon, delta = 1e-6) requires for adding or removing a record. The true coefficients are those of
a million clipped records. The intervals of `secagg.models.moments.noisy_ols` are compared with:

plugged in   textbook intervals, which treat the repaired moments as exact
first order  the delta method with the covariance of `noise_covariance`
bootstrap    parametric, percentile intervals (Ferrando, Wang & Sheldon 2022), repaired moments
one a        ours with a prior under which predictors are hardly correlated
flat prior   ours with a prior under which all correlation matrices are equally likely

Further tables show which floor of the repair gives the smallest error
(`secagg.models.common.noisy_moments`), and the effect of the prior of
`secagg.models.numerics.noise_posterior`. This script prints every number cited in these three
files.
`+-` is the Monte Carlo error: the standard deviation over releases of the proportion covered,
divided by the root of their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from benchmarks.harness import number, quick_asked, section, table
from secagg.contracts import PublicFacts, RecordCount, Variable
from secagg.contracts.noise import Clip
from secagg.models.common.clipped_moments import CONSTANT, moments_sensitivity
from secagg.models.common.noisy_moments import NoisyMoments, noisy_moments
from secagg.models.moments.noisy_ols import fits_of, mixture_term
from secagg.models.numerics.noise_posterior import draw_factors, shapes
from secagg.privacy.accounting.gaussian_dp import gaussian_mu

Floats = NDArray[np.float64]
DELTA, LEVEL, DRAWS = 1e-6, 0.9, 200
COUNT_SHARE = 0.05  # the job's default
SLOPES = (0.5, -0.3, 0, 0.2, -0.4, 0.1, 0, 0.3, -0.2, 0.15)


@dataclass(frozen=True)
class Design:
    """n records of d predictors, scaled by bounds of three deviations to [-1, 1].

    correlation: of every pair; explained: share of the outcome's variance, roughly
    pair: if given, the correlation of the first two
    binary: if given, every other predictor is cut there (in deviations) and coded -1/2, 1/2
    square: R^2 of the clip; sites: noise is added so many times (placement `site`)
    """

    epsilon: float
    n: int = 500
    d: int = 10
    correlation: float = 0.3
    explained: float = 0.5
    pair: float | None = None
    binary: float | None = None
    square: float = 1.25
    sites: int = 1

    @cached_property
    def noise(self) -> NoisyMoments:
        """What is known of the noise, for z = (1, u), by the method's own code; moments of zeros.

        The releases are those of a run: the count of records with `COUNT_SHARE` of the squared
        budget, and moments with the rest.
        """
        touch = moments_sensitivity(Clip(self.square, 16), self.d + 1)
        each = self.sites / gaussian_mu(self.epsilon, DELTA) ** 2
        variables = tuple(Variable(str(j), str(j), 0.0, 1.0) for j in range(self.d + 1))
        public = PublicFacts(variables, tuple(v.column for v in variables), self.n, ("s",))
        return noisy_moments(
            np.zeros((self.d + 2) * (self.d + 3) // 2),
            public,
            touch.add**2 * each / (1 - COUNT_SHARE),
            RecordCount(0.0, each / COUNT_SHARE),
            CONSTANT,
        )

    @property
    def spread(self) -> Floats:
        """Standard deviation of the noise in every entry, shape (d + 2, d + 2)."""
        return np.asarray(np.sqrt(self.noise.variance))

    def moments(self, rng: np.random.Generator, n: int) -> Floats:
        """Return M of n fresh records, clipped."""
        common = math.sqrt(self.correlation) * rng.normal(size=(n, 1))
        own = rng.normal(size=(n, self.d))
        slopes = np.resize(SLOPES, self.d)
        signal = (1 - self.correlation) * slopes @ slopes + self.correlation * slopes.sum() ** 2
        if self.pair is not None:
            alike = (self.pair - self.correlation) / (1 - self.correlation)
            own[:, 1] = alike * own[:, 0] + math.sqrt(1 - alike**2) * own[:, 1]
            signal += 2 * (self.pair - self.correlation) * slopes[0] * slopes[1]
        x = common + math.sqrt(1 - self.correlation) * own
        total = signal / self.explained
        y = x @ slopes + math.sqrt(total - signal) * rng.normal(size=n)
        u = np.column_stack([x, y / math.sqrt(total)]) / 3
        if self.binary is not None:
            u[:, : self.d : 2] = np.where(x[:, ::2] > self.binary, 0.5, -0.5)
        u = np.clip(u, -1, 1)
        u *= np.minimum(1, math.sqrt(self.square) / np.sqrt((u**2).sum(axis=1, keepdims=True)))
        z = np.column_stack([np.ones(n), u])
        return np.asarray(z.T @ z)

    def population(self) -> Floats:
        """Return the moments of one record, on average over a million."""
        rng = np.random.default_rng(6)
        return np.asarray(sum(self.moments(rng, 50_000) for _ in range(20)) / 1e6)

    def releases(self, count: int) -> Floats:
        """Return noisy moments of so many independent data sets, shape (count, d + 2, d + 2)."""
        rng = np.random.default_rng(7)
        exact = np.array([self.moments(rng, self.n) for _ in range(count)])
        return exact + symmetric_noise(rng, exact.shape, self.spread)


def symmetric_noise(rng: np.random.Generator, shape: tuple[int, ...], spread: Floats) -> Floats:
    """Return symmetric matrices whose upper triangles are independent normal numbers."""
    noise = np.triu(rng.normal(size=shape) * spread)
    return np.asarray(noise + np.swapaxes(np.triu(noise, 1), -1, -2))


def noise_covariance(theta: Floats, spread: Floats) -> Floats:
    """Return Cov(e - E theta), shape (..., k, k); spread: of (E, e), shape (k + 1, k + 1)."""
    own, other = spread[:-1, :-1] ** 2, spread[:-1, -1] ** 2
    eye = np.eye(theta.shape[-1])
    size = other + theta**2 @ own
    outer = own * theta[..., :, None] * theta[..., None, :]
    return np.asarray(size[..., None] * eye + outer - outer * eye)


def repaired_all(released: Floats, noise: NoisyMoments, floors: float = 1.0) -> Floats:
    """Repair a stack of matrices as `secagg.models.common.noisy_moments.repaired` does one.

    floors: multiplies the least eigenvalue allowed
    """
    scale = np.outer(noise.scale, noise.scale)
    eigenvalues, basis = np.linalg.eigh(released / scale)
    lifted = np.maximum(eigenvalues, floors * noise.eigenvalue_noise)
    return np.asarray((basis * lifted[..., None, :]) @ np.swapaxes(basis, -1, -2) * scale)


Intervals = tuple[Floats, Floats]


def noise_aware(design: Design, released: Floats, a: Floats | None = None) -> Intervals:
    """The intervals of `noisy_ols`, one chain for each release, shape (releases, d + 1) each."""
    dof = design.n - design.d - 1
    L = draw_factors(released, design.noise.variance, DRAWS, a)
    fits = fits_of(L, design.noise, dof)
    ends = [
        [
            mixture_term("", fits.estimates[:, i, j], fits.errors[:, i, j], dof, LEVEL)
            for j in range(design.d + 1)
        ]
        for i in range(len(released))
    ]
    bounds = np.array([[(term.ci_low, term.ci_high) for term in row] for row in ends])
    return bounds[..., 0], bounds[..., 1]


def flat_prior(design: Design, released: Floats) -> Intervals:
    """Ours with a = 1: flat over correlation matrices."""
    return noise_aware(design, released, np.ones(1))


def one_shape(design: Design, released: Floats) -> Intervals:
    """Ours with the largest a: the prior expects hardly correlated predictors."""
    return noise_aware(design, released, shapes(design.d + 1)[-1:])


def plugged_in(design: Design, released: Floats) -> Intervals:
    """The textbook's."""
    dof = design.n - design.d - 1
    L = np.asarray(np.linalg.cholesky(repaired_all(released, design.noise)), np.float64)[None]
    fits = fits_of(L, design.noise, dof)
    reach = -stdtrit(dof, (1 - LEVEL) / 2) * fits.errors[0]
    return fits.estimates[0] - reach, fits.estimates[0] + reach


def first_order(design: Design, released: Floats) -> Intervals:
    """The delta method: A~^-1 (sigma^2 A + noise covariance) A~^-1 about A~^-1 b~."""
    A, b = released[:, :-1, :-1], released[:, :-1, -1:]
    theta = np.asarray(np.linalg.solve(A, b)[..., 0], np.float64)
    fixed = repaired_all(released, design.noise)
    ends = np.concatenate([-theta, np.ones((len(theta), 1))], axis=1)
    rss = np.einsum("ij,ijk,ik->i", ends, fixed, ends)
    dof = design.n - design.d - 1
    middle = (rss / dof)[:, None, None] * fixed[:, :-1, :-1]
    inverse = np.linalg.inv(A)
    covariance = inverse @ (middle + noise_covariance(theta, design.spread)) @ inverse
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    reach = -stdtrit(dof, (1 - LEVEL) / 2) * np.sqrt(variance)
    return theta - reach, theta + reach


def bootstrap(design: Design, released: Floats) -> Intervals:
    """Percentiles of the estimate on releases simulated from the repaired moments."""
    rng = np.random.default_rng(8)
    n, m = design.n, released.shape[-1]
    L = np.linalg.cholesky(repaired_all(released, design.noise) / n)
    ends = []
    for factor in L:
        root = np.tril(rng.normal(size=(DRAWS, m, m)), -1)  # Bartlett: root root' is Wishart
        root[:, range(m), range(m)] = np.sqrt(rng.chisquare(n - np.arange(m), (DRAWS, m)))
        again = factor @ root @ np.swapaxes(root, 1, 2) @ factor.T
        again += symmetric_noise(rng, again.shape, design.spread)
        again = repaired_all(again, design.noise)
        theta = np.linalg.solve(again[:, :-1, :-1], again[:, :-1, -1:])[..., 0]
        ends.append(np.quantile(theta, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))
    low, high = np.swapaxes(np.array(ends), 0, 1)
    return low, high


METHODS: dict[str, Callable[[Design, Floats], Intervals]] = {
    "ours": noise_aware,
    "plugged in": plugged_in,
    "first order": first_order,
    "bootstrap": bootstrap,
}
OTHERS = {"flat prior": flat_prior, "one a": one_shape}


@dataclass(frozen=True)
class Coverage:
    """share, error: of coefficients covered; least: of the coefficient covered least;
    length: median over releases and slopes
    """

    share: float
    error: float
    least: float
    length: float


def coverage(design: Design, count: int, method: str = "ours") -> Coverage:
    """Run one method on so many releases."""
    every = design.population()
    truth = np.linalg.solve(every[:-1, :-1], every[:-1, -1])
    low, high = (METHODS | OTHERS)[method](design, design.releases(count))
    covered = (low <= truth) & (truth <= high)
    each = covered.mean(axis=1)  # releases are independent, coefficients of one are not
    return Coverage(
        share=float(each.mean()),
        error=float(each.std(ddof=1) / math.sqrt(count)),
        least=float(covered.mean(axis=0).min()),
        length=float(np.median((high - low)[:, 1:])),
    )


def noise_ratio(design: Design) -> float:
    """The noise's operator norm over the least eigenvalue of A, both where the noise is even."""
    scale = design.noise.scale[:-1]
    A = design.population()[:-1, :-1] * design.n / np.outer(scale, scale)
    return float(2 * design.noise.eigenvalue_noise / np.linalg.eigvalsh(A)[0])


def compared(designs: dict[str, Design], count: int) -> str:
    """Table of all methods."""
    rows = []
    for name, design in designs.items():
        found = {method: coverage(design, count, method) for method in METHODS}
        shares = [f"{c.share:.3f} +- {c.error:.3f} [{c.least:.2f}]" for c in found.values()]
        lengths = " / ".join(number(c.length) for c in found.values())
        rows.append((name, number(noise_ratio(design)), *shares, lengths))
    return table(("predictors", "noise ratio", *METHODS, "lengths"), rows)


def scope(designs: list[Design], count: int) -> str:
    """Table of ours and the textbook's over sizes."""
    rows = []
    for design in designs:
        ours, plain = coverage(design, count), coverage(design, count, "plugged in")
        rows.append(
            (
                design.n,
                design.d,
                design.sites,
                design.correlation,
                design.explained,
                number(design.epsilon),
                number(noise_ratio(design)),
                f"{ours.share:.3f} +- {ours.error:.3f} [{ours.least:.2f}]",
                f"{plain.share:.3f}",
                number(ours.length / plain.length),
            )
        )
    head = ("n", "d", "noises", "correlation", "explained", "epsilon", "noise ratio")
    return table((*head, "ours", "plugged in", "length ratio"), rows)


def floors(designs: list[Design], count: int) -> str:
    """Table of the root mean squared error of coefficients, by the floor of the repair."""
    rows = []
    for design in designs:
        every = design.population()
        truth = np.linalg.solve(every[:-1, :-1], every[:-1, -1])
        released = design.releases(count)
        cells = []
        for times in (0.0, 0.5, 1.0, 2.0):
            of = repaired_all(released, design.noise, times) if times else released
            theta = np.linalg.solve(of[:, :-1, :-1], of[:, :-1, -1:])[..., 0]
            each = ((theta - truth) ** 2)[:, 1:].mean(axis=1)
            size = math.sqrt(each.mean())
            error = each.std(ddof=1) / math.sqrt(count) / (2 * size)  # of a root: delta method
            cells.append(f"{size:.3f} +- {error:.3f}")
        rows.append((design.n, number(design.epsilon), number(noise_ratio(design)), *cells))
    return table(("n", "epsilon", "noise ratio", "none", "f / 2", "f", "2 f"), rows)


def priors(designs: list[Design], count: int) -> str:
    """Table of priors: coverage, length, and what the last two expect of predictors.

    Beforehand 1 - R^2 of a predictor on the d - 1 others is Beta(a + 1/2, (d - 1) / 2): C_x has the
    density |C_x|^(a - 1/2), and is |C of the others| (1 - R^2).
    """
    rows = []
    for design in designs:
        ours, one, flat = (coverage(design, count, of) for of in ("ours", "one a", "flat prior"))
        others = (design.d - 1) / 2
        expected = [others / (a + 0.5 + others) for a in (shapes(design.d + 1)[-1], 1.0)]
        rows.append(
            (
                design.n,
                design.d,
                design.correlation if design.pair is None else f"0.3, a pair {design.pair}",
                number(design.epsilon),
                number(noise_ratio(design)),
                *(f"{c.share:.3f} +- {c.error:.3f} [{c.least:.2f}]" for c in (ours, one, flat)),
                " / ".join(number(c.length) for c in (ours, one, flat)),
                " / ".join(f"{of:.2f}" for of in expected),
            )
        )
    head = ("n", "d", "correlation", "epsilon", "noise ratio", "ours", "one a", "flat prior")
    return table((*head, "lengths", "R^2 expected"), rows)


def main() -> None:
    quick = quick_asked(__doc__, "few releases of few designs")
    count = 20 if quick else 300
    kinds = {
        "continuous": Design(1),
        "half binary, even": Design(1, binary=0.0, square=2.0),
        "half binary, one in ten": Design(1, binary=1.2816, square=2.0),
    }
    bar = {
        f"{name}, epsilon {epsilon}": replace(design, epsilon=epsilon)
        for name, design in kinds.items()
        for epsilon in ((4,) if quick else (1, 4, 8))
    }
    section(
        "Coverage of 90 % intervals: 500 records, ten predictors",
        f"{count} releases; in brackets the coefficient covered least. Slopes in scaled units.",
        compared(bar, count),
    )
    sizes = [Design(4, n, d, square=(d + 1) / 9) for d in (3, 10, 20) for n in (200, 2000, 20_000)]
    other = [
        *(Design(e, 2000) for e in (0.5, 1, 2, 8)),
        *(Design(e, 2000, sites=k) for e in (1, 4) for k in (4, 10)),
        *(Design(e, correlation=c) for e in (1, 4) for c in (0.0, 0.65, 0.8)),
        *(Design(e, explained=r) for e in (1, 4) for r in (0.2, 0.8)),
    ]
    section(
        "Coverage and length elsewhere",
        f"{count // 2} releases. `noises`: how many sites add the whole of it.",
        scope(sizes[:1] if quick else [*sizes, *other], count // 2),
    )
    noisy = [Design(e) for e in (0.25, 0.5, 1, 2, 4)]
    section(
        "Root mean squared error of slopes, in scaled units, by the floor of the repair",
        f"{count} releases of 500 records, ten predictors. f: the noise's own eigenvalue.",
        floors(noisy[:1] if quick else noisy, count),
    )
    expecting = [
        *(Design(e, correlation=c) for c in (0.0, 0.3) for e in (1, 4)),
        *(Design(e, n, correlation=0.8) for n in (500, 2000, 8000) for e in (1, 4)),
        *(Design(e, n, pair=0.95) for n, e in ((2000, 1), (2000, 8), (20_000, 1), (40_000, 1))),
    ]
    section(
        "Priors",
        f"{count // 2} releases. `R^2 expected`: of a predictor on the others, one a and flat.",
        priors(expecting[:1] if quick else expecting, count // 2),
    )


if __name__ == "__main__":
    main()
