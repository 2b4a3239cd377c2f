"""The NOTEARS-ADMM benchmark: its tables, and that its reference solves what ours solves."""

from importlib import import_module

import numpy as np
import pytest
from scipy.linalg import expm

from secagg.models.common.units import centred
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    return import_module("benchmarks.methods.bench_notears")


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    return import_module("benchmarks.peers.notears_reference")


def test_the_speed_table_has_a_row_for_each_case(bench) -> None:
    cases = [bench.Case(3, 30, 2), bench.Case(4, 30, 3)]
    _, _, *rows = bench.speed(cases, rounds=2).splitlines()
    assert [row.split()[1:6:2] for row in rows] == [["3", "30", "2"], ["4", "30", "3"]]


def test_without_torch_only_our_method_runs(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "version", lambda _: None)
    assert list(bench.solvers(rounds=1, nonlinear=False)) == ["paper", "fast"]


def test_memory_of_rounds_does_not_depend_on_records(bench) -> None:
    _, _, *rows = bench.memory(5, (50, 5000)).splitlines()
    (few, *of_few), (many, *of_many) = ([c.strip() for c in row.split("|")[1:-1]] for row in rows)
    assert (few, many) == ("50", "5,000")
    kept, *peaks = zip(of_few, of_many, strict=True)
    assert kept[0] == kept[1]
    for one, other in peaks:  # 5000 records of 5 values are 200 kB
        assert one.split()[1] == other.split()[1] == "kB"
        assert abs(float(one.split()[0]) - float(other.split()[0])) < 20


def test_peak_memory_counts_the_allocations_of_a_step(bench) -> None:
    bytes_, array = bench.peak(lambda: np.ones(10_000))
    assert array.nbytes <= bytes_ < array.nbytes + 20_000


def test_simulated_clients_share_the_records(bench) -> None:
    truth, sites = bench.Case(5, 60, 4).simulate()
    assert truth.sum() == 5
    assert [rows.shape for rows in sites] == [(15, 5)] * 4


def test_distance_counts_edges_over_the_threshold(bench) -> None:
    truth = np.array([[False, True], [False, False]])
    assert bench.distance(np.array([[0, 0.31], [0.3, 0]]), truth) == 0
    assert bench.distance(np.array([[0, 0.29], [0, 0]]), truth) == 1
    assert bench.distance(np.array([[0.31, 0.31], [0, 0]]), truth) == "loops"


def test_the_reference_solves_a_sites_problem_like_ours(reference) -> None:
    """(10) in the reference; (10') and V = beta + rho2 (B - W) in ours."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, W = centred(rng.standard_normal((12, 5))), rng.standard_normal((5, 5))
    n, rho_2 = 50, 0.1
    V, _ = answer(begin_site(*spectrum(X, n), 5), W, rho_2)
    beta = torch.zeros(5, 5, dtype=torch.float64)
    B = reference.local_step(torch.from_numpy(X.T @ X / n), torch.from_numpy(W), beta, rho_2)
    # Both are solutions with S + rho2 I, whose condition is below 1 + |S| / rho2 ~ 10.
    np.testing.assert_allclose(rho_2 * (B.numpy() - W), V, rtol=0, atol=1e-13)


def test_the_reference_minimises_the_papers_problem(reference) -> None:
    """Its slope, torch's, against that of (5) by hand, from the clients' sum."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    W, *others = rng.normal(0, 0.5, (7, 4, 4))
    B, beta = np.array(others[:3]), np.array(others[3:])
    alpha, rho_1, rho_2 = 0.7, 3.0, 0.2
    point = torch.from_numpy(W).requires_grad_()
    clients = [list(map(torch.from_numpy, group)) for group in (B, beta)]
    reference.lagrangian(point, *clients, alpha, rho_1, rho_2).backward()
    assert point.grad is not None

    exponential = expm(W * W)
    h = np.trace(exponential) - 4
    terms = (
        reference.PENALTY * np.sign(W),
        (alpha + rho_1 * h) * exponential.T * 2 * W,
        3 * rho_2 * W - np.sum(rho_2 * B + beta, axis=0),
    )
    # Each term is a sum of fewer than 16 products, each rounded.
    size = max(float(np.max(np.abs(term))) for term in terms)
    slope = point.grad.numpy()
    np.testing.assert_allclose(
        slope, np.sum(terms, axis=0), rtol=0, atol=16 * size * np.finfo(float).eps
    )


def test_the_reference_recovers_the_graph_of_the_papers_setting(bench, reference) -> None:
    """Two minimisers of a function with kinks agree to their tolerance, not to rounding."""
    truth, sites = bench.Case(4, 1200, 2, seed=0).simulate()
    theirs, ours = reference.reference(sites, rounds=70), bench.linear("paper", 70, sites)
    np.testing.assert_array_equal(np.abs(theirs) > 0.3, np.abs(ours) > 0.3)
    assert np.sum(np.abs(ours) > 0.3) == truth.sum()
    # L-BFGS-B stops where a step lowers (5) by less than 2.2e-9 max(1, |value|) or no slope exceeds
    # 1e-5. In round 70 its curvature is K rho2 = 2 * 1e-3 * 1.25^69 ~ 1e4, so that step moved W by
    # about (2 * 2.2e-9 / 1e4)^(1/2) < 1e-6; what is left are kinks met in different early rounds.
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=0.01)
