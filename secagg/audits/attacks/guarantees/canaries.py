"""A14: canaries in one run of a private job, as a lower bound on its epsilon.

Steinke, Nasr and Jagielski (NeurIPS 2023), theorem 5.2 (`secagg.audits.epsilon.one_run`). Each of m
canary records takes part with probability 1/2. The auditor guesses from the opened sums which took
part. The bound on epsilon, at error 10^-3, is divided by the epsilon that the job claims.

The audited job has no canaries. So its job is run once more, by the product's own code, on records
that are made for the purpose: shared ones near the middle of the bounds, and canaries at random
corners. The auditor knows all records, and every message of the coordinator. With c_i what canary i
adds to a round's sum at its message (its clipped gradient, for a network), q the sampling rate, and
all rounds beside one another, the sums are

    y = q (base + C'b) + noise of variance s^2,    b_i = 0 or 1.                                (1)

If b has mean 1/2 and variance 1/4, its best linear estimate is

    1/2 + (q^2 C C' / s^2 + 4 I)^-1 q C (y - q (base + C'1 / 2)) / s^2.                         (2)

The variance is the promised one or another power of ten of it, whichever is most likely given y.
The auditor guesses of all canaries if (2) explains most of their variance, and otherwise of the
fifth with the largest and the fifth with the smallest estimates.

A run of a network has one model and not thousands, so this is for methods whose many runs are too
slow, or whose records take part by chance, where `many_run_epsilon` does not apply.

If the bound that right guesses alone would give is not above the claim, no run could refute the
claim, whatever its noise, and the attack says that it failed. With all of 100 canaries guessed, the
best bound is 2.6; with two fifths of them, 1.7.

Not shown: that the claim holds. One run gives a weak bound: at most about log(m / 7), and near 0
for an epsilon of 1. The canaries of jobs with few numbers hide one another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.epsilon.neighbours import Record, corners, made_tables
from secagg.audits.epsilon.one_run import one_run_epsilon
from secagg.audits.epsilon.repeated_runs import (
    NOISE_STAYS_AT_SITES,
    method_stage,
    with_less_noise,
    with_records,
)
from secagg.audits.views import View
from secagg.contracts import Body, SiteRecords, Spec, Update
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random
from secagg.privacy.accounting.terms import Terms
from secagg.sessions.fixed_point import decode
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.session import open_session

_ERROR = 1e-3
_MOST, _FEWEST = 100, 50  # canaries
_ROUNDS = 10  # whose sums are used
_EXPLAINED = 0.9
_GUESSED = 5  # one in so many is guessed in, and one out
_VARIANCES = tuple(10.0**k for k in range(-12, 3))
_NO_NOISE = 10**10  # times less variance, in the control


class Canaries(Attack):
    """Guess by (2)."""

    name: ClassVar[str] = "canaries"
    title: ClassVar[str] = "Lower bound on epsilon, from canary records in one run"
    source: ClassVar[str] = "Steinke, Nasr and Jagielski (2023), theorem 5.2"
    knows: ClassVar[str] = "all records and canaries, but not which canaries took part"
    metric: ClassVar[str] = "one_run_epsilon_ratio"
    meaning: ClassVar[str] = "lower bound on epsilon (error 0.1 %), divided by the claim"

    def __init__(self) -> None:
        """Begin without a job."""
        self._claim: Terms | None = None  # of the job scored last, which the control has as well

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        planned = view.planned
        stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
        if planned.private is None:
            return "the job has no [privacy]"
        if planned.public.site_moments:
            return NOISE_STAYS_AT_SITES
        if any(stage.training for stage in stages):
            return "sites train alone with noise, so no sum is known to hold a canary's part"
        if len(stages) != 1:
            return "the method has several kinds of rounds"
        numbers = planned.plans.of(method_stage(planned)).noised
        few = f"a sum has {numbers} numbers, which are too few to tell {_FEWEST} canaries apart"
        return few if numbers < _FEWEST else ""

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(1.0)

    def run(self, view: View, rng: np.random.Generator) -> int:
        """Return a seed: the run with canaries is the auditor's."""
        return int(rng.integers(2**31))

    def score(self, guess: int, view: View, truth: Truth) -> Finding:
        """Return the bound, divided by the claim."""
        planned = view.planned
        assert planned.private is not None
        terms, rng = planned.private.terms, np.random.default_rng(guess)
        self._claim = terms
        m = min(_MOST, planned.plans.of(method_stage(planned)).noised)
        canaries = corners(planned, m, rng)
        inside = rng.random(len(canaries)) < 0.5
        estimates, explained = _estimates(planned, canaries, inside, guess)
        order = np.argsort(estimates)
        part = len(order) // _GUESSED
        out, in_ = (order[:part], order[-part:])
        if explained > _EXPLAINED:
            out, in_ = np.flatnonzero(estimates <= 0), np.flatnonzero(estimates > 0)
        correct, guesses = int(np.sum(~inside[out]) + np.sum(inside[in_])), len(out) + len(in_)
        low, best = (
            one_run_epsilon(right, guesses, len(canaries), terms.delta, _ERROR)
            for right in (correct, guesses)
        )
        found = Finding.exact(
            low / terms.epsilon, 0.0, epsilon_low=low, claim=terms.epsilon, correct=correct,
            guesses=guesses, canaries=len(canaries), explained=explained, epsilon_best=best,
        )  # fmt: skip
        if best > terms.epsilon:
            return found
        why = f"even {guesses} right guesses bound epsilon by {best:.2g}, below the claim"
        return replace(found, failed=why)

    def control(self, plain: View) -> View:
        """Return the same job with the same claim and with hardly any noise."""
        planned = with_less_noise(plain.planned, _NO_NOISE)
        if self._claim is not None:
            assert planned.private is not None
            planned = replace(planned, private=replace(planned.private, terms=self._claim))
        return replace(plain, planned=planned)


