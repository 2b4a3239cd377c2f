"""Records behind moments of few records, and sums of graphs that are one site's own."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import HALF, job

from secagg.audits.attacks.records.gram_records import (
    GramRecords,
    Solution,
    _exact,
    _share_exact,
    _solve,
)
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Finding, Limit, Truth, Verdict
from secagg.audits.views import View
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array

BINARY, CONTINUOUS = 10, 3
COLUMNS: dict[str, Any] = {
    **{f"b{j}": {"type": "binary", "levels": ["no", "yes"]} for j in range(BINARY)},
    **{f"x{j}": {"type": "continuous", "low": -HALF, "high": HALF} for j in range(CONTINUOUS)},
}


def patients(n: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    binary = np.where(rng.random((n, BINARY)) < rng.uniform(0.2, 0.8, BINARY), 1.0, -1.0)
    return np.hstack([binary, rng.uniform(-1, 1, (n, CONTINUOUS))])


def clinics(sizes: list[int]) -> dict[str, pd.DataFrame]:
    found = {}
    for k, size in enumerate(sizes):
        values = patients(size, k)
        table = {f"b{j}": np.where(values[:, j] > 0, "yes", "no") for j in range(BINARY)}
        table |= {f"x{j}": HALF * values[:, BINARY + j] for j in range(CONTINUOUS)}
        found[f"s{k}"] = pd.DataFrame(table)
    return found


def audited(sizes: list[int], protocol: str, **more: Any) -> dict[str, Attacked]:
    weak = {"min_sites": 2, "min_records": 1, "min_cell_records": 1, "min_level_sites": 1}
    raw = job({"name": "moments"}, 1, protocol, columns=COLUMNS, release=weak, **more)
    audit = audit_job(raw, clinics(sizes), attacks=["gram_records"])
    return {str(each.who): each for each in audit.attacked}


@pytest.mark.parametrize("n", [1, 2, 4, 6, 8])
@pytest.mark.parametrize("seed", range(4))
def test_every_cell_of_up_to_eight_records_is_found(n: int, seed: int) -> None:
    values = patients(n, seed)
    z = np.column_stack([np.ones(n), values])
    found = _solve(z.T @ z, dict.fromkeys(range(BINARY), (-1.0, 1.0)))
    assert len(found.records) == 1 and found.complete
    assert _exact(found.records[0], values) == (1.0, 1.0)


def test_the_search_for_many_records_ends_and_says_so() -> None:
    values = patients(24, 0)
    z = np.column_stack([np.ones(24), values])
    found = _solve(z.T @ z, dict.fromkeys(range(BINARY), (-1.0, 1.0)))
    assert not found.complete and all(_exact(B, values)[1] < 0.5 for B in found.records)


def shares(n: int, binary: int, continuous: int, prevalence: float, seed: int) -> list[float]:
    """Return what the number is made of, for rare conditions."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((n, binary)) < prevalence, 1.0, -1.0)
    values = np.hstack([values, rng.uniform(-1, 1, (n, continuous))])
    z = np.column_stack([np.ones(n), values])
    found = _solve(z.T @ z, dict.fromkeys(range(binary), (-1.0, 1.0)))
    return [len(found.records), *_share_exact(found.records, values)]


def test_cells_that_are_left_open_are_no_errors() -> None:
    solutions, claimed, right, guess, rows = shares(32, 30, 5, 0.1, 0)
    assert (solutions, claimed, right, rows) == (1, pytest.approx(30 / 35), 1.0, 0.0)
    assert guess == pytest.approx(0.91, abs=0.01)


def test_several_solutions_count_on_average() -> None:
    solutions, _, right, guess, _ = shares(32, 10, 3, 0.1, 0)
    assert solutions > 1 and guess < right < 1 and (right - guess) / (1 - guess) < 0.9


def scored(records: Array, claim: Array | None) -> Finding:
    """Score a claim about records of one site."""
    claims = () if claim is None else (claim,)
    truth = Truth({"s0": SiteRecords(records, 0, np.zeros(records.shape[1]))})
    view = cast("View", None)  # it has no part in the score
    return GramRecords().score([Solution(("s0",), claims, True)], view, truth)


