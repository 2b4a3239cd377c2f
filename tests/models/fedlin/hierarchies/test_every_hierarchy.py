"""What each of HM2's hierarchies must do: priors, sites without records, sites that are awkward."""

import numpy as np
import pytest
from numpy.typing import NDArray
from support.fedlin.penalised_world import regression, sums, vague

from secagg.models.fedlin.hierarchies.base import Hierarchy, SufficientStatistics
from secagg.models.fedlin.hierarchies.elastic_net import ElasticNet, ElasticPenalty
from secagg.models.fedlin.hierarchies.lasso import Lasso
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hierarchies.penalised_moments import SamplerBudget
from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]


@pytest.mark.parametrize(
    ("hierarchy", "mean", "sd", "components"),
    [
        (Ridge((1.0, 2.0), (3.0, 0.5)), [1, 2], [3, 0.5], ["log lambda", "log sigma^2"]),
        (Lasso((1.0, 2.0), (3.0, 0.5)), [1, 2], [3, 0.5], ["log lambda", "log sigma^2"]),
        (ElasticNet((1.0, 2.0, 3.0), (3.0, 0.5, 2.0)), [1, 2, 3], [3, 0.5, 2],
         ["log lambda1", "log lambda2", "log sigma^2"]),
        (NormalHierarchy(mean=1.0, sd=2.0, log_mean=-3.0, log_sd=0.5),
         [1, 1, -3, -3], [2, 2, 0.5, 0.5], ["mu[a]", "mu[b]", "log tau[a]", "log tau[b]"]),
    ],
)  # fmt: skip
def test_the_prior_has_the_configured_parameters(
    hierarchy: Hierarchy, mean: list[float], sd: list[float], components: list[str]
) -> None:
    found, cov = hierarchy.prior(2).moments()
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(cov, np.diag(np.square(sd)), atol=1e-12)
    assert list(hierarchy.components(("a", "b"))) == components


def centred_ridge(phi: Array, theta: Array) -> list[Array]:
    return [theta, theta**2 * np.exp(phi[:, :1] - phi[:, 1:]) - 1]


def centred_lasso(phi: Array, theta: Array) -> list[Array]:
    size = np.abs(theta) * np.exp(phi[:, :1] - phi[:, 1:] / 2)
    return [np.sign(theta), size - 1, size**2 - 2]


def centred_net(phi: Array, theta: Array) -> list[Array]:
    v, expected = np.abs(theta) * np.exp(-phi[:, 2:] / 2), ElasticPenalty().expected(phi)
    square = v**2 * np.exp(phi[:, 1:2]) / 2
    return [v * np.exp(phi[:, :1]) - expected[:, :1], square - expected[:, 1:]]


def centred_normal(phi: Array, theta: Array) -> list[Array]:
    away = theta - phi[:, :3]
    return [away, away**2 / np.exp(phi[:, 3:]) - 1]


@pytest.mark.parametrize(
    ("hierarchy", "size", "centred"),
    [
        (Ridge(), 2, centred_ridge),
        (Lasso(), 2, centred_lasso),
        (ElasticNet(), 3, centred_net),
        (NormalHierarchy(), 6, centred_normal),
    ],
)
def test_a_site_without_records_does_not_change_the_cavity(hierarchy, size, centred) -> None:
    """To the bit; phi is drawn from the cavity, theta from its prior given phi."""
    cavity = Natural.of(np.linspace(0.5, -0.5, size), 0.2 * np.eye(size) + 0.1)
    empty = SufficientStatistics(np.zeros((3, 3)), np.zeros(3), 0.0, 0, 1.0)
    found, (mean, cov) = hierarchy.tilted(empty, cavity, np.random.default_rng(1)), cavity.moments()
    assert np.array_equal(found.mean, mean)
    assert np.array_equal(found.cov, cov)
    assert not found.error.any()
    draws = hierarchy.draw(empty, cavity, 6400, np.random.default_rng(2))
    for values in (draws.phi - mean, *centred(draws.phi, draws.theta)):
        chains = values.reshape(64, 100, -1).mean(axis=1)
        # 1.3: candidates of the normal hierarchy are drawn repeatedly
        assert np.all(np.abs(chains.mean(axis=0)) < 4.8 * 1.3 * chains.std(axis=0, ddof=1) / 8)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "name", ["few", "one", "perfect", "collinear", "doubled", "units", "constant", "many", "wide"]
)
@pytest.mark.parametrize(("kind", "size"), [(Lasso, 2), (ElasticNet, 3)])
def test_difficult_sites_have_finite_moments_and_draws(
    kind: type[Lasso | ElasticNet], size: int, name: str
) -> None:
    """Moments are finite and a covariance, within some error; draws are finite."""
    n, d = {"few": (5, 20), "one": (1, 4), "many": (100, 40)}.get(name, (20, 4))
    X, y = regression(n, d, seed=5)
    cavity = vague(5.0 if name == "wide" else 1.0, size)
    if name == "perfect":
        y = X @ np.ones(d)
    elif name == "collinear":
        X[:, 3] = X[:, 0] + X[:, 1]
    elif name == "doubled":
        X[:, 2:] = X[:, :2]
    elif name == "units":
        X *= 10.0 ** np.array([6, 0, -6, 3])
    elif name == "constant":
        y = np.zeros(n)
    rng = np.random.default_rng(1)
    found = kind(effort=SamplerBudget(most=2)).tilted(sums(X, y), cavity, rng)
    assert np.all(found.error < 0.3 * np.sqrt(np.diagonal(found.cov)))
    assert np.linalg.eigvalsh(found.cov)[0] > 0
    draws = kind().draw(sums(X, y), cavity, 128, rng)
    assert np.all(np.isfinite(draws.theta))
    if name == "doubled":  # only the sum is seen
        fitted = draws.theta[:, :2] + draws.theta[:, 2:]
        assert np.max(fitted.std(axis=0)) < 0.5 * np.max(draws.theta.std(axis=0))
