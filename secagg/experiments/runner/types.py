"""Types shared by tasks and the runner.

They have their own module because the key of a result covers everything that its task imports
(`secagg.experiments.runner.cells`). The rest of the runner can change without changing keys.
"""

from __future__ import annotations

from collections.abc import Mapping

Plain = str | int | float | bool
Settings = Mapping[str, Plain]
Numbers = Mapping[str, Mapping[str, float]]
"""Name of a method -> name of a quantity -> value. One cell may serve several methods.

Or, where a cell serves several columns of a figure: "METHOD COLUMN" -> quantity -> value.
"""

CONVERGED = "converged"
"""A quantity that every method reports: 1.0, or 0.0 if its fit is unreliable."""
