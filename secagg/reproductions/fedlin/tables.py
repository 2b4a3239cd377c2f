"""FedLin's tables and its figure 3: Yue, Al Kontar and Estrada Gomez (2022).

Each is a figure of our kind, with means over seeds: `fedlin_covariance` has table 1 and
figure 3, `fedlin_selection` tables 2 and 3, `fedlin_signals` table 4.
"""

from __future__ import annotations

from pathlib import Path

from secagg.errors import UsageError
from secagg.reproductions.fedlin.table_1 import by_round, covariance
from secagg.reproductions.fedlin.table_4 import signals
from secagg.reproductions.fedlin.tables_2_3 import rates, schools
from secagg.reproductions.harness.figures import Figure

SEEDS, QUICK_SEEDS = 30, 3


def table(number: int, seeds: int, data: Path | None, *, quick: bool = False) -> Figure:
    """Return one of the four tables with `seeds` runs. Raises `UsageError` without its records.

    data: folder with the paper's own files, for tables 3 and 4
    """
    match number:
        case 1 | 2:
            _without(data)
            return (covariance if number == 1 else rates)(seeds, quick=quick)
        case 3:
            return schools(seeds, data, quick=quick)
        case _:
            return signals(seeds, data, quick=quick)


def figure(seeds: int, data: Path | None, *, quick: bool = False) -> Figure:
    """Return figure 3 with `seeds` runs."""
    _without(data)
    return by_round(seeds, quick=quick)


def _without(data: Path | None) -> None:
    if data is not None:
        raise UsageError("--data", "this is of simulated records", "Leave it out.")
