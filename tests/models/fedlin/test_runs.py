"""HM1 and FedAvg through whole sessions: protocols, small sites, coordinators that cheat."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fedlin import SEED, Tables, bounds, fedlin_job, linear_tables, simulated, told

import secagg
from secagg.contracts import Kind, PublicFacts, State, Variable
from secagg.core.randomness import replayable_random
from secagg.errors import PeerError, PolicyRefusal, SecaggError
from secagg.jobs.job import read_job
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.runtime.fixed_point import encode
from secagg.runtime.parties import read_records
from secagg.runtime.planned_job import plan_job

METHODS: list[dict[str, Any]] = [
    {"name": "fedlin_hm1", "rounds": 4, "holdout": 0.2},
    {"name": "fedlin_hm1", "rounds": 4, "participation": 0.5, "batch": 5, "variance": "site"},
    {"name": "fedavg", "rounds": 4, "personal": 0.3, "participation": 0.7},
]
PROTOCOLS = ["plain", "additive", "masked", pytest.param("paillier", marks=pytest.mark.system)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_same_bits_as_without_parties(method: dict[str, Any], protocol: str) -> None:
    """The coordinator's result and the sites' own."""
    tables = linear_tables((20, 30, 9))
    more = {"key_bits": 2048} if protocol == "paillier" else {}
    columns = bounds(tables)
    asked = fedlin_job(method, columns, protocol={"name": protocol, **more})
    ran = secagg.run(asked, tables, random=replayable_random(SEED))
    result, own = simulated(method, columns, tables)
    assert result.summary.items() <= ran.result.summary.items()
    assert ran.own.keys() == own.keys() == tables.keys()
    for site, each in own.items():
        assert ran.own[site].summary == each.summary
        assert ran.own[site].arrays.keys() == each.arrays.keys()
    counted = ran.result.summary["records"], result.summary["training_records"]
    assert counted == (59, 59 - (4 + 6 + 1 if "holdout" in method else 0))
    clipped = ran.result.summary["contributions_clipped"]
    assert not any(number for stage in clipped.values() for number in stage.values())


def test_a_site_without_records_is_left_to_the_rules() -> None:
    tables = linear_tables((20, 30))
    tables["s009"] = tables["s000"].iloc[:0]
    with pytest.raises(PolicyRefusal, match="s009"):
        secagg.run(fedlin_job(METHODS[0], bounds(tables)), tables)


@pytest.mark.parametrize("holdout", [0.0, 0.99])
@pytest.mark.parametrize("name", ["fedlin_hm1", "fedavg"])
def test_sites_of_any_size(name: str, holdout: float) -> None:
    """None, one or two records, fewer than coefficients: finite numbers, and None for errors."""
    tables = linear_tables((40, 1, 2, 3, 25, 0))
    method = {"name": name, "holdout": holdout, **known(name)}
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


def known(name: str) -> dict[str, Any]:
    """Settings for sites whose residuals may tell no noise."""
    return {"noise_sd": 0.5, "scale": "own"} if name == "fedlin_hm1" else {"scale": "own"}


def test_one_record_a_site_has_no_spread_about_its_own_mean() -> None:
    tables = linear_tables((1, 1, 1))
    for name in ("fedlin_hm1", "fedavg"):
        with pytest.raises(SecaggError, match="does not vary"):
            simulated({"name": name}, bounds(tables), tables)


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
    {"name": "fedlin_hm1"},
    {"name": "fedlin_hm1", "scale": "own", "holdout": 0.3},
    {"name": "fedlin_hm1", "variance": "site", "batch": 4, "intercept": "modelled"},
    {"name": "fedavg", "personal": 1e-9},
    {"name": "fedavg", "batch": 4, "intercept": "modelled", "holdout": 0.3},
]


def stages_of(asked: Asked) -> list[str]:
    return [stage for stage in ("noise", "fit", "fit", "finish") if stage in asked.specs]


@pytest.mark.parametrize("method", ASKED, ids=str)
def test_messages_that_are_none(method: dict[str, Any]) -> None:
    """Missing, misshapen, of another type, not finite: the peer's fault, in every stage."""
    probe = Asked(method)
    for i, stage in enumerate(stages_of(probe)):
        honest = probe.message(stage)
        for name, value in honest.items():
            odd: list[Any] = [None, "x", b"", [], 1.5, True, {}]
            if isinstance(value, np.ndarray):
                odd += [value[..., None], value.ravel()[:-1], value.tolist()]
                odd += [value.astype(np.float32)]
                for number in (np.nan, np.inf, -np.inf, 1e51):
                    broken = value.copy()
                    broken.reshape(-1)[-1:] = number
                    odd += [broken] if broken.size else []
            else:
                odd += [-1, 0, 1, 2**53 + 1, 1 << 20_000]
            for other in odd:
                with pytest.raises(PeerError):
                    probe.send(stage, {**honest, name: other})
            with pytest.raises(PeerError):
                probe.send(stage, {k: v for k, v in honest.items() if k != name})
        probe.send(stage, honest)  # what was refused left nothing behind
        assert i < 4


