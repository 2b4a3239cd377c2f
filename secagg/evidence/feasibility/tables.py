"""The expected error of tables of counts under noise, which is known exactly before the run.

The noise of a cell does not depend on the records. It is compared with the mean count of a cell:
the expected number of records divided by the number of cells. Cells with fewer records than the
mean have a larger relative error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from secagg.contracts.facts import CellError
from secagg.jobs.privacy import Privacy
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.expected_error import (
    GREEN_ERROR,
    MAX_EPSILON,
    USABLE_ERROR,
    Verdict,
    percent,
    two_digits,
)

_MOST_LISTED = 8


def table_feasibility(privacy: Privacy, errors: Sequence[CellError]) -> dict[str, Any]:
    """Return the verdict about the table whose relative error is the largest, and all errors."""
    epsilon, delta, records = privacy.epsilon, privacy.delta, privacy.expected_records
    assert epsilon is not None and delta is not None and records is not None
    relative = [each.error * each.cells / records for each in errors]
    worst = max(relative)
    verdict = Verdict.RED
    if worst <= USABLE_ERROR:
        verdict = Verdict.GREEN if worst <= GREEN_ERROR else Verdict.AMBER
    listed = [
        f"{each.table} ± {two_digits(each.error)} ({percent(part)})"
        for each, part in zip(errors[:_MOST_LISTED], relative, strict=False)
    ]
    more = f" and {len(errors) - _MOST_LISTED} more" * (len(errors) > _MOST_LISTED)
    words = f"{verdict.value}: expected error of a cell (relative to the table's mean count) "
    words += f"{', '.join(listed)}{more}"
    # The error is proportional to 1 / mu, and the mean count to the number of records.
    least = gaussian_epsilon(gaussian_mu(epsilon, delta) * worst / USABLE_ERROR, delta)
    least_records = math.ceil(records * worst / USABLE_ERROR)
    words += f"; at most {percent(USABLE_ERROR)} "
    words += f"needs epsilon {two_digits(least)}" if least <= MAX_EPSILON else "needs more records"
    if verdict is Verdict.RED:
        words += f", or {two_digits(least_records)} records"
    return {
        "verdict": verdict.value, "error": worst, "words": words,
        "least_epsilon": least if least <= MAX_EPSILON else None, "least_records": least_records,
        "tables": [
            {"table": each.table, "cells": each.cells, "error": each.error} for each in errors
        ],
    }  # fmt: skip
