"""The settings of federated neural graphical models."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from secagg.contracts import PublicFacts
from secagg.errors import JobError
from secagg.models.common.checks import check_numbers
from secagg.models.neural.graph_votes import MIN_FALSE_EDGES
from secagg.models.neural.ngm.distillation import MAX_SAMPLES
from secagg.models.neural.ngm.layout import NgmLayout, edge_positions
from secagg.models.neural.ngm.networks import NetworkKind
from secagg.models.neural.ngm.pooled_graph import Inputs
from secagg.models.neural.rounds import NetworkRounds
from secagg.models.neural.site_graphs import Recovery

_MAX_UNITS = 10_000
PENALTY_LIMIT: Final = 1e9
"""Of penalties and weights: more records than any study has. Far larger ones would overflow."""
WEAK_PENALTY, STRONG_PENALTY = 1.0, 20.0
"""Defaults of `penalty`. Under the weak one, the bias is small against the sampling error."""


@dataclass(frozen=True, kw_only=True)
class NgmSettings(NetworkRounds):
    """What a job may set."""

    lbfgs_rounds: ClassVar[int] = 1000

    variables: tuple[str, ...] | None = None
    """The columns of the model, at least two. If it is not set, all columns."""
    edges: tuple[tuple[str, str], ...] | Literal["pooled", "votes", "all"] = "pooled"
    """The graph. `"pooled"`: recovered from the pooled moments of all records. `"votes"`: each site
    brings its own, recovered or its experts', and edges are chosen by votes (the paper). `"all"`:
    every pair of columns. Or a list of pairs of columns, from an expert."""
    inputs: Inputs | None = None
    """With network = "masked": which columns the network of a column reads. `"neighbours"`: its
    neighbours in the graph. `"aic"`: also each column that AIC keeps in a linear prediction, as a
    linear term. `"all"`: also all others, as linear terms. If it is not set, `"aic"` with edges =
    "pooled", otherwise `"neighbours"`."""
    recovery: Recovery = "partial_correlation"
    """How the graph is recovered from the pooled moments, or by each site: tests of partial
    correlations, the graphical lasso, or PC (which needs `pip install 'secagg[graphs]'`)."""
    false_edges: float = 0.2
    """With `"partial_correlation"` and `"pc"`: the largest number of edges that the graph would
    have on average if no two columns were associated, above 0. It determines the level of each
    test."""
    votes: int = 2
    """With edges = "votes": the number of sites that must have an edge in their own graph. 1 is the
    union, as in the paper. In simulations with 3 and 10 sites, 2 found the graph best."""
    network: NetworkKind = "masked"
    """`"masked"`: a network for each column, which can read nothing but the column's neighbours.
    `"paper"`: the paper's single network from all columns to all, with a penalty on dependencies
    outside the graph. Its outputs copy their own inputs or are constant: for comparison only."""
    least_gain: float = 0.01
    """With `"lbfgs"`: the search ends, as converged, when its last 20 steps together raised the log
    posterior of all records by less than this, at least 0. It may rest on a plateau: in 4 of 12
    runs, answers were .1 to .6 standard errors from their end; with 0.0001, in none."""
    hidden: tuple[int, ...] = (10,)
    """Units of each hidden layer: of each column's network, or of the single one. `[]`: linear and
    logistic regression. The paper has two layers, such as `[20, 20]`."""
    path_penalty: float = 1.0
    """With network = "paper": factor of the penalty on paths outside the graph, at least 0; lambda
    of the paper's equation 1 for mean instead of summed losses."""
    penalty: float | None = None
    """Precision of the normal prior on the weights of hidden layers, at least 0, in records: the
    larger, the closer to a linear model. If it is not set, 1; but 20 with edges = "all", where
    networks have many weights, with learn_from = "samples", and with noise."""
    linear_penalty: float = 1.0
    """Precision of the normal prior on the weights of the linear part, at least 0."""
    standardise: bool = True
    """Standardise variables by pooled means and standard deviations, which are then released. If
    false, variables are scaled to [-1, 1] by their public bounds."""

    count_fit: bool = True
    """Without noise: sum counts of residuals and of predicted probabilities at the end, for samples
    with the right spread and for calibration. The coordinator sees counts of few records. If
    false, residuals are normal."""
    learn_from: Literal["records", "samples"] = "records"
    """What the global network is trained on. `"records"`: the sites' records. `"samples"`: each
    site trains a network on its own records and draws samples from it, which stay at the site (the
    paper's distillation)."""
    samples: int = 2000
    """With learn_from = "samples": number of samples of each site."""
    site_weights: Literal["equal", "records"] = "equal"
    """With learn_from = "samples": weights of the sites, equal or by their numbers of records."""
    public_sites: tuple[str, ...] = ()
    """With learn_from = "samples": sites whose records are public. They contribute gradients over
    their records instead of samples (the last term of the paper's equation 3)."""

    public_weight: float = 1.0
    """With the table `[public]`: how much a public record counts, at least 0; a site's counts 1."""

    local_steps: int = 300
    """With learn_from = "samples" and noise at the sites: number of noisy steps of a site's
    training, by Adam with `learning_rate` (default 0.03)."""

    @property
    def reads(self) -> Inputs:
        """`inputs`, or its default."""
        if self.edges == "all":
            return "neighbours"
        pooled = self.edges == "pooled" and self.network == "masked"
        return self.inputs or ("aic" if pooled else "neighbours")

    @property
    def sums_moments(self) -> bool:
        """Whether the sites sum their moments, and not only sums and squares."""
        return self.edges == "pooled" or self.reads == "aic"

    def hidden_penalty(self, noised: bool) -> float:
        """Return `penalty`, or its default. noised: as the function of this name returns"""
        if self.penalty is not None:
            return self.penalty
        sure = self.learn_from == "records" and self.edges != "all" and not noised
        return WEAK_PENALTY if sure else STRONG_PENALTY

    def noised(self, public: PublicFacts) -> bool:
        """Return whether the sums of the rounds have noise: not if the sites' samples have it."""
        return super().noised(public) and self.learn_from == "records"

    @property
    def local_rounds(self) -> NetworkRounds:
        """The noisy steps of a site's own training."""
        return NetworkRounds(
            rounds=self.local_steps, optimiser="adam", learning_rate=self.learning_rate,
            clip=self.clip, sampling_rate=self.sampling_rate, seed=self.seed,
        )  # fmt: skip

    def check_settings(self, layout: NgmLayout, public: PublicFacts) -> None:
        """Raise `JobError` for settings out of range, or that do not fit together."""
        if self.learn_from == "records" or public.clip is None:
            self.check_rounds(public)
        else:  # the noise is in the sites' own training, and the sums are exact
            replace(self, sampling_rate=1.0).check_rounds(replace(public, clip=None))
        check_numbers(self, {"votes": 1, "least_gain": 0})
        penalties = {"linear_penalty": 0, "path_penalty": 0, "public_weight": 0}
        penalties |= {} if self.penalty is None else {"penalty": 0}
        check_numbers(self, penalties, below=PENALTY_LIMIT)
        if public.public_records is not None and self.algorithm == "fedavg":
            what = "'fedavg' sums updates, to which no loss of public records can be added"
            raise JobError("method.algorithm", what, "Use algorithm = 'fedsgd'.")
        if not all(1 <= units <= _MAX_UNITS for units in self.hidden):
            raise JobError("method.hidden", f"must be whole numbers from 1 to {_MAX_UNITS}")
        if not MIN_FALSE_EDGES <= self.false_edges < math.inf:
            raise JobError("method.false_edges", "must be above 0, and finite")
        if self.votes > len(public.sites):
            raise JobError("method.votes", f"is more than the {len(public.sites)} sites")
        if not isinstance(self.edges, str):
            edge_positions(layout, self.edges, "method.edges")
        if self.network == "paper" and self.inputs not in (None, "neighbours"):
            what = "has an effect only with network = 'masked'"
            raise JobError("method.inputs", what, "Leave it out.")
        self._check_samples(public)
        if public.clip is not None:
            self._check_noised(public)

    def _check_samples(self, public: PublicFacts) -> None:
        """Raise `JobError` for settings of `learn_from` that do not fit together."""
        if not 1 <= self.samples <= MAX_SAMPLES:
            raise JobError("method.samples", f"must be from 1 to {MAX_SAMPLES}")
        if self.public_sites and self.learn_from == "records":
            what = "has an effect only with learn_from = 'samples'"
            raise JobError("method.public_sites", what, "Leave it out.")
        for name in self.public_sites:
            if name not in public.sites:
                raise JobError("method.public_sites", f"no site {name!r}")
        if self.learn_from == "samples" and self.network == "paper":
            what = "samples need network = 'masked'"
            raise JobError("method.learn_from", what, "Write learn_from = 'records'.")

    def _check_noised(self, public: PublicFacts) -> None:
        """Raise `JobError` for settings that noise does not cover."""
        if self.standardise or self.edges == "votes" or self.sums_moments:
            what = "with noise, only the training reads records"
            advice = (
                "Write standardise = false, edges = 'all' or a list of pairs, and no inputs = "
                "'aic'. Placement "
                "'round' has the noise in the sum; 'site', with learn_from = 'samples', at sites."
            )
            raise JobError("method.standardise", what, advice)
        if self.learn_from == "samples":
            check_numbers(self, {"local_steps": 1})
            self.local_rounds.check_rounds(public)
            if self.site_weights == "records" or self.public_sites:
                what = "weights by records, and public sites, have no noise"
                raise JobError("method.site_weights", what, "Leave them out.")
