"""Which names of persons are equal: ids that a table, a spreadsheet or Python writes differently.

One patient must not count as two, and two patients must not count as one. So only those differences
are dropped that a change of format makes, and that a registry cannot use to tell patients apart.

==========================================  ========================================================
cells                                       persons
==========================================  ========================================================
7, 007, 7.0, +7, " 7 ", as text or number   one: a number is compared by its value
7.5, 07.50                                  one, for the same reason
digits of other scripts                     as the digits 0 to 9 (Unicode's decimal digits)
one text, composed or decomposed (NFC)      one: é may be one character, or e with an accent
A7, " A7 ", A7 with an invisible character  one: spaces at the ends and invisible characters are cut
"A 7", "A  7"                               one: several spaces count as one
A7, a7                                      two: some registries' ids differ in case only
A7, A07; 7a, 07a                            two: only whole numbers have zeros that mean nothing
7-1, 7/1; 1e5, 100000                       two: a text that only looks like a number is a code
empty, NA, NaN, None, null, ?               nobody: the record is incomplete
==========================================  ========================================================

Not protected: a patient with two ids, or two patients with one. Ids of more than 15 digits that a
spreadsheet or a data frame made a decimal number have lost digits before they get here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from secagg.jobs.cells import MISSING, cell_text

NOBODY = -1
"""The number of a row that names no person."""

_NUMBER = re.compile(r"([+-]?)0*([0-9]+)(?:\.([0-9]*?)0*)?")


def person_id(cell: object) -> str:
    """Return the person that a cell names, as text that is equal for equal persons; "" if nobody.

    The module's text has the rules.
    """
    text = unicodedata.normalize("NFC", cell_text(cell))
    text = "".join(_plain(character) for character in text)
    text = " ".join(text.split())
    if text.lower() in MISSING:
        return ""
    number = _NUMBER.fullmatch(text)
    if number is None:
        return text
    sign, whole, decimals = number.groups()
    value = f"{whole}.{decimals}" if decimals else whole
    return f"-{value}" if sign == "-" and value != "0" else value


def person_numbers(cells: Iterable[object]) -> NDArray[np.int64]:
    """Return a number for each row: equal for one person, in the order in which they come.

    `NOBODY` for a row that names no person
    """
    known: dict[str, int] = {"": NOBODY}
    ids = map(person_id, cells)
    return np.array([known.setdefault(each, len(known) - 1) for each in ids], dtype=np.int64)


def persons_of(persons: NDArray[np.int64], rows: NDArray[np.bool_]) -> int:
    """Return how many persons these rows name; rows that name nobody count as one person."""
    return len(np.unique(persons[rows]))


def _plain(character: str) -> str:
    """Return a decimal digit as one of 0 to 9, and an invisible character as nothing."""
    if unicodedata.category(character) == "Cf":
        return ""
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)
