"""The settings of `notears_mlp_admm`, and what follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, State
from secagg.errors import JobError
from secagg.models.common.checks import check_halves, check_numbers
from secagg.models.common.variables import choose, halves
from secagg.models.graphs.job_result import check_truth
from secagg.models.graphs.knowledge import FORBIDDEN, Edges, Knowledge, KnowledgeSettings, in_state
from secagg.models.graphs.mlp import Networks
from secagg.models.notears_admm.coordinator import Schedule, Solver
from secagg.models.notears_admm.mlp_pooled import ROUNDS
from secagg.models.notears_admm.mlp_simulation import MLP_RHO
from secagg.models.notears_admm.variants import Variant, settings_in_force

_MAX_HIDDEN = 1000
_NOISY_PENALTY = 0.01


@dataclass(frozen=True, kw_only=True)
class MlpSettings(KnowledgeSettings):
    """How the networks are learned, with noise and without."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    variant: Variant = "fast"
    """Sets the defaults of settings that the job leaves out. `"fast"`: our choice. `"paper"`: the
    paper's optimiser, penalties and schedule, columns in their own units, and random first
    layers."""
    solver: Solver | Literal["gradient"] | None = None
    """Without noise: `"gradient"` is not ADMM. It learns NOTEARS-MLP on the records of all sites,
    exactly, by one sum of gradients for each step. ADMM's coordinator computes the next networks by
    `"proximal"` (variant "fast"), a proximal Newton step, or by `"subgradient"` (variant "paper"),
    the paper's optimiser with its whole schedule of 176 rounds. The first stops when h, which is 0
    if there is no cycle, is at most 1e-6, and the mean difference between the sites' solutions (the
    consensus residual) is at most 1e-8."""
    penalty: float | None = None
    """Factor of the sum of absolute weights in the first layers, at least 0 (0.01; with variant
    "paper" 0.001)."""
    ridge: float | None = None
    """Without noise: factor of half the sum of squared weights, at least 0 (0.01; with variant
    "paper" 0)."""
    hidden: int = 10
    """Number of hidden units of each network, from 1 to 1000."""
    threshold: float = 0.3
    """Edges with `W_ij` at or below this number are dropped."""
    standardise: bool | None = None
    """Standardise columns by pooled means and standard deviations, which are then released (true
    with variant "fast"). With noise, they are estimated from one more noisy sum. If false (with
    variant "paper"), columns keep their own units, and the middle of their bounds is
    subtracted."""
    zero_diagonal: bool | None = None
    """Forbid from the start that a network uses its own variable (true; false with variant "paper",
    where the acyclicity constraint prevents it, and with noise). Always true with `"gradient"`."""
    random_inputs: bool | None = None
    """Start with random weights in the first layers, as the paper's program does (true with variant
    "paper" and with `"gradient"`). If false (with variant "fast"), the search starts without edges,
    and ADMM finds far fewer wrong edges."""
    acyclic: bool = False
    """If the graph has cycles, raise the threshold until no cycle is left. If false, cycles stay,
    and the result says so."""
    rho1: float = MLP_RHO
    """First value of the penalty on h, which measures cycles (with noise, the last one is 1e5 times
    this), from 1e-12 to 1e16."""
    rho2: float | None = None
    """Without noise: first value of the penalty on differences between the sites' solutions (0.02;
    with variant "paper" 0.1), from 1e-12 to 1e16."""
    gamma1: float | None = None
    """Without noise: factor by which `rho1` grows in each round (1.5; with variant "paper" 1.75),
    above 1 and at most 100."""
    gamma2: float | None = None
    """Without noise: factor by which `rho2` grows in each round (1.15; with variant "paper" 1.25),
    above 1 and at most 100."""
    rounds: int | None = None
    """Largest number of rounds, from 1 to 10000 (200; with `"gradient"` 4000). With noise, all of
    them are run, and the budget is divided among them."""
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
        solver: Solver = "proximal" if self.pooled else self.in_force["solver"]
        used = (self.in_force[name] for name in ("rho2", "gamma1", "gamma2", "rounds"))
        return Schedule(solver, self.rho1, *used)

    @property
    def pooled(self) -> bool:
        """Whether sites send gradients of their losses, and solve no problem of their own."""
        return self.solver == "gradient"

    @property
    def given(self) -> dict[str, Any]:
        """The settings that have other values in other variants."""
        names = (
            "solver", "standardise", "random_inputs", "gamma1", "gamma2", "rounds", "rho2",
            "penalty", "ridge", "zero_diagonal",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    @cached_property
    def in_force(self) -> dict[str, Any]:
        """These settings, with the variant's values for those that the job leaves out."""
        used = settings_in_force(self.variant, self.given, networks=True)
        own = {"rounds": ROUNDS, "random_inputs": True} if self.pooled else {}
        return used | {name: own[name] for name in own if self.given[name] is None}

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
        if self.pooled:
            self._check_pooled()
        check_numbers(self, {"threshold": 0, "seed": 0, "hidden": 1})
        for name in ("penalty", "ridge"):
            if getattr(self, name) is not None:
                check_numbers(self, {name: 0})
        if self.hidden > _MAX_HIDDEN:
            raise JobError("method.hidden", f"must be at most {_MAX_HIDDEN}")
        check_truth(self.truth, self.names(public), public)
        self.known(public)
        check_halves(halves(public, self.chosen(public)), self.names(public))

    def _check_pooled(self) -> None:
        """Raise `JobError` for a setting of ADMM, which has no effect."""
        if self.variant == "paper":
            what = "the paper's algorithm is ADMM"
            raise JobError("method.variant", what, 'Leave it out, or solver = "gradient".')
        if self.zero_diagonal is False:
            what = 'must be true with solver = "gradient"'
            raise JobError("method.zero_diagonal", what, "Leave it out.")
        for name in ("rho1", "rho2", "gamma1", "gamma2"):
            if getattr(self, name) != MlpSettings.__dataclass_fields__[name].default:
                what = 'has no effect with solver = "gradient"'
                raise JobError(f"method.{name}", what, "Leave it out.")

    def known(self, public: PublicFacts) -> Knowledge | None:
        return self.knowledge(self.names(public), public)

    def networks(self, public: PublicFacts) -> Networks:
        state, d = in_state(self.known(public)), len(self.chosen(public))
        return self.networks_of(d, state, noised=public.clip is not None)

    def networks_of(self, d: int, state: State, *, noised: bool) -> Networks:
        """Return the layout for so many variables; state: the coordinator's."""
        used = self.in_force
        if noised:  # not ADMM: its own defaults
            given = {name: value for name, value in self.given.items() if value is not None}
            used = {"penalty": _NOISY_PENALTY, "zero_diagonal": False, **given}
        forbidden = state[FORBIDDEN] > 0 if FORBIDDEN in state else None
        zero_diagonal = used["zero_diagonal"] or self.pooled
        return Networks(d, self.hidden, used["penalty"], zero_diagonal, forbidden)

    def names(self, public: PublicFacts) -> tuple[str, ...]:
        return tuple(public.variables[i].name for i in self.chosen(public))

    def chosen(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.variables, "method.variables")
