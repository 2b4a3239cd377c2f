import networkx as nx
import numpy as np
import pytest

from secagg.errors import UsageError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs import golem as module
from secagg.models.graphs.acyclicity import acyclic_edges, is_acyclic
from secagg.models.graphs.golem import golem, golem_objective
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.numerics.lbfgs import FinitePoint

BOTH = pytest.mark.parametrize("equal_variances", [True, False])


def moments(S: np.ndarray, n: int = 1000) -> Moments:
    names = tuple(f"x{j}" for j in range(len(S)))
    return Moments(names, n, np.zeros(len(S)), n * S)


def score(S: np.ndarray, B: np.ndarray, equal_variances: bool) -> float:
    """The whole objective with the paper's penalties."""
    smooth = golem_objective(S, equal_variances=equal_variances, dag_penalty=5.0)
    return smooth(B)[0] + (0.02 if equal_variances else 0.002) * float(np.abs(B).sum())


def fit_in_order(S: np.ndarray, order: tuple[int, ...], equal_variances: bool) -> np.ndarray:
    """Minimise the score over the DAGs of an order, by majorising each logarithm by its tangent:
    a lasso with penalty times the residual variance, solved by coordinate descent, repeated.
    """
    p, B = len(S), np.zeros_like(S)
    for _ in range(2000):
        before = B.copy()
        residual = np.eye(p) - B
        variance = np.diagonal(residual.T @ S @ residual)
        scale = np.full(p, variance.mean() * 0.02) if equal_variances else variance * 0.002
        for place, child in enumerate(order):
            for k in order[:place]:
                rest = S[k, child] - S[k] @ B[:, child] + S[k, k] * B[k, child]
                B[k, child] = np.sign(rest) * max(abs(rest) - scale[child], 0.0) / S[k, k]
        if np.max(np.abs(B - before)) < 1e-13:
            break
    return B


@BOTH
def test_the_likelihood_agrees_with_the_rows(simulate, equal_variances: bool) -> None:
    network = simulate(3, 4, 4, 50)
    B = 0.3 * np.random.default_rng(0).normal(size=(4, 4))
    np.fill_diagonal(B, 0)
    centred = network.rows - network.rows.mean(axis=0)
    noise = centred @ (np.eye(4) - B)
    # Profile log-likelihood: density of the rows at the best noise variances, by its definition.
    variances = np.full(4, np.mean(noise**2)) if equal_variances else np.mean(noise**2, axis=0)
    inverse = np.linalg.inv(np.eye(4) - B)
    covariance = inverse.T @ np.diag(variances) @ inverse
    quadratic = np.einsum("ni,ij,nj->", centred, np.linalg.inv(covariance), centred) / 50
    expected = 0.5 * (np.linalg.slogdet(covariance)[1] + quadratic)
    smooth = golem_objective(
        network.moments.covariance, equal_variances=equal_variances, dag_penalty=0.0
    )
    # Constants dropped: p/2 of the quadratic term, and for EV the mean in place of the sum.
    constant = 2.0 - (0.5 * 4 * np.log(4) if equal_variances else 0.0)
    assert smooth(B)[0] + constant == pytest.approx(expected, rel=1e-12)  # rounding of the sums


@BOTH
def test_the_gradient_agrees_with_differences(
    simulate, numerical_gradient, equal_variances: bool
) -> None:
    S = simulate(3, 5, 6, 40).moments.covariance
    B = 0.3 * np.random.default_rng(1).normal(size=(5, 5))
    smooth = golem_objective(S, equal_variances=equal_variances, dag_penalty=5.0)
    numerical, error = numerical_gradient(lambda V: smooth(V)[0], B)
    np.testing.assert_allclose(smooth(B)[1], numerical, rtol=0, atol=error)


@BOTH
@pytest.mark.parametrize(("seed", "p"), [(0, 3), (1, 3), (2, 4), (3, 4)])
def test_no_dag_of_the_same_order_has_a_better_score(
    simulate, seed: int, p: int, equal_variances: bool
) -> None:
    S = simulate(seed, p, p, 300).moments.covariance
    penalty = 0.02 if equal_variances else 0.002
    fit = golem(moments(S), standardise=False, equal_variances=equal_variances, penalty=penalty)
    assert fit.converged
    edges, _ = acyclic_edges(fit.weights, 0.0)
    order = nx.topological_sort(nx.from_numpy_array(edges, create_using=nx.DiGraph))
    best = fit_in_order(S, tuple(order), equal_variances)
    # The DAGs of the fit's own order are candidates of the soft problem, next to the fit: its score
    # is at most theirs, up to the gain (1e-7) at which the restarts end.
    assert score(S, fit.weights, equal_variances) <= score(S, best, equal_variances) + 1e-7