def test_the_most_frequent_values_of_rare_conditions_are_no_leak() -> None:
    records = np.full((30, 10), -1.0)
    records[0] = 1.0
    found, limit = scored(records, np.full((30, 10), -1.0)), Limit(0.9)
    assert found.details["groups"][0]["cells"] == pytest.approx(0.967, abs=0.001)
    assert found.value == 0.0 and not limit.exceeded_by(found.value) and not found.failed
    assert scored(records, records[::-1]).value == 1.0
    assert scored(records, None).failed


@pytest.mark.parametrize(("wrong", "leak"), [(8, True), (12, False)])
def test_less_than_one_in_ten_of_a_guess_s_errors_is_a_leak(wrong: int, leak: bool) -> None:
    """A guess is wrong in 100 of 200 cells, so the limit is 10 wrong cells."""
    records = np.where(np.arange(20)[:, None] < 10, 1.0, -1.0) * np.ones((1, 10))
    claim = records.copy()
    claim.flat[:wrong] = 0.0
    found, limit = scored(records, claim), GramRecords().limit(cast("View", None))
    assert found.value == pytest.approx(1 - wrong / 100)
    assert limit.exceeded_by(found.value) == leak


@pytest.mark.parametrize("complete", [(True, True), (True, False), (False, True), (False, False)])
def test_one_search_that_did_not_end_shows_nothing(complete: tuple[bool, bool]) -> None:
    records = np.where(np.arange(20)[:, None] < 10, 1.0, -1.0) * np.ones((1, 10))
    sites = {name: SiteRecords(records, 0, np.zeros(10)) for name in ("s0", "s1")}
    guess = [
        Solution((name,), (np.ones((20, 10)),), each)
        for name, each in zip(sites, complete, strict=True)
    ]
    found = GramRecords().score(guess, cast("View", None), Truth(sites))
    assert found.value == 0.0 and bool(found.failed) == (not all(complete))


def test_small_sites_in_clear_or_left_by_a_coalition_are_found_and_pooled_ones_are_not() -> None:
    clear = audited([10, 10], "plain")["coordinator"]
    assert clear.verdict is Verdict.LEAK and clear.finding is not None
    assert [group["rows"] for group in clear.finding.details["groups"]] == [1.0, 1.0]
    masked = audited([60, 50, 8], "masked")
    assert masked["coordinator"].verdict is Verdict.NOT_APPLICABLE
    left = masked["coalition"]
    assert left.verdict is Verdict.LEAK and left.finding is not None
    assert left.finding.details["groups"][0]["sites"] == ["s2"]
    assert left.control is not None and left.control.value == 1.0


def graphs(sites: int) -> dict[str, pd.DataFrame]:
    rng, names = np.random.default_rng(1), [f"x{j}" for j in range(6)]
    W = np.triu((rng.random((6, 6)) < 0.4) * rng.uniform(0.4, 0.9, (6, 6)), 1)
    mix = np.linalg.inv(np.eye(6) - W)
    return {
        f"s{k}": pd.DataFrame((rng.normal(size=(60, 6)) @ mix).clip(-HALF, HALF), columns=names)
        for k in range(sites)
    }


@pytest.mark.attack
def test_averages_have_single_sites_coefficients_and_a_vote_names_them_all() -> None:
    raw = job({"name": "local_graphs", "combine": "average"}, 6)
    audit = audit_job(raw, graphs(3), attacks=["single_estimates"])
    honest, second_job = audit.attacked
    assert honest.finding is not None and honest.finding.value > honest.finding.baseline
    assert second_job.verdict is Verdict.LEAK and second_job.finding is not None
    details = second_job.finding.details
    assert second_job.finding.value == details["one_site"] == details["named"] > 0


@pytest.mark.attack
def test_a_vote_of_one_is_one_sites() -> None:
    raw = job({"name": "local_graphs", "combine": "vote"}, 6)
    found = audit_job(raw, graphs(3), attacks=["single_estimates"]).attacked[0].finding
    assert found is not None and found.value == found.details["one_site"]
