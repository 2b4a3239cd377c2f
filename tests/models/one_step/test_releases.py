"""How far one record can move the sums: never above the claim, and up to it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import poisson

from secagg.contracts.noise import Sensitivity
from secagg.core.arrays import Array
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.poisson import POISSON
from secagg.models.one_step.releases import (
    Records,
    centres,
    centres_sensitivity,
    lengths,
    lengths_sensitivity,
    moments,
    moments_sensitivity,
    scores,
    scores_sensitivity,
)

GRID = 16
STAGES = ("centres", "moments", "lengths", "linear", "binary", "counts")
P = 4  # coefficients


def sensitivity(stage: str) -> Sensitivity:
    if stage == "centres":
        return centres_sensitivity()
    if stage == "moments":
        return moments_sensitivity(P + 1)
    if stage == "lengths":
        return lengths_sensitivity()
    return scores_sensitivity(P)


def heavy(rng: np.random.Generator, *shape: int) -> Array:
    """Return numbers of very different sizes, some 0."""
    sizes = 10.0 ** rng.uniform(-4, 3, shape)
    return np.asarray(rng.choice([-1.0, 0.0, 1.0], shape, p=[0.45, 0.1, 0.45]) * sizes)


class Design:
    """A message of the coordinator's choice, and the sum that it asks for."""

    def __init__(self, stage: str, rng: np.random.Generator) -> None:
        self.stage = stage
        size = P + 1 if stage in ("centres", "moments") else P
        self.T = heavy(rng, size, size) if rng.random() < 0.5 else rng.normal(size=(size, size))
        self.b = heavy(rng, P) if rng.random() < 0.5 else rng.normal(size=P)
        self.h = float(10 ** rng.uniform(-3, 2))

    def sum(self, records: Array) -> Array:
        x, y = records[:, :-1], records[:, -1]
        if self.stage == "centres":
            return centres(records, self.T, 2 * GRID)
        if self.stage == "moments":
            return moments(records, self.T, GRID)
        if self.stage == "lengths":
            return lengths(self.records(x, y), self.T, self.b, self.h)
        return np.concatenate([*scores(self.records(x, y), self.T, self.b, self.h, GRID).values()])

    def records(self, x: Array, y: Array) -> Records:
        if self.stage == "binary":
            return Records(BINOMIAL, x, (y > 0).astype(float))
        if self.stage == "counts":
            return Records(POISSON, x, np.rint(500 * (y + 1)), offset=3 * x[:, 0])
        return Records(GAUSSIAN, x, y)

    def parts(self, records: Array) -> Array:
        """Return what each record adds, in units of the noise."""
        weights = np.array(sensitivity(self.stage).weights or [1])
        return np.array([self.sum(records[i : i + 1]) for i in range(len(records))]) / weights**0.5


def candidates(rng: np.random.Generator) -> Array:
    """Return records in [-1, 1]: inside, at corners, with zeros, and near one another."""
    inside = rng.uniform(-1, 1, (6, P))
    corners = rng.choice([-1.0, 1.0], (8, P))
    edges = rng.choice([-1.0, 0.0, 1.0, 1e-3], (6, P))
    found = np.concatenate([inside, corners, edges, inside[:2] + 1e-6]).clip(-1, 1)
    return np.asarray(np.trunc(found * 2.0**GRID) / 2.0**GRID)


@pytest.mark.parametrize("stage", STAGES)
def test_no_record_moves_a_sum_by_more_than_claimed(stage: str) -> None:
    rng, claim = np.random.default_rng([5, STAGES.index(stage)]), sensitivity(stage)
    for _ in range(200):
        parts = Design(stage, rng).parts(candidates(rng))
        apart = np.linalg.norm(parts[:, None] - parts[None], axis=2)
        assert np.linalg.norm(parts, axis=1).max() <= claim.add
        assert apart.max() <= claim.replace


@pytest.mark.parametrize("stage", STAGES)
def test_the_claim_is_attained(stage: str) -> None:
    """By a record at the limit of all parts; the replacement is opposite or orthogonal to it."""
    design = Design(stage, np.random.default_rng(1))
    design.T, design.b, design.h = np.eye(len(design.T)), np.zeros(P), 0.25
    design.T[0, 0] = 0.0  # no constant: records may be opposite
    first, other = np.array([[1.0, 0.0, 0.0, -1.0]]), np.array([[-1.0, 0.0, 0.0, -1.0]])
    if stage == "centres":
        other = -first
    if stage == "linear":
        first[0, -1] = other[0, -1] = 0.25 - 1e-6  # just below h
    if stage == "counts":  # 100 where 20 are expected, so that nothing is above the limit else
        design.b[0], design.h = 3.0, 2.0
        first, other = np.array([[0.0, 1.0, 0.0, -0.8]]), np.array([[0.0, -1.0, 0.0, -0.8]])
    if stage == "binary":  # 1 where .002 is expected
        design.b[0], design.h, design.T = -6.0, 20.0, 20 * design.T
        first, other = np.array([[0.0, 1.0, 0.0, 1.0]]), np.array([[0.0, -1.0, 0.0, 1.0]])
    if stage in ("moments", "lengths"):
        other = np.array([[0.0, 1.0, 0.0, 0.0]])
    ones, others = design.parts(first)[0], design.parts(other)[0]
    claim = sensitivity(stage)
    assert np.linalg.norm(ones) >= 0.98 * claim.add
    # of scores, the positive semidefinite parts cannot be opposite as well
    least = 0.9 if stage in ("linear", "binary", "counts") else 0.99
    assert np.linalg.norm(ones - others) >= least * claim.replace


