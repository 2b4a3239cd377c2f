"""`fedlin_full`: sites' coefficients from N(mu, Sigma) with a full covariance matrix Sigma.

The model of Yue, Al Kontar and Estrada Gomez (2022), section 2.3, theta_k | phi ~ N(mu, Sigma),
whose example 4.1 (`fedlin_hm2`) has a diagonal Sigma. If coefficients vary together between sites,
a site with few records gains from the covariances. y_k = X_k theta_k + error, with the variance
sigma^2 at all sites, or one of its own at each site.

    fit        each round is an exact score of the restricted likelihood of Sigma; the coordinator
               maximises a likelihood with this score (`full.equal_sites`). A few rounds are enough
    agreement  sums for tests that sites agree (`hypotheses.f_tests`)
    points     if asked for: log likelihoods at draws from the posterior (`full.posterior`)
    finish     each site gets draws of (mu, Sigma) and draws its own theta_k given them

The coordinator's draws come from `seed`, which all parties know, because the draws are sent.

What the transcript determines (Guarantees: only this)
    * Pooled X'X and X'y within sites, and for each coefficient three sums over the sites' own
      estimates; the sums that all FedLin methods have.
    * In each round of `fit`, SUM A_k, SUM A_k b_k and SUM a_k a_k' of `full.site_sums`, at mu and
      Sigma that differ from round to round. These are d (d + 2) equations for K d (d + 3) / 2
      numbers, and the agreement sums are d (d + 3) / 2 + 3 d + 1 more. For three sites with two
      coefficients, an honest run determines X'X and X'y of every site (attack `full_sums`), without
      telling which site is which. Sigma moves little after two rounds, so that rounds become nearly
      the same equations. Assume that the coordinator knows these matrices if there are few sites.
    * With points, one more equation for each point.
    Not revealed: a site's own posterior and draws, and which site has which X'X.
Not protected: a dishonest coordinator that chooses Sigma has equations for as many sites as its
rounds allow (attack `full_invented`). With two sites, one site's numbers and the sums would be the
other's, so predictors must vary at three sites at least, which the first sum of the run counts.

==============================  ====================================================================
site                            contribution
==============================  ====================================================================
no record, or constant columns  0; it does not count among the K sites
fewer records than terms        A_k has a lower rank; it is left out of tests of one coefficient
a Sigma that is no covariance   `PeerError`, nothing is sent
values beyond 2^40              `DataError`, nothing is sent
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secagg.contracts import (
    TRUSTED,
    Body,
    Disclosure,
    DisclosureKind,
    Field,
    Kind,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    Spec,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.posterior_summary import MAX_R_HAT
from secagg.models.fedlin.base import FINISH, ROUNDS
from secagg.models.fedlin.descriptions import (
    SOLVED_BY_CHOICE,
    seen_by_subtraction,
    sites_table,
)
from secagg.models.fedlin.full.equal_sites import EqualSites
from secagg.models.fedlin.full.families import (
    Records,
    candidates,
    correction,
    observation,
    resampled,
)
from secagg.models.fedlin.full.hamiltonian import Target, draw_covariances
from secagg.models.fedlin.full.posterior import (
    SharedDraws,
    agreement_of_chains,
    covariances,
    row_size,
    weights_of,
)
from secagg.models.fedlin.full.result import full_result, full_site_result
from secagg.models.fedlin.full.settings import FullSettings
from secagg.models.fedlin.full.site_sums import coefficient_draws, log_likelihoods, round_sums
from secagg.models.fedlin.hierarchies.base import PosteriorDraws, SufficientStatistics
from secagg.models.fedlin.hypotheses.agreement import AGREEMENT, agreement_stage, agreement_sums
from secagg.models.fedlin.posterior.site_posterior import site_posterior
from secagg.models.fedlin.round import FIELD_BOUND, FRACTION_BITS, Round, within_range
from secagg.models.fedlin.site import Site
from secagg.models.numerics.natural_gaussian import symmetric, triangle

POINTS = "points"
"""Name of the stage that weighs draws."""
COMMON = "common"
"""Name of the predictions by the posterior mean of mu."""
_CHOSEN_COEFFICIENTS = (
    f"{TRUSTED} A dishonest coordinator can choose coefficients and a covariance matrix near 0. A "
    "sum is then the score and information of all sites' records at these coefficients, as in a "
    "logistic regression, whose weights it can put on few records. A site with a policy therefore "
    "answers exact rounds only if its policy names the method."
)
_LABELS = {
    "distance": ("change of Sigma in the last round", "relative to the estimates' variances"),
    "largest_r_hat": ("largest R-hat", f"1 if the chains agree; it should be at most {MAX_R_HAT}"),
    "shared_how": ("posterior of what sites share", ""),
    "family": ("distribution of the outcome", ""),
    COMMON: ("one regression for all sites: the means", ""),
}
_FIRST_VARIANCE = 0.25  # of each coefficient between sites, times A^2
_MIN_EIGENVALUE = 1e-10  # of SUM A_k with unit diagonal


@dataclass(frozen=True, kw_only=True)
class FedLinFull(FullSettings):
    """Linear regressions drawn from one normal distribution with a full covariance matrix."""

    name: ClassVar[str] = "fedlin_full"
    title: ClassVar[str] = "FedLin regression with a full covariance between sites"
    short: ClassVar[str] = "full"
    last_sees: ClassVar[str] = "how many sites include each coefficient"
    placements: ClassVar[Placements] = Placements.site_moments("holdout, degree or family")

    @property
    def disclosure(self) -> Disclosure:
        other = seen_by_subtraction(self.intercept)
        kind = DisclosureKind.SOLVABLE
        if not self.needs_noise:
            text = _disclosed_of_family(self.points)
            return Disclosure(kind, text, _CHOSEN_COEFFICIENTS, other_runs=other)
        attacks, text = ("full_sums", "full_invented"), _disclosed(self.points)
        return Disclosure(kind, text, SOLVED_BY_CHOICE, other_runs=other, attacks=attacks)

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (sites_table(self.title, _LABELS),)

    @property
    def counts_sites(self) -> bool:
        return True

    def round_stage(self, public: PublicFacts) -> Stage:
        self.check_full(public)
        d = self.layout(public).d
        entries = d * (d + 1) // 2
        spec = (
            Field("precision", (entries,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
            Field("slope", (d,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
            Field("scatter", (entries,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
        )
        sees = (
            "sums over sites of the precisions of their estimates, of the estimates times these, "
            "and of their scatter about the mean"
        )
        return Stage(ROUNDS, spec, self.rounds, sees)

    def after_rounds(self, public: PublicFacts) -> tuple[Stage, ...]:
        stages = list[Stage]()
        if self.needs_noise:
            stages.append(agreement_stage(self.layout(public).d, public.max_rows))
        if self.points:
            sees = f"sums over sites of log likelihoods at {self.points} draws of mu and Sigma"
            level = Field("level", (self.points,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED)
            stages.append(Stage(POINTS, (level,), 1, sees))
        return tuple(stages)

    def news(self, stage: str, public: PublicFacts) -> dict[str, tuple[int, ...]]:
        d = self.layout(public).d
        if stage == ROUNDS:
            return {"mu": (d,), "spread": (d * (d + 1) // 2,), "Sigma": (d * (d + 1) // 2,)}
        if stage == AGREEMENT:
            return {}
        return {"draws": (self.points if stage == POINTS else self.draws, row_size(d))}

    def begin(self, public: PublicFacts) -> State:
        d = self.layout(public).d
        first = _FIRST_VARIANCE * self.prior_scale**2 * np.eye(d)
        nothing = np.zeros(d * (d + 1) // 2)
        return {"mu": np.zeros(d), "spread": nothing, "Sigma": triangle(first), "distance": None}

    def sent(self, state: State) -> Body:
        if state["status"] == ROUNDS:
            return {name: state[name] for name in ("mu", "spread", "Sigma")}
        return {} if state["status"] == AGREEMENT else {"draws": state["draws"]}

    def begin_site(self, site: Site, now: Round, public: PublicFacts) -> State:
        return {}

    def site_contribution(
        self, site: Site, memory: State, now: Round, public: PublicFacts
    ) -> tuple[Update, State]:
        d = now.layout.d
        if now.stage == AGREEMENT:
            return within_range(agreement_sums(site, now.sent["determined"])), memory
        if now.stage == POINTS:
            at, known = SharedDraws.read(now.sent["draws"], d), self._statistics(site, now, memory)
            level = log_likelihoods(known, at.mu, at.Sigma, at.ratio)
            if not self.needs_noise and known.records:
                records = Records.of(self.link, now, public)
                level += correction(candidates(records, known, at.mu, at.Sigma, now.rng)[1])
            # a common constant is not needed
            return within_range({"level": level - np.mean(level)}), memory
        spread, Sigma = covariances(np.array([now.sent["spread"], now.sent["Sigma"]]), d)
        if not self.needs_noise and site.records:
            matched = observation(Records.of(self.link, now, public), now.sent["mu"], Sigma)
            memory = {"gram": matched.gram, "cross": matched.cross}
        known = self._statistics(site, now, memory)
        return within_range(round_sums(known, now.sent["mu"], spread, Sigma)), memory

    def _statistics(self, site: Site, now: Round, memory: State) -> SufficientStatistics:
        """Return the site's normal likelihood; of other families, that of the last round."""
        if not self.needs_noise and memory:
            return SufficientStatistics(memory["gram"], memory["cross"], 0.0, site.records, 1.0)
        records = site.freedom if site.rank else 0  # constant columns tell nothing
        return SufficientStatistics(site.gram, site.cross, site.square, records, now.noise)

    def advance(self, state: State, total: Update, sites: int) -> State:
        """Match the likelihood of equal sites to the sums, and go to its mode."""
        d = len(state["mu"])
        _check_rank(symmetric(total["precision"], d))
        Sigma, spread = symmetric(state["Sigma"], d), symmetric(state["spread"], d)
        fitted = EqualSites.of(total, state["mu"], spread, Sigma, state["used"])
        new = fitted.mode(Sigma, self.prior_scale)
        unit = np.sqrt(np.diagonal(Sigma + fitted.C))
        distance = float(np.max(np.abs(new - Sigma) / np.outer(unit, unit)))
        arrived = distance < self.tolerance
        last = arrived or state["round"] == self.rounds
        G = np.linalg.inv(symmetric(total["precision"], d))
        state = {
            **state,
            **fitted.state(),
            "mu": fitted.mean,
            "spread": triangle(np.asarray(G, dtype=np.float64)),
            "Sigma": triangle(new),
            "distance": distance,
            "arrived": arrived,
            "status": AGREEMENT if last else ROUNDS,
        }
        return self._drawn(state, 0.0) if last and not self.needs_noise else state

    def after(self, state: State, total: Update) -> State:
        if state["status"] == POINTS:
            return self._weighted(state, total)
        estimated = self.variance == "pooled" and self.noise_sd is None
        freedom = float(total["freedom"][0]) if estimated else 0.0
        return self._drawn({**state, "agreement": total}, freedom)

    def _drawn(self, state: State, freedom: float) -> State:
        """Draw what sites share; freedom: of the residual variance, 0 if it is known."""
        fitted = EqualSites.read(state)
        rng = np.random.default_rng([self.seed, 0])
        target = Target(fitted, self.prior_scale, freedom)
        start = symmetric(state["Sigma"], len(state["mu"]))
        shared = SharedDraws.of(draw_covariances(target, start, self.draws, rng), fitted, rng)
        worst = float(np.nanmax(agreement_of_chains(shared).r_hat))
        state = {**state, "r_hat": worst}
        if self.points:
            return {**state, "draws": shared.thinned(self.points).rows(), "status": POINTS}
        return {**state, "draws": shared.thinned(self.draws).rows(), "status": FINISH}

    def _weighted(self, state: State, total: Update) -> State:
        shared = SharedDraws.read(state["draws"], len(state["mu"]))
        weights = weights_of(shared, EqualSites.read(state), total["level"])
        rng = np.random.default_rng([self.seed, 1])
        chosen = shared.resampled(weights, self.draws, rng)
        effective = 1 / float(weights @ weights)
        return {**state, "draws": chosen.rows(), "effective": effective, "status": FINISH}

    def settled(self, site: Site, memory: State, now: Round, public: PublicFacts) -> State:
        """Draw theta_k given each draw of mu, Sigma and r."""
        shared = SharedDraws.read(now.sent["draws"], now.layout.d)
        known = self._statistics(site, now, memory)
        if self.needs_noise or not known.records:
            theta, mean = coefficient_draws(known, shared.mu, shared.Sigma, shared.ratio, now.rng)
        else:
            records = Records.of(self.link, now, public)
            found = candidates(records, known, shared.mu, shared.Sigma, now.rng)
            theta, mean = resampled(*found, now.rng)
        drawn = PosteriorDraws(theta, shared.mu)
        posterior = site_posterior(drawn, now.noise * shared.ratio, site, now, self.level, 0.0)
        del posterior["null"]
        return {"theta": mean, "posterior": posterior, "common": shared.mu.mean(axis=0)}

    @property
    def models(self) -> tuple[str, ...]:
        return super().models if self.needs_noise else (self.short, COMMON)

    def fitted(self, site: Site, own: State) -> list[Array]:
        return super().fitted(site, own) if self.needs_noise else [own["theta"], own["common"]]

    def last_fields(self, public: PublicFacts) -> Spec:
        """How many sites include each coefficient."""
        return (Field("included", (self.layout(public).d,), 1.0, 0, Kind.COUNT),)

    def last_parts(self, own: State) -> Update:
        """The coefficients that the site includes."""
        slopes = own["posterior"]["included"]
        return {"included": slopes[len(slopes) - len(own["theta"]) :]}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the posterior of mu and Sigma, tests, and errors of predictions."""
        return full_result(self, state, public)

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        return full_site_result(self, memory, public)


def _check_rank(P: Array) -> None:
    """Raise `UsageError` if predictors are collinear within all sites."""
    size = np.sqrt(np.diagonal(P))
    if np.all(size > 0) and np.linalg.eigvalsh(P / np.outer(size, size))[0] > _MIN_EIGENVALUE:
        return
    what = "the records of all sites together do not determine the means over sites"
    raise UsageError("analysis", what, "Leave out predictors that others determine.")


def _disclosed(points: int) -> str:
    weighed = f"Then sums of log likelihoods at {points} values of the shared parameters. "
    return (
        "The pooled cross products within sites; for each coefficient, how far the sites' own "
        "estimates scatter; in each round, sums over sites of the precisions of their estimates "
        "and of their scatter, at means and covariances that change from round to round. With few "
        "sites and predictors, all these can be solved for every single site's cross products and "
        "regression, without knowing which site is which. "
        f"{weighed if points else ''}At the end, sums over sites of posterior means, of their "
        "squares, and of prediction errors; and for each coefficient, at how many sites its "
        "interval excludes 0."
    )


def _disclosed_of_family(points: int) -> str:
    weighed = f"Then sums of log likelihoods at {points} values of the shared parameters. "
    return (
        "The columns' pooled means and standard deviations. In each round, sums over sites of what "
        "their records say of their coefficients, as a normal density: of its precision and of its "
        "distance from the mean. The densities depend on the round's means and covariances, so "
        "rounds are equations in the sites' likelihoods. With few sites and predictors, assume "
        "that they show single sites' regressions, without showing which site is which. "
        f"{weighed if points else ''}At the end, sums over sites of posterior means, of their "
        "squares, and of prediction errors; and for each coefficient, at how many sites its "
        "interval excludes 0."
    )
