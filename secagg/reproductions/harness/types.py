"""What tasks and the machinery agree on, in a module of its own: all that a task imports is part of
the name of its results (`secagg.reproductions.harness.cells`), and the machinery may change without
them.
"""

from __future__ import annotations

from collections.abc import Mapping

Plain = str | int | float | bool
Settings = Mapping[str, Plain]
Numbers = Mapping[str, Mapping[str, float]]
"""Name of a method -> name of a quantity -> its value: one cell may serve several methods."""

CONVERGED = "converged"
"""A quantity that every method has: 1.0, or 0.0 for a fit not to be relied on."""
