"""Which columns of `[partial]` a run reads: those that the method analyses.

A job declares them once, in `[partial]`. If `method.variables` names one, it is among the columns
of the job from the start, so that bounds, rules, plan and report treat it as any other. Sites that
lack it have no values of it (`secagg.contracts.SiteRecords.lacking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_partial(raw: Any) -> Any:
    """Return a job's tables, with the columns of `[partial]` that `method.variables` names."""
    if not isinstance(raw, Mapping):
        return raw
    tables = [raw.get(key) for key in ("method", "columns", "partial")]
    method, columns, partial = (each if isinstance(each, Mapping) else {} for each in tables)
    named = method.get("variables")
    used = {
        name: declared["column"]
        for name, declared in partial.items()
        if isinstance(named, list | tuple) and name in named and name not in columns
        if isinstance(declared, Mapping) and "column" in declared
    }
    return {**raw, "columns": {**columns, **used}} if used else raw
