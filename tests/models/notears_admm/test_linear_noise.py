"""NOTEARS-ADMM with noise once at the site: what it raises, and the score of an edge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.contracts import NoisyMatrix, PublicFacts, RecordCount, SiteRecords, Variable
from secagg.core.randomness import seeded_random
from secagg.models.common.surrogate_records import surrogate_records
from secagg.models.graphs.noise_size import scatter_noise
from secagg.models.notears_admm.linear import NotearsAdmm

NAMES, SITES = ("a", "b", "c"), ("s", "t")
PUBLIC = PublicFacts(
    tuple(Variable(n, n, 0.0, h) for n, h in zip(NAMES, (5.0, 50.0, 0.5), strict=True)),
    NAMES, 10_000, SITES, site_moments=True,
)  # fmt: skip


def noisy_site(sd: float, seed: int, n: int = 1000) -> SiteRecords:
    """a -> b, c alone, with exact moments; the noise is only declared."""
    rng = np.random.default_rng(seed)
    u = 0.2 * rng.normal(size=(n, 3)) + 0.3
    u[:, 1] = 0.5 * u[:, 0] + 0.2 * u[:, 1]
    z = np.column_stack([np.ones(n), u])
    variance = np.full((4, 4), sd**2) * (1 + np.eye(4))
    variance[0, 1:] = variance[1:, 0] = 4 * sd**2
    values = surrogate_records(z.T @ z, n, np.ones(3))
    return SiteRecords(values, 0, np.zeros(3), noisy=NoisyMatrix(z.T @ z, variance))


def play(method: NotearsAdmm, rows: list[SiteRecords], public: PublicFacts = PUBLIC) -> Any:
    state: Any = method.initial_state(public)
    memories: list[Any] = [{} for _ in rows]
    while (request := method.next_request(state)) is not None:
        found = [
            method.contribute(request[0], r, request[1], m, public, seeded_random(b"s" * 32))
            for r, m in zip(rows, memories, strict=True)
        ]
        memories = [memory for _, memory in found]
        total = {name: sum(update[name] for update, _ in found) for name in found[0][0]}
        state = method.aggregate(state, total, len(rows))
    return state, method.result(state, public, RecordCount(2000.0, 1.0))


def standardised_noise(rows: list[SiteRecords]) -> np.ndarray:
    """By hand: root of the summed variances, per record and pooled deviation within sites."""
    variance = sum(scatter_noise(r.noisy) for r in rows if r.noisy is not None)
    squares = sum(((r.values - r.values.mean(axis=0)) ** 2).sum(axis=0) for r in rows)
    deviation = np.sqrt(squares / 2000)
    found: np.ndarray = np.sqrt(variance) / 2000 / np.outer(deviation, deviation)
    return found


BARE = NotearsAdmm(threshold=0.0, zero_diagonal=True)
OFF = ~np.eye(3, dtype=bool)


def test_the_penalty_and_the_threshold_are_raised_to_the_noise() -> None:
    rows = [noisy_site(5.0, seed) for seed in range(2)]
    _, result = play(BARE, rows)
    G = standardised_noise(rows)
    facts = result.summary["noise"]
    assert result.arrays["weight_error"][OFF] == pytest.approx(G[OFF], rel=1e-6)
    raised = np.sqrt(2 * np.log(3)) * G[OFF]
    assert facts["penalty"]["in_force"] == pytest.approx([raised.min(), raised.max()])
    assert facts["penalty"]["job"] == 0.01 < raised.min()
    floor = facts["threshold"]["in_force"][1]
    assert floor > 0 and any("It raised penalty 0.01" in n for n in result.summary["notes"])
    weights = np.abs(result.arrays["weights"])
    dropped = weights[OFF & ~result.arrays["directed"]]
    assert weights[result.arrays["directed"]].min() > 0.1 and dropped.max() <= floor
    for edge in result.summary["edges"]:
        at = NAMES.index(edge["from"]), NAMES.index(edge["to"])
        assert edge["times_noise"] == pytest.approx(abs(edge["weight"]) / G[at], rel=1e-6)


def test_the_penalty_in_force_shrinks_weights_in_every_round() -> None:
    """With penalties that remove a correlation of 0.45 by themselves, no weight is left."""
    rows = [noisy_site(25.0, seed) for seed in range(2)]
    G = standardised_noise(rows)
    assert (np.sqrt(2 * np.log(3)) * G[OFF]).min() > 0.5
    _, result = play(BARE, rows)
    assert not result.arrays["weights"][OFF].any()


def test_the_jobs_own_values_are_the_smallest_possible() -> None:
    rows = [noisy_site(1e-3, seed) for seed in range(2)]
    _, result = play(NotearsAdmm(penalty=0.05, threshold=0.2), rows)
    bare = [replace(each, noisy=None) for each in rows]
    public = replace(PUBLIC, site_moments=False)
    _, plain = play(NotearsAdmm(penalty=0.05, threshold=0.2), bare, public)
    assert np.array_equal(result.arrays["weights"], plain.arrays["weights"])
    assert result.summary["noise"]["penalty"]["in_force"] == [0.05, 0.05]
    assert any("It raised neither setting" in note for note in result.summary["notes"])
    assert "noise" not in plain.summary and "weight_error" not in plain.arrays


def test_a_weight_over_the_threshold_but_within_the_noise_is_no_edge() -> None:
    rows = [noisy_site(8.0, seed) for seed in range(2)]
    state, result = play(BARE, rows)
    assert result.arrays["directed"].any()
    state = {**state, "records": 8.0}  # then chance alone is larger than any weight
    again = BARE.result(state, PUBLIC, RecordCount(8.0, 1.0))
    assert not again.arrays["directed"].any() and again.arrays["weights"].any()
    assert any("the noise of differential privacy can" in n for n in again.summary["notes"])


def test_the_noise_is_summed_only_with_noise_at_the_sites() -> None:
    first, _ = NotearsAdmm().stages(PUBLIC)
    assert [field.name for field in first.spec] == ["records", "squares", "noise"]
    assert "variances of the noise" in first.sees
    first, _ = NotearsAdmm().stages(replace(PUBLIC, site_moments=False))
    assert [field.name for field in first.spec] == ["records", "squares"]
