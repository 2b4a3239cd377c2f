"""The comparison with FedGES: which cells it is made of, and what they compute."""

from reproductions.fedges.figures import figure
from reproductions.fedges.tasks import graphs_sent, one_sum
from reproductions.harness.figures import Place

RECORDS = {"d": 5, "sites": 3, "each": 400, "seed": 1}


def test_cells_share_records_and_differ_in_the_fusion() -> None:
    whole = figure(2)
    for place, runs in whole.points.items():
        for seed, cell in runs.items():
            found = dict(cell.settings)
            assert (found["each"], found["seed"], found["sites"]) == (place.column, seed, 10)
            assert place.panel == f"d = {found['d']}" and found["method"] == place.method
    union, controlled = (
        dict(whole.points[Place("d = 10", 100, f"fedges-{name}")][0].settings)
        for name in ("union", "controlled")
    )
    assert (union["least"], controlled["least"]) == (1, 6)
    assert set(figure(2, quick=True).cells()) < set(whole.cells())


def test_cells_score_the_methods() -> None:
    """A clear graph: the one sum and controlled fusion find it; a site sends less than records."""
    [(name, sent)] = graphs_sent.compute(
        {**RECORDS, "method": "fedges-controlled", "insertions": 2, "least": 2}
    ).items()
    assert name == "fedges-controlled" and sent["converged"] == 1
    assert sent["rounds"] >= 3  # two insertions a round: five edges and the round that stops
    assert 0.008 * 5 <= sent["kilobytes"] < 0.008 * 5 * sent["rounds"] * 2
    [(name, summed)] = one_sum.compute({**RECORDS, "method": "ges"}).items()
    assert name == "ges" and summed["kilobytes"] == 0.008 * (1 + 5 + 15)
    assert (sent["shd"], summed["shd"]) == (0, 0)
    [(name, voted)] = one_sum.compute({**RECORDS, "method": "ges-voting"}).items()
    assert name == "ges-voting" and voted["tpr"] > 0
