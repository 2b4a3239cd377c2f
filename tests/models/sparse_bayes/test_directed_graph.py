"""Federated sparse directed graphs, with every step of a run called directly."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.methods.playing import play, rows_of

from secagg.contracts import PublicFacts, Result, State, Update, Variable
from secagg.core.randomness import seeded_random
from secagg.errors import DataError, JobError, PeerError
from secagg.models.sparse_bayes.base import DRAWS, Round
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.directed_paths import PATHS
from secagg.models.sparse_bayes.joint.orders import Orders
from secagg.models.sparse_bayes.laplace_graph import entry_positions, matrices
from secagg.models.sparse_bayes.metropolis.alternatives import pairs_of, score_alternatives
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw
from secagg.models.sparse_bayes.metropolis.slopes import log_likelihood_and_slopes

Array = NDArray[np.float64]

HALF = 16.0
NAMES = ("a", "b", "c", "d")

CYCLE = np.zeros((4, 4))  # a -> b <-> c -> d, [j, h] for h -> j
CYCLE[1, 0], CYCLE[2, 1], CYCLE[1, 2], CYCLE[3, 2] = 0.9, 0.7, -0.4, 0.8
ACYCLIC = np.zeros((4, 4))  # a -> b -> d <- c
ACYCLIC[1, 0], ACYCLIC[3, 1], ACYCLIC[3, 2] = 0.8, -0.8, 0.7


SCALE = np.full(4, HALF / 8)  # divides by 8: no column's deviation is larger


def public_of(sites: int, names: tuple[str, ...] = NAMES) -> PublicFacts:
    variables = tuple(Variable(name, name, 0.0, HALF) for name in names)
    return PublicFacts(variables, names, 500, tuple(f"s{k}" for k in range(sites)))


def simulated(graph: Array, sizes: tuple[int, ...], seed: int = 1) -> list[Array]:
    """Return records of the graph with Laplace errors; each site has its own means."""
    rng, p = np.random.default_rng(seed), len(graph)
    parts = []
    for n in sizes:
        Y = np.linalg.solve(np.eye(p) - graph, rng.laplace(size=(p, n))).T
        parts.append(np.clip((Y + rng.uniform(-1, 1, p)) / HALF, -1, 1))
    return parts


def fit(method: SparseDirected, parts: list[Array]) -> tuple[Result, list[State]]:
    """Return the result and the memory of each site."""
    randoms = [seeded_random(bytes([k, 0]) * 16) for k in range(len(parts))]
    played = play(method, [rows_of(part) for part in parts], public_of(len(parts)), randoms)
    return played.result, played.memories


def found(result: Result) -> set[tuple[str, str]]:
    return {(row["from"], row["to"]) for row in result.summary["arrows"] if row["edge"]}


def arrows(graph: Array) -> set[tuple[str, str]]:
    return {(NAMES[h], NAMES[j]) for j, h in np.argwhere(graph)}


def test_an_arrow_that_is_no_edge_despite_its_interval_is_undecided() -> None:
    """One short chain, which has no R-hat, ends near an effect that is certain but no edge."""
    weak = np.zeros((2, 2))
    weak[1, 0] = 0.25
    sites = [rows_of(part) for part in simulated(weak, (500,) * 3)]
    randoms = [seeded_random(bytes([k, 0]) * 16) for k in range(3)]
    method = SparseDirected(rounds=150, chains=1, temperatures=1, path_steps=0, prior="paper")
    summary = play(method, sites, public_of(3, ("a", "b")), randoms).result.summary
    first, second = summary["arrows"]
    assert (first["from"], first["to"], first["edge"]) == ("a", "b", False)
    assert first["low"] > 0 > second["low"] and second["high"] > 0
    assert first["undecided"] and not second["undecided"]
    *_, note = summary["notes"]
    assert note.startswith("Undecided") and "'a' -> 'b'" in note and "'b' -> 'a'" not in note


@pytest.mark.statistical
def test_effects_in_a_cycle_are_recovered() -> None:
    parts = simulated(CYCLE, (150, 200, 150))
    result, _ = fit(SparseDirected(rounds=400, warmup=100, path_steps=4), parts)
    assert found(result) == arrows(CYCLE)
    assert result.summary["converged"]
    # In deviations pooled within sites, from the deviations of the model with Laplace errors.
    spread = np.linalg.inv(np.eye(4) - CYCLE)
    deviation = np.sqrt(np.diagonal(spread @ spread.T))
    truth = (CYCLE * deviation / deviation[:, None]).T
    # Each site's deviations and slopes have errors of about 1 / sqrt(500); a slab that shrinks.
    np.testing.assert_allclose(result.arrays["mean"], truth, atol=0.15)


def test_arrays_have_causes_in_rows() -> None:
    result, _ = fit(
        SparseDirected(rounds=80, chains=2, temperatures=1, path_steps=0),
        simulated(ACYCLIC, (150, 150)),
    )
    pip, edges = result.arrays["pip"], result.arrays["edges"]
    assert pip[1, 3] > 0.5 > pip[3, 1]
    assert np.all(np.diagonal(pip) == 0) and not np.any(np.diagonal(edges))
    by_name = {(row["from"], row["to"]): row for row in result.summary["arrows"]}
    for i, (h, j) in enumerate(
        zip(result.arrays["sources"], result.arrays["targets"], strict=True)
    ):
        row = by_name[NAMES[h], NAMES[j]]
        assert row["pip"] == pip[h, j] and row["edge"] == edges[h, j]
        assert row["mean"] == result.arrays["mean"][h, j]
        assert row["mean"] == pytest.approx(result.arrays["draws_theta"][..., 0, i].mean())
    pips = [row["pip"] for row in result.summary["arrows"]]
    assert pips == sorted(pips, reverse=True)


SMALL = SparseDirected(rounds=16, chains=2, temperatures=2, path_steps=2)
SHAPE = (4, 1, 12)
REQUEST = {"theta": np.zeros(SHAPE), "t": np.ones(SHAPE), "scale": SCALE, "records": 60,
           **SMALL.begin_shared_state(public_of(2))}  # fmt: skip


def respond(message: State, memory: State | None = None) -> tuple[Update, State]:
    """Return the answer of a site of 20 records."""
    site, random = rows_of(simulated(CYCLE, (20,))[0]), seeded_random(bytes(32))
    return SMALL.contribute(DRAWS, site, message, memory or {}, public_of(2), random)


def test_step_sizes_are_adapted_in_warmup_only() -> None:
    parts, public = simulated(CYCLE, (40, 30)), public_of(2)
    method = SparseDirected(rounds=16, warmup=6, chains=2, sweeps=2, temperatures=2)
    state, random = method.initial_state(public), seeded_random(bytes(32))
    state = {**state, "status": "running", "records": 70, "scale": SCALE}
    sent = method.next_request(state)
    assert sent is not None
    memory, reaches = State(), []
    for _ in range(10):
        _, memory = method.contribute(DRAWS, rows_of(parts[0]), sent[1], memory, public, random)
        reaches.append(memory["reach"])
    changed = [not np.array_equal(a, b) for a, b in pairwise(reaches)]
    assert changed == [True] * 5 + [False] * 4
    assert np.all(reaches[0] != 1 / np.sqrt(40))  # the first round is part of the warmup


def test_a_site_has_its_own_graph() -> None:
    parts, public = simulated(ACYCLIC, (150, 150)), public_of(2)
    method = SparseDirected(rounds=100, chains=2, temperatures=1, path_steps=0)
    _, memories = fit(method, parts)
    own = method.site_result(memories[0], public)
    assert own is not None and own.summary["records_here"] == 150
    effects = {(row["from"], row["to"]): row for row in own.summary["effects"]}
    assert len(effects) == 12
    assert effects["a", "b"]["mean"] > 0.3 and effects["b", "d"]["mean"] < -0.2
    assert all(0.2 < row["moves_taken"] < 0.6 for row in effects.values())  # the target is 0.4
    assert 0 <= own.summary["turns_taken"] < 1
    # Laplace errors of scale 1 over deviations of the columns, sqrt(2) for a.
    scales = {row["column"]: row for row in own.summary["error_scales"]}
    assert scales["a"]["mean"] == pytest.approx(1 / np.sqrt(2), abs=0.2)
    assert method.site_result({**memories[0], "round": 99}, public) is None


def test_small_sites_give_finite_results() -> None:
    result, memories = fit(SMALL, simulated(CYCLE, (0, 1, 2, 3, 30)))
    assert np.all(np.isfinite(result.arrays["draws_theta"]))
    for memory in memories:
        assert np.all(np.abs(np.linalg.eigvals(matrices(memory["theta"], 4))) < 1)


@pytest.mark.parametrize("sizes", [(0, 500), (1, 500)])
def test_a_site_without_information_draws_from_the_prior(sizes: tuple[int, ...]) -> None:
    """Given theta and t, its theta_k is symmetric about theta: records would break the symmetry."""
    public = public_of(2)
    method = SparseDirected(rounds=1500, warmup=0, chains=20, temperatures=1)
    shape = (20, 1, 12)
    message = {"theta": np.full(shape, 0.1), "t": np.full(shape, 1e-4), "scale": SCALE}
    site, memory = rows_of(simulated(CYCLE, sizes)[0]), State()
    random, above = seeded_random(bytes(32)), []
    for _ in range(200):
        sent = {**message, "records": 500, **method.begin_shared_state(public)}
        _, memory = method.contribute(DRAWS, site, sent, memory, public, random)
        above.append(np.mean(memory["theta"] > 0.1))
    # 20 chains of 12 entries; with 200 rounds some 2000 independent signs at the least, whatever
    # slow chains there are: a deviation of 0.01. Small w leave the bound on the radius far away.
    assert np.mean(above[50:]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("scale", ["pooled", "site"])
def test_constant_and_collinear_columns_give_finite_results(scale: Any) -> None:
    parts = simulated(CYCLE, (30, 40))
    parts[0][:, 2] = 0.25  # constant there
    parts[1][:, 3] = parts[1][:, 1]  # the same column twice
    result, memories = fit(
        SparseDirected(rounds=60, chains=2, scale=scale, temperatures=2, path_steps=1), parts
    )
    assert np.all(np.isfinite(result.arrays["draws_theta"]))
    assert all(np.all(np.isfinite(memory["b"])) for memory in memories)


def test_a_coordinator_with_its_own_t_reads_slopes_of_all_records_at_its_graph() -> None:
    """The same of rounds of paths. Sites draw scales and constants, for an empty graph here.

    The control is a t as the method draws it.
    """
    parts, graph = simulated(CYCLE, (200, 150)), np.zeros((4, 4))
    graph[1, 0], graph[2, 1] = 0.5, 0.3
    at, expected, law = entry_positions(4), np.zeros(12), ErrorLaw(1, 200, np.ones(1))
    for part in parts:
        Y = ((part - part.mean(axis=0)) * SCALE).T
        m = np.median(Y, axis=1)
        b = np.abs(Y - m[:, None]).mean(axis=1)
        slope = log_likelihood_and_slopes(
            Y[None], graph[None], m[None], b[None], replace(law, records=len(part)),
            least=-1e9, steepest=1e9,
        )[1]  # fmt: skip
        expected += slope[0][at]

    def away(t: float) -> float:
        """Return how far what is read is from the slopes, as a share of their size."""
        there = {"theta": np.tile(graph[at], (4, 1))[:, None]}
        found = np.zeros(12)
        for k, part in enumerate(parts):
            rows, memory, random = rows_of(part), State(), seeded_random(bytes([k + 1]) * 32)
            for stage, graphs in ((DRAWS, {}), (PATHS, {}), (PATHS, there)):
                message = {**REQUEST, "records": 350, "t": np.full(SHAPE, t), **graphs}
                update, memory = SMALL.contribute(
                    stage, rows, message, memory, public_of(2), random
                )
            found += update["slope"][0]
        return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    # a scale has an error of about 1 / sqrt(150), and slopes are proportional to its inverse
    assert away(1e-30) < 0.2 < away(1.0)


def test_a_coordinator_with_its_own_t_reads_the_likelihood_of_all_records_at_its_graph() -> None:
    """What `if_malicious` says: with t near 0, sites' graphs are those that the coordinator sends.

    The control is a t as the method draws it: the sums are then of the sites' own graphs.
    """
    parts, graph, pairs = simulated(CYCLE, (40, 30)), np.zeros((4, 4)), pairs_of(4, 0)
    graph[1, 0], graph[2, 1] = 0.5, 0.3
    expected = 0.0
    for part in parts:
        Y, law = ((part - part.mean(axis=0)) * SCALE).T, ErrorLaw(1, len(part))
        one = np.ones((1, 1))
        scores = score_alternatives(Y, graph[None], graph[None], pairs, one, SMALL.noise, law, -1e9)
        expected += float(scores[0, 0, 0])

    def read(t: float) -> float:
        """Return what is read of the alternative with all pairs, at the power 1."""
        other = np.tile(graph[*entry_positions(4)], (4, 1))
        message = {**REQUEST, "records": 70, "t": np.full(SHAPE, t), "other": other}
        found = 0.0
        for k, part in enumerate(parts):
            random = seeded_random(bytes([k + 1]) * 32)
            update, _ = SMALL.contribute(DRAWS, rows_of(part), message, {}, public_of(2), random)
            found += float(update["scores"][0, 0, -1])
        return found

    # differences of some 1e-15, and a likelihood with a slope of some 100
    assert read(1e-30) == pytest.approx(expected, abs=1e-9)
    assert abs(read(0.1) - expected) > 0.1


def test_scores_are_of_the_own_power_and_of_the_partners() -> None:
    """In round 0, copies 0 and 1 are partners, and 2 and 3, with the powers 1 and .85."""
    update, memory = respond({**REQUEST, "t": np.full(SHAPE, 0.1)})
    graphs, Y, powers = matrices(memory["theta"], 4), memory["Y"], REQUEST["heat"]
    assert powers.tolist() == [1.0, 0.85, 1.0, 0.85]
    heats = np.stack([powers, powers[[1, 0, 3, 2]]], axis=1)
    expected = score_alternatives(
        Y, graphs, graphs, pairs_of(4, 0), heats, SMALL.noise, ErrorLaw(1, 20, powers), -1e9
    )
    np.testing.assert_allclose(update["scores"][:, :, 0], expected[:, :, 0])
    assert np.all(np.abs(np.diff(expected[:, :, 0])) > 0.1)


def test_a_site_moves_to_the_graph_that_was_chosen_unless_it_has_no_likelihood() -> None:
    """With t near 0 a sweep moves a graph that is at theta by some 1e-15 only."""
    still = {**REQUEST, "t": np.full(SHAPE, 1e-30)}
    for effect, expected in ((0.2, 0.2), (1.5, 0.0)):
        _, memory = respond({**still, "other": np.full((4, 12), effect)})
        theta = np.full(SHAPE, expected)
        _, memory = respond({**still, "theta": theta, "taken": np.ones((4, 2))}, memory)
        np.testing.assert_allclose(memory["theta"], expected, atol=1e-9)


def test_a_ratio_of_spike_and_slab_is_of_the_papers_prior_only() -> None:
    with pytest.raises(JobError) as refused:
        replace(SMALL, spike_ratio=0.5).stages(public_of(2))
    assert refused.value.where == "method.spike_ratio"
    assert replace(SMALL, spike_ratio=0.5, prior="paper").stages(public_of(2))


@pytest.mark.parametrize("copies", [0, 65])
def test_there_are_one_to_64_copies_and_one_under_noise_at_the_site(copies: int) -> None:
    with pytest.raises(JobError) as refused:
        replace(SMALL, temperatures=copies).stages(public_of(2))
    assert refused.value.where == "method.temperatures"
    noised = replace(public_of(2), site_moments=True)
    with pytest.raises(JobError) as refused:
        replace(SMALL, errors="gaussian").stages(noised)
    assert refused.value.where == "method.temperatures"
    assert replace(SMALL, errors="gaussian", temperatures=None, path_steps=0).stages(noised)


def test_paths_have_rounds_of_their_own_and_none_under_noise_at_the_site() -> None:
    public = public_of(2)
    _, draws, moves = SMALL.stages(public)
    assert (draws.max_rounds, moves.max_rounds) == (16, 15 * 3)
    assert [field.size for field in moves.spec] == [4, 4 * 12]
    assert len(replace(SMALL, path_steps=0).stages(public)) == 2
    assert SparseDirected().steps and not SparseDirected(ordered=True).steps
    for steps in (-1, 65):
        with pytest.raises(JobError) as refused:
            replace(SMALL, path_steps=steps).stages(public)
        assert refused.value.where == "method.path_steps"
    noised = replace(public, site_moments=True)
    with pytest.raises(JobError) as refused:
        replace(SMALL, errors="gaussian", temperatures=1).stages(noised)
    assert refused.value.where == "method.path_steps"


def test_a_path_moves_all_graphs_with_their_differences_held() -> None:
    """A site answers at theta + d with the constants and scales of the path's first round."""
    _, memory = respond(REQUEST)
    start = memory["theta"]
    answers = []
    for shift in (0.0, 0.05, 0.0):
        sent = {**REQUEST, "theta": np.full(SHAPE, shift)}
        site, random = rows_of(simulated(CYCLE, (20,))[0]), seeded_random(bytes(32))
        update, memory = SMALL.contribute(PATHS, site, sent, memory, public_of(2), random)
        answers.append(update)
    assert memory["round"] == 1 and np.array_equal(memory["d"], start)
    Y, law = np.repeat(memory["Y"][None], 4, axis=0), ErrorLaw(1, 20, REQUEST["heat"])
    rows, columns = entry_positions(4)
    for update, shift in zip(answers, (0.0, 0.05, 0.0), strict=True):
        expected, slope = log_likelihood_and_slopes(
            Y, matrices(start + shift, 4), memory["m"], memory["b"], law, least=-1e9, steepest=1e9
        )
        np.testing.assert_allclose(update["likelihood"], expected)
        np.testing.assert_allclose(update["slope"], slope[:, rows, columns])
    # the next sweeps begin at the end of the path; after them the differences are others
    theta = np.full(SHAPE, 0.05)
    now = Round(theta, np.ones(SHAPE), 1, True, SMALL.begin_shared_state(public_of(2)))
    np.testing.assert_allclose(SMALL.at_start([memory], now).theta, start + 0.05)
    _, after = respond({**REQUEST, "theta": theta}, memory)
    assert "d" not in after and after["round"] == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("heat", 1.5), ("heat", 1e-9), ("heat", np.nan), ("taken", 0.5), ("reversal", 2.0),
     ("other", np.inf)],
)  # fmt: skip
def test_a_site_refuses_powers_and_choices_that_are_none(name: str, value: float) -> None:
    wrong = REQUEST[name].copy()
    wrong[-1] = value
    with pytest.raises(PeerError) as refused:
        respond({**REQUEST, name: wrong})
    assert refused.value.where == "message"


