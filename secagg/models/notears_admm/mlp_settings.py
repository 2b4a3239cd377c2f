"""The settings of `notears_mlp_admm`, and what follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.errors import JobError
from secagg.models.common.checks import check_halves, check_numbers
from secagg.models.common.variables import choose, halves
from secagg.models.graphs.job_result import Edges, check_truth
from secagg.models.graphs.mlp import Networks
from secagg.models.notears_admm.coordinator import Schedule, Solver
from secagg.models.notears_admm.mlp_simulation import MLP_PENALTY, MLP_RHO
from secagg.models.notears_admm.variants import Variant, settings_in_force

_MAX_HIDDEN = 1000
_NOISY_PENALTY = 0.01


@dataclass(frozen=True, kw_only=True)
class MlpSettings:
    """How the networks are learned, with noise and without."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    variant: Variant = "fast"
    """Sets the defaults of `solver`, `standardise` and `random_inputs`.
    `"fast"`: our choice of these settings. `"paper"`: the paper's optimiser and schedule, columns
    in their own units, and random first layers."""
    solver: Solver | None = None
    """Without noise: how the coordinator computes the next networks. `"proximal"` (variant "fast"):
    a proximal Newton step. It stops when h, which is 0 if there is no cycle, is at most 1e-6, and
    the mean difference between the sites' solutions (the consensus residual) is at most 1e-8.
    `"subgradient"` (variant "paper"): the paper's optimiser with its whole schedule of 176
    rounds."""
    penalty: float | None = None
    """Factor of the sum of absolute weights in the first layers, at least 0. The default is the
    paper's, 0.001; with noise, 0.01."""
    hidden: int = 10
    """Number of hidden units of each network, from 1 to 1000."""
    threshold: float = 0.3
    """Edges with `W_ij` at or below this number are dropped."""
    standardise: bool | None = None
    """Standardise columns by pooled means and standard deviations, which are then released (true
    with variant "fast"). With noise, they are estimated from one more noisy sum. If false (with
    variant "paper"), columns keep their own units, and the middle of their bounds is
    subtracted."""
    zero_diagonal: bool = False
    """Forbid from the start that a network uses its own variable. If false, as in the paper's
    program, the acyclicity constraint prevents this. With true, more edges are found, right ones
    and wrong ones."""
    random_inputs: bool | None = None
    """Start with random weights in the first layers, as the paper's program does (true with variant
    "paper"). If false (with variant "fast"), the search starts without edges and finds far fewer
    wrong edges."""
    acyclic: bool = False
    """If the graph has cycles, raise the threshold until no cycle is left. If false, cycles stay,
    and the result says so."""
    rho1: float = MLP_RHO
    """First value of the penalty on h, which measures cycles (with noise, the last one is 1e5 times
    this), from 1e-12 to 1e16."""
    rho2: float = MLP_RHO
    """Without noise: first value of the penalty on differences between the sites' solutions, from
    1e-12 to 1e16."""
    gamma1: float = 1.75
    """Without noise: factor by which `rho1` grows in each round, above 1 and at most 100."""
    gamma2: float = 1.25
    """Without noise: factor by which `rho2` grows in each round, above 1 and at most 100."""
    rounds: int = 200
    """Largest number of rounds, from 1 to 10000. With noise, all of them are run, and the budget is
    divided among them."""
    clip: float | None = None
    """With noise: the largest L2 norm of one record's gradient (default 2). A longer gradient is
    scaled down to it. The noise is proportional to it."""
    learning_rate: float | None = None
    """With noise: step size of the coordinator (default 0.05), from 1e-6 to 1."""
    sampling_rate: float = 1.0
    """With noise: the probability with which each record takes part in a round, above 0 and at most
    1. A smaller rate saves time at the sites and hardly changes the noise of a mean gradient."""
    seed: int = 0
    """Seed of the networks' random start values, at least 0."""
    truth: Edges | None = None
    """The true edges `["cause", "effect"]` between variables, if they are known. The graph is then
    scored. They must form a directed acyclic graph."""

    @cached_property
    def schedule(self) -> Schedule:
        """How penalties grow without noise, and when the rounds end."""
        solver = self.in_force["solver"]
        return Schedule(solver, self.rho1, self.rho2, self.gamma1, self.gamma2, self.rounds)

    @property
    def given(self) -> dict[str, Any]:
        """The settings that have other values in other variants."""
        names = ("solver", "standardise", "random_inputs", "gamma1", "gamma2", "rounds")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def in_force(self) -> dict[str, Any]:
        """These settings, with the variant's values for those that the job leaves out."""
        return settings_in_force(self.variant, self.given)

    @property
    def standardised(self) -> bool:
        """Whether columns are divided by their pooled standard deviations."""
        return bool(self.in_force["standardise"])

    @property
    def starts_random(self) -> bool:
        return bool(self.in_force["random_inputs"])

    def check(self, public: PublicFacts) -> None:
        """Raise `JobError` for settings out of range, or that do not fit the columns."""
        self.schedule.check()
        check_numbers(self, {"threshold": 0, "seed": 0, "hidden": 1})
        if self.penalty is not None:
            check_numbers(self, {"penalty": 0})
        if self.hidden > _MAX_HIDDEN:
            raise JobError("method.hidden", f"must be at most {_MAX_HIDDEN}")
        check_truth(self.truth, self.names(public), public)
        check_halves(halves(public, self.chosen(public)), self.names(public))

    def networks(self, public: PublicFacts) -> Networks:
        return self.networks_of(len(self.chosen(public)), noised=public.clip is not None)

    def networks_of(self, d: int, *, noised: bool) -> Networks:
        """Return the layout for so many variables."""
        default = _NOISY_PENALTY if noised else MLP_PENALTY
        penalty = default if self.penalty is None else self.penalty
        return Networks(d, self.hidden, penalty, self.zero_diagonal)

    def names(self, public: PublicFacts) -> tuple[str, ...]:
        return tuple(public.variables[i].name for i in self.chosen(public))

    def chosen(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.variables, "method.variables")
