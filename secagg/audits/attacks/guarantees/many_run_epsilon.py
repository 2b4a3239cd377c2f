"""A13: many runs of a private job on two neighbouring data sets, as a lower bound on its epsilon.

Nasr et al., *Tight auditing of differentially private machine learning* (2023), for Gaussian
differential privacy; Jagielski, Ullman and Oprea, *Auditing differentially private machine
learning* (2020), for the older threshold bound. `secagg.audits.epsilon.lower_bound` derives both.
The metric is the larger of the two lower bounds, divided by the epsilon that the job claims. Above
1, the claim is refuted.

What is played. Records are made for the purpose (`secagg.audits.epsilon.neighbours`): two data sets
that differ in one unit, chosen to move the sums as far as the job promises at most. Everything else
is the audited job: its columns, clip, method, sites, placement, calibration, parties, ledgers and
noise (`secagg.audits.epsilon.repeated_runs`). So it is the auditor's calculation, and reads no
record of the job's own.

Cases. The guarantee must hold in each of these, if the job's settings allow it:

    all rounds              the unit is in one data set only (or replaced), at as many sites and
                            with more records than the job allows a person; the rounds have the
                            messages that show it best
    two messages            rounds alternate between these messages and others
    sites drop out          down to `min_sites`
    asked again             each site answers each request several times; the mean is seen
    several jobs            with placement `site`: on the same records; the mean is seen
    moved to another site   with placement `site` and adjacency `replace`
    rounds of one kind      alone, against their own share of the budget, on the two data sets that
                            are furthest apart in them: noise that is too small in one kind of round
                            could hide among the others. Nothing else is played if a site keeps a
                            sum with noise of its own: what it answers later depends on that noise,
                            and is judged as if it were any given number

Threat model: the coordinator, with so many colluding sites as the job states. They know all records
but the unit's, and what they sent themselves. With placement `site`, all sites collude that hold no
record of the unit, and each other release is seen alone.

All cases together raise a false alarm with probability below `ERROR`, whatever the job is.

Not shown: that the claim holds. A lower bound is only as good as the neighbours, the messages and
the test. What is missing to 1 is the confidence (5 to 8 % with 60,000 runs; more with the fewer
runs of a job with many numbers), and sensitivity that no pair of records reaches. Noise of floating
point and predictable noise are looked for by `noise_self_test`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.epsilon.lower_bound import EpsilonBound, bound_epsilon
from secagg.audits.epsilon.neighbours import (
    Extra,
    Neighbours,
    made_tables,
    rounds_of,
    worst_neighbours,
)
from secagg.audits.epsilon.repeated_runs import (
    Script,
    play,
    why_not_repeated,
    with_less_noise,
)
from secagg.audits.views import View, Who
from secagg.contracts.noise import Adjacency, Placement
from secagg.core.arrays import Array
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT

ERROR = 1e-5
"""Probability of a false alarm, of all cases together."""
_RUNS = 60_000
_FEWEST_RUNS = 3_000
_RUNS_ALONE = 10_000  # if a contribution is computed in each
_DRAWS = 2_000_000
"""Numbers of noise for each data set of a case; they determine how many runs there are."""
_ANSWERS, _JOBS = 4, 2
_COLUMNS = 30  # numbers of a release, above which the test uses some of them only
_RUNS_A_COLUMN = 50  # that choose the test
_POWER = 0.5
"""A bound below this share of the claim shows too little to count as "no leak"."""


class ManyRunEpsilon(Attack):
    """Play the cases and report the worst."""

    name: ClassVar[str] = "many_run_epsilon"
    title: ClassVar[str] = "Lower bound on epsilon, from many runs on neighbouring data sets"
    source: ClassVar[str] = "Nasr and others (2023); Jagielski, Ullman and Oprea (2020)"
    knows: ClassVar[str] = "all records but one unit's, which it chose"
    views: ClassVar[tuple[Who, ...]] = (Who.COALITION,)
    metric: ClassVar[str] = "epsilon_ratio"
    meaning: ClassVar[str] = "lower bound on epsilon, divided by the claim"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        return why_not_repeated(view.planned)

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(1.0)

    def run(self, view: View, rng: np.random.Generator) -> int:
        """Return a seed: the runs are the auditor's."""
        return int(rng.integers(2**31))

    def score(self, guess: int, view: View, truth: Truth) -> Finding:
        """Return the worst case; details: all of them."""
        planned = view.planned
        assert planned.private is not None
        terms = planned.private.terms
        neighbours = worst_neighbours(planned, rounds_of(planned), guess)
        cases = _cases(planned, neighbours)
        cases += _kinds(planned, cases[0], guess)
        if _sites_keep(planned):
            cases = [case for case in cases if case.only is not None]
        found = {case.name: _play(planned, case, guess, ERROR / len(cases)) for case in cases}
        all_ratios = {name: _low(bound) / bound.claimed for name, bound in found.items()}
        # A kind of round alone says nothing of the whole run, unless it refutes its claim.
        of_run = {case.name for case in cases if case.only is None} or set(found)
        ratios = {name: r for name, r in all_ratios.items() if name in of_run or r > 1}
        worst = max(ratios, key=lambda name: ratios[name])
        judged = {case.name for case in cases if case.only != COHORT} & (set(found) - of_run)
        value, failed = ratios[worst], ""
        if (least := min([value, *(all_ratios[name] for name in judged)])) < _POWER:
            failed = f"the bound reaches {least:.0%} of the claim, which shows too little"
        details = {
            "worst_case": worst, "claim": terms.epsilon, "delta": terms.delta, "error": ERROR,
            "sensitivity_reached": neighbours.reached,
            "cases": {name: _plain(bound) for name, bound in found.items()},
        }  # fmt: skip
        return Finding.failure(failed, value, 0.0, **details)

    def control(self, plain: View) -> View:
        """Return the same job under a guarantee, with a quarter of its noise."""
        return replace(plain, planned=with_less_noise(plain.planned))