@pytest.mark.parametrize(("theta", "t"), [(1e50, 1.0), (1e50, 1e50), (0.0, 0.0), (-1e9, 1e-50)])
def test_extreme_messages_are_answered_or_refused_without_warnings(theta: float, t: float) -> None:
    message = {**REQUEST, "theta": np.full(SHAPE, theta), "t": np.full(SHAPE, t)}
    memory, update = State(), {"one": np.zeros(1)}
    try:
        for _ in range(3):
            update, memory = respond(message, memory)
    except (DataError, PeerError):  # a number out of bounds or an invalid message: nothing is sent
        pass
    assert all(np.all(np.isfinite(values)) for values in update.values())


DRAWN = replace(SMALL, cycles=False)
DRAWN_REQUEST = {**REQUEST, **DRAWN.begin_shared_state(public_of(2))}


def test_draws_without_cycles_have_an_order_and_find_the_arrows() -> None:
    parts = simulated(ACYCLIC, (150, 150))
    method = replace(DRAWN, rounds=100)
    result, memories = fit(method, parts)
    theta = result.arrays["draws_theta"][:, :, 0]
    graphs = matrices(theta.reshape(-1, 12), 4) != 0
    # in an order each pair has one arrow, and the columns have 0, 1, 2 and 3 before them
    off = np.tile(~np.eye(4, dtype=bool), (len(graphs), 1, 1))
    assert np.array_equal(graphs ^ np.swapaxes(graphs, 1, 2), off)
    before = {tuple(graph.sum(axis=1).tolist()) for graph in graphs}
    # a, b, d, and c anywhere before d
    assert before == {(0, 1, 2, 3), (0, 2, 1, 3), (1, 2, 0, 3)}
    assert arrows(ACYCLIC) <= found(result) and result.summary["cycles"] is False
    assert np.all(result.arrays["draws_inclusion"][:, :, 0][theta == 0] == 0)
    pairs = result.summary["pairs_without_directions"]
    assert all(pair["in_one_cycle"] == 0 for pair in pairs)
    own = method.site_result(memories[0], public_of(2))
    assert own is not None
    effects = {(row["from"], row["to"]): row["mean"] for row in own.summary["effects"]}
    assert effects["a", "b"] > 0.3 and effects["b", "d"] < -0.2


