"""The studies in examples/: each file can be read, and its attacks exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checkout import ROOT

from secagg.audits.by_rounds import check_from_sums_only
from secagg.audits.catalogue import make_attacks
from secagg.experiments.sweep import points, read_sweep

STUDIES = sorted(ROOT.glob("examples/*/*study.toml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_study_can_be_read(path: Path) -> None:
    sweep = read_sweep(path)
    assert points(sweep)
    if sweep.attacks is not None:
        make_attacks(sweep.attacks.names)
        if sweep.attacks.rounds:
            check_from_sums_only(sweep.attacks.names)


def test_the_studies_are_found() -> None:
    assert {path.stem for path in STUDIES} >= {"study", "rounds-study"}
