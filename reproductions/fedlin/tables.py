"""FedLin's tables and its figures 3 and 4: Yue, Al Kontar and Estrada Gomez (2022).

Each of them is a `Figure` with means over seeds: see `table_1` (also figure 3), `tables_2_3`,
`table_4` and `figure_4`.
"""

from __future__ import annotations

from pathlib import Path

from reproductions.fedlin.figure_4 import intervals
from reproductions.fedlin.table_1 import by_round, covariance
from reproductions.fedlin.table_4 import signals
from reproductions.fedlin.tables_2_3 import rates, schools
from reproductions.harness.figures import Figure
from secagg.errors import UsageError

SEEDS, QUICK_SEEDS = 30, 3


def table(number: int, seeds: int, data: Path | None, *, quick: bool = False) -> Figure:
    """Return one of the four tables with `seeds` runs. Raises `UsageError` without its records.

    data: folder with the paper's files, for tables 3 and 4
    """
    match number:
        case 1 | 2:
            _refuse_data(data)
            return (covariance if number == 1 else rates)(seeds, quick=quick)
        case 3:
            return schools(seeds, data, quick=quick)
        case _:
            return signals(seeds, data, quick=quick)


def figure(number: int, seeds: int, data: Path | None, *, quick: bool = False) -> Figure:
    """Return figure 3 or 4 with `seeds` runs."""
    _refuse_data(data)
    return (by_round if number == 3 else intervals)(seeds, quick=quick)


def _refuse_data(data: Path | None) -> None:
    if data is not None:
        what = "this table or figure uses simulated records"
        raise UsageError("--data", what, "Leave the option out.")
