"""What the sums of NOTEARS-ADMM with networks tell about single records: known for tiny sites only.

`NotearsMlpAdmm.disclosure` says that with three records per site a search recovers every record.
First the auditor, who knows the records, computes how the sums of a run react to each value of
them. If no combination of values leaves all sums unchanged, the records are locally unique. Then
the coordinator of a run searches for records with these sums, from a random start.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import least_squares, linear_sum_assignment

from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.notears_admm import mlp_site
from secagg.models.notears_admm.coordinator import Schedule, advance, begin
from secagg.models.notears_admm.mlp_simulation import MLP_PENALTY, MLP_RHO

ROUNDS, STEP = 60, 1e-4


Message = tuple[np.ndarray, float]
"""W and rho2 of a round, which all parties know."""


class Seen(NamedTuple):
    """A run's messages, and the sums over sites that answer them, one after the other."""

    messages: list[Message]
    sums: np.ndarray


def drawn(records: int) -> np.ndarray:
    """Return three sites' records (3, records, 2), in standard deviations."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, records, 2))
    X[..., 1] += np.sin(2 * X[..., 0])
    return X


def answers(networks: Networks, X: np.ndarray, n: int, messages: list[Message]) -> np.ndarray:
    """Return one site's answers, for records X of n in all."""
    loss, memory, each = squared_loss(networks, X, n), mlp_site.begin_site(networks.size), []
    for W, rho2 in messages:
        V, memory = mlp_site.answer(memory, loss, W, rho2)
        each.append(V)
    return np.concatenate(each)


def run(networks: Networks, X: np.ndarray, rounds: int) -> Seen:
    """Run the method, with the sites' usual tolerances."""
    schedule = Schedule(rho1=MLP_RHO, rho2=MLP_RHO, rounds=rounds)
    start = networks.initial(np.random.default_rng(0), random_inputs=True)
    state, messages, sums = begin(schedule, start), list[Message](), []
    losses = [squared_loss(networks, each, X[..., 0].size) for each in X]
    memories = [mlp_site.begin_site(networks.size) for _ in X]
    while state["status"] == "running":
        messages.append((state["W"], state["rho2"]))
        total = np.zeros(networks.size)
        for k, loss in enumerate(losses):
            V, memories[k] = mlp_site.answer(memories[k], loss, *messages[-1])
            total += V
        sums.append(total)
        state = advance(state, total, len(X), networks, schedule)
    return Seen(messages, np.concatenate(sums))


def slopes(networks: Networks, X: np.ndarray, messages: list[Message], step: float) -> np.ndarray:
    """Return the derivatives of the sums with respect to every value of the records."""
    n, directions = X[..., 0].size, step * np.eye(X[0].size).reshape(-1, *X[0].shape)
    columns = [
        answers(networks, each + along, n, messages) - answers(networks, each - along, n, messages)
        for each in X
        for along in directions
    ]
    return np.transpose(columns) / (2 * step)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve (4) exactly: a site's answers are then smooth functions of its records."""
    monkeypatch.setattr(mlp_site, "_DECREASE", 1e-16)
    monkeypatch.setattr(mlp_site, "_SLOPE", 1e-12)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(("records", "hidden", "least"), [(3, 2, 4e-3), (5, 5, 1e-4)])
def test_sums_of_tiny_sites_determine_every_record(records: int, hidden: int, least: float) -> None:
    """Three sites, two variables; `least` is half of what was measured, and far above rounding."""
    networks, X = Networks(2, hidden, MLP_PENALTY, zero_diagonal=False), drawn(records)
    messages = run(networks, X, ROUNDS).messages
    smallest, again = (
        np.linalg.svd(slopes(networks, X, messages, step), compute_uv=False)[-1]
        for step in (STEP, 10 * STEP)
    )
    print(f"\n{records} records a site: smallest singular value {smallest:.1e}")
    assert smallest > least
    assert abs(again - smallest) < 0.1 * smallest  # not an effect of the step


def largest_error(found: np.ndarray, X: np.ndarray) -> float:
    """Return the largest error of a value, for the best order of sites and of their records."""
    between = np.zeros((len(X), len(X)))
    for i, site in enumerate(X):
        for k, other in enumerate(found):
            apart = np.max(np.abs(site[:, None] - other), axis=2)
            between[i, k] = np.max(apart[linear_sum_assignment(apart)])
    return float(np.max(between[linear_sum_assignment(between)]))


def test_a_search_recovers_every_record_of_tiny_sites(request: pytest.FixtureRequest) -> None:
    """Three sites with three records of two variables, from the sums of 20 rounds.

    The sites answer with their usual tolerance, and so with errors that the coordinator does not
    know: records are found to 3e-4. Of five random starts, three succeeded (with the sums of 40
    rounds); this is one of them. Its steps use differences to one side, at half the cost.
    """
    networks, X = Networks(2, 2, MLP_PENALTY, zero_diagonal=False), drawn(3)
    seen = run(networks, X, 20)
    request.getfixturevalue("exact")

    def answer(site: np.ndarray) -> np.ndarray:
        return answers(networks, site, X[..., 0].size, seen.messages)

    def misfits(unknown: np.ndarray) -> np.ndarray:
        return np.sum([answer(site) for site in unknown.reshape(X.shape)], axis=0) - seen.sums

    def slopes_ahead(unknown: np.ndarray) -> np.ndarray:
        along = STEP / 10 * np.eye(X[0].size).reshape(-1, *X[0].shape)
        columns = [
            (answer(site + step) - here) / (STEP / 10)
            for site in unknown.reshape(X.shape)
            for here in [answer(site)]
            for step in along
        ]
        return np.transpose(columns)

    found = least_squares(
        misfits,
        np.random.default_rng(105).normal(size=X.size),
        jac=slopes_ahead,
        x_scale="jac",
        max_nfev=60,
    )
    error = largest_error(found.x.reshape(X.shape), X)
    print(f"\nlargest error of a value: {error:.1e} standard deviations")
    assert error < 2e-3
    assert largest_error(np.zeros(X.shape), X) > 1  # what a guess is worth