def test_a_site_sends_nothing_of_arrows_against_the_order() -> None:
    site, random = rows_of(simulated(CYCLE, (20,))[0]), seeded_random(bytes(32))
    update, memory = DRAWN.contribute(DRAWS, site, DRAWN_REQUEST, {}, public_of(2), random)
    against = Orders(DRAWN_REQUEST["order"].astype(np.int64)).present() == 0
    assert against.sum() == 4 * 6
    assert np.array_equal(update["one"][:, 0] == 0, against)
    assert not np.any(update["d"][:, 0][against]) and not np.any(update["dd"][:, 0][against])
    update, _ = DRAWN.contribute(PATHS, site, DRAWN_REQUEST, memory, public_of(2), random)
    assert np.all((update["slope"] == 0) == against)
    assert not np.any(memory["theta"][against])


def test_what_cannot_go_without_cycles() -> None:
    public = public_of(2)
    for wrong, where in (
        (replace(DRAWN, ordered=True), "method.cycles"),
        (replace(DRAWN, own_eta=True), "method.own_eta"),
        (replace(DRAWN, tiers=(("a",), ("b", "c", "d"))), "method.cycles"),
        (replace(DRAWN, forbidden=(("a", "b"),)), "method.cycles"),
    ):
        with pytest.raises(JobError) as refused:
            wrong.stages(public)
        assert refused.value.where == where
    noised = replace(public, site_moments=True)
    with pytest.raises(JobError) as refused:
        replace(DRAWN, errors="gaussian", temperatures=1, path_steps=0).stages(noised)
    assert refused.value.where == "method.cycles"