@BOTH
def test_strong_signal_is_recovered(simulate, equal_variances: bool) -> None:
    network = simulate(7, 8, 9, 5000)
    for data in (network.exact, network.moments):
        fit = golem(data, standardise=False, equal_variances=equal_variances)
        assert fit.converged
        assert fit.method == ("golem-ev" if equal_variances else "golem-nv")
        assert compare_graphs(fit.directed, network.truth).shd == 0


@BOTH
def test_a_forbidden_edge_has_the_weight_0(simulate, equal_variances: bool) -> None:
    """The true edges are forbidden, which the search would otherwise find."""
    network = simulate(7, 8, 9, 5000)
    true = network.truth > 0
    known = Knowledge(network.moments.names, true, np.zeros_like(true), {})
    fit = golem(
        network.moments, standardise=False, equal_variances=equal_variances, knowledge=known
    )
    assert true.any() and not fit.weights[true].any() and fit.weights.any()


@BOTH
def test_nearly_equal_variables_keep_their_edge(equal_variances: bool) -> None:
    fit = golem(moments(np.array([[1, 0.9], [0.9, 1]])), equal_variances=equal_variances)
    assert fit.converged
    assert fit.directed.sum() == 1


def test_remaining_cycles_are_removed_with_a_note(simulate) -> None:
    fit = golem(simulate(3, 5, 8, 200).moments, dag_penalty=0.001)
    assert fit.converged
    assert is_acyclic(fit.directed)
    assert fit.diagnostics["threshold"] > 0.3
    assert fit.notes


@pytest.mark.parametrize(("finite", "values"), [(False, [1.0]), (True, range(0, -1000, -1))])
def test_cycles_of_a_failed_search_are_not_removed(
    monkeypatch, simulate, finite: bool, values
) -> None:
    """No finite step could be made, or the objective never stops falling."""
    cyclic, coming = np.array([[0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 0]]), iter(values)
    monkeypatch.setattr(
        module,
        "minimise_sparse",
        lambda *_, **__: FinitePoint(cyclic, float(next(coming)), finite, 1),
    )
    fit = golem(simulate(1, 3, 2, 50).moments, equal_variances=True)
    assert not fit.converged
    assert fit.notes[0].startswith("not converged")
    assert not is_acyclic(fit.directed)


@pytest.mark.parametrize("n", [50, 10**6])
@pytest.mark.parametrize("standardise", [True, False])
@BOTH
def test_the_default_penalty_is_the_universal_threshold(
    simulate, equal_variances: bool, standardise: bool, n: int
) -> None:
    """root(2 log p / n), a quarter of it in own units, and at least the paper's."""
    S = simulate(3, 5, 6, 300).moments.covariance
    fit = golem(moments(S, n), equal_variances=equal_variances, standardise=standardise)
    usual = np.sqrt(2 * np.log(5) / n) * (1.0 if standardise else 0.25)
    paper = 0.02 if equal_variances else 0.002
    assert fit.settings["penalty"] == pytest.approx(max(usual, paper), rel=1e-14)


@pytest.mark.parametrize(
    ("n", "standardise", "equal_variances", "warned"),
    [(7, False, False, True), (9, False, False, False), (7, True, False, False),
     (140, True, True, False), (160, True, True, True), (160, False, True, False)],
)  # fmt: skip
def test_where_no_graph_is_as_good_the_result_has_a_caution(
    simulate, n: int, standardise: bool, equal_variances: bool, warned: bool
) -> None:
    """Five variables: below 1.5 records for each in own units, 1.1 on standardised columns; and
    with errors of equal variance on standardised columns above 30.
    """
    fit = golem(
        simulate(3, 5, 6, n).moments, standardise=standardise, equal_variances=equal_variances
    )
    assert bool(fit.caution) == warned
    assert (fit.caution in fit.notes) == warned


def test_unusable_moments_are_refused(simulate) -> None:
    with pytest.raises(UsageError):
        golem(simulate(5, 8, 8, 6).moments)  # 6 records, 8 variables
