"""The reference for speed: linear NOTEARS-ADMM with torch's autograd, as described in the paper.

Ng and Zhang, "Towards Federated Bayesian Network Structure Learning with Continuous Optimization",
AISTATS 2022: algorithm 1 with the updates (5) to (10) and the hyperparameters of appendix B. Each
line is one equation: the coordinator's objective (5) is a sum over the clients, written as such,
and torch computes its gradient. The reference is not slower than necessary: h has its own gradient,
because that of torch.matrix_exp is slower.

    python -m benchmarks.peers.notears_reference [-d 20] [-n 256] [-K 8] [--seed 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.linalg import expm
from scipy.optimize import minimize
from torch import Tensor

from benchmarks.harness import number, timed
from benchmarks.methods.notears_cases import Matrix, asked, distance

GAMMA_1, GAMMA_2 = 1.75, 1.25
RHO_1, RHO_2 = 0.001, 0.001
PENALTY = 0.01
MAX_ROUNDS, MAX_RHO = 200, 1e16


class TraceExponential(torch.autograd.Function):
    """tr exp(A), whose gradient is exp(A)'.

    torch.matrix_exp serves every function of exp(A), with the exponential of a matrix of twice the
    size for its gradient.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:  # type: ignore[override]  # one argument, named
        with np.errstate(over="ignore", invalid="ignore"):  # of a long trial step
            exponential = torch.from_numpy(expm(A.detach().numpy()))
        ctx.save_for_backward(exponential)
        return torch.trace(exponential)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        (exponential,) = ctx.saved_tensors
        return slope * exponential.T


def acyclicity(W: Tensor) -> Tensor:
    """Return h(W) of (1)."""
    return TraceExponential.apply(W * W) - len(W)


def local_step(S: Tensor, W: Tensor, beta: Tensor, rho_2: float) -> Tensor:
    """Return B_k of (10)."""
    identity = torch.eye(len(S), dtype=torch.float64)
    return torch.linalg.solve(S + rho_2 * identity, rho_2 * W - beta + S)


def lagrangian(
    W: Tensor, B: Sequence[Tensor], beta: Sequence[Tensor], alpha: float, rho_1: float, rho_2: float
) -> Tensor:
    """Return what (5) minimises over W."""
    h = acyclicity(W)
    value = PENALTY * W.abs().sum() + alpha * h + 0.5 * rho_1 * h * h
    for B_k, beta_k in zip(B, beta, strict=True):
        difference = B_k - W
        value = value + torch.trace(beta_k @ difference.T)
        value = value + 0.5 * rho_2 * (difference * difference).sum()
    return value


def global_step(
    W: Tensor, B: Sequence[Tensor], beta: Sequence[Tensor], alpha: float, rho_1: float, rho_2: float
) -> Tensor:
    """Return W of (5), by L-BFGS from the last W; at W_ij = 0 autograd's subgradient of |W_ij|."""

    def objective(flat: Matrix) -> tuple[float, Matrix]:
        point = torch.from_numpy(flat).reshape(W.shape).requires_grad_()
        value = lagrangian(point, B, beta, alpha, rho_1, rho_2)
        value.backward()
        assert point.grad is not None
        return value.item(), point.grad.numpy().ravel()

    result = minimize(objective, W.numpy().ravel(), jac=True, method="L-BFGS-B")
    return torch.from_numpy(result.x).reshape(W.shape)


def reference(sites: Sequence[Matrix], rounds: int = MAX_ROUNDS) -> Matrix:
    """Return W, (d, d), before the threshold.

    sites: the rows of each client, (n_k, d) each; centred here, by each client for itself
    rounds: at most so many; the published schedule ends after 197
    """
    n = sum(len(rows) for rows in sites)
    centred = [torch.from_numpy(rows - rows.mean(axis=0)) for rows in sites]
    S = [rows.T @ rows / n for rows in centred]
    d = sites[0].shape[1]
    W = torch.zeros(d, d, dtype=torch.float64)
    beta = [torch.zeros_like(W) for _ in sites]
    alpha, rho_1, rho_2 = 0.0, RHO_1, RHO_2
    for _ in range(rounds):
        if rho_1 >= MAX_RHO and rho_2 >= MAX_RHO:
            break
        B = [local_step(S_k, W, beta_k, rho_2) for S_k, beta_k in zip(S, beta, strict=True)]
        W = global_step(W, B, beta, alpha, rho_1, rho_2)
        alpha += rho_1 * acyclicity(W).item()  # (6)
        beta = [beta_k + rho_2 * (B_k - W) for B_k, beta_k in zip(B, beta, strict=True)]  # (7)
        rho_1 *= GAMMA_1  # (8)
        rho_2 *= GAMMA_2  # (9)
    return W.numpy()


def main() -> None:
    torch.set_num_threads(1)
    case = asked((__doc__ or "").splitlines()[0])
    truth, sites = case.simulate()
    seconds, W = timed(lambda: reference(sites))
    print(f"{case}: {number(seconds)} s of processor time, SHD {distance(W, truth)}")


if __name__ == "__main__":
    main()