# --- cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """Two neighbouring data sets, what the coordinator does, and who looks on.

    known: sites that collude; see `secagg.audits.epsilon.repeated_runs.play` for the rest
    jobs: how many jobs on the same records
    only: the kind of round that is seen; None: all
    runs: at most so many
    """

    name: str
    extra: tuple[Extra, Extra]
    script: Script
    known: tuple[str, ...]
    answers: int = 1
    lost: tuple[str, ...] = ()
    jobs: int = 1
    only: str | None = None
    runs: int | None = None


def _cases(planned: Planned, neighbours: Neighbours) -> list[_Case]:
    """Return the cases that the job's settings allow."""
    assert planned.private is not None
    terms, sites = planned.private.terms, planned.public.sites
    at_sites = terms.placement is Placement.SITE
    fewest = 1 if at_sites else terms.colluding
    holders = sites[: max(1, min(terms.sites, len(sites) - fewest))]
    others = sites[len(holders) :]
    known = others if at_sites else others[len(others) - terms.colluding :]
    copies = terms.records if terms.person is None else terms.records + 2  # it must leave out two
    best, other = neighbours.script, neighbours.other
    extra = _extra(neighbours, holders, copies)
    base = _Case("all rounds", extra, best, known)
    found = [base, replace(base, name="asked again", answers=_ANSWERS)]
    if len(best) > 1:
        both = [(other if i % 2 else best)[i] for i in range(len(best))]
        found.append(replace(base, name="two messages", script=both))
    can_go = [site for site in others if at_sites or site not in known]
    lost = tuple(can_go[: len(sites) - planned.public.min_sites])
    if lost:
        found.append(replace(base, name="sites drop out", lost=lost))
    if at_sites:
        found.append(replace(base, name="several jobs", jobs=_JOBS))
    if at_sites and terms.adjacency is Adjacency.REPLACE and len(sites) > 2 * len(holders):
        elsewhere = sites[len(holders) : 2 * len(holders)]
        moved = {site: [neighbours.second] * copies for site in elsewhere}
        knows = tuple(site for site in known if site not in elsewhere)
        start = {site: [neighbours.second] * copies for site in holders}
        found.append(replace(base, name="moved to another site", extra=(start, moved), known=knows))
    return found


def _sites_keep(planned: Planned) -> bool:
    """Return whether sites add noise of their own to a sum, and use what they find later."""
    return any(stage.training for stage in planned.plans.stages.values())


