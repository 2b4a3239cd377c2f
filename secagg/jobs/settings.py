"""The keys of each table of a job or policy: names, types, defaults and meanings, from the code.

A meaning is the string under a field in the source. The site (`docs/tables.py`) and the command
`secagg settings` show the same tables.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import json
import math
import sys
import textwrap
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Union

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from secagg.core.validation import unknown_key
from secagg.errors import UsageError
from secagg.jobs.registry import METHODS, PROTOCOLS

_LONGEST = 12  # characters of a number that is shown as it is

JOB = {
    "job": ("secagg.jobs.job", "Job"),
    "sites": ("secagg.jobs.job", "Sites"),
    "continuous": ("secagg.jobs.job", "Continuous"),
    "count": ("secagg.jobs.job", "Count"),
    "binary": ("secagg.jobs.job", "Binary"),
    "categorical": ("secagg.jobs.job", "Categorical"),
    "partial": ("secagg.jobs.job", "PartialColumn"),
    "release": ("secagg.jobs.job", "Release"),
    "public": ("secagg.jobs.public_records", "PublicRecords"),
    "privacy": ("secagg.jobs.privacy", "Privacy"),
    "simulation": ("secagg.jobs.job", "Simulation"),
    "engine": ("secagg.jobs.job", "Engine"),
}
ANALYSES = {
    kind: (f"secagg.models.moments.{module}", kind.title().replace("_", ""))
    for module, kinds in {
        "analyses": ("describe", "ols", "ridge", "lasso"),
        "graph_analyses": ("pc", "ges", "notears", "golem", "graphical_lasso"),
    }.items()
    for kind in kinds
}
POLICY = {
    "policy": ("secagg.privacy.policy.site_policy", "SitePolicy"),
    "dominance": ("secagg.privacy.policy.policy_tables", "Dominance"),
    "budget": ("secagg.privacy.policy.policy_tables", "Budget"),
    "keys": ("secagg.privacy.policy.policy_tables", "Keys"),
    "pinned_column": ("secagg.privacy.policy.policy_tables", "PinnedColumn"),
}
GROUPS = {
    "tables of a job": JOB,
    "methods": METHODS,
    "analyses of the method moments": ANALYSES,
    "protocols": PROTOCOLS,
    "a site's policy and its tables": POLICY,
}
WORDS = {
    int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path",
    dict: "table", type(None): "",
}  # fmt: skip
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Setting:
    """A key of a table, as it is documented.

    type: in words, with its limits
    default: as a job would have it; "required" or "not set" if there is none

    All texts are Markdown.
    """

    name: str
    type: str
    default: str
    meaning: str


def settings_of_table(name: str) -> list[Setting]:
    """Return the keys of a table, method, analysis, protocol or policy, required ones first.

    Raises `UsageError` for an unknown name.
    """
    places = {key: place for group in GROUPS.values() for key, place in group.items()}
    if name not in places:
        error = unknown_key("settings", name, places)
        raise UsageError("settings", f"no table, method or protocol {name!r}", error.advice)
    module, attribute = places[name]
    return settings_of_class(getattr(importlib.import_module(module), attribute))


def settings_of_class(kind: type) -> list[Setting]:
    """Return the keys that a model or dataclass reads, required ones and its own first."""
    meaning = meanings(kind)
    own = inspect.get_annotations(kind)
    order = sorted(
        fields(kind).items(), key=lambda each: (each[1][1] is not ..., each[0] not in own)
    )
    return [
        Setting(key, type_of(hint, limits), written(default), meaning.get(key, ""))
        for key, (hint, default, limits) in order
    ]


def fields(kind: type) -> dict[str, tuple[Any, Any, str]]:
    """Return for each setting its type, its default (`...` where required) and its limits."""
    if issubclass(kind, BaseModel):
        return {
            key: (
                info.annotation,  # without its own limits, which are in `metadata`
                ... if info.default is PydanticUndefined else info.default,
                _limits(info.metadata),
            )
            for key, info in kind.model_fields.items()
        }
    assert dataclasses.is_dataclass(kind)
    hints, missing = _hints(kind), dataclasses.MISSING
    return {
        each.name: (hints[each.name], ... if each.default is missing else each.default, "")
        for each in dataclasses.fields(kind)
    }


def meanings(kind: type) -> dict[str, str]:
    """Return what the strings under the fields say, those of base classes included."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("secagg"):
            found |= _strings_under_fields(each)
    return found


def type_of(hint: Any, limits: str = "") -> str:
    """Return a type in words."""
    name = _type_name(hint)
    return f"{name}, {limits}" if limits and name else name


def written(default: Any) -> str:
    """Return a default as a job file would have it; one with very many digits as a fraction."""
    if default is ...:
        return "required"
    if default is None:
        return "not set"
    if isinstance(default, BaseModel):
        name = getattr(default, "name", None)
        return "not set" if name is None else f"`{name}`"
    if isinstance(default, enum.Enum):
        default = default.value
    if isinstance(default, float) and len(repr(default)) > _LONGEST:
        return f"`{Fraction(default).limit_denominator(100)}`"
    return f"`{json.dumps(default)}`"


def _type_name(hint: Any) -> str:  # a return for each kind of type
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_of(inside[0], _limits(inside[1:]))
    if origin is Literal:
        return _either(inside)
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, map(_type_name, inside)))
    if origin is tuple:
        inner = _type_name(inside[0])
        if inside[-1] is not ...:
            return f"pair of {inner}s"
        first, _, rest = inner.partition(" ")
        return f"list of {first}{'' if first.startswith('`') else 's'} {rest}".rstrip()
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _either([each.value for each in hint])
    return WORDS.get(origin or hint, "table")


def _either(values: Sequence[Any]) -> str:
    *first, last = (f"`{json.dumps(each)}`" for each in values)
    return f"{', '.join(first)} or {last}" if first else last


def _number(value: float) -> str:
    power = math.log2(value) if value > 2**20 else 0.5
    return f"2^{power:.0f}" if power == int(power) else f"{value:g}"


def _hints(kind: type) -> dict[str, Any]:
    """Return the types of fields alone: those of class variables may be for type checkers only."""
    found = {}
    for each in reversed(kind.__mro__):
        names = sys.modules[each.__module__].__dict__
        for key, hint in inspect.get_annotations(each).items():
            if not str(hint).startswith(("ClassVar", "typing.ClassVar")):
                found[key] = eval(hint, names) if isinstance(hint, str) else hint  # noqa: S307
    return found


def _limits(metadata: Any) -> str:
    found = []
    for each in metadata:
        for part in getattr(each, "metadata", [each]):
            found += [
                f"{words} {_number(getattr(part, name))}"
                for name, words in LIMITS.items()
                if getattr(part, name, None) is not None
            ]
    return " and ".join(found)


def _strings_under_fields(kind: type) -> dict[str, str]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found
