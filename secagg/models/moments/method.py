"""Secure sufficient statistics: one secure sum of moments, then any number of analyses of it.

Let u be a record's variables, scaled to [-1, 1] by their public bounds, and z = (1, u). Each site
contributes the upper triangle of M = sum z z', summed over its records. The sum over all sites
gives the number n, the means and the scatter matrix of the pooled records. Every linear-Gaussian
analysis is a function of these. So one release is enough for all analyses of a job.

All messages of a run together (the transcript) determine the pooled n, means and covariances, up to
the rounding of the fixed-point numbers, whatever analyses are run. They reveal nothing else about
the pooled records, and nothing about how these are split over sites. For p variables, the means and
covariances are p + p(p+1)/2 numbers. With few records, these may determine single values. With
`centre = "site"` the transcript determines n and the scatter within sites, but no means
(`secagg.models.moments.within_sites`).

Under differential privacy records are clipped, z = (c, u) with c = 1/2, and M gets noise, once:
`secagg.models.common.clipped_moments` derives how far one record can move it. If all columns state
typical ranges, records are relative to these (`secagg.jobs.typical_ranges`), and with
`centre = "site"` each site first finds its own means, with noise (`within_noise`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from secagg.contracts import (
    ASKED_ONCE,
    NO_WINDOWS,
    AskedRegression,
    Body,
    Disclosure,
    DisclosureKind,
    EdgeRule,
    EqualWeights,
    Field,
    Kind,
    MethodFacts,
    MomentsOnly,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    Update,
    Windows,
)
from secagg.contracts.facts import IntegerNoise
from secagg.contracts.noise import Placement, Placements
from secagg.core.randomness import RandomBytes
from secagg.core.validation import build
from secagg.errors import JobError, UsageError
from secagg.models.common.clipped_moments import (
    largest_sum,
    moments_sensitivity,
    records_moments,
)
from secagg.models.common.disclosures import means_by_subtraction
from secagg.models.common.noisy_moments import REPEATED_NOTE
from secagg.models.common.site_confounding import POOLED_LINEAR_NOTE, POOLED_NOISED_NOTE
from secagg.models.graphs.job_result import note_indicators
from secagg.models.graphs.knowledge import CANNOT_REQUIRE, Knowledge, RequiredSettings, adjacency
from secagg.models.moments.analyses import (
    KINDS,
    Analysis,
    Describe,
    Ols,
    asked_of,
    build_analysis,
    ols_table,
)
from secagg.models.moments.drawn_to_zero import weights_notes, with_slopes_caution
from secagg.models.moments.graph_analyses import Graph
from secagg.models.moments.noisy_ols import first_order
from secagg.models.moments.release import noisy_release, noisy_sum, pooled_moments
from secagg.models.moments.tables import without_intervals
from secagg.models.moments.within_noise import (
    BUDGET,
    MEANS,
    centred_moments,
    means_stage,
    own_means,
)
from secagg.models.moments.within_sites import SEES, within_moments, within_spec, within_update

STAGE = "moments"
MIN_FRACTION_BITS = 20
LEVELS_NOTE = (
    "The means of all records were subtracted, so differences in level between sites can look "
    'like effects of one column on another. method.centre = "site" removes these differences.'
)
WINDOWS_NOTE = (
    "Each record is one window of a series. Tests, intervals and BIC take windows for independent "
    "records, but successive windows share values."
)
BINARY_OUTCOME_NOTE = (
    "The outcome is 0/1, so coefficients are differences in probability, and the errors do not "
    "have equal variances. Odds ratios: method logistic, or with noise method one_step."
)


@dataclass(frozen=True, kw_only=True)
class PooledMoments(RequiredSettings):
    """One secure sum of moments."""

    analyses: tuple[dict[str, Any], ...] = ({"kind": "describe"},)
    """One table `[[method.analyses]]` for each analysis, with its `kind` and the settings of that
    kind. If it is not set: one `describe`."""
    truth: tuple[tuple[str, str], ...] | None = None
    """The true edges `["cause", "effect"]` between variables, if they are known. Graph analyses are
    then scored. They must form a directed acyclic graph."""
    centre: Literal["pooled", "site"] = "pooled"
    """Which means are subtracted: those of all records together (`"pooled"`), or at each site its
    own means (`"site"`)."""
    lags: tuple[tuple[str, ...], ...] = ()
    """For time series: first the columns with values one step before, then those with values two
    steps before, and so on. Every record is one window of a series. No edge of a graph leads to an
    earlier step. With noise, what is protected is an event, which is in one window for each
    step, or with `privacy.person` a series."""
    fraction_bits: int = 80
    """Each site rounds its moments, of variables scaled to [-1, 1], to multiples of
    2^-fraction_bits. At least 20. The default is finer than double precision, in which numbers near
    1 are multiples of 2^-52."""

    name: ClassVar[str] = "moments"
    placements: ClassVar[Placements] = Placements(
        (Placement.SUM, Placement.SITE, Placement.ROUND),
        'There is one sum; with centre = "site" there are two, which need "round".',
        with_settings=(("centre", "site", Placement.ROUND),),
    )

    title: ClassVar[str] = "Analyses of pooled moments"

    @property
    def disclosure(self) -> Disclosure:
        asked, (released, other) = (
            ASKED_ONCE,
            (
                "The number of records, the mean vector and the covariance matrix of the pooled "
                "records",
                'with centre = "site", or of method notears_admm,',
            ),
        )
        if self.centre == "site":
            asked = ASKED_ONCE.replace("asked once", "asked once (with noise, twice)")
            released, other = (
                "The number of records, how many sites have any, and the covariance matrix of "
                "all records about the means of their own sites; no means",
                'with centre = "pooled"',
            )
        return Disclosure(
            DisclosureKind.POOLED,
            f"{released}. Every analysis is computed from these numbers and releases nothing more.",
            asked,
            other_runs=means_by_subtraction(other),
        )

    @property
    def facts(self) -> MethodFacts:
        """Moments, from which any number of analyses are computed."""
        return MethodFacts(
            derivation=type(self).__module__,
            weights=EqualWeights("Messages are empty."),
            reads=MomentsOnly(noise_at_site=False, released=True),
            windows=Windows(1 + len(self.lags), None) if self.lags else NO_WINDOWS,
            named_code=(),
            network=False,
            regression=None,
            edge_rule=self._edge_rule,
            asked=() if self.lags else asked_of(self.analyses, self.centre == "site"),
            first_order=self._first_order,
            train=self._train if self.centre == "site" else None,
        )

    @classmethod
    def answering(cls, *asked: AskedRegression) -> tuple[dict[str, Any], ...]:
        """Return settings that answer these regressions in one job; () if there are none."""
        if not all(each.family.linear and each.within == asked[0].within for each in asked):
            return ()
        within = {"centre": "site"} if asked[0].within else {}
        return ({"analyses": [ols_table(each) for each in asked], **within},)

    @property
    def _edge_rule(self) -> EdgeRule | str | None:
        """Return the rule of the graph that needs the largest effects; None without a graph."""
        rules, others = list[EdgeRule | str](), False
        for table in self.analyses:
            settings = dict(table)
            named = settings.pop("kind", None)
            kind = KINDS.get(named) if isinstance(named, str) else None
            others |= kind is not None and not issubclass(kind, Graph | Describe)
            if kind is not None and issubclass(kind, Graph):
                try:
                    rule = build(kind, settings, "method.analyses").edge_rule()
                except JobError:  # `stages` says where
                    continue
                rules += [] if rule is None else [rule]
        judged = [rule for rule in rules if isinstance(rule, EdgeRule)]
        if judged:
            strictest = max(judged, key=lambda rule: (rule.penalty or 0.0) + rule.threshold)
            return replace(strictest, beside_regressions=others)
        return rules[0] if rules and not others else None

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return tuple(analysis.table for analysis in self._analyses(public))

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the one round. |z_j z_k| <= 1, so no entry exceeds a site's number of rows."""
        if self.fraction_bits < MIN_FRACTION_BITS:
            raise JobError("method.fraction_bits", f"must be at least {MIN_FRACTION_BITS}")
        self.known(public)  # checks kinds, keys and columns before data are read
        if self.centre == "site" and public.clip is None:
            return (Stage(STAGE, within_spec(public, self.fraction_bits), 1, SEES),)
        p = len(public.variables) + 1
        bound = largest_sum(public.max_rows, public.clip)
        bits = self.fraction_bits if public.clip is None else 2 * public.clip.grid_bits
        spec = (Field("moments", (p * (p + 1) // 2,), bound, bits, Kind.PSD),)
        sensitivity = None if public.clip is None else moments_sensitivity(public.clip, p - 1)
        sees = "pooled record count, sums and cross products"
        if self.centre == "site":
            sees = "record count, sums and cross products of differences from sites' noisy means"
            stage = Stage(STAGE, spec, 1, sees, sensitivity, budget=1 - BUDGET)
            return means_stage(public), stage
        return (Stage(STAGE, spec, 1, sees, sensitivity),)

    def initial_state(self, public: PublicFacts) -> State:
        return {"stage": MEANS} if self._own_means(public) else {}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        return None if "upper" in state else (state.get("stage", STAGE), {})

    def _own_means(self, public: PublicFacts) -> bool:
        return self.centre == "site" and public.clip is not None

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Compute this site's M, or its scatter about its own means."""
        if self._own_means(public):
            assert public.clip is not None
            if stage == MEANS:
                update, means = own_means(rows, public.clip, None, 0.0)
                return update, {"means": means}
            return {"moments": centred_moments(rows, memory.get("means"), public.clip)}, memory
        if self.centre == "site":
            return within_update(rows), memory
        return {"moments": records_moments(rows, public.clip)}, memory

    def _train(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
        noise: IntegerNoise,
    ) -> tuple[Update, State]:
        """Find the site's own means, with noise."""
        assert public.clip is not None
        variance = public.noise[stage].variance * 4.0 ** -public.noise[stage].fraction_bits
        update, means = own_means(rows, public.clip, noise, variance)
        return update, {"means": means}

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        if state.get("stage") == MEANS:
            return dict(total)
        state = {**state, "upper": total["moments"], "sites": sites}
        return {**state, "counts": total["counts"]} if "counts" in total else state

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Run the analyses on the pooled moments. One that fails is reported as `failed`."""
        noise = public.noise.get(STAGE)
        step_error = state["sites"] * 2.0 ** -(self.fraction_bits + 1)
        quality: dict[str, Any]
        if noise is not None:
            moments, quality = noisy_release(state, public, noise, counted)
            # Those two analyses do not use the repaired moments.
            if all(isinstance(a, Describe | Ols) for a in self._analyses(public)):
                quality.pop("repair")
        elif self.centre == "site":
            moments = within_moments(state["upper"], state["counts"], public, step_error)
            quality = {
                "centre": self.centre,
                "degrees_of_freedom": moments.degrees_of_freedom,
                "largest_correlation_error": moments.error,
            }
        else:
            moments = pooled_moments(state["upper"], public, step_error)
            quality = {"largest_correlation_error": moments.error}
        summaries: list[Mapping[str, Any]] = []
        means = {} if self.centre == "site" else {"mean": moments.mean}
        arrays = {"n": np.array(moments.n), **means, "scatter": moments.scatter}
        if moments.noisy is not None:
            arrays["released"] = moments.noisy.matrix
        known = self.known(public)
        for i, analysis in enumerate(self._analyses(public), start=1):
            try:
                result = analysis.run(moments, known)
            except UsageError as error:  # the release is made: keep it and the other analyses
                kind = self.analyses[i - 1]["kind"]
                summaries.append(
                    {"method": kind, "failed": f"method.analyses[{i}], {error.line()}".rstrip(".")}
                )
                continue
            if moments.noisy is not None and not isinstance(analysis, Describe | Ols | Graph):
                result = replace(result, summary=without_intervals(result.summary))
            elif public.repeated_persons and not isinstance(analysis, Graph):
                notes = [REPEATED_NOTE, *result.summary["notes"]]
                result = replace(result, summary={**result.summary, "notes": notes})
            if isinstance(analysis, Graph):
                result = note_indicators(result, public)
            if more := self._more_notes(analysis, public, quality, state["sites"], result.summary):
                notes = [*result.summary["notes"], *more]
                result = replace(result, summary={**result.summary, "notes": notes})
            summaries.append(result.summary)
            arrays |= {f"{i}_{result.summary['method']}_{k}": v for k, v in result.arrays.items()}
        summary = {
            "method": self.name,
            "n": moments.n if moments.noisy is None else max(1, round(moments.noisy.counted)),
            "variables": list(moments.names),
            **with_slopes_caution(quality, public, summaries),
            "analyses": summaries,
        }
        return Result(summary, arrays)

    def _first_order(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the terms of the least-squares analyses, without draws from a posterior."""
        noisy, _ = noisy_sum(state, public, public.noise[STAGE], counted)
        found = (a for a in self._analyses(public) if isinstance(a, Ols))
        terms = [first_order(noisy, a.outcome, a.predictors) for a in found]
        return Result({"analyses": [{"terms": each} for each in terms]})

    def _more_notes(
        self, analysis: Analysis, public: PublicFacts, quality: Mapping[str, Any], sites: int,
        summary: Mapping[str, Any],
    ) -> list[str]:  # fmt: skip
        described, more = isinstance(analysis, Describe), list[str]()
        if self.lags and not described:
            more.append(WINDOWS_NOTE)
        if "weights" in quality:
            more += weights_notes(public, quality["weights"], summary)
        if isinstance(analysis, Ols) and _is_binary(public, analysis.outcome):
            more.append(BINARY_OUTCOME_NOTE)
        if self.centre == "pooled" and sites > 1 and not described:
            linear = POOLED_LINEAR_NOTE if public.clip is None else POOLED_NOISED_NOTE
            more.append(LEVELS_NOTE if isinstance(analysis, Graph) else linear)
        return more

    def remarks(self, public: PublicFacts) -> list[str]:
        """Return for the plan which edges of a graph's `truth` the knowledge contradicts."""
        known, found = self.known(public), list[str]()
        for graph in self._analyses(public) if known is not None else ():
            if isinstance(graph, Graph) and graph.directed and graph.truth is not None:
                names = graph.names(public)
                assert known is not None
                found.append(known.select(names).against(adjacency(graph.truth, names)))
        return [against for against in dict.fromkeys(found) if against]

    def known(self, public: PublicFacts) -> Knowledge | None:
        """Return the knowledge. Raises `JobError` if an analysis cannot use it."""
        graphs = [a for a in self._analyses(public) if isinstance(a, Graph)]
        known = self.knowledge([v.name for v in public.variables], public, lags=self.lags)
        directed = any(graph.directed for graph in graphs)
        if (self.tiers or self.forbidden or self.required) and not directed:
            what = "tiers, forbidden and required edges have no effect without a directed graph"
            raise JobError("method.analyses", what, "Add one, such as kind = 'pc'.")
        if self.required and not all(graph.can_require for graph in graphs if graph.directed):
            raise JobError("method.required", CANNOT_REQUIRE, "Use kinds 'pc' and 'ges' only.")
        return known

    def _analyses(self, public: PublicFacts) -> list[Analysis]:
        if not self.analyses:
            raise JobError("method.analyses", "is empty", "Add [[method.analyses]] with a kind.")
        return [
            build_analysis(table, public, f"method.analyses[{i}]", self.truth)
            for i, table in enumerate(self.analyses, start=1)
        ]


def _is_binary(public: PublicFacts, outcome: str) -> bool:
    return any(v.indicator and v.name == outcome for v in public.variables)
