"""Canonical encoding of plain data: each value has exactly one encoding. Decoding never runs code.

Plain data are None, bool, int, float, str, bytes, list, dict with string keys, and numpy arrays of
the types in `ARRAY_TYPES`. All states, messages and signed statements are plain data. A value is
encoded as a tag byte followed by the content in the table. Lengths are unsigned 64-bit
little-endian. Equal data have equal encodings, and so equal digests. Therefore a signature of the
digest is a signature of the data.

====  ==========  =======================================================================
tag   type        content
====  ==========  =======================================================================
N     None        nothing
T F   bool        nothing
I     int         length, then two's complement, little-endian, in the shortest form
D     float       8 bytes IEEE 754, little-endian
S     str         length, then UTF-8
B     bytes       length, then the bytes
L     list        number of items, then the items
M     dict        number of pairs, then key (as S) and value, keys strictly ascending
A     ndarray     type letter, number of axes (1 byte), the axes, then the elements (C order)
====  ==========  =======================================================================

Decoding raises `PeerError` for everything else: an unknown tag, an unsorted key, a padded integer,
a length past the end, a trailing byte, nesting beyond 32 levels, or, if the caller sets a limit,
too many items or too long an integer. No input raises another error.
Decoded arrays are read-only. Float arrays are aligned in memory.
"""

from __future__ import annotations

import hashlib
import math
import struct
from functools import lru_cache
from typing import Any, Final

import numpy as np

from secagg.errors import InternalError, PeerError

ARRAY_TYPES: Final = {"w": "<u4", "u": "<u8", "i": "<i8", "d": "<f8", "b": "|u1"}
_LETTER_OF: Final = {np.dtype(name): letter for letter, name in ARRAY_TYPES.items()}
_MAX_DEPTH: Final = 32
_MAX_AXES: Final = 8
_MAX_ELEMENTS: Final = 1 << 40
_LARGE_BYTES: Final = 1 << 12  # bytes
_CACHED_CHARACTERS: Final = 64  # characters
INTEGER_BYTES: Final = 9
"""Bytes of an integer in a message: 64 bits and a sign."""
LONG_INTEGER_BYTES: Final = 1 << 12
"""Bytes of an integer in a message about keys; the longest key has 8192 bits, and its square twice
as many."""
_LENGTH: Final = struct.Struct("<Q")
_FLOAT: Final = struct.Struct("<d")


