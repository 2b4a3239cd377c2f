"""HM1 and FedAvg through whole sessions: protocols, small sites, coordinators that cheat."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.fedlin.written_out import SEED, Tables, bounds, fedlin_job, linear_tables, simulated

import secagg
from secagg.contracts import Kind, PublicFacts, State, Variable
from secagg.core.randomness import replayable_random
from secagg.errors import PeerError, SecaggError
from secagg.jobs.job import read_job
from secagg.models.fedlin.fedavg import FedAvg
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.sessions.fixed_point import encode
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

METHODS: list[dict[str, Any]] = [
    {"name": "fedlin_hm1", "rounds": 4, "participation": 0.5, "batch": 5, "variance": "site"},
    {"name": "fedavg", "rounds": 4, "personal": 0.3, "participation": 0.7, "holdout": 0.2},
]
PROTOCOLS = ["plain", "additive", "masked", pytest.param("paillier", marks=pytest.mark.system)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_run_has_the_same_bits_as_without_parties(method: dict[str, Any], protocol: str) -> None:
    """The coordinator's result and the sites' own."""
    tables = linear_tables((20, 30, 9))
    more = {"key_bits": 2048} if protocol == "paillier" else {}
    columns = bounds(tables)
    asked = fedlin_job(method, columns, protocol={"name": protocol, **more})
    ran = secagg.run(asked, tables, random=replayable_random(SEED))
    result, own = simulated(method, columns, tables)
    assert result.summary.items() <= ran.result.summary.items()
    assert {s: r.summary for s, r in ran.own.items()} == {s: r.summary for s, r in own.items()}
    counted = ran.result.summary["records"], result.summary["training_records"]
    assert counted == (59, 59 - (4 + 6 + 1 if "holdout" in method else 0))
    clipped = ran.result.summary["contributions_clipped"]
    assert not any(number for stage in clipped.values() for number in stage.values())


@pytest.mark.parametrize("holdout", [0.0, 0.99])
@pytest.mark.parametrize("name", ["fedlin_hm1", "fedavg"])
def test_sites_of_any_size_have_finite_results(name: str, holdout: float) -> None:
    """None, one or two records, fewer than coefficients: finite numbers, and None for errors."""
    tables = linear_tables((40, 1, 2, 3, 25, 0))
    method = {"name": name, "holdout": holdout, "scale": "own"}
    if name == "fedlin_hm1":
        method["noise_sd"] = 0.5  # residuals may tell none
    result, own = simulated(method, bounds(tables), tables)
    for site, table in tables.items():
        summary, held = own[site].summary, int(holdout * len(table))
        assert (summary["records_here"], summary["held_here"]) == (len(table), held)
        assert summary["learned_from"] == len(table) - held
        numbers = [v for row in summary["coefficients"] for k, v in row.items() if k != "term"]
        assert np.all(np.isfinite(numbers))
        for row in summary["errors"]:
            assert (row["training_rmse"] is None) == (len(table) - held == 0)
            if holdout:
                assert (row["held_rmse"] is None) == (held == 0)
    assert result.summary["training_records"] == sum(
        len(t) - int(holdout * len(t)) for t in tables.values()
    )
    if holdout:
        rows = [[row["held_rmse"] for row in own[s].summary["errors"]] for s in tables]
        rows = [row for row in rows if row[0] is not None]
        for i, row in enumerate(result.summary["errors"]):
            assert row["mean_site_rmse"] == pytest.approx(np.mean([r[i] for r in rows]), rel=1e-6)


# --- coordinators that cheat ------------------------------------------------------------------


class Asked:
    """A site whose coordinator is the test."""

    def __init__(self, method: Mapping[str, Any], tables: Tables | None = None) -> None:
        tables = tables or linear_tables((20, 30))
        planned = plan_job(read_job(fedlin_job(method, bounds(tables))), tables)
        self.method: Any = planned.method
        self.public, self.plans = planned.public, planned.plans
        self.rows, self.random = (
            read_records(planned, planned.sources["s000"]),
            replayable_random(SEED),
        )
        self.specs = {stage.name: stage.spec for stage in self.method.stages(self.public)}
        self.memory: State = {}
        self.many = len(self.method.layout(self.public).columns)
        facts = {"records": 50, "centre": np.zeros(self.many), "scale": np.full(self.many, 3.0)}
        if self.method.scale == "own":
            facts["centre"], facts["scale"] = self.method.layout(self.public).own_units
        self.facts = facts
        self.send("records", {})

    def message(self, stage: str, fill: float = 0.0) -> dict[str, Any]:
        """A message as an honest coordinator's, its news all `fill`."""
        if stage == "noise":
            return dict(self.facts)
        news = {k: np.full(s, fill) for k, s in self.method.news(stage, self.public).items()}
        return {**self.facts, "noise": np.array([0.1]), **news}

    def send(self, stage: str, message: dict[str, Any]) -> None:
        """Let the site answer; what it sends is in range, or refused with a typed error."""
        update, memory = self.method.contribute(
            stage, self.rows, message, self.memory, self.public, self.random
        )
        encode(self.plans.of(stage), update)
        for field in self.specs[stage]:
            values = update[field.name]
            assert values.shape == field.shape
            assert np.all(np.isfinite(values))
            if stage == "fit" or field.name == "coefficients":  # refused, not clipped
                assert np.all(np.abs(values) <= field.bound)
            if field.kind in (Kind.COUNT, Kind.WEIGHT):
                assert np.all(values >= 0)
        self.memory = memory


