"""The benchmark of scale: sessions of a few sites, and laws fitted to known costs."""

from importlib import import_module
from typing import Any

import pytest


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("benchmarks.protocols.scale")


def test_small_sessions_print_all_tables(scale: Any, capsys: pytest.CaptureFixture[str]) -> None:
    laws = import_module("benchmarks.protocols.scale_laws")
    run = [laws.Measured.of(scale.measure((sites, 1, 20, 0.1))) for sites in (5, 9)]
    laws.PROJECTED = ((40, 0.1),)
    laws.tables(run)
    printed = capsys.readouterr().out
    assert printed.count("###") == 3
    assert run[1].total("site alone", laws.FIRST, "seconds") > 0
    assert run[1].total("site alone", laws.FIRST, "sent") > run[1].total(
        "site alone", laws.LATER, "sent"
    )


def test_a_law_finds_the_factors(scale: Any) -> None:
    laws = import_module("benchmarks.protocols.scale_laws")
    at = [{"1": 1.0, "n": n, "k": k} for n, k in ((10, 9), (30, 5), (100, 54), (300, 20))]
    law = laws.Law.fitted(("1", "n", "n k"), at, [2 + 3 * one["n"] * one["k"] for one in at])
    assert law.factors == pytest.approx((2, 0, 3), abs=1e-6)
    assert law({"1": 1.0, "n": 1000, "k": 10}) == pytest.approx(2 + 30_000)
