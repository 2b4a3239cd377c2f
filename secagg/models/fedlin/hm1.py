"""FedLin's HM1: sites' linear regressions, tied by a covariance between sites.

Yue, Al Kontar and Estrada Gomez (2022), section 3 and Algorithm 1, from secure sums only: see
`secagg.models.fedlin.site_covariance`. In each of C rounds a site takes T gradient steps towards
its own least squares (`secagg.models.fedlin.gradient_steps`), with eta_k = step / (largest
eigenvalue of its X'X). All sites' coefficients are then shrunk by means of Omega, the estimated
covariance between sites.

`weight` chooses a_k, the strength of the shrinkage in a round. With "posterior", the fixed point is
nearly the posterior mean given Omega. With "steps", a_k = 2 eta_k sigma_k^2 T. Omega is updated by
exponential smoothing. With weak data the coefficients and Omega both shrink towards 0, and a note
reports this. `remaining` estimates the change still to come after the last round.
docs/math/hm1-site-covariance.md derives all of this.

What the transcript determines (Guarantees: only this)
    * The number of records and, with pooled units, the columns' pooled means and standard
      deviations. How many sites have more records than coefficients, the pooled noise variance and
      its degrees of freedom. At the end: how many sites have records, and sums over these sites of
      coefficients, their squares, and squared prediction errors. With a holdout: how many records
      are held out, and at how many sites.
    * In each round, the sums over sites of theta_k v_k' / b_k and v_k v_k' / b_k. By linear
      algebra, the sums of two rounds determine theta_k, v_k and a_k of every site, except for their
      sign and for which site is which: (5) in the derivation. The last sum determines the signs.
      Further rounds determine the same quantities again. An honest coordinator can compute them
      (the attack `hm1_sums`). With default settings and simulated records, it obtains the
      coefficients of four sites with six coefficients to ten digits, of eight with five to six
      digits, and of four with three to three digits or more. The values of theta_k over the rounds
      determine the site's least squares and, unless T steps converge, its X'X.
    * A dishonest coordinator obtains these quantities for more sites and more precisely, because it
      can choose M so that the sites' histories v_k differ strongly. With `hm1_invented` it obtains
      the least squares of twelve sites to eight digits, and with steps = 1 also their X'X and X'y.
      It invents sums, and computes M and U from these as the method does. An honest
      coordinator could have sent the same messages, so no check refuses them. Sites refuse numbers
      that are not finite, and a noise variance that changes.
    Not revealed: a site's records, and which of them are held out.

==============================  ====================================================================
site                            contribution
==============================  ====================================================================
no record                       theta_k = v_k = 0: adds nothing to the sums
fewer records than columns      steps change only what its records determine; the rest is shrunk
did not take part in a round    its coefficients stay; it contributes to the sums as always
coefficients out of range       `DataError`, nothing is sent: the method diverges
an M that is not finite         `PeerError`, nothing is sent
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    Stage,
    State,
    Update,
)
from secagg.errors import JobError
from secagg.models.fedlin.base import FINISH, ROUNDS
from secagg.models.fedlin.descriptions import SOLVED_BY_CHOICE, seen_by_subtraction
from secagg.models.fedlin.hypotheses.agreement import (
    AGREEMENT,
    TESTS_NOTE,
    TestsOfSites,
    agreement_sums,
    own_estimates,
)
from secagg.models.fedlin.local_steps import LocalSteps
from secagg.models.fedlin.result import convergence, explained, joined, summary
from secagg.models.fedlin.round import FIELD_BOUND, FRACTION_BITS, Round, within_range
from secagg.models.fedlin.site import Site
from secagg.models.fedlin.site_covariance import (
    history_length,
    parts,
    remembered,
    shrinkage,
    shrunk,
)
from secagg.models.numerics.natural_gaussian import symmetric, triangle

_MAX_MESSAGE_VALUES = 2**22  # in a round
_MIN_EXPLAINED_SHARE = 0.01  # relative to least squares; below it coefficients are near 0
_FADING_SHARE = 0.5  # if coefficients shrink and more change is to come, Omega shrinks to 0 too
_WARMUP_ROUNDS = 2  # before sizes of two rounds can be compared, because sites start at 0


@dataclass(frozen=True, kw_only=True)
class FedLinHm1(TestsOfSites, LocalSteps):
    """HM1: linear regressions tied by a covariance between sites."""

    rounds: int = 30
    """Largest number of rounds (C in the paper)."""
    alpha: float = 0.1
    """Share by which a round moves Omega towards its new value, between 0 and 1."""
    weight: Literal["posterior", "steps"] = "posterior"
    """How strongly a round shrinks coefficients. `"posterior"`: so strongly that they converge to
    nearly the posterior mean given Omega. `"steps"`: by 2 eta_k sigma_k^2 T, for T steps of size
    eta_k and residual variance sigma_k^2."""
    tolerance: float = 0.0
    """If the coefficients change by less than this in a round, relative to their size, the rounds
    end."""

    name: ClassVar[str] = "fedlin_hm1"
    title: ClassVar[str] = "FedLin HM1 regression"
    short: ClassVar[str] = "hm1"
    needs_noise: ClassVar[bool] = True
    """The prior's weight depends on the noise variance."""

    @property
    def disclosure(self) -> Disclosure:
        return Disclosure(
            DisclosureKind.SOLVABLE,
            "Each round releases sums over the sites. Their terms are products of a site's "
            "coefficients now with its own in earlier rounds. After enough rounds (about as many "
            "as sites divided by coefficients), the sums of two successive rounds can be solved "
            "for every single site's coefficients, and those of further rounds for its least "
            "squares and cross products. They do not show which site is which. If there are not "
            "many sites, assume that the coordinator knows these numbers. The end releases sums "
            "over sites of coefficients, of their squares if there are more than two sites, and of "
            "prediction errors." + (TESTS_NOTE if self.tests else ""),
            SOLVED_BY_CHOICE,
            other_runs=seen_by_subtraction(self.intercept),
            attacks=("identified_share", "hm1_sums", "hm1_invented"),
        )

    def _length(self, public: PublicFacts) -> int:
        return history_length(self.layout(public).d, len(public.sites), self.rounds)

    def round_stage(self, public: PublicFacts) -> Stage:
        self._check_rounds()
        d, m = self.layout(public).d, self._length(public)
        if d * m + m * (m + 1) // 2 > _MAX_MESSAGE_VALUES:
            raise JobError(
                "method", f"a round of {len(public.sites)} sites and {d} coefficients is too large"
            )
        spec = (
            Field("S", (d, m), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
            Field("G", (m * (m + 1) // 2,), FIELD_BOUND, FRACTION_BITS, Kind.PSD),
            Field("moved", (2,), FIELD_BOUND, FRACTION_BITS, Kind.WEIGHT),
        )
        sees = (
            "sums over sites of products of coefficients, now and in earlier rounds; how far they "
            "moved"
        )
        stage = Stage(ROUNDS, spec, self.rounds, sees)
        return replace(stage, few_records=self.batch or 0)

    def news(self, stage: str, public: PublicFacts) -> dict[str, tuple[int, ...]]:
        d, m = self.layout(public).d, self._length(public)
        return {"M": (d, m), "U": (m - d, m)}

    def begin(self, public: PublicFacts) -> State:
        zeros = {name: np.zeros(shape) for name, shape in self.news(ROUNDS, public).items()}
        return {**zeros, "size": 0.0}

    def sent(self, state: State) -> Body:
        return {name: state[name] for name in ("M", "U")}

    def begin_site(self, site: Site, now: Round, public: PublicFacts) -> State:
        d, m = now.layout.d, self._length(public)
        zeros = np.zeros(d)
        return {"theta": zeros, "before": zeros, "v": np.zeros(m), "round": 0, "active": False}

    def site_contribution(
        self, site: Site, memory: State, now: Round, public: PublicFacts
    ) -> tuple[Update, State]:
        """Apply the last round's shrinkage, take steps, and contribute to this round's sums."""
        if now.stage == AGREEMENT:
            sites = now.sent["determined"]
            return within_range(agreement_sums(site, sites) | own_estimates(site, sites)), memory
        memory = self.settled(site, memory, now, public)
        theta, done = memory["theta"], memory["round"]
        moved = float(np.sum((theta - memory["before"]) ** 2))
        size = float(theta @ theta)
        before = theta
        active = self.takes_part(now.rng)
        if active:
            theta = self.stepped(site, theta, now)
        S, G = parts(theta, memory["v"], self._weights(site, done, now)[1])
        update = within_range({"S": S, "G": triangle(G), "moved": np.array([moved, size])})
        kept = {"theta": theta, "before": before, "round": done + 1, "active": active}
        return update, {**memory, **kept}

    def settled(self, site: Site, memory: State, now: Round, public: PublicFacts) -> State:
        """Apply the shrinkage that was sent, and store the coefficients."""
        if not memory["round"]:
            return memory
        theta, v = memory["theta"], memory["v"]
        if memory["active"]:
            a, b = self._weights(site, memory["round"] - 1, now)
            theta = shrunk(theta, v, now.sent["M"], a / b)
        return {**memory, "theta": theta, "v": remembered(v, theta, now.sent["U"], self.alpha)}

    def advance(self, state: State, total: Update, sites: int) -> State:
        m = total["S"].shape[1]
        M, U = shrinkage(total["S"], symmetric(total["G"], m))
        moved, size = total["moved"].tolist()
        change = float(np.sqrt(moved / size)) if size > 0 else None
        quiet = self.quiet(state["quiet"], change, self.tolerance)
        ended = quiet >= self.patience or state["round"] == self.rounds
        chance = self.batch is not None or self.participation < 1
        progress = {
            "change": change,
            "remaining": None if change is None or chance else change / self.alpha,
            "shrinking": state["round"] > _WARMUP_ROUNDS and size <= state["size"],
            "size": size,
            "quiet": quiet,
        }
        last = AGREEMENT if self.tests else FINISH
        return {**state, **progress, "M": M, "U": U, "status": last if ended else ROUNDS}

    def after_rounds(self, public: PublicFacts) -> tuple[Stage, ...]:
        return self.agreement_stages(public)

    def after(self, state: State, total: Update) -> State:
        return {**state, "agreement": total, "status": FINISH}

    def prior_weight(self, site: Site, now: Round) -> float:
        """Return a_k."""
        eta = self.eta(site)
        if self.weight == "posterior":
            return now.noise * site.shape.answer(eta, self.steps)
        return 2 * eta * now.noise * self.steps

    def _weights(self, site: Site, done: int, now: Round) -> tuple[float, float]:
        """Return a_k and b_k after `done` rounds."""
        a, c = self.prior_weight(site, now), (1 - self.alpha) ** done
        return (a, c + a) if a > 0 else (1.0, c + 1.0)  # without records: 0 / (c + 1) in the sums

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return coefficients over sites, and errors of predictions."""
        found = summary(self, state, public) | self.tested(state, public)
        more = "more method.rounds, or a larger method.alpha"
        ending = convergence(state, self.tolerance, self.patience, more)
        lost = self._lost(state, explained(found["errors"]))
        return Result(joined(found, {**ending, "notes": [lost]} if lost else ending))

    def _lost(self, state: State, share: float | None) -> str | None:
        """Return a note if the coefficients shrink to 0, where more rounds do not help."""
        if not state["shrinking"]:
            return None
        if share is not None and abs(share) < _MIN_EXPLAINED_SHARE:
            other = "" if self.weight == "posterior" else "method.weight = 'posterior', or "
            return (
                "The coefficients have shrunk to 0, so the predictions ignore the predictors, and "
                f"more rounds would not help. Take {other}the sites' own least squares."
            )
        if (state["remaining"] or 0.0) > _FADING_SHARE:
            return (
                "The coefficients were still shrinking fast in the last round: more rounds may "
                "shrink them to 0."
            )
        return None

    def _check_rounds(self) -> None:
        self.check_steps()
        if not 0 < self.alpha < 1:
            raise JobError("method.alpha", "must be above 0 and below 1")
