"""What every method that learns a graph must do, whichever it is."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import secagg
from secagg.core.randomness import seeded_random
from secagg.errors import UsageError
from secagg.models.graphs.inputs import singular
from secagg.models.local_graphs.learners import Learner

ANALYSES = ("pc", "ges", "notears", "golem")
pytestmark = pytest.mark.usefixtures("causal_learn")


def job(method: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    reals = {name: {"type": "continuous", "low": -8, "high": 8} for name in columns}
    return {
        "title": "Every method that learns a graph", "sites": {"max_rows": 1000}, "columns": reals,
        "method": method, "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 2},
    }  # fmt: skip


def run(method: dict[str, Any], sites: dict[str, pd.DataFrame]) -> dict[str, Any]:
    columns = tuple(next(iter(sites.values())).columns)
    random = seeded_random(bytes(31) + b"7")
    return secagg.run(job(method, columns), sites, random=random).result.summary


def test_dependent_columns_are_refused_by_all_with_the_same_error() -> None:
    """w = x / 2 and y = 4x / 5: no data can tell which of them acts on which."""
    x = np.random.default_rng(3).normal(size=(3, 40))
    sites = {s: pd.DataFrame({"x": v, "w": v / 2, "y": 0.8 * v}) for s, v in zip("abc", x)}
    found = run({"name": "moments", "analyses": [{"kind": kind} for kind in ANALYSES]}, sites)
    names = {"pc": "PC", "ges": "GES", "notears": "NOTEARS", "golem": "GOLEM"}
    for i, (kind, analysis) in enumerate(zip(ANALYSES, found["analyses"], strict=True), start=1):
        expected = f"method.analyses[{i}], {singular(names[kind], 120, 3).line()}".rstrip(".")
        assert analysis == {"method": kind, "failed": expected}
    with pytest.raises(UsageError) as refused:
        run({"name": "notears_admm"}, sites)
    assert refused.value.args[:2] == singular("NOTEARS-ADMM", 120, 3).args[:2]
    for learner in ("pc", "notears"):  # a site whose own records do not tell does not vote
        assert not Learner(algorithm=learner).fit(sites["a"].to_numpy(), ["x", "w", "y"]).converged


def test_nearly_dependent_columns_are_not_refused() -> None:
    """A correlation of 0.999 leaves 0.2 % of a variance, which is enough."""
    rng = np.random.default_rng(4)
    sites = {}
    for site in "abc":
        x, y = rng.normal(size=(2, 40))
        sites[site] = pd.DataFrame({"x": x, "w": x + 0.045 * rng.normal(size=40), "y": y})
    found = run({"name": "moments", "analyses": [{"kind": kind} for kind in ANALYSES]}, sites)
    assert not any("failed" in analysis for analysis in found["analyses"])
    assert run({"name": "notears_admm"}, sites)["status"] == "converged"
