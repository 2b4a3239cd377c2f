"""What the sums of NOTEARS-ADMM with networks tell about single records: known for tiny sites only.

`NotearsMlpAdmm.disclosure` says that with a few records per site the equations determine every
record of every site. Here the auditor, who knows the records, computes how the sums of a run react
to each value of them. If no combination of values leaves all sums unchanged, the records are
locally unique. Whether a search finds them is another question.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.notears_admm import mlp_site
from secagg.models.notears_admm.coordinator import Schedule, advance, begin
from secagg.models.notears_admm.mlp_simulation import MLP_PENALTY, MLP_RHO

ROUNDS, STEP = 60, 1e-3


class Sites(NamedTuple):
    """records (K, n_k, d) in standard deviations, and the networks' shape."""

    records: np.ndarray
    networks: Networks

    def sums_of(self, X: np.ndarray, sent: list[tuple[np.ndarray, float]]) -> np.ndarray:
        """Return one site's answers to these W and rho2, for records X."""
        loss = squared_loss(self.networks, X, self.records.shape[0] * self.records.shape[1])
        memory, answers = mlp_site.begin_site(self.networks.size), []
        for W, rho2 in sent:
            V, memory = mlp_site.answer(memory, loss, W, rho2)
            answers.append(V)
        return np.concatenate(answers)


def messages(sites: Sites) -> list[tuple[np.ndarray, float]]:
    """Run the method; return W and rho2 of every round, which all parties know."""
    records, networks = sites
    schedule = Schedule(rho1=MLP_RHO, rho2=MLP_RHO, rounds=ROUNDS)
    start = networks.initial(np.random.default_rng(0), random_inputs=True)
    state, sent = begin(schedule, start), []
    n = records.shape[0] * records.shape[1]
    losses = [squared_loss(networks, X, n) for X in records]
    memories = [mlp_site.begin_site(networks.size) for _ in records]
    while state["status"] == "running":
        sent.append((state["W"], state["rho2"]))
        total = np.zeros(networks.size)
        for k, loss in enumerate(losses):
            V, memories[k] = mlp_site.answer(memories[k], loss, *sent[-1])
            total += V
        state = advance(state, total, len(records), networks, schedule)
    return sent


@pytest.mark.parametrize(("records", "hidden", "least"), [(3, 2, 4e-3), (5, 5, 1e-4)])
def test_sums_of_tiny_sites_determine_every_record(
    records: int, hidden: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sites, two variables; `least` is half of what was measured.

    Sites' answers are functions of their records, with derivatives if (4) is solved exactly. So the
    tolerances are small here, and two step sizes must agree.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, records, 2))
    X[..., 1] += np.sin(2 * X[..., 0])
    sites = Sites(X, Networks(2, hidden, MLP_PENALTY, zero_diagonal=False))
    sent = messages(sites)
    monkeypatch.setattr(mlp_site, "_DECREASE", 1e-16)
    monkeypatch.setattr(mlp_site, "_SLOPE", 1e-12)

    def slope(k: int, direction: np.ndarray, step: float) -> np.ndarray:
        ahead, behind = (sites.sums_of(X[k] + sign * step * direction, sent) for sign in (1, -1))
        return (ahead - behind) / (2 * step)

    directions = np.eye(X[0].size).reshape(-1, *X[0].shape)
    jacobian = np.array([slope(k, along, STEP) for k in range(3) for along in directions])
    assert np.linalg.norm(slope(0, directions[0], STEP / 10) - jacobian[0]) < 0.2 * least
    smallest = np.linalg.svd(jacobian, compute_uv=False)[-1]
    print(f"\n{records} records a site: smallest singular value {smallest:.1e}")
    assert smallest > least
