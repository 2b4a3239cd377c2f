"""Federated sparse regression and Markov random fields, with every step called directly."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.methods.playing import play, rows_of

from secagg.contracts import PublicFacts, Variable
from secagg.core import canonical_encoding
from secagg.core.randomness import RandomBytes, seeded_random
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.models.sparse_bayes.base import DRAWS, RECORDS, SparseModel
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.markov_random_field import SparseMarkov, discoveries
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.sessions.fixed_point import encode
from secagg.sessions.sum_plan import plan_sum

HALF = 8.0
NAMES = ("y", "a", "b", "c")
EFFECTS = np.array([0.9, 0.0, 0.0])


def public_of(sites: int, names: tuple[str, ...] = NAMES) -> PublicFacts:
    variables = tuple(Variable(name, name, 0.0, HALF) for name in names)
    return PublicFacts(variables, names, 500, tuple(f"s{k}" for k in range(sites)))


def simulated(sizes: tuple[int, ...], seed: int = 1) -> list[np.ndarray]:
    """y = 0.9 a + noise, with different means at each site; scaled, in units of HALF."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        X = rng.standard_normal((n, 3))
        y = X @ EFFECTS + rng.standard_normal(n)
        level = rng.uniform(-1, 1, 4)
        parts.append(np.clip((np.column_stack([y, X]) + level) / HALF, -1, 1))
    return parts


def randoms(sites: int) -> list[RandomBytes]:
    return [seeded_random(bytes([k]) * 32) for k in range(1, sites + 1)]


def fit(
    method: SparseModel,
    parts: list[np.ndarray],
    public: PublicFacts | None = None,
    *,
    together: bool = False,
) -> Any:
    """Return the result and the memory of each site; together: all sites in one call."""
    public, rows = public or public_of(len(parts)), [rows_of(part) for part in parts]
    played = play(method, rows, public, randoms(len(parts)), together=together)
    return played.result, played.memories


def by_term(result: Any) -> dict[str, dict[str, float]]:
    return {row["term"]: row for row in result.summary["coefficients"]}


@pytest.fixture(scope="module")
def long_runs() -> dict[str, Any]:
    parts = simulated((60, 80, 40, 70))
    found = {}
    for step, rounds in (("collapsed", 1000), ("paper", 2000)):
        method = SparseRegression(outcome="y", step=step, rounds=rounds, sweeps=1)
        found[step], _ = fit(method, parts, together=True)
    return found


@pytest.mark.statistical
def test_both_steps_have_one_posterior(long_runs: dict[str, Any]) -> None:
    ours, theirs = (by_term(long_runs[step]) for step in ("collapsed", "paper"))
    for term, row in ours.items():
        for value, error in (("mean", "mcse_mean"), ("sd", "mcse_sd"), ("pip", "pip_mcse")):
            apart = abs(row[value] - theirs[term][value])
            # 9 comparisons; errors are estimates, and of chains that mix slowly too small
            assert apart < 5 * np.hypot(row[error], theirs[term][error]) + 1e-3, (term, value)


def test_a_true_effect_is_found(long_runs: dict[str, Any]) -> None:
    found = by_term(long_runs["collapsed"])
    assert found["a"]["pip"] > 0.9
    assert found["b"]["pip"] < 0.3 and found["c"]["pip"] < 0.3
    # standardised: 0.9 / sqrt(0.9^2 + 1)
    assert found["a"]["low"] < 0.669 < found["a"]["high"]
    assert all(row["r_hat"] < 1.05 for row in found.values())


SMALL = SparseRegression(outcome="y", rounds=20, chains=2)


def test_columns_are_the_outcome_and_then_predictors_in_order() -> None:
    public = public_of(2)
    assert list(SMALL.columns(public)) == [0, 1, 2, 3]
    assert list(SparseRegression(outcome="b", predictors=("c", "y")).columns(public)) == [2, 3, 0]
    # Other indicators of the outcome's column are no predictors: all sum to 1.
    indicators = tuple(Variable(f"ward={w}", "ward", 0.0, 1.0) for w in "abc")
    public = replace(public, variables=(*indicators, *public.variables))
    assert list(SparseRegression(outcome="ward=b").columns(public)) == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("step", ["collapsed", "paper"])
def test_small_sites_give_finite_results(step: Any) -> None:
    method = SparseRegression(outcome="y", rounds=20, chains=3, thin=2, warmup=8, step=step)
    result, memories = fit(method, simulated((0, 1, 2, 2, 30)))
    assert result.arrays["draws_theta"].shape == (6, 3, 3)
    assert np.all(np.isfinite(result.arrays["draws_theta"]))
    assert {m["own"]["theta"]["draws"].sum() for m in memories} == {12}


