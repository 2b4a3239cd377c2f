"""The method's functions, called directly: what a site answers and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from secagg.contracts import Kind, PublicFacts, RecordCount, SiteRecords, Variable
from secagg.core import encoding
from secagg.core.randomness import system_random
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear import CONSENSUS, RECORDS, NotearsAdmm
from secagg.models.notears_admm.linear_simulation import learn
from secagg.reproductions.data.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
)

HALF = np.array([20.0, 30.0, 25.0, 40.0])
NAMES = ("a", "b", "c", "d")
MIDDLE = 5.0


def public_of(names: tuple[str, ...] = NAMES) -> PublicFacts:
    halves = [HALF[i % 4] for i in range(len(names))]
    variables = tuple(
        Variable(name, name, MIDDLE, float(half)) for name, half in zip(names, halves, strict=True)
    )
    return PublicFacts(variables, names, 1000, ("north", "south", "west"))


PUBLIC = public_of()


def simulated(seed: int, sizes: tuple[int, ...], d: int = 4) -> list[np.ndarray]:
    """Records of the sites in their own units, with different means at each site."""
    rng = np.random.default_rng(seed)
    rows = linear_gaussian_rows(edge_weights(erdos_renyi_dag(d, d, rng), rng), sum(sizes), rng)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    return [part + MIDDLE + rng.normal(size=d) for part in parts]


def rows_of(part: np.ndarray, public: PublicFacts = PUBLIC) -> SiteRecords:
    half = np.array([v.half_range for v in public.variables])
    return SiteRecords((part - MIDDLE) / half, 0, np.zeros(part.shape[1]))


def play(method: NotearsAdmm, parts: list[np.ndarray], public: PublicFacts = PUBLIC):
    """Run all rounds with sums in floating point; return the result and the transcript."""
    spec = {stage.name: stage for stage in method.stages(public)}
    state, transcript = method.initial_state(public), []
    memories: list[dict[str, Any]] = [{} for _ in parts]
    while (sent := method.next_request(state)) is not None:
        stage, message = sent
        total = {field.name: np.zeros(field.shape) for field in spec[stage].spec}
        for k, part in enumerate(parts):
            update, memories[k] = method.contribute(
                stage,
                rows_of(part, public),
                encoding.loads(encoding.dumps(message)),
                memories[k],
                public,
                system_random,
            )
            memories[k] = encoding.loads(
                encoding.dumps(memories[k])
            )  # what a new process would read
            for field in spec[stage].spec:
                assert update[field.name].shape == field.shape
                assert np.all(np.abs(update[field.name]) <= field.bound)
                total[field.name] += update[field.name]
        transcript.append((stage, message, total))
        state = encoding.loads(encoding.dumps(method.aggregate(state, total, len(parts))))
    n = sum(map(len, parts))
    return method.result(state, public, RecordCount(float(n), 0.0)), transcript


@pytest.mark.parametrize(
    "sizes", [(20, 30, 50), (0, 40), (1, 40), (1, 1, 3), (3, 3, 3, 3)], ids=str
)
@pytest.mark.parametrize("variant", ["fast", "paper"])
def test_equals_learn(variant, sizes: tuple[int, ...]) -> None:
    """Sites without a record, with one, with fewer than variables, and of unequal size."""
    parts = simulated(sum(sizes), sizes)
    rounds = 30 if variant == "paper" else 200
    method = NotearsAdmm(variant=variant, rounds=rounds, standardise=False)
    result, _ = play(method, parts)
    fit = learn(parts, schedule=Schedule(variant, rounds=rounds), names=NAMES)
    # The same numbers but for rounding of (x - 5) / half * half, 1e-15 relative. What (5) makes of
    # that is bounded by where its solvers stop: changes of W of 1e-6; L-BFGS, whose every bit
    # counts at a kink, stops at slopes of up to 2 lambda, and the curvature is K rho2.
    near = 1e-5 if variant == "fast" else 0.02 / (len(parts) * 1e-3 * 1.25**29)
    assert result.summary["diagnostics"]["rounds"] == fit.diagnostics["rounds"]
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=near)


def test_the_last_sum_gives_the_pooled_covariance() -> None:
    """As docstring and disclosure say: S = sum V_k (I - W)^-1, from public numbers alone."""
    parts = simulated(1, (20, 30, 50))
    result, transcript = play(NotearsAdmm(standardise=False), parts)
    _, message, total = transcript[-1]
    scale, W = message["scale"], result.arrays["weights"]
    V = total["responses"] * np.outer(scale, scale)
    found = V @ np.linalg.inv(np.eye(4) - W)
    within = sum((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) for X in parts) / 100
    # V = sum S_k (I - B_k), each B_k within 1e-7 of W.
    near = 1e-7 * 4 * np.linalg.norm(within, 2) * np.linalg.norm(np.linalg.inv(np.eye(4) - W), 2)
    np.testing.assert_allclose(found, within, rtol=0, atol=near)
    # And not before: in the first round the sum is that of rho2 S_k (S_k + rho2)^-1.
    first = transcript[1][2]["responses"] * np.outer(scale, scale)
    assert np.abs(first - within).max() > 0.1


def test_only_what_is_declared_leaves() -> None:
    method = NotearsAdmm(lags=(("c", "d"),), rounds=9)
    count, answers = method.stages(PUBLIC)
    assert [(f.name, f.shape, f.kind) for f in count.spec] == [
        ("records", (1,), Kind.COUNT),
        ("squares", (4,), Kind.WEIGHT),
    ]
    assert [(f.name, f.shape, f.kind) for f in answers.spec] == [
        ("responses", (4, 2), Kind.BOUNDED)
    ]
    assert (count.name, count.max_rounds) == (RECORDS, 1)
    assert (answers.name, answers.max_rounds) == (CONSENSUS, 9)
    assert count.sensitivity is answers.sensitivity is None


def test_constant_columns() -> None:
    parts = simulated(2, (30, 40))
    parts[0][:, 1] = 3.0
    result, _ = play(NotearsAdmm(standardise=False), parts)
    np.testing.assert_allclose(
        result.arrays["weights"], learn(parts).weights, rtol=0, atol=1e-5
    )  # as above
    parts[1][:, 1] = 4.0  # constant at each site, but not over both
    result, _ = play(NotearsAdmm(standardise=False), parts)
    assert not result.arrays["directed"][1].any()
    assert not result.arrays["directed"][:, 1].any()
    with pytest.raises(
        UsageError, match=r"column 'b' does not vary, .* Narrow its bounds, or leave it out\.$"
    ):
        play(NotearsAdmm(), parts)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 1)])
def test_too_few_records(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least 2 are required"):
        play(NotearsAdmm(), simulated(0, sizes))


# --- messages that make no sense -----------------------------------------------------------------


def request(**changed: Any) -> dict[str, Any]:
    good = {"W": np.zeros((4, 4)), "records": 60, "scale": HALF.copy()}
    return good | changed


def local(message: dict[str, Any], memory: dict[str, Any] | None = None):
    part = simulated(3, (20,))[0]
    return NotearsAdmm().contribute(
        CONSENSUS, rows_of(part), message, memory or {}, PUBLIC, system_random
    )


HOLE = np.where(np.eye(4) > 0, np.nan, 0.0)


@pytest.mark.parametrize(
    "changed",
    [
        *[{"W": W} for W in (None, 0.0, [[0.0]], np.zeros((4, 3)), np.zeros((3, 4)), np.zeros(16),
                             np.zeros((4, 4), dtype=np.int64), HOLE, HOLE + np.inf)],
        *[{"records": n} for n in (None, 1, 0, -5, 60.0, True, "60", 10**400)],
        {"records": 19},
        *[{"scale": scale} for scale in (None, 1.0, np.ones(3), np.ones((4, 1)), 0 * HALF, -HALF,
                                         HALF * np.nan, HALF * np.inf)],
    ],
)  # fmt: skip
def test_messages_out_of_range(changed: dict[str, Any]) -> None:
    local(request())
    with pytest.raises(PeerError):
        local(request(**changed))


@pytest.mark.parametrize("name", ["W", "records", "scale"])
def test_messages_that_lack_something(name: str) -> None:
    message = request()
    del message[name]
    with pytest.raises(PeerError):
        local(message)


@pytest.mark.parametrize("changed", [{"records": 61}, {"scale": HALF * 1.01}])
def test_facts_do_not_change_between_rounds(changed: dict[str, Any]) -> None:
    _, memory = local(request())
    local(request(), memory)
    with pytest.raises(PeerError, match="changed the number of records or the units"):
        local(request(**changed), memory)


def test_in_own_units_the_scale_is_known() -> None:
    """Another scale acts as another rho2, which a coordinator must not choose."""
    site, method = rows_of(simulated(3, (20,))[0]), NotearsAdmm(standardise=False)
    method.contribute(CONSENSUS, site, request(), {}, PUBLIC, system_random)
    with pytest.raises(PeerError, match="not the columns' own"):
        method.contribute(CONSENSUS, site, request(scale=100 * HALF), {}, PUBLIC, system_random)


@pytest.mark.parametrize("W", [1e9, 1e49])
def test_an_answer_beyond_its_bound_is_not_sent(W: float) -> None:
    with pytest.raises(DataError, match="the method diverges"):
        local(request(W=np.full((4, 4), W)))


@pytest.mark.parametrize("size", [1e-300, 1e-60, 1e60, 1e200, 1e307])
def test_absurd_numbers_are_no_bug_of_ours(size: float) -> None:
    """Finite, but a product of a few of them would not be. pytest forbids warnings."""
    with pytest.raises(PeerError):
        local(request(scale=np.full(4, size)))
    if size > 1:
        with pytest.raises(PeerError):
            local(request(W=np.full((4, 4), size)))


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("penalty", "lag_penalty", "threshold")
     for value in (-1.0, np.nan, np.inf)]
    + [("rho1", 0.0), ("rho2", 1e17), ("gamma1", 1.0), ("gamma2", np.nan), ("rounds", 0)]
    + [("variables", ("a", "a")), ("variables", ("a", "q")), ("variables", ())]
    + [("lags", lags) for lags in ((("a",),), (("q",) * 2,), ((),), (("b", "c"), ("d",)))],
)  # fmt: skip
def test_settings_out_of_range(name: str, value: Any) -> None:
    NotearsAdmm().stages(PUBLIC)
    with pytest.raises(JobError) as caught:
        NotearsAdmm(**{name: value}).stages(PUBLIC)
    assert caught.value.where == f"method.{name}"


def test_variables_named_twice_or_too_few() -> None:
    with pytest.raises(JobError, match="named twice"):
        NotearsAdmm(variables=("a", "b"), lags=(("b", "c"),)).stages(PUBLIC)
    with pytest.raises(JobError, match="at least two variables"):
        NotearsAdmm(variables=("a",)).stages(PUBLIC)
    with pytest.raises(JobError, match="at least two variables"):
        NotearsAdmm().stages(public_of(("a",)))


@pytest.mark.parametrize("truth", [(("a", "q"),), (("a", "b"), ("b", "a"))])
def test_truth_that_cannot_be(truth) -> None:
    with pytest.raises(JobError, match=r"not one of|cycle"):
        NotearsAdmm(truth=truth).stages(PUBLIC)
