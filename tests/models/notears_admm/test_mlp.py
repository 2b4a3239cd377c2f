from dataclasses import replace

import numpy as np
import pytest
from support.methods.playing import play, rows_of

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.core.randomness import system_random
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.experiments.simulated_graphs import erdos_renyi_dag, mlp_rows
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.mlp import Networks
from secagg.models.notears_admm.mlp import CONSENSUS, NotearsMlpAdmm
from secagg.models.notears_admm.mlp_simulation import learn

MIDDLE, HALF = np.array([0.0, 3.0, -1.0]), np.array([4.0, 8.0, 16.0])
PUBLIC = PublicFacts(
    tuple(Variable(f"x{j}", f"x{j}", MIDDLE[j], HALF[j]) for j in range(3)),
    ("x0", "x1", "x2"),
    200,
    ("a", "b", "c"),
)


def tables(sizes=(40, 25, 35), seed: int = 0) -> list[np.ndarray]:
    """x0 -> x1, not linear; x2 separate."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x = np.clip(rng.normal(size=n), -4, 4)
    y = np.clip(3 * np.sin(x) + 0.5 * rng.normal(size=n), -5, 11)
    z = np.clip(2 * rng.normal(size=n), -17, 15)
    return np.split(np.column_stack([x, y, z]), np.cumsum(sizes)[:-1])


def rows(table: np.ndarray, public: PublicFacts = PUBLIC) -> SiteRecords:
    half = np.array([v.half_range for v in public.variables])
    return rows_of((table - MIDDLE) / half)


def run(method: NotearsMlpAdmm, sites: list[np.ndarray], public: PublicFacts = PUBLIC):
    """Return the result, and the coordinator's last state."""
    played = play(method, [rows(t, public) for t in sites], public, [system_random] * len(sites))
    return played.result, played.state


METHOD = NotearsMlpAdmm(hidden=4, standardise=False)


def test_a_federated_run_equals_the_simulation() -> None:
    sites = tables()
    result, state = run(METHOD, sites)
    assert result.summary["converged"]
    assert [(e["from"], e["to"]) for e in result.summary["edges"]] == [("x0", "x1")]
    fit = learn(
        [table - MIDDLE for table in sites], schedule=METHOD.schedule, penalty=0.01, ridge=0.01,
        hidden=4, zero_diagonal=True,
    )  # fmt: skip
    assert fit.diagnostics["rounds"] == state["rounds"]
    # Contributions are rounded to 2^-41 of their units, at most 4 * 64 of the loss's: 1e-10, over a
    # curvature of K rho2 = 0.06 at first. Where for that a site's search ends a step apart, it does
    # so at a slope of 1e-5, its own end, over its curvature of rho2 = 0.02. (6e-5 at most here.)
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=5e-4)
    assert result.arrays["parameters"].shape == (Networks(3, 4).size,)


