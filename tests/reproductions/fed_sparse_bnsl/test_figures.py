"""The comparison with Fed-Sparse-BNSL: which cells it is made of."""

import math
from dataclasses import asdict

from reproductions.fed_sparse_bnsl.choices import FOUND
from reproductions.fed_sparse_bnsl.figures import DELTA, EPSILONS, METHODS, SIZES, figure
from reproductions.harness.figures import Place


def test_cells_have_equal_epsilon_and_the_same_records() -> None:
    whole = figure(2)
    for place, runs in whole.points.items():
        for seed, cell in runs.items():
            found = dict(cell.settings)
            records = {name: found[name] for name in ("d", "sites", "each", "seed")}
            d = int(place.panel.removeprefix("d = "))
            assert records == {"d": d, "sites": 10, "each": 1000, "seed": seed}
            exact = place.method.endswith(("-exact", "-none"))
            assert (found.get("epsilon"), found.get("delta")) == (
                (None, None) if exact else (place.column, DELTA)
            )
    # A run without noise serves every epsilon.
    columns = [whole.points[Place("d = 20", e, "notears-none")][0] for e in EPSILONS]
    assert len(set(columns)) == 1
    assert set(figure(2, quick=True).cells()) < set(whole.cells())


def test_settings_that_the_sources_leave_open_are_those_found() -> None:
    assert set(FOUND) == {(d, e) for d in SIZES for e in (*EPSILONS, math.inf)}
    for (d, epsilon), choices in FOUND.items():
        method = "fed-sparse-bnsl" + ("-exact" if math.isinf(epsilon) else "")
        column = EPSILONS[0] if math.isinf(epsilon) else epsilon
        found = dict(figure(1).points[Place(f"d = {d}", column, method)][0].settings)
        assert {name: found[name] for name in asdict(choices)} == asdict(choices)
    assert len({method.name for method in METHODS}) == len(METHODS)
