"""Networks that stop in the middle of training and go on: the same parameters, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
from support.crashes.folders import FolderEngine, Killed, dying, folders
from support.crashes.resumed import check
from support.methods.networks import job, tables

from secagg.runs.run import resume, run

__all__ = ["folders"]  # fixture

pytestmark = pytest.mark.neural
PHASE = 9  # of a coordinator that dies: in a round of training
METHODS: dict[str, dict[str, Any]] = {
    "lbfgs": {"name": "torch_module", "outcome": "y", "rounds": 6},
    "fedavg": {"name": "torch_module", "outcome": "y", "rounds": 4, "algorithm": "fedavg"},
    "graph": {"name": "fedngm", "hidden": [3], "rounds": 5},
    "revealer": {"name": "fedngr", "hidden": [5], "rounds": 4, "refit_rounds": 4},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("folders")
def test_training_goes_on_where_it_stopped(tmp_path: Path, method: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name, table in tables().items():
        table.to_csv(data / f"{name}.csv", index=False)
    raw = job(METHODS[method], "masked", sites={"folder": str(data), "max_rows": 200})
    run(raw, out=tmp_path / "memory")
    with pytest.raises(Killed), dying(FolderEngine, "exchange", PHASE, after=True):
        run(raw | {"engine": {"name": "processes"}}, out=tmp_path / "out")
    resume(tmp_path / "out")
    check(tmp_path / "out", tmp_path / "memory", 1)