@pytest.mark.parametrize("wrong", [[0, 0, 1, 2], [1, 2, 3, 4], [0, 1, 2, 2.5]])
def test_a_site_refuses_an_order_that_is_none(wrong: list[float]) -> None:
    order = DRAWN_REQUEST["order"].copy()
    order[-1] = wrong
    site, random = rows_of(simulated(CYCLE, (20,))[0]), seeded_random(bytes(32))
    with pytest.raises(PeerError) as refused:
        DRAWN.contribute(DRAWS, site, {**DRAWN_REQUEST, "order": order}, {}, public_of(2), random)
    assert refused.value.where == "message"


def test_chains_that_disagree_are_told_what_helps() -> None:
    """More rounds help where chains pass between graphs, as they do if the order is known."""
    known, drawn, cyclic = (
        made.if_chains_disagree for made in (replace(SMALL, ordered=True), DRAWN, SMALL)
    )
    assert known == "Increase method.rounds."
    assert "method.cycles" in cyclic and "method.cycles" not in drawn
    assert "method.temperatures" in drawn


def test_only_chosen_variables_are_used() -> None:
    method = SparseDirected(rounds=20, chains=2, variables=("c", "a"), temperatures=2, path_steps=2)
    result, _ = fit(method, simulated(CYCLE, (30, 30)))
    assert result.summary["names"] == ["c", "a"] and result.arrays["pip"].shape == (2, 2)