class Pieces:
    """The encoding of a value, as a list of parts that are joined later.

    Large arrays are views, so that they are copied only once, when the parts are joined. Until
    then the arrays must not change. `dumps` encodes a `Pieces` object as it would encode the joined
    bytes.
    """

    def __init__(self, value: Any) -> None:
        self.parts: list[bytes | bytearray | memoryview] = []
        self._small = bytearray()  # the bytes since the last large part
        self._write(value, 0)
        self.parts.append(self._small)
        self._digest = b""

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def digest(self) -> bytes:
        """Return SHA-256 of the bytes."""
        if not self._digest:
            hasher = hashlib.sha256()
            for part in self.parts:
                hasher.update(part)
            self._digest = hasher.digest()
        return self._digest

    def _write(self, value: Any, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise InternalError("wire", f"the data is nested deeper than {_MAX_DEPTH} levels")
        small = self._small
        match value:  # the most frequent types first; bool before int, since a bool is an int
            case str():
                small += _text(value)
            case bytes():
                small += b"B" + _length(len(value))
                self._append(value)
            case None:
                small += b"N"
            case bool():
                small += b"T" if value else b"F"
            case int():
                size = _integer_size(value)
                small += b"I" + _length(size) + value.to_bytes(size, "little", signed=True)
            case dict():
                self._write_mapping(value, depth)
            case list() | tuple():
                self._write_list(value, depth)
            case np.ndarray():
                self._write_array(value)
            case float():
                small += b"D" + _FLOAT.pack(value)
            case Pieces():
                self._write_pieces(value)
            case _:
                raise InternalError("wire", f"cannot encode a value of type {type(value).__name__}")

    def _write_list(self, items: list[Any] | tuple[Any, ...], depth: int) -> None:
        self._small += b"L" + _length(len(items))
        for item in items:
            self._write(item, depth + 1)

    def _write_mapping(self, mapping: dict[Any, Any], depth: int) -> None:
        self._small += b"M" + _length(len(mapping))
        for key in sorted(mapping, key=str):
            self._small += _text(key)
            self._write(mapping[key], depth + 1)

    def _write_pieces(self, pieces: Pieces) -> None:
        self._small += b"B" + _length(len(pieces))
        for part in pieces.parts:
            self._append(part)

    def _write_array(self, array: np.ndarray[Any, Any]) -> None:
        letter = _LETTER_OF.get(array.dtype.newbyteorder("<"))
        if letter is None or array.ndim > _MAX_AXES or _too_large(array.shape):
            raise InternalError("wire", f"cannot encode an array {array.shape} of {array.dtype}")
        array = np.asarray(array, dtype=ARRAY_TYPES[letter], order="C")
        self._small += b"A" + letter.encode() + bytes([array.ndim])
        for axis in array.shape:
            self._small += _length(axis)
        self._append(array.reshape(-1).view(np.uint8).data)

    def _append(self, part: bytes | bytearray | memoryview) -> None:
        """Copy a small part; keep a large one as a separate part."""
        if len(part) < _LARGE_BYTES:
            self._small += part
            return
        self.parts += (self._small, part)
        self._small = bytearray()


def dumps(value: Any) -> bytes:
    """Return the canonical bytes of `value`. Raises `InternalError` if it cannot be encoded."""
    return b"".join(Pieces(value).parts)


def split(data: bytes | memoryview, what: str) -> list[memoryview]:
    """Return the items of an encoded list of bytes, as views. (`loads` would copy the items.)

    what: the name of such a list, for the text of the error
    Raises `PeerError` if `data` does not encode a list of bytes.
    """
    reader = _Reader(memoryview(data))
    if reader.tag() != _LIST:
        raise _malformed(f"not {what}")
    items: list[memoryview] = []
    for _ in range(reader.count()):
        if reader.tag() != _BYTES:
            raise _malformed(f"not {what}")
        items.append(reader.counted())
    reader.end()
    return items


def loads(
    data: bytes | memoryview, items: int | None = None, integer_bytes: int = INTEGER_BYTES
) -> Any:
    """Return the value that `data` encodes. Arrays are read-only.

    items: for data from another party, the largest number of items of all lists and dicts together.
        It is checked before they are decoded, because each item takes far more memory and time
        than its bytes. An array is one item
    integer_bytes: for such data, the largest size of an integer
    Raises `PeerError` if `data` is not a canonical encoding, or exceeds a limit.
    """
    reader = _Reader(memoryview(data), items, integer_bytes)
    value = reader.value(0)
    reader.end()
    return value


def digest(value: Any) -> bytes:
    """Return SHA-256 of the canonical bytes of `value`."""
    return Pieces(value).digest()


def _length(n: int) -> bytes:
    return n.to_bytes(8, "little")


def _text(text: object) -> bytes:
    if not isinstance(text, str):
        raise InternalError("wire", f"{text!r} is not Unicode text")
    return _short_text(text) if len(text) <= _CACHED_CHARACTERS else _encoded(text)


def _encoded(text: str) -> bytes:
    try:
        body = text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise InternalError("wire", f"{text!r} is not Unicode text") from None
    return b"S" + _length(len(body)) + body


_short_text = lru_cache(maxsize=1 << 10)(_encoded)  # the same party and field names recur


def _too_large(shape: tuple[int, ...]) -> bool:
    # An axis of 0 counts as 1: numpy rejects even an empty array if its other axes are too long.
    return math.prod(axis or 1 for axis in shape) > _MAX_ELEMENTS


def _integer_size(value: int) -> int:
    magnitude = value if value >= 0 else ~value
    return magnitude.bit_length() // 8 + 1


def _malformed(what: str) -> PeerError:
    return PeerError("wire", f"malformed message: {what}")


_TEXT, _BYTES, _LIST, _MAP, _INTEGER, _ARRAY, _DOUBLE = b"SBLMIAD"
_CONSTANTS: Final = dict(zip(b"NTF", (None, True, False), strict=True))


class _Reader:
    def __init__(self, data: memoryview, items: int | None = None, integer_bytes: int = 0) -> None:
        self.data = data
        self.at = 0
        self.items = len(data) if items is None else items  # an item takes at least one byte
        self.integer_bytes = len(data) if items is None else integer_bytes

    def take(self, n: int) -> memoryview:
        part = self.data[self.at : self.at + n]
        if len(part) < n:  # slicing does not raise at the end of the data
            raise _malformed("it ends too early")
        self.at += n
        return part

    def end(self) -> None:
        if self.at != len(self.data):
            raise _malformed("extra bytes follow the value")

    def tag(self) -> int:
        if self.at >= len(self.data):
            raise _malformed("it ends too early")
        tag = self.data[self.at]
        self.at += 1
        return tag

    def length(self) -> int:
        try:
            n: int = _LENGTH.unpack_from(self.data, self.at)[0]
        except struct.error:
            raise _malformed("it ends too early") from None
        self.at += 8
        return n

    def counted(self) -> memoryview:
        """Return a length-prefixed block of bytes."""
        length = self.length()
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):  # slicing does not raise at the end of the data
            raise _malformed("it ends too early")
        return self.data[start : self.at]

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _malformed(f"it is nested deeper than {_MAX_DEPTH} levels")
        tag = self.tag()  # the most frequent types first
        if tag == _TEXT:
            return self.text()
        if tag == _BYTES:
            return bytes(self.counted())
        if tag == _INTEGER:
            return self.integer()
        if tag == _LIST:
            return [self.value(depth + 1) for _ in range(self.count())]
        if tag == _MAP:
            return self.mapping(depth)
        if tag == _ARRAY:
            return self.array()
        if tag == _DOUBLE:
            return float(_FLOAT.unpack(self.take(8))[0])
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        raise _malformed(f"unknown tag {bytes([tag])!r}")

    def count(self) -> int:
        n = self.length()
        if n > len(self.data) - self.at:  # every item takes at least one byte
            raise _malformed("it ends too early")
        self.items -= n
        if self.items < 0:
            raise _malformed("it has more items than any honest message of this run")
        return n

    def integer(self) -> int:
        body = self.counted()
        if len(body) > self.integer_bytes:
            raise _malformed("an integer is too long")
        value = int.from_bytes(body, "little", signed=True)
        if len(body) != _integer_size(value):
            raise _malformed("an integer is not in its shortest form")
        return value

    def text(self) -> str:
        try:
            return str(self.counted(), "utf-8")
        except UnicodeDecodeError:
            raise _malformed("text is not UTF-8") from None

    def mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        last: str | None = None
        for _ in range(self.count()):
            if self.tag() != _TEXT:
                raise _malformed("a key is not text")
            key = self.text()
            if last is not None and key <= last:
                raise _malformed("keys are repeated or out of order")
            last = key
            result[key] = self.value(depth + 1)
        return result

    def array(self) -> np.ndarray[Any, Any]:
        letter = chr(self.tag())
        if letter not in ARRAY_TYPES:
            raise _malformed("unknown array type")
        axes = self.tag()
        if axes > _MAX_AXES:
            raise _malformed("an array has too many axes")
        shape = tuple(self.length() for _ in range(axes))
        dtype = np.dtype(ARRAY_TYPES[letter])
        if _too_large(shape):
            raise _malformed("an array is too large")
        body = self.take(math.prod(shape) * dtype.itemsize)
        flat = np.frombuffer(body, dtype=dtype)
        if dtype.kind == "f" and not flat.flags.aligned:
            # Products of unaligned floats can differ in their last bits, so results could depend on
            # the position of an array in a message. Integers do not have this problem.
            flat = flat.copy()
            flat.flags.writeable = False
        return flat.reshape(shape)
