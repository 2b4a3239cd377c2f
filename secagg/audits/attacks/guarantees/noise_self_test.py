"""A15: whether a job's noise has the distribution on which its guarantee rests.

The noise of a number with weight w is promised to be a discrete Gaussian (Canonne, Kamath and
Steinke 2020) on the grid of its field: P(x) proportional to exp(-x^2 / (2 w v)), x an integer, with
v the site's share of the variance, independent between numbers, sites and rounds. This module
computes v from the calibrated variance V and the paper rule: V at each site with placement `site`;
else V / (sites - colluding), rounded up, over the sites of the sum (`min_sites` for the count of
records).

Each site's noise is what it sends in many runs at once (`secagg.audits.epsilon.repeated_runs`),
less its contribution. So parties, ledgers, seeds and codec are those of the job. Short vectors are
drawn by another sampler in a job than in many runs. So that sampler is called, too, with the same
variances.

The tests, each with a p-value that holds for any number n of draws:

    distance     Kolmogorov and Smirnov's, P(D >= d) <= 2 exp(-2 n d^2) (Massart 1990)
    variance     sum of x^2 / (w v) against chi-square of n degrees of freedom, both sides
    mean         P(|sum x| >= s) <= 2 exp(-s^2 / (2 n w v)): the law is sub-Gaussian
    low bits     each of the lowest bits is set in half of the draws. A float of 24 or 53 bits that
                 is cut to the grid may have too few bits, which shows what it was added to (Mironov
                 2012; see also `float_noise_low_bits`)
    neighbours   x_i and x_i+1; the noise of two sites; of two rounds: the inner product of x with
                 y is sub-Gaussian given y, so P <= 2 exp(-(x'y)^2 / (2 |y|^2 w v))

The metric is the smallest p-value times the number of tests (Bonferroni), at most 1. Correct noise
falls below the limit of 10^-6 with at most this probability. The same tests must find normal
numbers in single precision, or the finding counts as failed.

Not shown: that noise cannot be predicted. A generator with a known seed passes. A site draws its
seeds from the operating system, except in runs with replayable noise, as in an audit; such a run's
report says that it protects nothing. Double precision that is rounded to a grid of 2^-40 and more
of its standard deviation cannot be told from exact draws here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom, chi2

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.epsilon.neighbours import made_tables, rounds_of
from secagg.audits.epsilon.repeated_runs import (
    play,
    why_not_repeated,
    with_less_noise,
)
from secagg.audits.views import View, Who
from secagg.contracts import Body
from secagg.contracts.noise import Placement
from secagg.core import ring
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.core.ring import RingVector
from secagg.jobs.data_sources import SiteSource
from secagg.privacy.sampling.sampler import EXACT_UP_TO, sample_weighted
from secagg.sessions.fixed_point import encode
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT, cohort_update

_LEVEL = 1e-6
_DRAWS = 20_000  # of each site, round and weight
_RUNS = 2_000  # at least
_ROUNDS = 2
_BITS = 8
_FINE = 8  # sd of the noise in steps, from which the law is the normal one, rounded
Key = tuple[str, str, int]
"""Round (or sampler), site and weight of draws."""
Draws = Mapping[Key, tuple[Array, float]]
"""Whole numbers, and the variance that they should have."""


class NoiseSelfTest(Attack):
    """Test the draws."""

    name: ClassVar[str] = "noise_self_test"
    title: ClassVar[str] = "Distribution, variance and independence of the noise of each site"
    source: ClassVar[str] = "Canonne, Kamath and Steinke (2020); Mironov (2012); Massart (1990)"
    knows: ClassVar[str] = "the noise itself: it is the auditor's test"
    views: ClassVar[tuple[Who, ...]] = (Who.COORDINATOR,)
    metric: ClassVar[str] = "noise_p_value"
    meaning: ClassVar[str] = "smallest p-value times the number of tests; small: wrong noise"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        if any(stage.training for stage in view.planned.plans.stages.values()):
            return "sites add noise of their own in a training"
        return why_not_repeated(view.planned)

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(_LEVEL, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> int:
        """Return a seed: the draws are the auditor's."""
        return int(rng.integers(2**31))

    def score(self, guess: int, view: View, truth: Truth) -> Finding:
        """Return the adjusted p-value; details: the worst tests."""
        p_values = dict(_p_values(_draws(view.planned, guess)))
        value = min(1.0, min(p_values.values()) * len(p_values))
        worst = sorted(p_values, key=lambda name: p_values[name])[:3]
        failed = "" if _finds_floats(guess) else "the tests do not find noise of single precision"
        details = {"tests": len(p_values), "worst": {name: p_values[name] for name in worst}}
        return Finding.failure(failed, value, 1.0, **details)

    def control(self, plain: View) -> View:
        """Return the same job under a guarantee, with a quarter of its noise."""
        return replace(plain, planned=with_less_noise(plain.planned))


# --- draws ----------------------------------------------------------------------------------------