def test_with_standardising_units_do_not_matter() -> None:
    method = NotearsMlpAdmm(hidden=3, rho1=1.0, rho2=1.0)
    sites = tables((30, 30, 30))
    ours, state = run(method, sites)
    X = np.concatenate(sites)
    u = (X - MIDDLE) / HALF
    # Sums of 90 numbers below 1, rounded to 2^-41 at each of 3 sites, over a variance above 0.01.
    np.testing.assert_allclose(state["centre"], u.mean(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(state["scale"] * u.std(axis=0), 1, rtol=1e-10)
    np.testing.assert_allclose(ours.arrays["means"], X.mean(axis=0), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.arrays["deviations"], X.std(axis=0), rtol=1e-10)
    fit = learn(
        [(table - X.mean(axis=0)) / X.std(axis=0) for table in sites],
        schedule=method.schedule,
        penalty=0.01,
        ridge=0.01,
        hidden=3,
        zero_diagonal=True,
    )
    np.testing.assert_allclose(ours.arrays["weights"], fit.weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("standardise", [False, True])
def test_wide_bounds_lose_no_accuracy(standardise: bool) -> None:
    method = NotearsMlpAdmm(hidden=3, standardise=standardise, rho1=1.0, rho2=1.0, rounds=20)
    narrow = run(method, tables())[1]["W"]
    wide = tuple(replace(v, half_range=1e4 * v.half_range) for v in PUBLIC.variables)
    again = run(method, tables(), replace(PUBLIC, variables=wide))[1]["W"]
    np.testing.assert_allclose(again, narrow, rtol=0, atol=1e-5)


@pytest.mark.statistical
def test_a_simulated_network_over_sites_is_recovered() -> None:
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = erdos_renyi_dag(4, 4, rng)
        sites = np.array_split(mlp_rows(truth, 400, rng), 4)
        fit = learn(sites, penalty=0.03, zero_diagonal=True)
        assert fit.converged
        errors.append(compare_graphs(fit.directed, truth).shd)
    assert np.mean(errors) <= 2  # of 4 edges


def test_sites_with_few_or_constant_records_take_part() -> None:
    table = tables((60,))[0]
    constant = table[1:10].copy()
    constant[:, 2] = 5.0
    sites = [table[10:], constant, table[:1], np.empty((0, 3))]
    assert run(METHOD, sites)[0].summary["converged"]


def test_too_few_records_or_constant_columns_are_refused() -> None:
    nothing, (one,) = np.empty((0, 3)), tables((1,))
    with pytest.raises(UsageError):
        run(METHOD, [nothing, nothing, one])
    constant = [np.column_stack([table[:, :2], np.full(len(table), 5.0)]) for table in tables()]
    with pytest.raises(UsageError, match="'x2' does not vary"):
        run(NotearsMlpAdmm(), constant)


SITE = rows(tables()[0])


def request(**changed: object) -> dict[str, object]:
    return {
        "W": Networks(3, 4).initial(np.random.default_rng(0)),
        "records": 100,
        "centre": np.zeros(3),
        "scale": np.array(HALF, dtype=np.float64),
    } | changed


def respond(message: dict[str, object], memory=None, method: NotearsMlpAdmm = METHOD):
    return method.contribute(CONSENSUS, SITE, message, memory or {}, PUBLIC, system_random)


@pytest.mark.parametrize(
    "changed",
    [
        {"W": np.zeros(3)},
        {"records": 7},
        # In own units all parties know scale and centre.
        {"scale": np.full(3, 2.0)},
        {"centre": np.full(3, 0.1)},
    ],
)
def test_messages_out_of_range_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(PeerError):
        respond(request(**changed))


@pytest.mark.parametrize(
    "changed", [{"records": 101}, {"scale": np.full(3, 2.0)}, {"centre": np.ones(3)}]
)
def test_changed_facts_between_rounds_are_refused(changed: dict[str, object]) -> None:
    method = replace(METHOD, standardise=True)
    _, memory = respond(request(), method=method)
    respond(request(), memory, method)
    with pytest.raises(PeerError):
        respond(request(**changed), memory, method)


def test_slopes_in_own_units_are_sent_without_units() -> None:
    """The same records and networks in other units: the sent numbers are the same."""
    factor = np.array([0.25, 2.0, 4.0])
    method = replace(METHOD, rho2=1e16)  # B is W, whatever the units
    networks = Networks(3, 4)
    W = networks.initial(np.random.default_rng(1), random_inputs=True)
    moved = W.copy()
    A, _, C, c = networks.split(moved)
    A /= networks.free_entries(np.outer(factor, np.ones(3)))[:, :, None]
    C *= factor[:, None]
    c *= factor
    other = tuple(
        replace(v, half_range=v.half_range * by)
        for v, by in zip(PUBLIC.variables, factor, strict=True)
    )
    carried = [
        method.contribute(
            CONSENSUS,
            SITE,
            {**request(), "W": at, "scale": np.array([v.half_range for v in variables])},
            {},
            replace(PUBLIC, variables=variables),
            system_random,
        )[0]["slopes"]
        for at, variables in ((W, PUBLIC.variables), (moved, other))
    ]
    # Powers of two: only B differs, from W by slopes of up to 64^3 over rho2, times records of 64.
    assert np.all(carried[0] != 0)
    np.testing.assert_allclose(carried[1], carried[0], rtol=0, atol=64**4 / 1e16)


@pytest.mark.parametrize("size", [1e6, 1e40])
def test_a_diverged_answer_is_not_clipped(size: float) -> None:
    with pytest.raises(DataError):
        respond(request(W=np.full(Networks(3, 4).size, size)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("penalty", -1.0), ("threshold", -1.0), ("hidden", 0), ("hidden", 1001), ("seed", -1),
     ("rho2", 0.0), ("variables", ("x0",)), ("truth", (("x0", "x1"), ("x1", "x0")))],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(JobError) as caught:
        NotearsMlpAdmm(**{name: value}).stages(PUBLIC)
    assert caught.value.where == f"method.{name}"


def test_chosen_variables_are_used_and_scored() -> None:
    method = NotearsMlpAdmm(
        variables=("x1", "x0"), truth=(("x0", "x1"),), hidden=2, rho1=1.0, rho2=1.0, acyclic=True
    )
    result, _ = run(method, tables())
    assert result.summary["names"] == ["x1", "x0"]
    assert set(result.summary["score"]) >= {"shd", "tpr", "fdr"}
    count, consensus = method.stages(PUBLIC)
    assert count.sensitivity is consensus.sensitivity is None  # no noise hides a record
    assert consensus.spec[0].shape == (Networks(2, 2).size,)
