"""What is measured of a result, or known to be true: coefficients for an outcome, or a graph."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.experiments.measures.coefficients import Coefficients
from secagg.experiments.measures.graphs import Graph


@dataclass(frozen=True)
class Found:
    """outcome: the column that the coefficients predict; "" for a graph"""

    coefficients: Coefficients | None
    graph: Graph | None
    outcome: str = ""
