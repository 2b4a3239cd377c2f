"""The reference for networks: NOTEARS-MLP-ADMM with torch's autograd, as described in the paper.

Section 5.2 and appendix B of Ng and Zhang (AISTATS 2022), with the networks of Zheng, Dan, Aragam,
Ravikumar and Xing (AISTATS 2020): one hidden layer of ten sigmoid units for each variable, W_ij the
norm of the weights from variable i into network j. All parameters, biases too, are consensus
variables. The clients' problem (4) has no closed form here: L-BFGS for it as for (5).

    python -m benchmarks.peers.notears_mlp_reference [-d 20] [-n 256] [-K 8] [--seed 0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.harness import number, timed
from benchmarks.methods.notears_cases import Matrix, asked, distance
from benchmarks.peers.notears_reference import (
    GAMMA_1,
    GAMMA_2,
    MAX_RHO,
    MAX_ROUNDS,
    TraceExponential,
)

RHO_1, RHO_2 = 0.1, 0.1
PENALTY = 0.001
HIDDEN = 10


class Networks(nn.Module):
    """d locally connected perceptrons, each of all d variables."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d
        self.first = nn.Linear(d, d * HIDDEN, dtype=torch.float64)
        width = 1 / math.sqrt(HIDDEN)
        self.second = nn.Parameter(torch.empty(d, HIDDEN, dtype=torch.float64))
        self.bias = nn.Parameter(torch.empty(d, dtype=torch.float64))
        nn.init.uniform_(self.second, -width, width)
        nn.init.uniform_(self.bias, -width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.sigmoid(self.first(x)).reshape(-1, self.d, HIDDEN)
        return (hidden * self.second).sum(dim=2) + self.bias

    def squares(self) -> Tensor:
        """Return W o W, (d, d), [i, j] for i -> j."""
        return (self.first.weight.reshape(self.d, HIDDEN, self.d) ** 2).sum(dim=1).T

    def minimise(self, objective: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        """Minimise a function of all parameters, given to it as one vector; L-BFGS."""

        def evaluate(flat: Matrix) -> tuple[float, Matrix]:
            vector_to_parameters(torch.from_numpy(flat), self.parameters())
            self.zero_grad()
            value = objective(parameters_to_vector(self.parameters()))
            value.backward()
            return value.item(), np.concatenate(
                [p.grad.numpy().ravel() if p.grad is not None else np.zeros(p.numel())
                 for p in self.parameters()]
            )  # fmt: skip

        result = minimize(evaluate, start.numpy(), jac=True, method="L-BFGS-B")
        vector_to_parameters(torch.from_numpy(result.x), self.parameters())
        return torch.from_numpy(result.x)


def proximity(beta: Tensor, difference: Tensor, rho_2: float) -> Tensor:
    """Return the terms of consensus in (4) and (5), for one client."""
    return beta @ difference + 0.5 * rho_2 * difference @ difference


def mlp_reference(sites: Sequence[Matrix], rounds: int = MAX_ROUNDS, seed: int = 0) -> Matrix:
    """Return W, (d, d), before the threshold; the published schedule ends after 176 rounds.

    sites: the rows of each client, (n_k, d) each; seed: of the first parameters
    """
    torch.manual_seed(seed)
    n, d = sum(len(rows) for rows in sites), sites[0].shape[1]
    networks = Networks(d)
    X = [torch.from_numpy(rows) for rows in sites]
    W = parameters_to_vector(networks.parameters()).detach()
    B, beta = [W.clone() for _ in X], [torch.zeros_like(W) for _ in X]
    alpha, rho_1, rho_2 = 0.0, RHO_1, RHO_2

    def h() -> Tensor:
        return TraceExponential.apply(networks.squares()) - d

    def local(k: int) -> Callable[[Tensor], Tensor]:
        def problem(theta: Tensor) -> Tensor:
            loss = ((X[k] - networks(X[k])) ** 2).sum() / (2 * n)
            return loss + proximity(beta[k], theta - W, rho_2)

        return problem

    def shared(theta: Tensor) -> Tensor:
        cycles = h()
        value = PENALTY * networks.first.weight.abs().sum()
        value = value + alpha * cycles + 0.5 * rho_1 * cycles * cycles
        for B_k, beta_k in zip(B, beta, strict=True):
            value = value + proximity(beta_k, B_k - theta, rho_2)
        return value

    for _ in range(rounds):
        if rho_1 >= MAX_RHO and rho_2 >= MAX_RHO:
            break
        B = [networks.minimise(local(k), B_k) for k, B_k in enumerate(B)]  # (4)
        W = networks.minimise(shared, W)  # (5)
        alpha += rho_1 * h().item()  # (6)
        beta = [beta_k + rho_2 * (B_k - W) for B_k, beta_k in zip(B, beta, strict=True)]  # (7)
        rho_1 *= GAMMA_1  # (8)
        rho_2 *= GAMMA_2  # (9)
    return networks.squares().detach().numpy() ** 0.5


def main() -> None:
    torch.set_num_threads(1)
    case = asked((__doc__ or "").splitlines()[0], nonlinear=True)
    truth, sites = case.simulate()
    seconds, W = timed(lambda: mlp_reference(sites))
    print(f"{case}: {number(seconds)} s of processor time, SHD {distance(W, truth)}")


if __name__ == "__main__":
    main()