ASKED: list[dict[str, Any]] = [
    {"name": "fedlin_hm1", "scale": "own", "holdout": 0.3},
    {"name": "fedlin_hm1", "variance": "site", "batch": 4, "intercept": "modelled"},
    {"name": "fedavg", "personal": 1e-9},
]


def stages_of(asked: Asked) -> list[str]:
    return [stage for stage in ("noise", "fit", "fit", "finish") if stage in asked.specs]


@pytest.mark.parametrize("method", ASKED, ids=str)
def test_changed_or_impossible_facts_are_refused(method: dict[str, Any]) -> None:
    """Messages that make no sense in any method are in the contract of methods."""
    probe = Asked(method)
    honest = probe.message("fit")
    wrong: list[dict[str, Any]] = [{"records": 3}]
    wrong += [{"scale": factor * probe.facts["scale"]} for factor in (0.0, -1.0)]
    if "noise" in probe.specs:
        wrong += [{"noise": np.array([noise])} for noise in (0.0, -1e-300)]
    wrong += [{"records": probe.public.max_rows * len(probe.public.sites) + 1}]
    if probe.method.scale == "pooled":  # |u| <= 1, and the site's own squares are in the sum
        wrong += [{"centre": np.full(probe.many, 1.01)}]
        wrong += [{"scale": np.full(probe.many, each)} for each in (0.99, 1e3)]
    if probe.method.scale == "own":
        wrong += [{n: honest[n] * 1.0000001 + 1e-7} for n in ("centre", "scale")]
    for name in ("centre", "scale", *probe.method.news("fit", probe.public)):
        wrong += [{name: np.full_like(honest[name], number)} for number in (np.nan, np.inf, 1e51)]
        wrong += [{name: honest[name][..., None]}, {name: honest[name].astype(np.float32)}]
    for each in wrong:
        with pytest.raises(PeerError):
            probe.send("fit", {**honest, **each})
    probe.send("fit", honest)
    for name, value in (("records", 51), ("centre", 0.5), ("scale", 1.5), ("noise", 0.2)):
        honest = probe.message("fit")
        other = value if name == "records" else honest[name] * 0 + value
        for stage in ("fit", "finish"):
            with pytest.raises(PeerError):
                probe.send(stage, {**probe.message(stage), name: other})


def test_other_units_for_a_polynomials_column_are_refused() -> None:
    """Its powers are of [0, 1]: a coordinator must name the units that everybody knows."""
    probe = Asked({"name": "fedavg", "degree": 2, "predictors": ["x0"]})
    honest = probe.message("fit")
    own = probe.method.layout(probe.public).own_units
    honest["centre"] = np.array([0.0, own[0][1]])
    honest["scale"] = np.array([3.0, own[1][1]])
    for name in ("centre", "scale"):
        with pytest.raises(PeerError):
            probe.send("fit", {**honest, name: honest[name] + [0.0, 0.5]})
    probe.send("fit", honest)


EXTREMES = list(
    itertools.product(
        (1e-50, 1.0, 1e50), (0.0, -1e50), (5e-324, 1e-30, 1e50), (0.0, 1e-50, 1e3, -1e50)
    )
)


@pytest.mark.parametrize("method", ASKED, ids=str)
def test_huge_numbers_are_sums_in_range_or_typed_errors(method: dict[str, Any]) -> None:
    """And no warning of a float's overflow, which is an error here."""
    for size, centre, noise, fill in EXTREMES:
        probe = Asked(method)
        if probe.method.scale == "pooled":
            probe.facts["centre"] = np.full(probe.many, centre)
            probe.facts["scale"] = np.full(probe.many, size)
        for i, stage in enumerate(stages_of(probe)):
            message = probe.message(stage, fill if i > 1 else 0.0)
            if "noise" in message:
                message["noise"] = np.array([noise])
            try:
                probe.send(stage, message)
            except SecaggError as error:
                assert error.code in ("peer", "usage", "data")
                break


def test_impossible_degrees_of_freedom_are_refused() -> None:
    """Two that said they can tell it have two degrees of freedom at least."""
    method = FedLinHm1(outcome="y")
    variables = tuple(Variable(name, name, 0.0, 1.0) for name in "yx")
    public = PublicFacts(variables, ("y", "x"), 10, ("a", "b"))
    state = {**method.initial_state(public), "status": "noise", "records": 9, "telling": 2}
    with pytest.raises(PeerError):
        method.aggregate(state, {"residual": np.zeros(1), "freedom": np.zeros(1)}, 2)
    told = method.aggregate(state, {"residual": np.array([6.0]), "freedom": np.array([2.0])}, 2)
    assert told["noise"] == 3.0


@pytest.mark.parametrize(("participation", "patience"), [(1.0, 1), (0.5, 7), (0.05, 90)])
def test_convergence_needs_several_quiet_rounds_in_a_row(
    participation: float, patience: int
) -> None:
    """So many that a site sits all of them out with a probability of at most 0.01."""
    method = FedAvg(outcome="y", participation=participation)
    assert method.patience == patience
    quiet = [method.quiet(3, change, 0.2) for change in (0.1, 0.2, None)]
    assert quiet == [4, 0, 0]
