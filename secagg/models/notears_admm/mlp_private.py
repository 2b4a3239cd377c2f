"""NOTEARS-MLP with noise in every round: what `notears_mlp_admm` does under differential privacy.

ADMM solves a problem at each site, and one record can move its solution without bound. So with
noise no site solves anything. As in DP-SGD (Abadi et al., CCS 2016, algorithm 1), a round sums
clipped gradients over a Poisson sample of all sites' records
(`secagg.models.common.sampled_gradients`, `secagg.models.notears_admm.mlp_gradients`), and the
session adds the noise once, in the sum over sites. The coordinator learns the networks of Zheng et
al. (AISTATS 2020) from these sums alone: with loss f, penalty lambda and acyclicity function h it
minimises

    f(W) + lambda |A|_1 + alpha h(W) + rho/2 h(W)^2                                           (1)

by steps of proximal Adam. From the noisy mean gradients, Kingma and Ba (2015) compute a mean m_t
and a root mean square v_t for each entry; with learning rate eta and D = diag(v_t) / eta,

    W_t+1 = argmin_W  m_t'(W - W_t) + 1/2 (W - W_t)'D(W - W_t) + the last three terms of (1), (2)

which is problem (5) of ADMM with a strength for each entry (`secagg.models.notears_admm.w_step`).
So the noise affects f only, and a large rho does not make steps unstable. rho grows in each round
by the same factor, over all rounds by 1e5; alpha grows by rho h. The estimate is the mean of W over
the last quarter of the rounds, in which part of the noise cancels (Polyak and Juditsky 1992).

Units. If columns are standardised, a first round of the same kind sums u, u o u and 1 over a
Poisson sample, with noise, and the coordinator computes means and standard deviations from it. A
variance that the noise hides is raised to two standard deviations of its noise. Otherwise columns
keep their own units, about the middle of their bounds. The bound on what a record changes holds in
any units.

What the transcript determines: sites keep no state, so every sum is a noisy function of the pooled
records and of numbers that the coordinator chose. It shows nothing about how records are split over
sites, except through the noise's own guarantee.

Guarantees: whatever W and units the coordinator sends, a round's sum moves by at most the declared
sensitivity if one record changes. In the first round, adding or removing a record moves the sums by
at most root(2d + 1), and replacing one by at most 2 root(d) (docs/math/clipped-gradients.md). For
the other rounds see `secagg.models.notears_admm.mlp_gradients`. The number of rounds is declared,
all are run, and the accountant composes them.

Not protected: which records took part, from their own site. A coordinator that sends other numbers
can make the graph wrong, but not the noise smaller.

======================================  ============================================================
case                                    result
======================================  ============================================================
a site without a record                 zeros
a column constant at all sites          its variance is hidden by the noise: a note names it
a step that cannot be made finite       W stays; the remaining rounds are still run
an estimated number of records below 1  counts as 1
units or W out of range                 `PeerError`, nothing is sent
======================================  ============================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from secagg.contracts import (
    Body,
    Field,
    Kind,
    PublicFacts,
    Result,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Sensitivity
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, PeerError
from secagg.models.common.clipped_sums import exact_bits
from secagg.models.common.sampled_gradients import (
    MIN_FRACTION_BITS,
    mean_gradient,
    poisson_sample,
    private_stage,
    sums_of_sample,
)
from secagg.models.common.variables import halves
from secagg.models.graphs.acyclicity import break_ties
from secagg.models.graphs.knowledge import in_state
from secagg.models.graphs.mlp import Networks
from secagg.models.graphs.proximal_newton import Multipliers, graph_constraint
from secagg.models.notears_admm.mlp_gradients import (
    MAX_INPUT,
    MAX_PARAMETER,
    MIN_CLIP,
    clipped_gradient_sum,
)
from secagg.models.notears_admm.mlp_private_result import noisy_result
from secagg.models.notears_admm.mlp_settings import MlpSettings
from secagg.models.notears_admm.range import check_own_units
from secagg.models.notears_admm.w_step import ScaledPull, proximal_step

UNITS: Final = "units"
GRADIENT: Final = "gradient"
"""The names of the stages."""

CLIP: Final = 2.0
LEARNING_RATE: Final = 0.05
AVERAGED: Final = 0.25  # share of the rounds, the last ones, over which W is averaged
RHO_GROWTH: Final = 1e5  # of rho, over all rounds
_BETA_1, _BETA_2, _ADAM_EPSILON = 0.9, 0.99, 1e-8
_MAX_CLIP = 2.0**16
_RATES = (1e-6, 1.0)  # of learning
_MIN_VARIANCE = 1e-6  # in units of the bounds
_MAX_SCALE = 1e3 + 1  # 1 / root(_MIN_VARIANCE), and rounding
_MAX_HALF = MAX_INPUT / 2  # of bounds, in own units
_ONLY_ADMM = ("solver", "rho2", "gamma1", "gamma2", "ridge")
_ONLY_NOISE = ("clip", "learning_rate", "sampling_rate")


def check_without_noise(settings: MlpSettings) -> None:
    """Raise `JobError` for a setting that has an effect only with noise."""
    for name in _ONLY_NOISE:
        if getattr(settings, name) != _default(name):
            what = "has no effect without differential privacy"
            raise JobError(f"method.{name}", what, "Leave it out, or add [privacy].")


@dataclass(frozen=True)
class NoisyRounds:
    """The rounds with noise, with these settings."""

    settings: MlpSettings

    @property
    def clip(self) -> float:
        return CLIP if self.settings.clip is None else self.settings.clip

    @property
    def learning_rate(self) -> float:
        """Eta in (2)."""
        rate = self.settings.learning_rate
        return LEARNING_RATE if rate is None else rate

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the units, if they are estimated, and the rounds. Checks the settings."""
        self._check(public)
        settings, networks = self.settings, self.settings.networks(public)
        rate, rows = settings.sampling_rate, public.max_rows
        most = settings.in_force["rounds"]
        rounds = private_stage(GRADIENT, networks.size, most, self.clip, rate, rows)
        if not settings.standardised:
            return (rounds,)
        d, bits = networks.d, exact_bits(rows, 1.0)
        if bits < MIN_FRACTION_BITS:
            raise JobError("sites.max_rows", "is too large for exact sums", "Lower it.")
        spec = (
            Field("sums", (d,), rows, bits, Kind.BOUNDED),
            Field("squares", (d,), rows, bits, Kind.WEIGHT),
            Field("size", (1,), rows, bits, Kind.WEIGHT),
        )
        sample = "of all records" if rate == 1 else "of a random sample of records"
        sees = f"noised: each column's sum and sum of squares {sample}, and their number"
        add, replace = (math.nextafter(math.sqrt(t), math.inf) for t in (2 * d + 1, 4 * d))
        sensitivity = Sensitivity(add, replace)
        units = Stage(UNITS, spec, 1, sees, sensitivity, ends_early=False, sampling_rate=rate)
        return units, rounds

    def initial_state(self, public: PublicFacts) -> State:
        settings, networks = self.settings, self.settings.networks(public)
        rng = np.random.default_rng(settings.seed)
        start = networks.initial(rng, random_inputs=settings.starts_random)
        noise, deviation = public.noise.get(UNITS), 0.0
        if noise is not None:  # a sum over fewer sites has more noise: the minimum is the bound
            few = noise.min_sites
            deviation = math.sqrt(noise.sum_variance(few, noise.site_variance(few)))
        return {
            "status": UNITS if settings.standardised else GRADIENT,
            "noised": True,
            "unit_error": deviation,
            "hidden_variances": [],
            "centre": np.zeros(networks.d),
            "scale": halves(public, settings.chosen(public)),
            "rounds": 0,
            "W": start,
            "mean": np.zeros_like(start),
            "square": np.zeros_like(start),
            "summed": np.zeros_like(start),
            "sizes": 0.0,
            "alpha": 0.0,
            "rho": settings.rho1,
            "failed_steps": 0,
            **in_state(settings.known(public)),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if state["status"] == UNITS:
            return UNITS, {}
        if state["status"] != GRADIENT:
            return None
        return GRADIENT, {name: state[name] for name in ("W", "centre", "scale")}

    def contribute(
        self, stage: str, rows: SiteRecords, message: Body, public: PublicFacts, random: RandomBytes
    ) -> Update:
        """Sum over a Poisson sample of the site's records."""
        u = np.clip(rows.values[:, self.settings.chosen(public)], -1, 1)
        networks, rate = self.settings.networks(public), self.settings.sampling_rate
        if stage == UNITS:
            u = u[poisson_sample(len(u), rate, random)]
            step = 2.0 ** (exact_bits(public.max_rows, 1.0) // 2)
            u = np.trunc(u * step) / step  # squares are then on the grid of the sums
            size = np.array([float(len(u))])
            return {"sums": u.sum(axis=0), "squares": (u * u).sum(axis=0), "size": size}
        half = halves(public, self.settings.chosen(public))
        W, centre, scale = self._read(message, networks, half)
        u = u[poisson_sample(len(u), rate, random)]
        bits = exact_bits(public.max_rows, self.clip)
        change = clipped_gradient_sum(networks, (u - centre) * scale, W, self.clip, bits)
        return sums_of_sample(change, len(u), self.clip, bits)

    def aggregate(self, state: State, total: Update) -> State:
        if state["status"] == UNITS:
            return _with_units(state, total)
        networks = self.settings.networks_of(len(state["centre"]), state, noised=True)
        return self._after_step(state, total, networks)

    def result(self, state: State, public: PublicFacts) -> Result:
        """Return the graph of the mean of W over the last rounds."""
        last = _averaged(self.settings.in_force["rounds"])
        return noisy_result(
            state | {"W": state["summed"] / last},
            self.settings,
            public,
            clip=self.clip,
            learning_rate=self.learning_rate,
            averaged=last,
        )

    def _after_step(self, state: State, total: Update, networks: Networks) -> State:
        """Return the state after step (2)."""
        t, W, rounds = state["rounds"] + 1, state["W"], self.settings.in_force["rounds"]
        sizes = state["sizes"] + float(total["size"][0])
        gradient, _ = mean_gradient(total, self.clip, sizes, t)
        mean = _BETA_1 * state["mean"] + (1 - _BETA_1) * gradient
        square = _BETA_2 * state["square"] + (1 - _BETA_2) * gradient**2
        root = np.sqrt(square / (1 - _BETA_2**t)) + _ADAM_EPSILON
        strength = root / self.learning_rate
        pull = ScaledPull(W - mean / (1 - _BETA_1**t) / strength, strength)
        multipliers = Multipliers(state["alpha"], state["rho"])
        step = proximal_step(networks, break_ties(W), pull, multipliers)
        if step.finite:
            W = np.clip(step.W, -MAX_PARAMETER, MAX_PARAMETER)
        h = graph_constraint(networks, W)[0]
        alpha = state["alpha"] + state["rho"] * h
        return {
            **state,
            "status": GRADIENT if t < rounds else "finished",
            "rounds": t,
            "W": W,
            "mean": mean,
            "square": square,
            "summed": state["summed"] + (W if t > rounds - _averaged(rounds) else 0.0),
            "sizes": sizes,
            "alpha": alpha if math.isfinite(alpha) else state["alpha"],
            "rho": self.settings.rho1 * RHO_GROWTH ** (t / rounds),
            "failed_steps": state["failed_steps"] + (not step.finite),
        }

    def _read(self, message: Body, networks: Networks, half: Array) -> tuple[Array, Array, Array]:
        """Return W, centre and scale. Raises `PeerError`."""
        limits = {"W": (networks.size, MAX_PARAMETER), "centre": (networks.d, 1.0)}
        limits["scale"] = (networks.d, _MAX_SCALE if self.settings.standardised else _MAX_HALF)
        for name, (size, limit) in limits.items():
            array = message.get(name)
            if not (
                isinstance(array, np.ndarray)
                and array.dtype == np.float64
                and array.shape == (size,)
                and bool(np.all(np.abs(array) <= limit))
            ):
                what = f"the coordinator's {name} is not a {(size,)} array in range"
                raise PeerError("message", what)
        if not self.settings.standardised:
            check_own_units(message, half)
        return message["W"], message["centre"], message["scale"]

    def _check(self, public: PublicFacts) -> None:
        """Raise `JobError` for a setting out of range, or without an effect under noise."""
        settings = self.settings
        if settings.variant == "paper":
            what = "the paper's algorithm cannot have noise: sites solve problems of their own"
            advice = "Leave it out; set standardise and random_inputs themselves if you want them."
            raise JobError("method.variant", what, advice)
        for name in _ONLY_ADMM:
            if getattr(settings, name) != _default(name):
                what = "has no effect with noise in every round"
                raise JobError(f"method.{name}", what, "Leave it out.")
        if not MIN_CLIP <= self.clip <= _MAX_CLIP:
            raise JobError("method.clip", f"must be from {MIN_CLIP:g} to {_MAX_CLIP:g}")
        if not _RATES[0] <= self.learning_rate <= _RATES[1]:
            raise JobError("method.learning_rate", f"must be from {_RATES[0]:g} to {_RATES[1]:g}")
        if not 0 < settings.sampling_rate <= 1:
            raise JobError("method.sampling_rate", "must be above 0, at most 1")
        widest = float(np.max(halves(public, settings.chosen(public))))
        if not settings.standardised and widest > _MAX_HALF:
            what = f"keeps units in which bounds are wider than {2 * _MAX_HALF:g}"
            raise JobError("method.standardise", what, "Set it to true, or use other units.")


def _default(name: str) -> object:
    return MlpSettings.__dataclass_fields__[name].default


def _averaged(rounds: int) -> int:
    """Return the number of rounds, the last ones, over which W is averaged."""
    return max(1, round(AVERAGED * rounds))


def _with_units(state: State, total: Update) -> State:
    """Return the state with means and standard deviations from noisy sums."""
    size = max(float(total["size"][0]), 1.0)
    centre = np.clip(total["sums"] / size, -1, 1)
    variance = total["squares"] / size - centre**2
    least = max(2 * state["unit_error"] / size, _MIN_VARIANCE)
    hidden = np.flatnonzero(variance < least)
    scale = 1 / np.sqrt(np.clip(variance, min(least, 1.0), 1.0))
    units = {"centre": centre, "scale": scale, "hidden_variances": hidden.tolist()}
    return {**state, "status": GRADIENT, **units}
