"""The file in which a site declares columns that only it has, for `secagg adapt --columns`.

    edges = [["income", "weight"], ["income", "smoker"]]
    into_shared = false

    [columns.income]
    type = "continuous"
    low = 0
    high = 200000

Columns are declared as in a job. Nobody else sees the file. Columns that the job itself declares
in `[partial]` need none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from secagg.core.validation import build, read_toml
from secagg.errors import JobError
from secagg.jobs.columns import Column
from secagg.jobs.job import Job
from secagg.jobs.partial_columns import columns_here

OF_JOB: Final = "job"
"""What to give in place of a file for columns that the job declares in `[partial]`."""


@dataclass(frozen=True)
class OwnColumns:
    """What the file declares."""

    columns: Mapping[str, Column]
    """The site's own columns, as in a job: at least one, none of which the run has."""
    edges: tuple[tuple[str, str], ...] | Literal["site", "all"] = "site"
    """Pairs of columns that may depend on each other, at least one of them new. `"site"`: those
    whose partial correlation in the site's own records differs from 0, by a test with false
    discovery rate 0.05. `"all"`: every pair with a new column."""
    into_shared: bool = False
    """Whether the run's columns may depend on new ones. If false, their predictions stay exactly
    those of the run. If true, new columns help to predict them at this site."""


def read_own_columns(
    declared: Mapping[str, Any] | str | Path, job: Job | None = None, names: Collection[str] = ()
) -> OwnColumns:
    """Return the declarations, given as a mapping or a TOML file. Raises `JobError`.

    declared: or `OF_JOB`: the partial columns of `job` that are among `names`
    """
    if declared == OF_JOB and job is not None:
        return OwnColumns(columns_here(job, names))
    where = "columns" if isinstance(declared, Mapping) else str(declared)
    if not isinstance(declared, Mapping):
        declared = read_toml(Path(declared), JobError)
    own = build(OwnColumns, declared, where)
    if not own.columns:
        raise JobError(where, "declares no column", "Write [columns.NAME] as in a job.")
    return own