@pytest.mark.parametrize("method", ASKED, ids=str)
def test_facts_that_change_or_cannot_be(method: dict[str, Any]) -> None:
    probe = Asked(method)
    few = {**probe.message("fit"), "records": 3}
    with pytest.raises(PeerError, match="below this site's number of records"):
        probe.send("fit", few)
    for factor in (0.0, -1.0):
        broken = {**probe.message("fit"), "scale": factor * probe.facts["scale"]}
        with pytest.raises(PeerError):
            probe.send("fit", broken)
    probe.send("fit", probe.message("fit"))
    for name, value in (("records", 51), ("centre", 0.5), ("scale", 1.5), ("noise", 0.2)):
        honest = probe.message("fit")
        other = value if name == "records" else honest[name] * 0 + value
        for stage in ("fit", "finish"):
            with pytest.raises(PeerError, match=r"changed|not the columns' own"):
                probe.send(stage, {**probe.message(stage), name: other})


def test_units_that_are_not_the_columns_own() -> None:
    probe = Asked({"name": "fedavg", "scale": "own"})
    for name in ("centre", "scale"):
        broken = probe.message("fit")
        broken[name] = broken[name] * 1.0000001 + 1e-7
        with pytest.raises(PeerError, match="not the columns' own"):
            probe.send("fit", broken)


def test_a_polynomials_column_has_no_units() -> None:
    """Its powers are of [0, 1]: what a coordinator says of it must be what everybody knows."""
    probe = Asked({"name": "fedavg", "degree": 2, "predictors": ["x0"]})
    honest = probe.message("fit")
    own = probe.method.layout(probe.public).own_units
    honest["centre"] = np.array([0.1, own[0][1]])
    honest["scale"] = np.array([3.0, own[1][1]])
    for name in ("centre", "scale"):
        broken = {**honest, name: honest[name] + [0.0, 0.5]}
        with pytest.raises(PeerError, match="not the columns' own"):
            probe.send("fit", broken)
    probe.send("fit", honest)


@pytest.mark.parametrize("noise", [0.0, -1e-300, -1.0])
def test_noise_that_is_none(noise: float) -> None:
    for method in ASKED[:3]:
        probe = Asked(method)
        with pytest.raises(PeerError, match="noise is not above 0"):
            probe.send("fit", {**probe.message("fit"), "noise": np.array([noise])})


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
            honest_first = probe.message(stage, fill if i > 1 else 0.0)
            if "noise" in honest_first:
                honest_first["noise"] = np.array([noise])
            try:
                probe.send(stage, honest_first)
            except SecaggError as error:
                assert error.code in ("peer", "usage", "data")
                break


# --- properties -------------------------------------------------------------------------------


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.permutations(range(4)), st.sampled_from([0.1, 0.9]), st.booleans())
def test_sites_names_do_not_matter(order: list[int], alpha: float, fedavg: bool) -> None:
    """Sums do not know them: but for rounding, results are the sites' own under any name."""
    tables = linear_tables((20, 9, 33, 4))
    method = {"name": "fedavg"} if fedavg else {"name": "fedlin_hm1", "alpha": alpha}
    method |= {"rounds": 15}
    columns, names = bounds(tables), list(tables)
    renamed = {f"t{order[k]}": tables[name] for k, name in enumerate(names)}
    result, own = simulated(method, columns, tables)
    other, others = simulated(method, columns, renamed)
    for k, name in enumerate(names):
        for row, again in zip(
            own[name].summary["coefficients"],
            others[f"t{order[k]}"].summary["coefficients"],
            strict=True,
        ):
            for key in row.keys() - {"term"}:
                assert row[key] == pytest.approx(again[key], rel=1e-9, abs=1e-10)
    for row, again in zip(
        result.summary["across_sites"], other.summary["across_sites"], strict=True
    ):
        assert row["mean"] == pytest.approx(again["mean"], rel=1e-9, abs=1e-10)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.sampled_from([0.1, 0.5, 0.9]), st.sampled_from(["site", "modelled"]), st.integers(1, 3))
def test_a_site_without_records_changes_nothing(alpha: float, intercept: str, many: int) -> None:
    """Its theta is 0 and stays so: Omega has 0 beside c there, and the others' block is as ever."""
    tables = linear_tables((20, 9, 33, 4))
    columns = bounds(tables)
    method = {"name": "fedlin_hm1", "alpha": alpha, "intercept": intercept, "rounds": 20}
    more = {**tables, **{f"z{i}": tables["s000"].iloc[:0] for i in range(many)}}
    result, own = simulated(method, columns, tables)
    other, others = simulated(method, columns, more)
    for name in tables:
        np.testing.assert_allclose(
            told(others[name], "hm1"), told(own[name], "hm1"), rtol=0, atol=1e-9
        )
    for i in range(many):
        assert not told(others[f"z{i}"], "hm1")[1:].any()
    assert result.summary["noise_sd"] == pytest.approx(other.summary["noise_sd"], rel=1e-12)


def test_sites_that_tell_the_noise_and_have_no_residual_are_no_sites_of_the_method() -> None:
    """Two that said they can tell it have two degrees of freedom at least."""
    method = FedLinHm1(outcome="y")
    state = {**method.initial_state(public_of_two()), "status": "noise", "records": 9, "telling": 2}
    with pytest.raises(PeerError, match="no residual between them"):
        method.aggregate(state, {"residual": np.zeros(1), "freedom": np.zeros(1)}, 2)
    told = method.aggregate(state, {"residual": np.array([6.0]), "freedom": np.array([2.0])}, 2)
    assert told["noise"] == 3.0


def public_of_two() -> PublicFacts:
    variables = tuple(Variable(name, name, 0.0, 1.0) for name in "yx")
    return PublicFacts(variables, ("y", "x"), 10, ("a", "b"))