def _draws(planned: Planned, seed: int) -> Draws:
    """Return the noise of each round, site and weight, and that of the sampler for short vectors.

    Numbers of one weight are in the same order at all sites and in all rounds.
    """
    assert planned.private is not None
    found, mechanisms = dict[Key, tuple[Array, float]](), planned.private.mechanisms
    weights = {s: np.array(m.noise.weights or (1,) * m.numbers) for s, m in mechanisms.items()}
    fewest = min(int(np.unique(each, return_counts=True)[1].min()) for each in weights.values())
    runs = max(_RUNS, _DRAWS // fewest)
    own = [
        (each.stage, each.messages[0]) for each in rounds_of(planned) for _ in range(each.rounds)
    ]
    script = own[:_ROUNDS]
    played = play(planned, made_tables(planned, {}, seed), runs, seed, script)
    for round_, (stage, sent) in enumerate(played.sent):
        sizes = [each.field.size for each in planned.plans.of(stage).fields[:-1]]
        starts = np.cumsum([0, *sizes[:-1]])
        order = np.concatenate(
            [np.tile(at + np.arange(size), runs) for at, size in zip(starts, sizes, strict=True)]
        )
        message = script[round_ - 1][1] if round_ else {}  # the first round counts records
        for site, (vector, *_) in sent.items():
            exact = _contribution(planned, played.planned.sources[site], stage, message)
            difference = ring.subtract(vector[: len(order)], exact[order])
            noise = difference[:, 0].view(f"i{difference.itemsize}")  # noise fits the low limb
            for weight in np.unique(weights[stage]):
                drawn = noise[weights[stage][order] == weight].astype(np.float64)
                key = f"round {round_}", site, int(weight)
                found[key] = drawn, float(_share(planned, stage) * int(weight))
    for number, (stage, mechanism) in enumerate(mechanisms.items()):
        if mechanism.numbers <= EXACT_UP_TO:
            variance = _share(planned, stage)
            drawn = sample_weighted(variance, (), EXACT_UP_TO, replayable_random(seed + number))
            found[f"sampler of {stage}", "", 1] = drawn.astype(np.float64), float(variance)
    return found


def _share(planned: Planned, stage: str) -> int:
    """Return the variance of a site's noise, in squared steps, by the rule of the module's text."""
    assert planned.private is not None
    noise, terms = planned.private.mechanisms[stage].noise, planned.private.terms
    if terms.placement is Placement.SITE:
        return noise.variance
    sites = planned.public.min_sites if stage == COHORT else len(planned.public.sites)
    return -(-noise.variance // (sites - terms.colluding))


def _contribution(planned: Planned, source: SiteSource, stage: str, message: Body) -> RingVector:
    """Return a site's encoded contribution without noise."""
    rows, public = read_records(planned, source), planned.public
    if stage == COHORT:
        update = cohort_update(rows, public, planned.plans.stages[stage].spec, 1)
    else:
        random = replayable_random(0)
        update, _ = planned.method.contribute(stage, rows, message, {}, public, random)
    return encode(planned.plans.of(stage), update)


# --- tests ----------------------------------------------------------------------------------------


def _p_values(draws: Draws) -> Iterator[tuple[str, float]]:
    """Yield each test's name and p-value."""
    for (where, site, weight), (x, variance) in draws.items():
        at = f"{where}, {site or 'alone'}, weight {weight}"
        for name, p_value in _alone(x, variance):
            yield f"{at}: {name}", p_value
    for one, other in itertools.combinations(draws, 2):
        same = [a == b for a, b in zip(one, other, strict=True)]
        if sum(same) == len(same) - 1 and same[-1]:  # two sites of a round, or two rounds of a site
            (x, variance), (y, _) = draws[one], draws[other]
            n = min(len(x), len(y))
            yield f"{one[:2]} with {other[:2]}, weight {one[2]}", _product(x[:n], y[:n], variance)


def _alone(x: Array, variance: float) -> Iterator[tuple[str, float]]:
    n, sd = len(x), math.sqrt(variance)
    values, counts = np.unique(x, return_counts=True)
    distance = np.max(np.abs(np.cumsum(counts) / n - _cdf(values, sd)))
    yield "distance", min(1.0, 2 * math.exp(-2 * n * distance**2))
    squares = float(np.sum((x / sd) ** 2))
    yield "variance", min(1.0, 2 * float(min(chi2.cdf(squares, n), chi2.sf(squares, n))))
    yield "mean", min(1.0, 2 * math.exp(-(float(np.sum(x / sd)) ** 2) / (2 * n)))
    yield "neighbours", _product(x[1::2], x[: 2 * (n // 2) : 2], variance)
    integers = x.astype(np.int64)
    for bit in range(_BITS):
        if sd >= _FINE * 2**bit:
            ones = int(np.sum((integers >> bit) & 1))
            tail = min(binom.cdf(ones, n, 0.5), binom.sf(ones - 1, n, 0.5))
            yield f"bit {bit}", min(1.0, 2 * float(tail))


def _cdf(values: Array, sd: float) -> Array:
    """Return the distribution function of the discrete Gaussian at integers."""
    if sd >= _FINE:
        return np.asarray(ndtr((values + 0.5) / sd))
    grid = np.arange(-math.ceil(12 * sd) - 1.0, math.ceil(12 * sd) + 2)
    rates = np.exp(-(grid**2) / (2 * sd**2))
    at = np.clip(np.searchsorted(grid, values), 0, len(grid) - 1)
    return np.asarray(np.cumsum(rates / np.sum(rates))[at])


def _product(x: Array, y: Array, variance: float) -> float:
    """Return the p-value of x'y, given y."""
    length = float(y @ y) * variance
    return 1.0 if length == 0 else min(1.0, 2 * math.exp(-(float(x @ y) ** 2) / (2 * length)))


def _finds_floats(seed: int) -> bool:
    """Return whether the tests find normal numbers of single precision on a finer grid."""
    x = np.random.default_rng(seed).normal(size=_DRAWS).astype(np.float32).astype(np.float64)
    steps = 2.0**40
    p_values = [p for _, p in _alone(np.rint(x * steps), steps**2)]
    return min(p_values) * len(p_values) < _LEVEL
