"""Names of variables for display: a column whose logarithm is analysed is shown as log(los).

result.json keeps the names of the job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KEYS = frozenset(
    {
        "outcome", "term", "column", "names", "from", "to", "between", "predictor", "predictors",
        "variables", "selected", "truth", "missing", "extra", "reversed",
    }
)  # fmt: skip
"""Keys of a result whose texts are names of variables."""
_NOTES = frozenset({"notes", "caution"})
"""Keys whose sentences have names in quotes."""


def log_names(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the names to show of the columns whose logarithm is analysed.

    columns: as the job declares them. A column that has such a name itself keeps it alone
    """
    return {
        name: shown
        for name, column in columns.items()
        if column.get("transform") == "log" and (shown := f"log({name})") not in columns
    }


def shown_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared columns by the names to show."""
    names = log_names(columns)
    return {names.get(name, name): column for name, column in columns.items()}


def shown_result(result: Any, names: Mapping[str, str], key: str = "") -> Any:
    """Return plain data of a result with the names to show; key: that of the data."""
    match result:
        case _ if not names:
            return result
        case str() if key in _KEYS:
            return names.get(result, result)
        case str() if key == "name":  # of a parameter or test: "mean of x over sites"
            words = "|".join(map(re.escape, names))
            return re.sub(
                rf"\b(of|on|and) ({words})(?= |$)", lambda m: f"{m[1]} {names[m[2]]}", result
            )
        case str() if key in _NOTES:
            for name, shown in names.items():
                result = result.replace(f"'{name}'", f"'{shown}'")
            return result
        case Mapping():
            return {k: shown_result(value, names, k) for k, value in result.items()}
        case list() | tuple():
            return [shown_result(value, names, key) for value in result]
        case _:
            return result
