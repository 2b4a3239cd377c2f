"""What the sources of Fed-Sparse-BNSL do not state: the settings that did best in a search.

`benchmarks/peers/fed_sparse_choices.py` found them on graphs that the comparison does not use. The
keys are the number of variables and epsilon (inf without noise).
"""

from __future__ import annotations

from collections.abc import Mapping

from reproductions.fed_sparse_bnsl.tasks.consensus import Choices

FOUND: Mapping[tuple[int, float], Choices] = {}