@pytest.mark.parametrize(("scale", "value"), [("pooled", 0.1), ("site", 0.1), ("site", 0.0)])
def test_a_column_constant_at_a_site_contributes_zero_there(value: float, scale: Any) -> None:
    """0.1 less the mean of 0.1's is not 0: rounding must not become a record of no effect."""
    parts = simulated((40, 50, 30))
    parts[2][:, 1] = value
    same = [part.copy() for part in parts]
    same[2][:, 1] = 0.5  # exact in binary
    method = SparseRegression(outcome="y", rounds=80, scale=scale)
    (first, memories), (second, _) = fit(method, parts), fit(method, same)
    if scale == "site":  # pooled deviations are summed with those of the others, and rounded
        assert first.arrays["draws_theta"].tobytes() == second.arrays["draws_theta"].tobytes()
    there, elsewhere = (
        method.site_result(memory, public_of(3)).summary["regressions"][0]["coefficients"]
        for memory in (memories[2], memories[0])
    )
    assert [row["sd"] is None for row in there] == [True, False, False]  # the prior's tails: no sd
    assert all(row["sd"] < 1 for row in elsewhere)
    spread = memories[2]["own"]["theta"]["square"].sum(axis=(0, 1))[0]
    assert spread[0] > 4 * spread[1]


def test_a_scale_that_is_not_the_columns_own_is_refused() -> None:
    site, message = simulated((20,))[0], request()
    squares = np.sum((site - site.mean(axis=0)) ** 2, axis=0)
    edge = np.sqrt((message["records"] + 2) / squares.max())  # of 60 records at 2 sites
    respond(message | {"scale": np.full(4, 0.999 * edge)})
    for scale in (1.001 * edge, 1e6):
        with pytest.raises(PeerError):
            respond(message | {"scale": np.full(4, scale)})


@pytest.mark.parametrize("step", ["collapsed", "paper"])
def test_a_number_beyond_its_bound_is_an_error_at_the_site(step: Any) -> None:
    """Clipping would change the posterior."""
    _, stage = SparseRegression(outcome="y", step=step).stages(public_of(2))
    plan, nothing = plan_sum(stage.spec, 2), {f.name: np.zeros(f.shape) for f in stage.spec}
    encode(plan, nothing)
    for field in stage.spec:
        with pytest.raises(DataError):
            encode(plan, nothing | {field.name: np.full(field.shape, 1.001 * field.bound)})


def test_vague_error_priors_stay_finite_without_records() -> None:
    method = SparseRegression(outcome="y", rounds=60, noise_shape=1e-3, noise_scale=1e-3)
    _, memories = fit(method, simulated((1, 40, 30)))
    own = method.site_result(memories[0], public_of(3))
    assert own is not None
    assert np.all(np.isfinite(memories[0]["s"]))
    json.dumps(own.summary, allow_nan=False)


def test_a_round_of_too_many_numbers_is_refused() -> None:
    names = ("y", *(f"x{j}" for j in range(300)))
    for changed in ({"chains": 100}, {"chains": 10_000, "step": "paper"}):
        with pytest.raises(JobError):
            SparseRegression(outcome="y", **changed).stages(public_of(2, names))
    with pytest.raises(JobError):
        SparseMarkov().stages(public_of(2, names[:201]))
    assert SparseRegression(outcome="y", chains=1).stages(public_of(2, names[:201]))


@pytest.mark.parametrize(
    ("step", "scale"), [("collapsed", "pooled"), ("collapsed", "site"), ("paper", "pooled")]
)
def test_constant_and_collinear_columns_give_finite_results(step: Any, scale: Any) -> None:
    parts = simulated((30, 40))
    parts[0][:, 2] = 0.25  # constant there
    parts[1][:, 3] = parts[1][:, 1]  # the same column twice
    method = SparseRegression(outcome="y", rounds=60, step=step, scale=scale)
    assert np.all(np.isfinite(fit(method, parts)[0].arrays["draws_theta"]))
    parts[1][:, 2] = 0.25
    if scale == "pooled":
        with pytest.raises(UsageError, match="'b' does not vary"):
            fit(SMALL, parts)


def request(method: SparseModel | None = None, sites: int = 2) -> dict[str, Any]:
    method = method or SMALL
    shape = (method.chains, *method.design(public_of(sites)).shape)
    return {"theta": np.zeros(shape), "t": np.ones(shape), "scale": np.full(4, HALF), "records": 60}


def respond(message: dict[str, Any], memory: dict[str, Any] | None = None) -> Any:
    """Return the answer of a site of 20 records."""
    site = rows_of(simulated((20,))[0])
    return SMALL.contribute(DRAWS, site, message, memory or {}, public_of(2), randoms(1)[0])


@pytest.mark.parametrize("changed", [
    {"theta": np.zeros((2, 1, 2))}, {"theta": np.full((2, 1, 3), np.nan)},
    {"t": np.full((2, 1, 3), np.inf)}, {"t": np.zeros((2, 1, 3))}, {"t": -np.ones((2, 1, 3))},
    {"scale": np.zeros(4)}, {"records": 1}, {"records": 19},
])  # fmt: skip
def test_messages_out_of_range_are_refused(changed: dict[str, Any]) -> None:
    respond(request())
    with pytest.raises(PeerError):
        respond({**request(), **changed})


def test_changed_facts_between_rounds_are_refused() -> None:
    _, memory = respond(request())
    respond(request(), memory)
    for changed in ({"records": 61}, {"scale": np.full(4, HALF / 2)}):
        with pytest.raises(PeerError):
            respond(request() | changed, memory)