@pytest.mark.parametrize("stage", STAGES)
def test_sums_are_exact_and_no_record_changes_the_part_of_another(stage: str) -> None:
    rng = np.random.default_rng([6, STAGES.index(stage)])
    for _ in range(10):
        design, records = Design(stage, rng), rng.uniform(-1, 1, (200, P))
        total = design.sum(records)
        alone = sum(design.sum(records[i : i + 1]) for i in range(len(records)))
        assert np.array_equal(total, alone)
        assert np.array_equal(total, design.sum(records[rng.permutation(200)]))
        steps = total * 4.0**GRID
        assert np.array_equal(steps, np.round(steps))


@pytest.mark.parametrize("mean", [1e306, -1e306, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e3])
def test_no_score_is_longer_than_1_whatever_the_means_of_a_family(mean: float, size: float) -> None:
    """Also if they overflow, as 1e306 / h does."""
    family = replace(POISSON, clipped=lambda eta, _: (np.full_like(eta, mean), np.ones_like(eta)))
    records = Records(family, np.random.default_rng(8).uniform(-1, 1, (5, 2)), np.arange(5.0))
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(5):
            one = replace(records, x=records.x[i : i + 1], y=records.y[i : i + 1])
            found = scores(one, size * np.eye(3), np.zeros(3), 1e-3, GRID)
            assert np.linalg.norm(found["g"]) <= 1


def test_centres_of_millions_of_records_are_summed_exactly() -> None:
    """3 x 2^20 equal records: in float64, partial sums of multiples of 2^-32 would be rounded."""
    n, record, T = 3 * 2**20, np.array([[0.3]]), np.array([[0.71, 0.0], [0.0, 2.1]])
    part = centres(record, T, 2 * GRID)
    assert np.all(part * 2.0 ** (2 * GRID) % 2 == 1)  # the last bit of the grid is used
    assert np.array_equal(centres(np.repeat(record, n, axis=0), T, 2 * GRID), n * part)


def test_linear_scores_are_those_of_schweppe() -> None:
    """Record by record, from the definition; the grid has steps of 2^-16."""
    rng = np.random.default_rng(7)
    x, y, h = rng.normal(size=(50, 2)), rng.normal(size=50), 0.6
    T, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    g, J = np.zeros(3), np.zeros((3, 3))
    for u, target in zip(x, y, strict=True):
        z = np.array([1.0, *u])
        t, r = T @ z, target - z @ b
        w = min(1.0, 1 / (t @ t))
        limit = h / (w * np.sqrt(t @ t))
        g += w * t * max(-limit, min(limit, r)) / h
        J += w * np.outer(t, t) * (abs(r) < limit)
    found = scores(Records(GAUSSIAN, x, y), T, b, h, GRID)
    assert np.allclose(found["g"], g, atol=1e-6)
    assert np.allclose(found["J"], J[np.triu_indices(3)], atol=50 * 2.0**-15)


def test_scores_of_counts_have_the_mean_0_and_the_curvature_is_its_slope() -> None:
    """At each x, by enumeration of counts: the expected g at other coefficients, differenced."""
    x, T, b, h = np.array([[0.7, -0.4]]), np.eye(3), np.array([0.9, 0.5, -0.3]), 0.8
    y = np.arange(80.0)

    def mean_of(coefficients: Array) -> Array:
        law = poisson.pmf(y, np.exp(b @ [1.0, *x[0]]))
        each = [
            scores(Records(POISSON, x, y[i : i + 1]), T, coefficients, h, 24)["g"]
            for i in range(80)
        ]
        return np.asarray(law @ np.array(each))

    assert np.allclose(mean_of(b), 0.0, atol=1e-12)
    J = scores(Records(POISSON, x, y[:1]), T, b, h, 24)["J"]
    slopes = [mean_of(b - 1e-4 * e) - mean_of(b + 1e-4 * e) for e in np.eye(3)]
    assert np.allclose(h * np.array(slopes)[np.triu_indices(3)] / 2e-4, J, rtol=1e-3)
