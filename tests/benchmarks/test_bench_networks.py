"""The benchmark of networks: what it prints without torch and Flower, and how rounds are timed."""

from importlib import import_module
from types import SimpleNamespace

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    return import_module("benchmarks.networks.bench_networks")


def cells(printed: str) -> list[list[str]]:
    rows = [line for line in printed.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_without_torch_and_flower_only_our_sums_run(
    bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "version", lambda _: None)
    monkeypatch.setattr(bench, "quick_asked", lambda *_: True)
    bench.main()
    printed = capsys.readouterr().out
    assert printed.count(bench.MISSING) == 1
    rows = cells(printed)
    assert [row[0] for row in rows if row[1] == "not installed"] == [bench.TORCH, bench.FLOWER]
    assert len(rows) == 6
    assert {row[4] for row in rows} == {"-"}


@pytest.mark.neural
def test_protocols_give_the_same_parameters(bench) -> None:
    rows = cells(bench.small(quick=True))
    assert len(rows) == 2 * 4
    assert {row[-1] for row in rows} == {"the same"}


@pytest.mark.neural
def test_the_paper_s_network_has_the_parameters_of_its_layers(bench) -> None:
    """4 columns, two layers of 5 units, and a residual deviation for each column."""
    parameters, printed = bench.large(quick=True)
    assert parameters == (4 + 1) * 5 + (5 + 1) * 5 + (5 + 1) * 4 + 4
    assert [row[0] for row in cells(printed)] == ["plain", "masked"]


def test_a_round_lasts_from_release_to_release(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun at 0; the sum of the record counts takes 7 seconds, the rounds 1, 2 and 6 seconds."""
    rounds = import_module("benchmarks.networks.network_rounds")
    ends = {"cohort": 7.0, "first": 8.0, "second": 10.0, "third": 16.0}
    now = 0.0

    def run(*_: object, progress, random: object) -> object:
        nonlocal now
        for name, end in ends.items():
            now = end
            stage = "cohort" if name == "cohort" else "train"
            progress({"event": "round", "stage": stage})
            progress({"event": "release", "stage": stage})
        return SimpleNamespace(result=SimpleNamespace(arrays={}, summary={"parameters": 3}))

    clock = SimpleNamespace(perf_counter=lambda: 2 * now, process_time=lambda: now)
    monkeypatch.setattr(rounds, "run", run)
    monkeypatch.setattr(rounds, "time", clock)
    assert rounds.trained({}, {}) == rounds.Trained(7.0, 4.0, 2.0, 3, b"")
