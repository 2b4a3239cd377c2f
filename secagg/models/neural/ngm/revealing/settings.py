"""The settings of graph revealers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from secagg.errors import JobError
from secagg.models.common.checks import check_numbers
from secagg.models.neural.graph_votes import MIN_FALSE_EDGES
from secagg.models.neural.ngm.distillation import MAX_SAMPLES
from secagg.models.neural.ngm.settings import PENALTY_LIMIT
from secagg.models.neural.rounds import MAX_ROUNDS

_MAX_UNITS = 10_000


@dataclass(frozen=True, kw_only=True)
class NgrSettings:
    """What a job may set."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    hidden: tuple[int, ...] = (100,)
    """Units of each hidden layer of the network, which all columns share; at least one layer."""
    sparsity: float | None = None
    """Factor of the penalty on all paths, at least 0; gamma of the paper's equation 5 for mean
    instead of summed losses. The larger, the fewer edges. If it is not set, 1 / √n for n
    records."""
    self_penalty: float = 10.0
    """Factor of the penalty on paths from a column to itself, at least 0; the paper's lambda. A
    large one removes all of them. The result says what is left."""
    log_penalties: bool = False
    """Take the logarithm of 1 plus each penalty's sum of path norms, as the paper suggests."""
    threshold: float | None = None
    """Two columns have an edge if their path norm is larger; at least 0. A path norm bounds the
    slope of a mean, or of a probability, in standard deviations. If it is not set, the smallest
    path norm that is significant, by `false_edges`, for n records."""
    false_edges: float = 0.2
    """Without `threshold`: the number of edges that the graph would have on average if no two
    columns were associated, above 0."""
    rounds: int = 500
    """Number of rounds."""
    learning_rate: float = 0.01
    """Step size of the coordinator's Adam."""
    standardise: bool = True
    """Standardise variables by pooled means and standard deviations, which are then released. If
    false, variables are scaled to [-1, 1] by their public bounds."""
    learn_from: Literal["records", "samples"] = "records"
    """What the graph is learned from. `"records"`: the sites' records. `"samples"`: samples from
    networks that each site trained on its own records and graph; they stay at the site, and all
    sites have equal weights (the paper's distillation)."""
    samples: int = 2000
    """With learn_from = "samples": number of samples of each site."""
    refit: bool = True
    """Once the graph is found, fit the networks of `fedngm` to it without these penalties. Queries,
    predictions and samples need them: the network that finds the graph is shrunk towards 0."""
    inputs: Literal["neighbours", "aic"] | None = None
    """Which columns the network of a column reads in the refit. `"neighbours"`: its neighbours in
    the graph. `"aic"`: also each column that AIC keeps in a linear prediction, as a linear term. If
    it is not set, `"aic"` with `standardise`."""
    refit_rounds: int | None = None
    """Largest number of rounds of the refit (default: `rounds` of `fedngm`)."""
    refit_penalty: float | None = None
    """Precision of the normal prior on the hidden layers' weights in the refit, at least 0, in
    records (default: `penalty` of `fedngm` over a graph). A large one makes curved dependences too
    straight."""
    seed: int = 0
    """Seed of the first parameters, which are public. Another seed may end at another maximum:
    compare several."""

    @property
    def reads(self) -> Literal["neighbours", "aic"]:
        """`inputs`, or its default."""
        return self.inputs or ("aic" if self.standardise else "neighbours")

    @property
    def sums_moments(self) -> bool:
        """Whether the sites sum their moments, and not only sums and squares."""
        return self.refit and self.reads == "aic"

    def check_settings(self) -> None:
        """Raise `JobError` for settings out of range, or that do not fit together."""
        optional = ("sparsity", "threshold")
        penalties = {name: 0 for name in optional if getattr(self, name) is not None}
        check_numbers(self, {**penalties, "self_penalty": 0}, below=PENALTY_LIMIT)
        if not MIN_FALSE_EDGES <= self.false_edges < math.inf:
            raise JobError("method.false_edges", "must be above 0, and finite")
        if not (self.hidden and all(1 <= units <= _MAX_UNITS for units in self.hidden)):
            raise JobError("method.hidden", f"must be whole numbers from 1 to {_MAX_UNITS}")
        if not 1 <= self.samples <= MAX_SAMPLES:
            raise JobError("method.samples", f"must be from 1 to {MAX_SAMPLES}")
        for name in ("inputs", "refit_rounds", "refit_penalty"):
            if not self.refit and getattr(self, name) is not None:
                what = "has an effect only with refit = true"
                raise JobError(f"method.{name}", what, "Leave it out.")
        if self.inputs == "aic" and not self.standardise:
            what = "'aic' needs the pooled moments, which also standardise"
            raise JobError("method.inputs", what, "Write standardise = true, or leave it out.")
        if self.refit_penalty is not None:
            check_numbers(self, {"refit_penalty": 0}, below=PENALTY_LIMIT)
        if self.refit_rounds is not None:
            check_numbers(self, {"refit_rounds": 1}, below=MAX_ROUNDS + 1)