@dataclass(frozen=True)
class _Sum:
    """One round: what was asked, and the opened sum."""

    message: Body
    total: Update


def _estimates(
    planned: Planned, canaries: list[Record], inside: NDArray[np.bool_], seed: int
) -> tuple[Array, float]:
    """Return (2) less 1/2, and the share of the variance of b that it explains."""
    sites, name = planned.public.sites, method_stage(planned)
    extra = {
        site: [c for i, c in enumerate(canaries) if inside[i] and i % len(sites) == k]
        for k, site in enumerate(sites)
    }
    made = partial(made_tables, planned, seed=seed, one_person=False)
    sums = _play(with_records(planned, made(extra)), seed)
    used = np.unique(np.linspace(0, len(sums) - 1, min(_ROUNDS, len(sums))).astype(int))
    shared = with_records(planned, made_tables(planned, {}, seed))
    alone = with_records(
        planned, made_tables(planned, {sites[0]: canaries}, seed, one_person=False)
    )
    base = [read_records(shared, source) for source in shared.sources.values()]
    own = read_records(alone, alone.sources[sites[0]])
    parts = [own.part(i, i + 1) for i in range(len(canaries))]
    q = planned.plans.stages[name].sampling_rate
    noise = planned.public.noise[name]
    s = np.sqrt(noise.sum_variance(len(sites), noise.site_variance(len(sites))))
    s = s * np.sqrt(np.array(noise.weights or (1.0,)))
    C, rest = list[Array](), list[Array]()
    for seen in (sums[i] for i in used):
        each = np.array([_contribution(planned, rows, seen.message) for rows in parts])
        fixed = np.sum([_contribution(planned, rows, seen.message) for rows in base], axis=0)
        y = np.concatenate([seen.total[field.name].ravel() for field in _spec(planned)])
        C.append(q * each / s)
        rest.append((y - q * (fixed + each.sum(axis=0) / 2)) / s)
    return _solve(np.hstack(C), np.concatenate(rest))


def _solve(A: Array, r: Array) -> tuple[Array, float]:
    """Return (2) less 1/2, and the share of the variance of b that it explains.

    A: q C / s; r: (y - q (base + C'1 / 2)) / s, which by (1) has the covariance A'A / 4 + t I. If
    the code adds the noise that it promises, t is 1
    """
    U, S, V = np.linalg.svd(A, full_matrices=False)
    z = V @ r
    beside, rest = len(r) - len(z), max(float(r @ r - z @ z), 0.0)

    def deviance(t: float) -> float:
        variance = S**2 / 4 + t
        known = float(np.sum(np.log(variance) + z**2 / variance))
        return known + beside * float(np.log(t)) + rest / t

    t = min(_VARIANCES, key=deviance)
    estimates = U @ (S / (S**2 + 4 * t) * z)
    return np.asarray(estimates, dtype=np.float64), float(np.sum(S**2 / (S**2 + 4 * t)) / len(A))


def _play(planned: Planned, seed: int) -> list[_Sum]:
    """Run the job once, by an honest coordinator, and return the sums of its method."""
    session, found = open_session(planned, replayable_random(seed)), list[_Sum]()
    try:
        step = session.coordinator.start()
        while not step.done:
            frames = session.engine.exchange(step.requests)
            step = session.coordinator.advance(step.state, frames)
            if step.state.total is not None and step.state.stage not in (None, COHORT):
                plan = planned.plans.of(step.state.stage)
                found.append(_Sum(step.state.message, decode(plan, step.state.total)[0]))
    finally:
        session.close()
    return found


def _contribution(planned: Planned, rows: SiteRecords, message: Body) -> Array:
    """Return a site's contribution, in which all records take part: random numbers are 0."""
    name = method_stage(planned)
    update, _ = planned.method.contribute(name, rows, message, {}, planned.public, bytes)
    return np.concatenate([update[field.name].ravel() for field in _spec(planned)])


def _spec(planned: Planned) -> Spec:
    return planned.plans.stages[method_stage(planned)].spec
