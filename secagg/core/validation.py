"""Read TOML files, and build a method or protocol, a frozen dataclass, from a job's settings.

The keys are compared with the fields of the dataclass, and pydantic checks the types. A mistake
raises an error of one line that names the key. So methods and protocols need no code that reads job
files.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from secagg.errors import JobError, UsageError

_PLAIN_WORDS = {  # pydantic's error types, in the words of a job file
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "missing": "is required",
    "string_too_short": "must not be empty",
    "string_type": "must be a text",
}
_ONE_OUTCOME = (
    "must be one column. For several outcomes, write a job for each; linear regressions of all of "
    "them can be analyses of one job by moments"
)
_MIN_SIMILARITY = 0.7
"""Smallest similarity of a suggested key, as the share of letters in common. A key with a typing
error or a missing ending is still found."""
_EXAMPLES = {  # example of a list, by key
    "truth": '[["cause", "effect"]]',
    "tiers": '[["age", "sex"], ["bmi"]]',
    "forbidden": '[["cause", "effect"]]',
    "required": '[["cause", "effect"]]',
    "lags": '[["age_1", "bmi_1"]]',
    "analyses": '[{ kind = "pc" }]',
    "edges": '[["age", "bmi"]]',
    "typical": "[60, 80]",
}

_LIST_TYPE = re.compile(r"\.tuple\[.*\]")  # in pydantic's place of an error, for "a list or a word"

Settings = TypeVar("Settings")


def read_toml(path: Path, error: type[UsageError] = UsageError) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `error` if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise error(str(path), f"cannot be read ({cause.strerror})") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise error(str(path), f"is not valid TOML: {cause}") from None


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a dataclass. To make one takes a millisecond."""
    return TypeAdapter(kind)


def build(kind: type[Settings], settings: Mapping[str, Any], where: str) -> Settings:
    """Return the dataclass `kind` built from `settings`. Raises `JobError` naming the key."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # mypy has no type "any dataclass"
    known = {field.name for field in fields if field.init}
    for key in settings:
        if key not in known:
            raise unknown_key(where, key, known)
    try:
        validator = _adapter(kind)  # type: ignore[arg-type]  # every class can be hashed
        built: Settings = validator.validate_python(dict(settings))
    except ValidationError as error:
        first = _first(error.errors(include_url=False))
        raise JobError(where, describe(first, ".".join(map(str, first["loc"])))) from None
    for key, value in settings.items():  # pydantic takes true for 1
        if isinstance(value, bool) and not isinstance(getattr(built, key), bool):
            raise JobError(where, f"{key}: must be a number (got {str(value).lower()})")
    return built


def _first(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first error. For each kind that a value may have, pydantic has an error."""
    first = errors[0]
    words = [each for each in errors[1:] if each["type"] == "literal_error"]
    kind = {"bool_": "true, false", "float": "a number"}.get(first["type"][:5])
    if kind and words and words[0]["loc"][0] == first["loc"][0]:
        message = f"must be {kind} or {words[0]['ctx']['expected']}"
        return {**first, "loc": first["loc"][:-1], "msg": message}
    if first["type"] == "tuple_type" and words and len(first["loc"]) == 2:  # a list or a word
        message = f"must be {words[0]['ctx']['expected']}, or a list"
        return {**first, "loc": first["loc"][:1], "msg": message, "type": "list_or_word"}
    return first


def unknown_key(where: str, key: str, known: Iterable[str]) -> JobError:
    """Return the error for an unknown key. It suggests a similar known key or lists all known."""
    last, known = key.rpartition(".")[2], sorted(known)
    advice = did_you_mean(last, known)
    if not advice and len(partial := [name for name in known if last in name.split("_")]) == 1:
        advice = f"Did you mean {partial[0]!r}?"  # one word of the key: "alone" for "site_alone"
    listed = ", ".join(known) or "none"
    return JobError(where, f"unknown key {key!r}", advice or f"Known keys here: {listed}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the most similar known name; empty if none is similar.

    Capital letters do not count.
    """
    folded = {each.casefold(): each for each in sorted(known)}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_MIN_SIMILARITY)
    return f"Did you mean {folded[close[0]]!r}?" if close else ""


def describe(first: Mapping[str, Any], key: str) -> str:
    """Return one line that describes pydantic's first error. key: the key that is wrong."""
    kind, is_item = first["type"], any(isinstance(part, int) for part in first["loc"][-1:])
    key = _LIST_TYPE.sub("", key)
    if is_item and kind in ("tuple_type", "dict_type"):
        key = key.rpartition(".")[0]
        message = f"must be a list of {'lists' if kind == 'tuple_type' else 'tables'}"
    else:
        message = _PLAIN_WORDS.get(first["type"]) or str(first["msg"]).removeprefix("Value error, ")
    if kind == "tuple_type" or (is_item and kind == "dict_type"):
        message += ", for example " + _EXAMPLES.get(key.rpartition(".")[2], '["age"]')
    if kind == "string_type" and isinstance(first["input"], list | tuple):
        message = _ONE_OUTCOME if key.rpartition(".")[2] == "outcome" else "must be one text"
    got = first["input"]
    shown = f" (got {got!r})" if isinstance(got, str | int | float | bool) else ""
    return f"{key or 'job'}: {message[:1].lower()}{message[1:]}{shown}"