@pytest.mark.parametrize(("key", "value"), [
    ("chains", 0), ("rounds", 7), ("sweeps", 0), ("thin", 0), ("seed", -1), ("spike_ratio", 0.0),
    ("spike_ratio", 1.0), ("spike_ratio", 0.5), ("slab_shape", 0.0), ("slab_scale", -1.0),
    ("rho_a", np.nan),
    ("noise_scale", np.inf), ("lambda_floor", 0.0), ("lambda_floor", 1e-170), ("rho_b", 1e-300),
    ("slab_scale", 1e308), ("warmup", 18), ("warmup", -1), ("level", 0.0), ("level", 1.0),
])  # fmt: skip
def test_settings_out_of_range_are_refused(key: str, value: float) -> None:
    settings: dict[str, Any] = {"outcome": "y", "rounds": 20, key: value}
    with pytest.raises(JobError) as caught:
        SparseRegression(**settings).stages(public_of(2))
    assert caught.value.where == f"method.{key}"


@pytest.mark.parametrize("model", [SparseMarkov, SparseDirected])
@pytest.mark.parametrize(
    ("key", "value"), [("fdr", 0.0), ("fdr", 1.0), ("level", -1.0), ("variables", ("y",))]
)
def test_graph_settings_out_of_range_are_refused(
    model: type[SparseModel], key: str, value: Any
) -> None:
    with pytest.raises(JobError) as caught:
        model(**{key: value}).stages(public_of(2))
    assert caught.value.where == f"method.{key}"


def test_a_single_column_is_refused() -> None:
    for method in (SMALL, SparseMarkov(), SparseDirected()):
        with pytest.raises(JobError):
            method.stages(public_of(2, NAMES[:1]))


def test_before_the_rounds_sites_send_only_counts() -> None:
    public, site = public_of(2), rows_of(simulated((20,))[0])
    for scale, fields in (("pooled", {"records", "squares"}), ("site", {"records"})):
        method = SparseRegression(outcome="y", scale=scale)
        update, memory = method.contribute(RECORDS, site, {}, {}, public, randoms(1)[0])
        assert update.keys() == fields and not memory


def test_discoveries_agree_with_a_hand_calculation() -> None:
    pip = np.array([0.2, 0.99, 0.9, 0.75])
    assert discoveries(pip, 0.12).tolist() == [False, True, True, True]  # mean of .01 .1 .25: .12
    assert discoveries(pip, 0.06).tolist() == [False, True, True, False]
    assert discoveries(pip, 0.005).tolist() == [False] * 4


@pytest.mark.parametrize("step", ["collapsed", "paper"])
def test_batched_sites_have_the_same_bits_as_single_sites(step: Any) -> None:
    """Also with a site without records, and one where rounding breaks a Cholesky."""
    parts = simulated((40, 0, 25, 1))
    parts[2][:, 2] = parts[2][:, 1]
    public, method = public_of(4), SparseRegression(outcome="y", step=step, chains=3, sweeps=2)
    message, rows = request(method, 4), [rows_of(part) for part in parts]
    message |= {"records": 66, "scale": np.full(4, HALF / 2)}
    alone: list[Any] = [{}] * 4
    stacked: list[Any] = [{}] * 4
    first, second = randoms(4), randoms(4)
    for size in (1.0, 1e-12, 1e12):
        message["t"] = np.full_like(message["t"], size)
        together = method.contribute_batched(DRAWS, rows, message, stacked, public, second)
        stacked = [memory for _, memory in together]
        for k in range(4):
            update, alone[k] = method.contribute(
                DRAWS, rows[k], message, alone[k], public, first[k]
            )
            assert canonical_encoding.dumps(update) == canonical_encoding.dumps(together[k][0])
            assert canonical_encoding.dumps(alone[k]) == canonical_encoding.dumps(stacked[k])


def test_effects_are_found_at_sites_with_few_records() -> None:
    """Two effects among eleven predictors."""
    rng, parts = np.random.default_rng(0), []
    for _ in range(40):
        X = rng.standard_normal((3, 11))
        y = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(3)
        parts.append(np.clip(np.column_stack([y, X]) / HALF, -1, 1))
    public = public_of(40, ("y", *(f"x{j}" for j in range(11))))
    result, _ = fit(
        SparseRegression(outcome="y", rounds=60, chains=2), parts, public, together=True
    )
    pip = [row["pip"] for row in result.summary["coefficients"]]
    assert min(pip[:2]) > max(pip[2:])


def test_the_calibrated_prior_does_not_depend_on_the_slab() -> None:
    ours = SparseRegression(outcome="y").constants(400)
    theirs = SparseRegression(outcome="y", prior="paper").constants(400)
    eta = np.array([0.1, 10.0])
    assert ours.narrow(eta).tolist() == [0.1 / 400] * 2 and ours.spread == 0.05
    np.testing.assert_allclose(theirs.narrow(eta), 0.01 * eta)
    assert theirs.spread == 1.0
    assert SparseDirected().constants(400) == ours
    assert SparseMarkov().constants(400) == SparseDirected(prior="paper").constants(400) == theirs
