"""Texts of others, made harmless: for a terminal, for a log, and for a check before either.

A job's title, a site's or a column's name, a path or an error's text may come from another party.
A terminal obeys control characters in it: an escape sequence can move the cursor, rewrite the line
above, or set a link; a carriage return overwrites the line; a direction mark reorders it; a
zero-width or filler character hides that two names differ.

Sources: ECMA-48 (control functions), Unicode Technical Report 36 (security considerations),
Unicode's property Default_Ignorable_Code_Point.

==================================================  ==============================
character                                           shown as
==================================================  ==============================
ESC, CR, LF, BS, DEL and other controls (Cc)        its escape, such as `\\x1b`
C1 controls 0x80 to 0x9f                            its escape
direction marks, zero-width and other format (Cf)   its escape
line and paragraph separators, spaces but ` `       its escape
fillers and variation selectors, which are empty    its escape
surrogates, private and unassigned code points      its escape
all else                                            as it is
==================================================  ==============================

Not protected: letters of two alphabets that look alike, and accents stacked on a letter.
"""

from __future__ import annotations

import json
import re
from typing import Any

_EMPTY = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Code points that Python calls printable and that show nothing."""


def printable(text: str) -> str:
    """Return a text as one line that a terminal only shows."""
    if is_printable(text):
        return text
    return "".join(c if is_printable(c) else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return a text whose further lines are indented, for a log in which others begin a line."""
    return "\n  ".join(map(printable, text.splitlines()))


def printable_json(value: Any, indent: int | None = None) -> str:
    """Return plain data as JSON that reads back as the same, in which all texts are printable."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # outside of texts, which have no raw line feed, JSON has only printable characters
    lines = text.split("\n")
    return "\n".join(
        line if is_printable(line) else "".join(map(_json_character, line)) for line in lines
    )


def is_printable(value: Any) -> bool:
    """Whether all texts in plain data are printable: none can move the cursor or hide others."""
    match value:
        case str():
            return value.isprintable() and _EMPTY.search(value) is None
        case dict():
            return all(map(is_printable, (*value, *value.values())))
        case list() | tuple():
            return all(map(is_printable, value))
    return True


def _json_character(character: str) -> str:
    return character if is_printable(character) else json.dumps(character)[1:-1]
