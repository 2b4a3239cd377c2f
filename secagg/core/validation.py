"""Settings of methods and protocols: from the plain data of a job to a frozen dataclass.

Types are checked by pydantic, keys against the dataclass; each mistake becomes one line that names
the key. Methods and protocols stay ordinary dataclasses that know nothing of job files.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from secagg.errors import JobError

_PLAIN_WORDS = {  # pydantic's words for what a job file calls otherwise
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "missing": "is required",
    "string_too_short": "must not be empty",
}
_MIN_SIMILARITY = 0.7
"""Of letters in common: a slip or a missing ending. Below it words are alike by chance."""
_EXAMPLES = {  # of lists, by key
    "truth": '[["cause", "effect"]]',
    "lags": '[["age_1", "bmi_1"]]',
    "analyses": '[{ kind = "pc" }]',
}

Settings = TypeVar("Settings")


def build(kind: type[Settings], settings: Mapping[str, Any], where: str) -> Settings:
    """Return the dataclass `kind` built from `settings`. Raises `JobError` naming the key."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # any dataclass; mypy cannot say so
    known = {field.name for field in fields if field.init}
    for key in settings:
        if key not in known:
            raise unknown_key(where, key, known)
    try:
        return TypeAdapter(kind).validate_python(dict(settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise JobError(where, describe(first, ".".join(map(str, first["loc"])))) from None


def unknown_key(where: str, key: str, known: Iterable[str]) -> JobError:
    """Return the error for a key that does not exist, with the likeliest meaning."""
    last, known = key.rpartition(".")[2], sorted(known)
    close = difflib.get_close_matches(last, known, n=1, cutoff=_MIN_SIMILARITY)
    if not close and len(whole := [name for name in known if last in name.split("_")]) == 1:
        close = whole  # part of the right one: alone, for site_alone
    listed = ", ".join(known) or "none"
    mend = f"Did you mean {close[0]!r}?" if close else f"Known keys here: {listed}."
    return JobError(where, f"unknown key {key!r}", mend)


def describe(first: Mapping[str, Any], key: str) -> str:
    """Return one line for pydantic's first complaint about `key`."""
    kind, item = first["type"], any(isinstance(part, int) for part in first["loc"][-1:])
    if item and kind in ("tuple_type", "dict_type"):  # one item of a list
        key = key.rpartition(".")[0]
        message = f"must be a list of {'lists' if kind == 'tuple_type' else 'tables'}"
    else:
        message = _PLAIN_WORDS.get(first["type"]) or str(first["msg"]).removeprefix("Value error, ")
    if kind == "tuple_type" or (item and kind == "dict_type"):
        message += ", for example " + _EXAMPLES.get(key, '["age"]')
    got = first["input"]
    shown = f" (got {got!r})" if isinstance(got, str | int | float | bool) else ""
    return f"{key or 'job'}: {message[:1].lower()}{message[1:]}{shown}"
