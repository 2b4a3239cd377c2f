"""Canonical bytes for plain data: one value has exactly one encoding, and decoding never runs code.

State, messages and signed statements are made of None, bool, int, float, str, bytes, list, dict
with string keys, and numpy arrays of a few types. Each value is a tag byte followed by what the
table says; lengths are unsigned 64-bit little-endian. Because the encoding is canonical, equal
data have equal digests, and a digest can be signed.

====  ==========  =======================================================================
tag   type        content
====  ==========  =======================================================================
N     None        nothing
T F   bool        nothing
I     int         length, then two's complement, little-endian, as short as it can be
D     float       8 bytes IEEE 754, little-endian
S     str         length, then UTF-8
B     bytes       length, then the bytes
L     list        number of items, then the items
M     dict        number of pairs, then key (as S) and value, keys strictly ascending
A     ndarray     type letter, number of axes (1 byte), the axes, then the elements (C order)
====  ==========  =======================================================================

Decoding accepts nothing else: an unknown tag, an unsorted key, a padded integer, a length past the
end, a trailing byte or too deep a nesting raises `PeerError`, whatever the input. Decoded arrays
are read-only, and those of floats are aligned.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from secagg.errors import InternalError, PeerError

ARRAY_TYPES: Final = {"w": "<u4", "u": "<u8", "i": "<i8", "d": "<f8", "b": "|u1"}
_LETTER_OF: Final = {np.dtype(name): letter for letter, name in ARRAY_TYPES.items()}
_MAX_DEPTH: Final = 32
_MAX_AXES: Final = 8
_MAX_ELEMENTS: Final = 1 << 40


class Pieces:
    """Canonical bytes not joined yet: large arrays are views, so they are copied once, at the end.

    `dumps` takes it for the bytes that it stands for. The arrays must not change meanwhile.
    """

    def __init__(self, value: Any) -> None:
        self.parts: list[bytes | memoryview] = []
        _write(value, self.parts, 0)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def digest(self) -> bytes:
        """Return SHA-256 of the bytes."""
        hasher = hashlib.sha256()
        for part in self.parts:
            hasher.update(part)
        return hasher.digest()


def dumps(value: Any) -> bytes:
    """Return the canonical bytes of `value`; what `loads` would not accept is our own bug."""
    return b"".join(Pieces(value).parts)


def split(data: bytes | memoryview, what: str) -> list[memoryview]:
    """Return the items of an encoded list of bytes: views, where `loads` makes copies.

    what: the name of such a list, for the `PeerError` raised where it is none
    """
    reader = _Reader(memoryview(data))
    if reader.tag() != b"L":
        raise _malformed(f"not {what}")
    items: list[memoryview] = []
    for _ in range(reader.count()):
        if reader.tag() != b"B":
            raise _malformed(f"not {what}")
        items.append(reader.take(reader.length()))
    reader.end()
    return items


def loads(data: bytes | memoryview) -> Any:
    """Return the value that `data` encodes. Arrays are read-only views. Raises `PeerError`."""
    reader = _Reader(memoryview(data))
    value = reader.value(0)
    reader.end()
    return value


def digest(value: Any) -> bytes:
    """Return SHA-256 of the canonical bytes of `value`."""
    return Pieces(value).digest()


def _length(n: int) -> bytes:
    return n.to_bytes(8, "little")


def _write(value: Any, parts: list[bytes | memoryview], depth: int) -> None:
    match value:
        case None:
            parts.append(b"N")
        case bool():
            parts.append(b"T" if value else b"F")
        case int():
            body = value.to_bytes(_integer_size(value), "little", signed=True)
            parts += [b"I", _length(len(body)), body]
        case float():
            parts += [b"D", struct.pack("<d", value)]
        case str():
            _write_text(value, parts)
        case bytes():
            parts += [b"B", _length(len(value)), value]
        case Pieces():
            parts += [b"B", _length(len(value)), *value.parts]
        case list() | tuple():
            parts += [b"L", _length(len(value))]
            _write_items(value, parts, depth)
        case dict():
            parts += [b"M", _length(len(value))]
            for key in sorted(value, key=str):
                _write_text(key, parts)
                _write_items([value[key]], parts, depth)
        case np.ndarray():
            _write_array(value, parts)
        case _:
            raise InternalError("wire", f"a {type(value).__name__} is not plain data")


def _write_items(items: Iterable[Any], parts: list[bytes | memoryview], depth: int) -> None:
    for item in items:
        if depth == _MAX_DEPTH:
            raise InternalError("wire", "data is nested too deeply")
        _write(item, parts, depth + 1)


def _write_text(text: object, parts: list[bytes | memoryview]) -> None:
    try:
        body = text.encode() if isinstance(text, str) else None
    except UnicodeEncodeError:  # half of a surrogate pair
        body = None
    if body is None:
        raise InternalError("wire", f"{text!r} is not Unicode text")
    parts += [b"S", _length(len(body)), body]


def _write_array(array: np.ndarray[Any, Any], parts: list[bytes | memoryview]) -> None:
    letter = _LETTER_OF.get(array.dtype.newbyteorder("<"))
    if letter is None or array.ndim > _MAX_AXES or _too_large(array.shape):
        raise InternalError("wire", f"arrays {array.shape} of {array.dtype} are not carried")
    array = np.asarray(array, dtype=ARRAY_TYPES[letter], order="C")
    parts += [b"A", letter.encode(), bytes([array.ndim])]
    parts += [_length(axis) for axis in array.shape]
    parts.append(array.reshape(-1).view(np.uint8).data)


def _too_large(shape: tuple[int, ...]) -> bool:
    # An axis of 0 counts as 1: numpy cannot even hold an empty array whose other axes are too long.
    return math.prod(axis or 1 for axis in shape) > _MAX_ELEMENTS


def _integer_size(value: int) -> int:
    magnitude = value if value >= 0 else ~value
    return magnitude.bit_length() // 8 + 1


def _malformed(what: str) -> PeerError:
    return PeerError("wire", f"malformed message: {what}")


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, n: int) -> memoryview:
        if n > len(self.data) - self.at:
            raise _malformed("it ends too early")
        part = self.data[self.at : self.at + n]
        self.at += n
        return part

    def end(self) -> None:
        if self.at != len(self.data):
            raise _malformed("bytes are left over after the value")

    def tag(self) -> bytes:
        return bytes(self.take(1))

    def length(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _malformed("it is nested too deeply")
        match self.tag():
            case b"N":
                return None
            case b"T":
                return True
            case b"F":
                return False
            case b"I":
                return self.integer()
            case b"D":
                return float(struct.unpack("<d", self.take(8))[0])
            case b"S":
                return self.text()
            case b"B":
                return bytes(self.take(self.length()))
            case b"L":
                return [self.value(depth + 1) for _ in range(self.count())]
            case b"M":
                return self.mapping(depth)
            case b"A":
                return self.array()
            case tag:
                raise _malformed(f"unknown tag {tag!r}")

    def count(self) -> int:
        n = self.length()
        if n > len(self.data) - self.at:  # every item takes a byte or more
            raise _malformed("it ends too early")
        return n

    def integer(self) -> int:
        body = bytes(self.take(self.length()))
        value = int.from_bytes(body, "little", signed=True)
        if len(body) != _integer_size(value):
            raise _malformed("an integer is not in its shortest form")
        return value

    def text(self) -> str:
        try:
            return str(self.take(self.length()), "utf-8")
        except UnicodeDecodeError:
            raise _malformed("text is not UTF-8") from None

    def mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        last: str | None = None
        for _ in range(self.count()):
            if self.tag() != b"S":
                raise _malformed("a key is not text")
            key = self.text()
            if last is not None and key <= last:
                raise _malformed("keys are repeated or out of order")
            last = key
            result[key] = self.value(depth + 1)
        return result

    def array(self) -> np.ndarray[Any, Any]:
        letter = chr(self.take(1)[0])
        if letter not in ARRAY_TYPES:
            raise _malformed("unknown array type")
        axes = self.take(1)[0]
        if axes > _MAX_AXES:
            raise _malformed("an array has too many axes")
        shape = tuple(self.length() for _ in range(axes))
        dtype = np.dtype(ARRAY_TYPES[letter])
        if _too_large(shape):
            raise _malformed("an array is too large")
        body = self.take(math.prod(shape) * dtype.itemsize)
        flat = np.frombuffer(body, dtype=dtype)
        if dtype.kind == "f" and not flat.flags.aligned:
            # Products of unaligned floats can differ in their last bits: what precedes an array in
            # a message must not change what is computed from it. Integers are exact.
            flat = flat.copy()
            flat.flags.writeable = False
        return flat.reshape(shape)