def _kinds(planned: Planned, base: _Case, seed: int) -> list[_Case]:
    """Return the cases of the count of records, and of each kind of round if there are several."""
    found = [replace(base, name=f"rounds of {COHORT}", script=(), only=COHORT)]
    kinds = rounds_of(planned)
    holders = tuple(base.extra[1])
    copies = len(base.extra[1][holders[0]])
    for kind in kinds if len(kinds) > 1 else ():
        worst = worst_neighbours(planned, [kind], seed)
        extra = _extra(worst, holders, copies)
        known, runs = base.known, None
        if planned.plans.stages[kind.stage].training:  # the site's own noise is enough
            known, runs = tuple(s for s in planned.public.sites if s not in holders), _RUNS_ALONE
        found.append(
            replace(
                base, name=f"rounds of {kind.stage}", extra=extra, script=worst.script,
                only=kind.stage, known=known, runs=runs,
            )
        )  # fmt: skip
    return found


def _extra(neighbours: Neighbours, holders: Sequence[str], copies: int) -> tuple[Extra, Extra]:
    """Return the unit's records in the two data sets."""
    first, second = (
        {} if record is None else {site: [record] * copies for site in holders}
        for record in (neighbours.first, neighbours.second)
    )
    return first, second


def _play(planned: Planned, case: _Case, seed: int, error: float) -> EpsilonBound:
    """Return the bound in one case."""
    assert planned.private is not None
    terms, claim = planned.private.terms, planned.private.terms.epsilon
    if case.only is not None:
        kind = planned.private.mechanisms[case.only]
        mu = math.sqrt(kind.rounds) * kind.mu(terms.adjacency)
        claim = gaussian_epsilon(mu, terms.delta)
    runs = _runs(planned, case)
    before, after = (_releases(planned, case, extra, runs, seed) for extra in case.extra)
    before, after = _reduced(before, after)
    return bound_epsilon(before, after, claim, terms.delta, error)


def _runs(planned: Planned, case: _Case) -> int:
    sites, plans = len(planned.public.sites), planned.plans.plans
    numbers = plans[COHORT].noised + sum(plans[stage].noised for stage, _ in case.script)
    wanted = _DRAWS // (numbers * sites * case.answers * case.jobs)
    return min(max(wanted, _FEWEST_RUNS), case.runs or _RUNS)


def _releases(planned: Planned, case: _Case, extra: Extra, runs: int, seed: int) -> Array:
    """Return what is seen of the runs on one data set, one row a run."""
    data = made_tables(planned, extra, seed)
    apart = planned.public.noise[COHORT].placement is Placement.SITE
    seen = []
    with tempfile.TemporaryDirectory(prefix="secagg-audit-") as folder:
        ledgers = Path(folder) / "ledgers" if case.jobs > 1 else None
        for job in range(case.jobs):
            played = play(
                planned, data, runs, seed + job, case.script, case.answers, case.lost, ledgers
            )
            seen.append(played.view(case.known, apart, case.only))
    return np.asarray(np.mean(seen, axis=0))


def _reduced(before: Array, after: Array) -> tuple[Array, Array]:
    """Return fewer numbers of each release, if there are many, so that a test can be chosen.

    They are those that differ most, and the projection that is best if all noise is independent.
    The choice uses the releases that choose the test (`bound_epsilon`), and no others.
    """
    fit = len(before) // 10
    keep = min(_COLUMNS, max(fit // _RUNS_A_COLUMN, 1))
    if before.shape[1] <= keep:
        return before, after
    difference = np.mean(after[:fit] - before[:fit], axis=0)
    sd = np.std(before[:fit], axis=0)
    sd = np.maximum(sd, 1e-9 * np.max(sd)) if np.any(sd) else np.ones_like(sd)
    most = np.argsort(-np.abs(difference) / sd, kind="stable")[:keep]
    best = difference / sd**2
    first, second = (np.column_stack([x @ best, x[:, most]]) for x in (before, after))
    return first, second


def _low(bound: EpsilonBound) -> float:
    return max(bound.epsilon_low, bound.threshold_low)


def _plain(bound: EpsilonBound) -> dict[str, Any]:
    return {
        "claim": bound.claimed,
        "epsilon_low": bound.epsilon_low, "epsilon_high": bound.epsilon_high,
        "threshold_low": bound.threshold_low, "mu_low": bound.mu_low, "mu_high": bound.mu_high,
        "runs": bound.runs,
    }  # fmt: skip
