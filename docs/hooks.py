"""Fill the pages of the site with what the code already says.

Each mark stands alone on a line of a page and is replaced when the site is built:

    <!-- keys: MODULE:CLASS -->  the table of a class's settings: names, types and defaults from
                                 its fields, meanings from the string under each field
    <!-- sums: MODULE:CLASS -->  what a method says of its sums
    <!-- pages: FOLDER -->       the list of a folder's pages

Formulas become MathML, which every browser shows without a script.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import json
import math
import re
import sys
import textwrap
import types
import typing
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any, Literal, Union

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

TILDE = ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # "is distributed as" is an operator
DOCS = Path(__file__).parent
MARK = re.compile(r"^<!-- keys: ([\w.]+):(\w+) -->$", re.M)
SUMS = re.compile(r"^<!-- sums: ([\w.]+):(\w+) -->$", re.M)
LIST = re.compile(r"^<!-- pages: (\w+) -->$", re.M)
REQUIRED = {"outcome": "y", "predictors": ("x",), "family": "binomial"}
"""Any values of settings without a default: what sums tell does not depend on them."""
WORDS = {
    int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path",
    dict: "table", type(None): "",
}  # fmt: skip
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark by its table (called by mkdocs for every page)."""
    markdown = LIST.sub(lambda found: page_list(found[1]), markdown)
    markdown = SUMS.sub(lambda found: what_sums_tell(found[1], found[2]), markdown)
    return MARK.sub(lambda found: key_table(found[1], found[2]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML (called by mkdocs for every page)."""
    from latex2mathml.converter import convert  # noqa: PLC0415  # the tests of tables lack it

    def inline(found: re.Match[str]) -> str:
        return convert(unescape(found[1])).replace(*TILDE)

    def block(found: re.Match[str]) -> str:
        return convert(unescape(found[1]), display="block").replace(*TILDE)

    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', inline, html, flags=re.S)
    return re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', block, html, flags=re.S)


def page_list(folder: str) -> str:
    """Return a list of the pages of a folder, by their titles."""
    lines = []
    for page in sorted((DOCS / folder).glob("*.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        if page.name != "index.md":
            lines.append(f"- [{title}]({page.name})")
    return "\n".join(lines)


def what_sums_tell(module: str, name: str) -> str:
    """Return what plan and report say of a method's sums, with its default settings."""
    kind = getattr(importlib.import_module(module), name)
    required = {key: REQUIRED[key] for key, field in fields(kind).items() if field[1] is ...}
    says = kind(**required).disclosure
    parts = {
        "All sums together determine": says.text,
        "What a dishonest coordinator can learn": says.if_malicious,
        "What a dishonest coordinator can learn if all sums have noise": says.if_malicious_noised,
        "What this run and other runs on the same records reveal together": says.other_runs,
    }
    questions = [part.replace("? ", "?** ", 1) for part in says.if_honest]
    texts = [f"**{head}:** {text}" for head, text in parts.items() if text]
    return "\n\n".join([*texts, *(f"**{question}" for question in questions)])


def key_table(module: str, name: str) -> str:
    """Return the settings of a model or dataclass as a Markdown table, required ones first."""
    kind = getattr(importlib.import_module(module), name)
    meaning = meanings(kind)
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    own = inspect.get_annotations(kind)
    order = sorted(
        fields(kind).items(), key=lambda each: (each[1][1] is not ..., each[0] not in own)
    )
    for key, (hint, default, limits) in order:
        cells = (f"`{key}`", type_of(hint, limits), written(default), meaning[key])
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def fields(kind: type) -> dict[str, tuple[Any, Any, str]]:
    """Return for each setting its type, its default (`...` where required) and its limits."""
    hints = _hints(kind)
    if issubclass(kind, BaseModel):
        return {
            key: (
                hints[key],
                ... if info.default is PydanticUndefined else info.default,
                _limits(info.metadata),
            )
            for key, info in kind.model_fields.items()
        }
    missing = dataclasses.MISSING
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
    """Return a default as a job file would have it."""
    if default is ...:
        return "required"
    if default is None:
        return "not set"
    if isinstance(default, BaseModel):
        return f"`{default.name}`" if hasattr(default, "name") else "not set"
    if isinstance(default, enum.Enum):
        default = default.value
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
