"""Moves along a line: the density that they leave unchanged, and directions."""

import numpy as np
import pytest
from scipy.integrate import quad

from secagg.models.numerics.line_move import draw_along, draw_direction


def test_the_move_leaves_its_density_unchanged() -> None:
    """x in model b has the log density of a quartic plus a normal prior: means against `quad`."""
    spreads, prior = np.array([0.05, 4.0]), np.log([0.4, 0.6])
    coefficients = np.array([0.9, -0.8, 0.3, -0.15])  # of x, x^2, x^3, x^4

    def log_density(x: np.ndarray, b: int) -> np.ndarray:
        powers = sum(c * x ** (i + 1) for i, c in enumerate(coefficients))
        return powers - x**2 / (2 * spreads[b]) - np.log(spreads[b]) / 2 + prior[b]

    chains, rng = 1500, np.random.default_rng(0)
    x, model = np.zeros(chains), np.zeros(chains, dtype=np.int64)
    seen = []
    for _ in range(160):
        c1, c2, c3, c4 = coefficients  # the quartic about x, by Taylor's theorem
        about = [
            c1 + 2 * c2 * x + 3 * c3 * x**2 + 4 * c4 * x**3,
            -0.5 + 2 * c3 * x + 4 * c4 * x**2,
            c3 + 4 * c4 * x,
            np.full(chains, c4),
            c2 + 0.5 + c3 * x + 2 * c4 * x**2,
        ]
        terms = np.stack([np.stack(about, axis=-1)] * 2)
        terms[..., 0] -= x / spreads[:, None]
        terms[..., 1] -= 1 / (2 * spreads[:, None])
        weights = prior[:, None] - (x**2 / spreads[:, None] + np.log(spreads)[:, None]) / 2
        a, model = draw_along(terms, weights, model, rng)
        x = x + a
        seen.append((x, model))
    x, model = (np.concatenate(part) for part in zip(*seen[60:], strict=True))
    whole = [quad(lambda v, b=b: np.exp(log_density(v, b)), -8, 8)[0] for b in (0, 1)]
    mean = sum(quad(lambda v, b=b: v * np.exp(log_density(v, b)), -8, 8)[0] for b in (0, 1))
    share = whole[1] / sum(whole)
    by_chain = x.reshape(100, chains).mean(axis=0)
    assert abs(by_chain.mean() - mean / sum(whole)) < 4 * by_chain.std() / np.sqrt(chains)
    by_chain = model.reshape(100, chains).mean(axis=0)
    assert abs(by_chain.mean() - share) < 4 * by_chain.std() / np.sqrt(chains)
    assert 0.1 < share < 0.9


def test_directions_are_unit_vectors_of_both_kinds() -> None:
    found = draw_direction((2000, 3), np.random.default_rng(1))
    assert np.linalg.norm(found, axis=-1) == pytest.approx(np.ones(2000))
    one_axis = np.count_nonzero(found, axis=-1) == 1
    assert abs(one_axis.mean() - 0.5) < 4 * np.sqrt(0.25 / 2000)
    assert np.all(np.abs(found.mean(axis=0)) < 1)
    assert set(np.argmax(found[one_axis], axis=-1)) == {0, 1, 2}
