"""FedLin's HM2: sites' linear regressions drawn from one distribution, which they learn together.

Yue, Al Kontar and Estrada Gomez (2022), section 4. Site k has coefficients theta_k and a likelihood
f_k(phi) of the shared parameters; `prior` chooses p(theta_k | phi). Expectation propagation uses
normal densities, q_k for f_k and q for p(phi | all records). At the end every site draws from its
own posterior, equation (8), in which the cavity q / q_k stands for all other sites' records.

What the transcript determines (Guarantees: only this)
    * Counts, pooled means, standard deviations and noise variance. At the end, sums over sites of
      posterior means, their squares and squared prediction errors, and inclusion counts. Under
      noise once at the site, if the method knows it, noisy cross products of predictors.
    * In each round, the sum over sites of the changes of q_k. These depend on each site's X'X and
      X'y and on the current q, so all rounds together may reveal more than the last one.
    * With `points` and few sites, X'X and X'y of every site: see `posterior.importance_points`.
    Not revealed: q_k, a site's posterior, which records are held out, and which sites took part in
    a round (unless a single site did: see `participation`).
Not protected: sites check only that q is a proper density. With few sites, a dishonest coordinator
that chooses q obtains X'X and X'y of every site within a few dozen rounds.

==============================  ====================================================================
site                            contribution
==============================  ====================================================================
no record, or not in the round  change 0 (of no record the likelihood is 1)
fewer records than columns      its X'X is singular; priors make every density proper
a cavity that is not a density  power expectation propagation if `prior` has it, else as strained
moments cannot be computed      change 0; the site is counted as strained
a q that is no density          `PeerError`, nothing is sent
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from secagg.contracts import (
    Body,
    Disclosure,
    DisclosureKind,
    Field,
    Kind,
    PublicFacts,
    RecordCount,
    Result,
    Spec,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.errors import JobError, PeerError
from secagg.models.common.checks import check_numbers
from secagg.models.common.posterior_summary import number
from secagg.models.fedlin.base import FINISH, ROUNDS
from secagg.models.fedlin.descriptions import (
    SOLVED_BY_CHOICE,
    disclosed_by_hm2,
    seen_by_subtraction,
)
from secagg.models.fedlin.hierarchies.base import Hierarchy, SufficientStatistics
from secagg.models.fedlin.hierarchies.elastic_net import ElasticNet
from secagg.models.fedlin.hierarchies.lasso import Lasso
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hierarchies.ridge import Ridge
from secagg.models.fedlin.hypotheses.agreement import (
    AGREEMENT,
    TESTS_NOTE,
    TestsOfSites,
    agreement_sums,
    own_estimates,
)
from secagg.models.fedlin.participation import SINGLE_SITE_ROUNDS_NOTE, Participation
from secagg.models.fedlin.posterior.expectation_propagation import (
    damping_factor,
    next_damping_limit,
    no_change,
    site_change,
    step_norm,
)
from secagg.models.fedlin.posterior.importance_points import (
    points_fields,
    points_sums,
    points_values,
    quasi_random_points,
)
from secagg.models.fedlin.posterior.site_posterior import posterior_draws, site_posterior
from secagg.models.fedlin.result import joined, own_summary, summary
from secagg.models.fedlin.round import FIELD_BOUND, FRACTION_BITS, Round, within_range
from secagg.models.fedlin.shared_result import (
    cautions,
    converged,
    importance_rows,
    importance_summary,
    importance_weighted,
    in_words,
    shared_rows,
)
from secagg.models.fedlin.site import Site
from secagg.models.numerics.natural_gaussian import Natural

POINTS_STAGE = "points"
_LOG_MEANS = ("log_tau_mean", "log_lambda_mean", "log_noise_mean")
_MAX_HYPERPRIOR_MEAN = {"mu_mean": 1e6} | dict.fromkeys(_LOG_MEANS, 100.0)
_SPREADS = ("mu_sd", "log_tau_sd", "log_lambda_sd", "log_noise_sd")
_MIN_POINTS = 64
_MAX_MESSAGE_VALUES = 2**22  # of points: 32 MiB from each site
_MIN_ROUNDS = 3  # before rounds may end early


@dataclass(frozen=True, kw_only=True)
class FedLinHm2(Participation, TestsOfSites):
    """HM2: linear regressions drawn from one distribution, which the sites learn together."""

    prior: Literal["normal", "ridge", "lasso", "elastic_net"] = "normal"
    """Distribution of the sites' coefficients: see the table of priors on this page."""
    rounds: int = 60
    """Largest number of rounds. Usually about ten are needed."""
    tolerance: float = 0.02
    """If the shared posterior would move by less, in its standard deviations, rounds end."""
    damping: float = 1.0
    """Largest share of the sites' changes that a round applies, above 0 and at most 1."""
    level: float = 0.95
    """Probability of all intervals, between 0 and 1, also of those that select predictors."""
    draws: int = 2000
    """Number of draws from each site's own posterior, at least 100."""
    points: int = 0
    """With `"normal"`: number of importance sampling points for the shared parameters' posterior,
    at least 64, usually 512. 0 uses the normal approximation, which reveals less."""
    rope: float = 0.0
    """Coefficients of at most this size, in the units analysed, count as no effect (`null`)."""
    mu_mean: float = 0.0
    """With `"normal"`: prior mean of each mu_j, in the units analysed."""
    mu_sd: float = 1.0
    """With `"normal"`: prior standard deviation of each mu_j."""
    log_tau_mean: float = -3.0
    """With `"normal"`: prior mean of each log tau_j. The paper's prior is N(0, 1)."""
    log_tau_sd: float = 2.0
    """With `"normal"`: prior standard deviation of each log tau_j."""
    log_lambda_mean: float = 0.0
    """With the other priors: prior mean of each log lambda."""
    log_lambda_sd: float = 1.0
    """With the other priors: prior standard deviation of each log lambda."""
    log_noise_mean: float = 0.0
    """With the other priors: prior mean of log sigma^2, in squared units analysed."""
    log_noise_sd: float = 1.0
    """With the other priors: prior standard deviation of log sigma^2."""

    name: ClassVar[str] = "fedlin_hm2"
    title: ClassVar[str] = "FedLin HM2 regression"
    short: ClassVar[str] = "hm2"
    last_sees: ClassVar[str] = "how many sites include each coefficient"
    placements: ClassVar[Placements] = Placements.site_moments("holdout or degree")

    @property
    def disclosure(self) -> Disclosure:
        kind = DisclosureKind.SOLVABLE if self.points else DisclosureKind.SITES
        text = disclosed_by_hm2(self.points)
        text += TESTS_NOTE if self.tests else ""
        text += SINGLE_SITE_ROUNDS_NOTE if self.participation < 1 else ""
        attacks = ("hm2_points" if self.points else "hm2_invented",)
        other = seen_by_subtraction(self.intercept)
        return Disclosure(kind, text, SOLVED_BY_CHOICE, other_runs=other, attacks=attacks)

    @property
    def hierarchy(self) -> Hierarchy:
        """How sites' coefficients depend on what they share."""
        if self.prior == "normal":
            return NormalHierarchy(self.mu_mean, self.mu_sd, self.log_tau_mean, self.log_tau_sd)
        mean, sd = self.log_lambda_mean, self.log_lambda_sd
        noise_mean, noise_sd = self.log_noise_mean, self.log_noise_sd
        if self.prior == "elastic_net":
            return ElasticNet(means=(mean, mean, noise_mean), sds=(sd, sd, noise_sd))
        kind = Ridge if self.prior == "ridge" else Lasso
        return kind(means=(mean, noise_mean), sds=(sd, noise_sd))

    @property
    def needs_noise(self) -> bool:
        """Whether the noise variance is needed, because phi does not contain it."""
        return self.prior == "normal"

    @property
    def knows_noise(self) -> bool:
        """Other priors and points need more than a mean of normal densities of theta_k."""
        return self.prior == "normal" and not self.points

    def noise_of(self, phi: Array, known: float) -> Array:
        """Return the noise variance for draws of phi, in the units analysed."""
        if self.prior == "normal":
            return np.full(len(phi), known)
        return np.exp(phi[:, -1])

    def _size(self, public: PublicFacts) -> int:
        return len(self.hierarchy.components(self.layout(public).terms))

    def round_stage(self, public: PublicFacts) -> Stage:
        self._check_rounds(self.layout(public).d)
        p = self._size(public)
        spec = (
            Field("r", (p,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
            Field("Q", (p * (p + 1) // 2,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
            Field("errors", (p,), FIELD_BOUND, FRACTION_BITS, Kind.WEIGHT),
            Field("strained", (1,), 1.0, 0, Kind.COUNT),
        )
        sees = "sum over sites of changes of their normal approximations, and of their errors"
        return Stage(ROUNDS, spec, self.rounds, sees, few_sites=self.few_sites)

    def news(self, stage: str, public: PublicFacts) -> dict[str, tuple[int, ...]]:
        """q, and the share of the last changes that was taken."""
        p = self._size(public)
        return {"r": (p,), "Q": (p * (p + 1) // 2,), "taken": (1,)}

    def begin(self, public: PublicFacts) -> State:
        q = self.hierarchy.prior(self.layout(public).d)
        return {
            **q.plain(),
            "taken": 1.0,
            "most": self.damping,
            "far": None,
            "error": np.zeros(len(q.r)),
            "strained": 0.0,
        }

    def sent(self, state: State) -> Body:
        return {"r": state["r"], "Q": state["Q"], "taken": np.array([state["taken"]])}

    def begin_site(self, site: Site, now: Round, public: PublicFacts) -> State:
        """q_k = 1."""
        p = self._size(public)
        nothing = {"r": np.zeros(p), "Q": np.zeros(p * (p + 1) // 2)}
        # the same draws in every round, or rounds would not converge beyond their noise
        return {"factor": nothing, "pending": nothing, "seed": now.rng.bytes(16)}

    def _statistics(self, site: Site, now: Round) -> SufficientStatistics:
        seen = now.noisy.observations(now.noise) if now.noisy is not None else None
        return SufficientStatistics(
            site.gram, site.cross, site.square, site.freedom, now.noise, noisy=seen
        )

    def site_contribution(
        self, site: Site, memory: State, now: Round, public: PublicFacts
    ) -> tuple[Update, State]:
        """Send the change of q_k, and keep it until the share that is applied is known."""
        if now.stage == AGREEMENT:
            sites = now.sent["determined"]
            return within_range(agreement_sums(site, sites) | own_estimates(site, sites)), memory
        own, q = self._told(memory, now)
        if now.stage == POINTS_STAGE:  # all sites take part
            sums = points_sums(self._statistics(site, now), quasi_random_points(q, self.points))
            return within_range(sums), memory
        change = no_change(len(q.r))
        if self.takes_part(now.rng):
            rng = np.random.default_rng(int.from_bytes(memory["seed"], "little"))
            known = self._statistics(site, now)
            change = site_change(self.hierarchy, known, q, own, FRACTION_BITS, rng)
        pending = change.step.plain()
        strained = np.array([float(change.strained)])
        update = {**pending, "errors": change.error**2, "strained": strained}
        return within_range(update), {**memory, "factor": own.plain(), "pending": pending}

    def _told(self, memory: State, now: Round) -> tuple[Natural, Natural]:
        """Return q_k, updated by the applied share of the pending change, and q."""
        taken, q = float(now.sent["taken"][0]), Natural.read(now.sent)
        if not 0 < taken <= 1:
            raise PeerError("message", "the coordinator's share is not between 0 and 1")
        if not q.proper:
            raise PeerError("message", "the coordinator's q is no density")
        return Natural.read(memory["factor"]) + Natural.read(memory["pending"]).times(taken), q

    def advance(self, state: State, total: Update, sites: int) -> State:
        """Move q by the sum, or a share of it."""
        q, change = Natural.read(state), Natural.read(total)
        share = damping_factor(q, change, state["most"])
        after = q + change.times(share)
        step, strained = step_norm(q, after) / share, float(total["strained"][0])
        quiet = self.quiet(state["quiet"], step, self.tolerance)
        enough = max(self.patience, _MIN_ROUNDS if strained else 1)
        settled = state["round"] >= _MIN_ROUNDS and quiet >= enough
        most = state["most"]
        last = AGREEMENT if self.tests else self._ending
        if self.participation == 1:  # otherwise `step` depends on which sites take part
            most = next_damping_limit(most, share, step, state["far"])
        return {
            **state,
            **after.plain(),
            "taken": share,
            "most": most,
            "far": step,
            "quiet": quiet,
            "error": np.sqrt(total["errors"]),
            "strained": strained,
            "arrived": settled and not strained,
            "status": last if settled or state["round"] == self.rounds else ROUNDS,
        }

    def after_rounds(self, public: PublicFacts) -> tuple[Stage, ...]:
        stages = self.agreement_stages(public)
        if not self.points:
            return stages
        spec = points_fields(self.layout(public).d, self.points)
        sees = f"sums over sites of their likelihoods at {self.points} points of log tau"
        return (*stages, Stage(POINTS_STAGE, spec, 1, sees))

    @property
    def _ending(self) -> str:
        """The stage after rounds and tests."""
        return POINTS_STAGE if self.points else FINISH

    def after(self, state: State, total: Update) -> State:
        if state["status"] == AGREEMENT:
            return {**state, "agreement": total, "status": self._ending}
        return {**state, "weighed": total, "status": FINISH}

    def settled(self, site: Site, memory: State, now: Round, public: PublicFacts) -> State:
        """Draw from the site's own posterior, equation (8)."""
        own, q = self._told(memory, now)
        known = self._statistics(site, now)
        drawn, without_own = posterior_draws(self.hierarchy, known, q, own, self.draws, now.rng)
        variance = self.noise_of(drawn.phi, now.noise)
        posterior = site_posterior(drawn, variance, site, now, self.level, self.rope)
        if not self.rope:
            del posterior["null"]  # the range has no width
        return {"theta": drawn.theta.mean(axis=0), "posterior": posterior, "apart": without_own}

    def last_fields(self, public: PublicFacts) -> Spec:
        """How many sites include each coefficient."""
        return (Field("included", (self.layout(public).d,), 1.0, 0, Kind.COUNT),)

    def last_parts(self, own: State) -> Update:
        """The coefficients that the site includes."""
        slopes = own["posterior"]["included"]
        return {"included": slopes[len(slopes) - len(own["theta"]) :]}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the posterior of the shared parameters, and errors of predictions."""
        layout, scale = self.layout(public), state["scale"]
        found = summary(self, state, public) | self.tested(state, public)
        included = state["finished"]["included"].astype(int).tolist()
        for row, count in zip(found["across_sites"], included, strict=True):
            row["included"] = count
        mean, cov = Natural.read(state).moments()
        hierarchy = self.hierarchy
        components = hierarchy.components(layout.terms)
        shared = shared_rows(components, mean, np.sqrt(np.diagonal(cov)), self.level)
        found |= {"level": self.level, "hierarchy": self.prior, "rounds": state["round"]}
        found = joined(found, converged(state, components))
        if isinstance(hierarchy, NormalHierarchy):
            own = self.scale == "own" and (self.mu_sd, self.log_tau_mean) == (1.0, -3.0)
            mixture, notes = None, list[str]()
            if self.points:
                mixture, notes = importance_weighted(
                    hierarchy, Natural.read(state), state["weighed"]
                )
            if mixture is not None:
                mean, cov = mixture.moments()
                shared = importance_rows(shared, mixture, self.level)
                found["points"], notes = importance_summary(mixture)
            sites, weighed = found["sites_with_records"], mixture is not None
            noisy = public.site_moments
            found["notes"] += notes + cautions(sites, weighed=weighed, own_units=own, noisy=noisy)
        found["shared"] = in_words(shared, layout, state["centre"], scale)
        arrays = {"shared_mean": mean, "shared_covariance": cov, "centre": state["centre"]}
        arrays |= {"scale": scale, "noise": np.array([state["noise"] * scale[0] ** 2])}
        return Result(found, arrays)

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        result = own_summary(self, memory, public)
        if result is None:
            return None
        posterior = memory["own"]["posterior"]
        for j, row in enumerate(result.summary["coefficients"]):
            row |= {name: number(values[j]) for name, values in posterior.items()}
            row |= {name: bool(row[name]) for name in ("included", "doubtful")}
        result.summary["level"] = self.level
        if not memory["own"]["apart"]:
            result.summary["notes"].append(
                "The information of the other sites could not be separated from this site's: its "
                "records count twice here, and intervals are too short."
            )
        return result

    def _check_rounds(self, d: int) -> None:
        check_numbers(self, {"rounds": 1, "tolerance": 0, "draws": 100, "points": 0, "rope": 0})
        check_numbers(self, dict.fromkeys(_SPREADS, 1e-6))
        check_numbers(self, {name: -largest for name, largest in _MAX_HYPERPRIOR_MEAN.items()})
        self.check_participation()
        if not 0 < self.level < 1:
            raise JobError("method.level", "must be above 0 and below 1: 0.9 is 90 %")
        if not 0 < self.damping <= 1:
            raise JobError("method.damping", "must be above 0 and at most 1")
        for name, largest in _MAX_HYPERPRIOR_MEAN.items():
            if getattr(self, name) > largest:
                raise JobError(f"method.{name}", f"must be at most {largest:g}")
        if self.points and (self.prior != "normal" or self.points < _MIN_POINTS):
            what = f'must be 0, or with prior "normal" at least {_MIN_POINTS}'
            raise JobError("method.points", what)
        if points_values(d, self.points) > _MAX_MESSAGE_VALUES:
            what = f"with {d} coefficients are more than {_MAX_MESSAGE_VALUES:.2g} numbers a site"
            raise JobError("method.points", what, "Take fewer.")
