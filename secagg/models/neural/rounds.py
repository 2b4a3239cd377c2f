"""Rounds in which sites sum gradients (FedSGD) or updates (FedAvg) of a network.

McMahan, Moore, Ramage, Hampson and y Arcas (AISTATS 2017), section 2 and algorithm 1; Reddi and
others (ICLR 2021), algorithm 1, for optimisers at the coordinator ("FedOpt").

In each round the coordinator sends parameters theta. Site k with n_k records contributes, with
w_k = n_k / max_rows:

    "fedsgd"   w_k, w_k times its mean loss at theta, w_k times the gradient of this mean
    "fedavg"   w_k, w_k times its mean loss at theta, w_k times its update theta_k - theta, where
               theta_k comes from E epochs at the site, and the update is clipped to a public norm

A site whose loss or contribution is not finite, or beyond the bounds, sends nothing, and the run
ends. (If it sent zeros or bounds instead, a coordinator could choose parameters at which all sites
but one do so, and would see that one's contribution.) L-BFGS changes no parameter by more than 1 at
a time, which keeps its trial points within the bounds, as a rule.

With noise, see `secagg.models.neural.private_rounds`. Without, the coordinator divides by the sum
of the w_k. So it has the pooled mean loss and its gradient; or the mean update, which takes the
place of the negative gradient in its optimiser. It adds what depends on the parameters alone
(`Penalty`). With "fedsgd", the run minimises the pooled mean loss plus the penalty, as if all
records were in one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from secagg.contracts import (
    NO_WINDOWS,
    Body,
    ChosenWeights,
    Field,
    Kind,
    MethodFacts,
    PublicFacts,
    SingleRecords,
    Stage,
    State,
    Train,
    Update,
)
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import DataError, JobError, PeerError
from secagg.models.common.checks import check_numbers
from secagg.models.common.sampled_gradients import mean_gradient, private_stage
from secagg.models.neural.gradients import gradient_sum, loss_sum
from secagg.models.neural.layers.smoothness import MAX_SMOOTH_PARAMETER
from secagg.models.neural.learner import Learner
from secagg.models.neural.local_training import LocalOptimiser, trained
from secagg.models.neural.optimisers import Optimiser, Scaling, advance, begin
from secagg.models.neural.private_rounds import private_contribution

TRAIN = "train"
CONVERGED, OUT_OF_ROUNDS = "converged", "out of rounds"
PARAMETER_LIMIT = "parameter limit reached"
"""How a training without noise ended; at the last, at `MAX_SMOOTH_PARAMETER`."""
FRACTION_BITS = 40
_RECORD_CLIP, _UPDATE_CLIP = 1.0, 10.0
_AVERAGED = 0.25  # share of the rounds, the last ones, over which noisy parameters are averaged
_BOUND = 2.0**16  # of a contribution's entries: a larger gradient means that the method diverges
_NO_RISE = 1e-9  # relative change of a value that may be rounding
ROUNDS, MAX_ROUNDS = 200, 100_000
_MAX_PARAMETER = 1e6
_MAX_PARAMETERS = 10_000_000  # each site's sum then has 80 MB
_MAX_SEED = 2**63 - 1  # of torch's generator

Penalty = Callable[[Array, float], tuple[float, Array]]
"""From parameters and the number of records to a value per record and its gradient."""


def network_facts(
    derivation: str,
    *,
    repeatable: bool,
    named_code: tuple[str, ...] = (),
    train: Train | None = None,
    public_records: bool = False,
) -> MethodFacts:
    """Return the facts of a method that sums gradients of a network at parameters that it sends."""
    return MethodFacts(
        derivation=derivation,
        weights=ChosenWeights(
            "Sites compute gradients at parameters that they are sent. At some parameters, the "
            "gradient is that of a few records."
        ),
        reads=SingleRecords(reason="computes gradients of single records", repeatable=repeatable),
        windows=NO_WINDOWS,
        named_code=named_code,
        network=True,
        regression=None,
        edge_rule=None,
        train=train,
        public_records=public_records,
    )


def no_penalty(theta: Array, records: float) -> tuple[float, Array]:
    return 0.0, np.zeros_like(theta)


@dataclass(frozen=True, kw_only=True)
class NetworkRounds:
    """How a network is trained over sites."""

    lbfgs_rounds: ClassVar[int] = ROUNDS

    algorithm: Literal["fedsgd", "fedavg"] = "fedsgd"
    """What sites contribute in a round: the gradient over their records (`"fedsgd"`), or the change
    of the parameters after epochs of their own (`"fedavg"`)."""
    rounds: int | None = None
    """Largest number of rounds. If it is not set, 200; 1000 for `fedngm` with `"lbfgs"`, which
    needed 240 to 750 on 900 to 3000 records of 6 to 12 columns."""
    optimiser: Optimiser | None = None
    """The coordinator's optimiser: `"lbfgs"` (default of `"fedsgd"`), `"adam"` (with noise, the
    default), or `"sgd"` (default of `"fedavg"`; with rate 1, it is federated averaging)."""
    learning_rate: float | None = None
    """Step size of the coordinator's `"adam"` (default 0.01, with noise 0.03) or `"sgd"` (default
    1)."""
    momentum: float = 0.0
    """Momentum of the coordinator's `"sgd"`, at least 0 and below 1."""
    tolerance: float = 1e-5
    """With `"lbfgs"`: the search ends when no entry of the gradient is larger, or when no step
    lowers the value."""
    epochs: int = 1
    """With `"fedavg"`: number of passes over a site's records in a round."""
    batch: int | None = None
    """With `"fedavg"`: number of records in a step. If it is not set, all of a site's records."""
    local_optimiser: LocalOptimiser = "sgd"
    """With `"fedavg"`: the sites' optimiser, of torch."""
    local_learning_rate: float = 0.01
    """With `"fedavg"`: the sites' step size."""
    clip: float | None = None
    """The largest L2 norm. With noise: of one record's gradient (default 1); the noise is
    proportional to it. With `"fedavg"`: of a site's update (default 10), and the result says how
    often one was shortened. Otherwise it has no effect."""
    sampling_rate: float = 1.0
    """With noise: the probability with which each record takes part in a round, above 0 and at most
    1. A smaller rate needs less noise for each round, but more rounds."""
    seed: int = 0
    """Seed of the first parameters, which are public. Another seed may end at another maximum:
    compare several."""

    def check_rounds(self, public: PublicFacts) -> None:
        """Raise `JobError` for settings out of range, or that do not fit the noise."""
        noised = self.noised(public)
        check_numbers(self, {"tolerance": 0, "epochs": 1, "momentum": 0, "seed": 0})
        if self.rounds is not None:
            check_numbers(self, {"rounds": 1}, below=MAX_ROUNDS + 1)
        if self.seed > _MAX_SEED:
            raise JobError("method.seed", f"must be at most {_MAX_SEED}")
        if self.momentum >= 1:
            raise JobError("method.momentum", "must be below 1")
        if self.batch is not None:
            check_numbers(self, {"batch": 1})
        if not 0 < self.sampling_rate <= 1:
            raise JobError("method.sampling_rate", "must be above 0, at most 1")
        for name in ("learning_rate", "local_learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= _BOUND:
                raise JobError(f"method.{name}", f"must be above 0, at most {_BOUND:g}")
        if noised and self.algorithm == "fedavg":
            advice = "Use algorithm = 'fedsgd'."
            raise JobError("method.algorithm", "'fedavg' has no noise in the sum", advice)
        if (noised or self.algorithm == "fedavg") and self.optimiser == "lbfgs":
            advice = "Use 'adam' or 'sgd'."
            raise JobError("method.optimiser", "'lbfgs' needs exact gradients", advice)
        if not noised and self.sampling_rate != 1:
            what = "has no effect without differential privacy"
            raise JobError("method.sampling_rate", what, "Leave it out, or add [privacy].")

    def noised(self, public: PublicFacts) -> bool:
        """Return whether the sums of the rounds have noise."""
        return public.clip is not None

    @property
    def first_averaged(self) -> int:
        """With noise: the first round, from 1 on, whose parameters count in the estimate."""
        rounds = self.most_rounds(noised=True)
        return rounds - max(1, round(_AVERAGED * rounds)) + 1

    def most_rounds(self, *, noised: bool) -> int:
        """Return `rounds`, or its default."""
        optimiser, _ = self.optimiser_and_rate(noised=noised)
        return self.rounds or (self.lbfgs_rounds if optimiser == "lbfgs" else ROUNDS)

    def optimiser_and_rate(self, *, noised: bool) -> tuple[Optimiser, float]:
        """Return the coordinator's optimiser and its step size, or their defaults."""
        exact: Optimiser = "lbfgs" if self.algorithm == "fedsgd" else "sgd"
        optimiser = self.optimiser or ("adam" if noised else exact)
        adam = 0.03 if noised else 0.01  # noisy rounds are few
        return optimiser, self.learning_rate or (1.0 if optimiser == "sgd" else adam)

    def largest_norm(self, *, noised: bool) -> float:
        """Return the limit `clip`, or its default."""
        return self.clip or (_RECORD_CLIP if noised else _UPDATE_CLIP)

    def train_stage(self, parameters: int, public: PublicFacts) -> Stage:
        if parameters > _MAX_PARAMETERS:
            what = f"makes a network of {parameters:,} parameters; {_MAX_PARAMETERS:,} is the limit"
            raise JobError("method", what, "Use fewer or smaller hidden layers.")
        if self.noised(public):
            clip = self.largest_norm(noised=True)
            rounds, rate = self.most_rounds(noised=True), self.sampling_rate
            return private_stage(TRAIN, parameters, rounds, clip, rate, public.max_rows)
        largest = self.largest_norm(noised=False) if self.algorithm == "fedavg" else _BOUND
        sees = "the mean over all records of the loss at the parameters it sent, and "
        sees += "its gradient" if self.algorithm == "fedsgd" else "the mean of the sites' updates"
        spec = [
            Field("weight", (1,), 1.0, FRACTION_BITS, Kind.WEIGHT),
            Field("loss", (1,), _BOUND, FRACTION_BITS, Kind.BOUNDED),
            Field("change", (parameters,), largest, FRACTION_BITS, Kind.BOUNDED),
        ]
        if self.algorithm == "fedavg":
            spec.append(Field("shortened", (1,), 1.0, 0, Kind.COUNT))
        few = self.batch or 0
        rounds = self.most_rounds(noised=False)
        return Stage(TRAIN, tuple(spec), rounds, sees, few_records=few)

    def begin_training(self, start: Array, max_rows: int, noised: bool) -> State:
        optimiser, _ = self.optimiser_and_rate(noised=noised)
        state: State = {"optimiser": begin(optimiser, start), "rounds": 0,
                        "noised": noised, "max_rows": max_rows}  # fmt: skip
        if noised:
            return state | {"sizes": 0.0, "summed": np.zeros_like(start)}
        return state | {"losses": [], "best_loss": math.inf, "largest": [], "shortened": 0}

    def train_contribution(
        self,
        learner: Learner,
        values: Array,
        message: Body,
        public: PublicFacts,
        random: RandomBytes,
        weight: float | None = None,
    ) -> Update:
        """Return a site's part of a round. Raises `PeerError` for parameters out of range.

        weight: of the site, in [0, 1]; None for its number of records divided by max_rows
        """
        noised = self.noised(public)
        theta = checked_parameters(message, learner.blocks.size, noised=noised)
        if noised:
            return private_contribution(
                learner, theta, values, clip=self.largest_norm(noised=True),
                rate=self.sampling_rate, max_rows=public.max_rows, random=random,
            )  # fmt: skip
        if weight is None:
            weight = len(values) / public.max_rows
        records = max(len(values), 1)
        update = {"weight": np.array([weight])}
        if self.algorithm == "fedsgd":
            loss, gradient = gradient_sum(learner, theta, values)
            update["loss"] = np.array([weight * loss / records])
            return _in_range(update | {"change": weight * gradient / records})
        update["loss"] = np.array([weight * loss_sum(learner, theta, values) / records])
        rng = np.random.default_rng(list(random(32)))
        after = trained(
            learner, theta, values, epochs=self.epochs, batch=self.batch,
            optimiser=self.local_optimiser, rate=self.local_learning_rate, rng=rng,
        )  # fmt: skip
        step = after - theta
        norm = float(np.linalg.norm(step))
        clip = self.largest_norm(noised=False)
        if norm > clip:
            step *= clip / norm
        shortened = np.array([float(norm > clip)])
        return _in_range(update | {"change": weight * step, "shortened": shortened})

    def advance_training(
        self,
        training: State,
        total: Update,
        penalty: Penalty = no_penalty,
        records: float | None = None,
        scaling: Scaling | None = None,
    ) -> State:
        """Return the state after a round, with `ended` set at the last.

        records: their number, for the penalty; None if the sites' weights say it
        scaling: as for `secagg.models.neural.optimisers.advance`
        """
        if training["noised"]:
            return self._advance_noised(training, total, penalty)
        weight = float(total["weight"][0])
        if not weight > 0:
            raise DataError("records", "no site has a complete record")
        before, done = training["optimiser"], training["rounds"] + 1
        extra, slope = penalty(before["point"], records or weight * training["max_rows"])
        mean = total["change"] / weight
        gradient = (mean if self.algorithm == "fedsgd" else -mean) + slope
        loss = float(total["loss"][0]) / weight
        optimiser, rate = self.optimiser_and_rate(noised=False)
        after = advance(optimiser, before, loss + extra, gradient, rate, self.momentum, scaling)
        largest = float(np.max(np.abs(gradient), initial=0.0))
        flat = largest <= self.tolerance and optimiser == "lbfgs"
        # A small slope at a trial point counts only if the value is as small as the best so far.
        converged = flat and rises_not(loss + extra, before["value"])
        is_best = optimiser != "lbfgs" or converged or after["steps"] > before["steps"]
        training = {
            **training,
            "optimiser": after,
            "losses": [*training["losses"], loss],
            "best_loss": loss if is_best else training["best_loss"],
            "largest": [*training["largest"], largest],
            "shortened": training["shortened"] + int(total.get("shortened", np.zeros(1))[0]),
            "rounds": done,
        }
        size = float(np.max(np.abs(after["point"]), initial=0.0))
        if not size <= (MAX_SMOOTH_PARAMETER if optimiser == "sgd" else _MAX_PARAMETER):
            raise DataError("training", "diverges", "Use a smaller learning_rate.")
        if converged:
            return training | {
                "ended": CONVERGED,
                "optimiser": {**after, "best": before["point"]},
            }
        if size > MAX_SMOOTH_PARAMETER:  # sites do not accept such a point
            best = after["best"] if optimiser == "lbfgs" else before["point"]
            return training | {"ended": PARAMETER_LIMIT, "optimiser": {**after, "best": best}}
        if after["ended"] or done == self.most_rounds(noised=False):
            return training | {"ended": after["ended"] or OUT_OF_ROUNDS}
        return training

    def _advance_noised(self, training: State, total: Update, penalty: Penalty) -> State:
        """Return the state after a round with noise; the estimate is a mean over late rounds."""
        before, done = training["optimiser"], training["rounds"] + 1
        sizes = training["sizes"] + float(total["size"][0])
        mean, size = mean_gradient(total, self.largest_norm(noised=True), sizes, done)
        _, slope = penalty(before["point"], size / self.sampling_rate)
        optimiser, rate = self.optimiser_and_rate(noised=True)
        after = advance(optimiser, before, 0.0, mean + slope, rate, self.momentum)
        after["point"] = np.clip(after["point"], -_MAX_PARAMETER, _MAX_PARAMETER)
        summed = training["summed"] + (after["point"] if done >= self.first_averaged else 0.0)
        training = {
            **training,
            "optimiser": after,
            "rounds": done,
            "sizes": sizes,
            "summed": summed,
        }
        rounds = self.most_rounds(noised=True)
        if done < rounds:
            return training
        after["best"] = summed / (rounds - self.first_averaged + 1)
        return training | {"ended": "finished"}

    def training_summary(self, training: State) -> State:
        found = {"status": training["ended"], "rounds": training["rounds"]}
        if training["noised"]:
            note = (
                f"Each record's gradient was clipped to norm {self.largest_norm(noised=True):g}. "
                f"The parameters are means over the last {_AVERAGED:.0%} of the rounds. Losses are "
                "not released, so nothing shows whether the training was long enough."
            )
            return found | {"notes": [note]}
        if self.algorithm == "fedavg":
            found["shortened_updates"] = training["shortened"]
        losses = training["losses"]
        return {"loss": training["best_loss"], **found, "losses": losses, "notes": []}


def checked_parameters(message: Body, size: int, *, noised: bool = False) -> Array:
    """Return the parameters of a message, shape (size,). Raises `PeerError`.

    noised: whether the sum has noise; without, large parameters would make steps of smooth units
    """
    largest = _MAX_PARAMETER if noised else MAX_SMOOTH_PARAMETER
    theta = message.get("theta")
    if (
        isinstance(theta, np.ndarray)
        and theta.dtype == np.float64
        and theta.shape == (size,)
        and bool(np.all(np.abs(theta) <= largest))
    ):
        return theta
    raise PeerError("message", "the coordinator's parameters have a wrong shape or range")


def rises_not(value: float, best: float) -> bool:
    """Return whether a value is at most the best one so far, but for rounding."""
    return value <= best + _NO_RISE * abs(best)


def _in_range(update: Update) -> Update:
    """Raise `DataError` if a site's loss or gradient is not finite or far out of range."""
    for name, array in update.items():
        if not np.all(np.abs(array) <= _BOUND):  # also for NaN
            advice = "Check the loss, scale the columns, or use a smaller learning rate."
            raise DataError(name, "is not finite, or too large for the sum", advice)
    return update
