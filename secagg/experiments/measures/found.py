"""What is measured of a result, or known to be true: coefficients, a graph, or a network."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.experiments.measures.coefficients import Coefficients
from secagg.experiments.measures.graphs import Graph
from secagg.runs.networks.finished_module import FinishedModuleRun
from secagg.runs.networks.finished_ngm import FinishedNgmRun


@dataclass(frozen=True)
class Found:
    """outcome: the column that the coefficients predict; "" without coefficients

    A network may come with its graph, if the run has learned it.
    """

    coefficients: Coefficients | None
    graph: Graph | None
    outcome: str = ""
    network: FinishedNgmRun | None = None
    module: FinishedModuleRun | None = None
