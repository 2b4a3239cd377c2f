"""Canonical bytes: round trip, one encoding per value, and only `PeerError` for bad input."""

import contextlib
import hashlib
import math
import struct
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from secagg.core import canonical_encoding
from secagg.errors import InternalError, PeerError

MANY = settings(deadline=None)  # as many as the profile says


def arrays() -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=2)
    kinds = st.sampled_from(["<u4", "<u8", "<i8", "<f8", "|u1", ">u4", ">u8", ">i8", ">f8"])
    return kinds.flatmap(lambda kind: hnp.arrays(kind, shapes))


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=20)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | arrays()
)  # fmt: skip
plain = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        expected = a.astype(a.dtype.newbyteorder("<"))
        return (
            isinstance(b, np.ndarray)
            and (expected.dtype, a.shape) == (b.dtype, b.shape)
            and expected.tobytes() == b.tobytes()
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


@MANY
@given(plain)
def test_plain_data_survives_a_round_trip(value: Any) -> None:
    data = canonical_encoding.dumps(value)
    again = canonical_encoding.loads(data)
    assert same(value, again)
    assert canonical_encoding.dumps(again) == data


def check_canonical(data: bytes) -> None:
    """Accepted bytes are the one encoding of their value; all others raise `PeerError`."""
    try:
        value = canonical_encoding.loads(data)
    except PeerError:
        return
    assert canonical_encoding.dumps(value) == data


n8 = canonical_encoding._length
tags = st.lists(
    st.sampled_from([b"N", b"T", b"F", b"I", b"D", b"S", b"B", b"L", b"M", b"A", b"w", b"u", b"d",
                     b"\0", *(n8(n) for n in (0, 1, 2, 3, 255, 2**20, 2**63, 2**64 - 1)),
                     *(bytes([n]) for n in (0, 1, 2, 8, 9, 127, 128, 255))]),
    max_size=30,
)  # fmt: skip


@pytest.mark.fuzz
@MANY
@given(st.binary(max_size=200) | tags.map(b"".join))
def test_arbitrary_bytes_decode_or_raise_a_typed_error(data: bytes) -> None:
    check_canonical(data)


@pytest.mark.fuzz
@MANY
@given(plain, st.data())
def test_changed_bytes_decode_or_raise_a_typed_error(value: Any, data: st.DataObject) -> None:
    good = canonical_encoding.dumps(value)
    at = data.draw(st.integers(0, len(good) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    check_canonical(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
    check_canonical(good[:at] + good[at + 1 :])
    check_canonical(good[:at] + good[at : at + 1] + good[at:])
    with pytest.raises(PeerError):
        canonical_encoding.loads(good[:at])
    with pytest.raises(PeerError):
        canonical_encoding.loads(good + b"N")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"X", b"NN",
        b"I" + n8(0), b"I" + n8(2) + b"\x01\x00", b"I" + n8(2) + b"\xff\xff",  # not shortest
        b"S" + n8(1) + b"\xff",
        b"S" + n8(3) + b"\xed\xa0\x80",  # half a surrogate pair
        b"S" + n8(2) + b"\xc0\x80",  # an overlong zero
        b"M" + n8(1) + b"NN",  # a key is not text
        b"M" + n8(2) + (b"S" + n8(1) + b"a" + b"N") * 2,  # repeated keys
        b"M" + n8(2) + b"S" + n8(1) + b"bN" + b"S" + n8(1) + b"aN",  # keys out of order
        b"Ax\x00", b"Ad\x09" + n8(0) * 9, b"Ad\x01" + n8(1) + bytes(7), b"D" + bytes(7),
    ],
)  # fmt: skip
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        canonical_encoding.loads(data)


# --- depth and size ------------------------------------------------------------------------------


def nested(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_is_limited_in_depth(kind: type) -> None:
    deepest = nested(32, kind)
    assert canonical_encoding.loads(canonical_encoding.dumps(deepest)) == deepest
    with pytest.raises(InternalError):
        canonical_encoding.dumps(nested(33, kind))
    inner = b"L" + n8(1) if kind is list else b"M" + n8(1) + b"S" + n8(1) + b"k"
    canonical_encoding.loads(inner * 32 + b"N")
    for depth in (33, 100_000):
        with pytest.raises(PeerError):
            canonical_encoding.loads(inner * depth + b"N")


@pytest.mark.parametrize("length", [2**20, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize(
    "head", [b"I", b"S", b"B", b"L", b"M", b"Au\x01", b"Ad\x02" + n8(1), b"Ab\x01"]
)
def test_false_huge_lengths_allocate_no_memory(head: bytes, length: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PeerError):
            canonical_encoding.loads(head + n8(length) + b"N" * 1000)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("zero_at", [0, 3, 7])
@pytest.mark.parametrize("long", [1, 1000, 2**20, 2**40, 2**63, 2**64 - 1])
def test_empty_arrays_with_long_axes_decode_or_raise_a_typed_error(zero_at: int, long: int) -> None:
    """No byte follows such a header, but numpy does not support every shape that it describes."""
    axes = [long] * 8
    axes[zero_at] = 0
    array = b"Ad\x08" + b"".join(map(n8, axes))
    for data in (array, array + b"N" * 3000, b"L" + n8(2) + array + b"B" + n8(3000) + bytes(3000)):
        check_canonical(data)


# --- numbers, text, arrays -----------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF])
def test_every_nan_keeps_its_bits(pattern: int) -> None:
    data = b"D" + pattern.to_bytes(8, "little")
    assert math.isnan(canonical_encoding.loads(data))
    assert canonical_encoding.dumps(canonical_encoding.loads(data)) == data


def test_only_float64_numpy_scalars_are_encoded() -> None:
    assert canonical_encoding.dumps(np.float64(0.1)) == canonical_encoding.dumps(0.1)
    for scalar in (np.int64(1), np.uint8(1), np.float32(1), np.bool_(True)):
        with pytest.raises(InternalError):
            canonical_encoding.dumps(scalar)


@pytest.mark.parametrize("kind", ["u4", "u8", "i8", "f8"])
def test_byte_order_does_not_change_the_encoding(kind: str) -> None:
    big = np.arange(6, dtype=f">{kind}").reshape(2, 3)
    assert canonical_encoding.dumps(big) == canonical_encoding.dumps(big.astype(f"<{kind}"))
    assert canonical_encoding.dumps(big.T) == canonical_encoding.dumps(np.ascontiguousarray(big.T))
    assert canonical_encoding.dumps(big[:, ::2]) == canonical_encoding.dumps(big[:, ::2].copy())


def test_decoded_arrays_are_read_only() -> None:
    again = canonical_encoding.loads(canonical_encoding.dumps(np.ones(3)))
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 2


class Odd:
    """No plain data."""


@pytest.mark.parametrize(
    "value",
    [{1: 2}, {1: 2, "a": 3}, {None: 1}, "\ud800", {"\udfff": 1}, 1j, {1, 2}, bytearray(b"x"),
     Odd(), np.ones(1, np.float32), np.ones(1, bool), np.array([object()]), np.ones((1,) * 9),
     np.array(["a"]), np.zeros((0, 2**41)), np.datetime64("2020-01-01"), object],
)  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
def test_values_that_are_not_plain_data_are_refused(value: Any, inside: bool) -> None:
    """`dumps` returns no encoding that `loads` rejects or reads as another value."""
    with pytest.raises(InternalError):
        canonical_encoding.dumps([value] if inside else value)


@settings(deadline=None)
@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), max_size=9)
)
@example({"é": 1, "z": 2, "\U0001f600": 3, "￿": 4, "": 5})
def test_key_order_does_not_change_the_encoding(value: dict[str, int]) -> None:
    reversed_ = dict(reversed(value.items()))
    assert canonical_encoding.dumps(value) == canonical_encoding.dumps(reversed_)
    assert canonical_encoding.digest(value) == canonical_encoding.digest(reversed_)
    assert len(canonical_encoding.digest(value)) == 32


def test_encoded_bytes_have_the_documented_format() -> None:
    """Fixed bytes: other versions and implementations must read these."""
    value = {"b": [None, True, False, -2, 0.5, "é", b"\x00"], "a": np.array([[1, 2]], np.uint64)}
    assert canonical_encoding.dumps(value) == bytes.fromhex(
        "4d0200000000000000"
        "530100000000000000" "61" "417502" "0100000000000000" "0200000000000000"
        "0100000000000000" "0200000000000000"
        "530100000000000000" "62" "4c0700000000000000" "4e" "54" "46"
        "490100000000000000" "fe" "44" "000000000000e03f"
        "530200000000000000" "c3a9" "420100000000000000" "00"
    )  # fmt: skip
    assert canonical_encoding.dumps(np.array([2**32 - 2], np.uint32)) == bytes.fromhex(
        "417701" "0100000000000000" "feffffff"
    )  # fmt: skip


# --- pieces and views ----------------------------------------------------------------------------


@MANY
@given(plain)
def test_pieces_join_to_the_encoded_bytes(value: Any) -> None:
    pieces, data = canonical_encoding.Pieces(value), canonical_encoding.dumps(value)
    assert len(pieces) == len(data)
    assert pieces.digest() == canonical_encoding.digest(value) == hashlib.sha256(data).digest()
    assert canonical_encoding.dumps([pieces, 1]) == canonical_encoding.dumps([data, 1])


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_split_returns_views_of_the_items(items: list[bytes]) -> None:
    data = canonical_encoding.dumps(items)
    assert [bytes(item) for item in canonical_encoding.split(data, "a thing")] == items
    assert all(item.obj is data for item in canonical_encoding.split(data, "a thing"))


@MANY
@given(st.binary(max_size=100) | tags.map(b"".join) | plain.map(canonical_encoding.dumps))
@example(canonical_encoding.dumps([b"a", b"b"]) + b"N")
@example(canonical_encoding.dumps([b"a", "b"]))
@example(canonical_encoding.dumps([b"a", b"b"])[:-1])
def test_split_accepts_and_refuses_the_same_bytes_as_loads(data: bytes) -> None:
    """`split` accepts what `loads` reads as a list of bytes, and returns the same list."""
    try:
        items = canonical_encoding.split(data, "a thing")
    except PeerError:
        with contextlib.suppress(PeerError):
            value = canonical_encoding.loads(data)
            assert not (isinstance(value, list) and all(isinstance(v, bytes) for v in value))
        return
    assert [bytes(item) for item in items] == canonical_encoding.loads(data)


@pytest.mark.parametrize("ahead", range(9))
def test_arrays_are_aligned_after_any_content(ahead: int) -> None:
    # numpy multiplies unaligned arrays another way, with other last bits.
    matrix = np.arange(12.0).reshape(3, 4)
    decoded = canonical_encoding.loads(canonical_encoding.dumps({"a": "x" * ahead, "b": matrix}))[
        "b"
    ]
    assert decoded.flags.aligned
    assert not decoded.flags.writeable
    np.testing.assert_array_equal(decoded, matrix)


# --- limits for data from another party ----------------------------------------------------------


@pytest.mark.parametrize("value", [[None] * 11, {str(i): None for i in range(11)}, [[[]] * 5] * 2])
def test_more_items_than_allowed_are_refused(value: Any) -> None:
    """The items of all lists and dicts count together: here 11, 11 and 12."""
    data = canonical_encoding.dumps(value)
    assert canonical_encoding.loads(data, 12) == canonical_encoding.loads(data) == value
    with pytest.raises(PeerError):
        canonical_encoding.loads(data, 10)


def test_a_huge_list_is_refused_before_it_is_decoded() -> None:
    """5 MiB of empty items took 10 s and eight times the memory."""
    items = 5 << 20
    data = b"L" + items.to_bytes(8, "little") + b"N" * items
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(PeerError):
            canonical_encoding.loads(data, 1 << 16)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 0.5


def test_an_array_is_one_item() -> None:
    assert canonical_encoding.loads(canonical_encoding.dumps([np.zeros(1000)]), 1)[0].shape == (
        1000,
    )


@pytest.mark.parametrize("value", [2**64 - 1, -(2**64), 2**63, 0, -1])
def test_integers_of_64_bits_are_accepted(value: int) -> None:
    assert canonical_encoding.loads(canonical_encoding.dumps(value), 0) == value


@pytest.mark.parametrize("bits", [72, 80, 16_610])
def test_longer_integers_are_refused_unless_they_are_parts_of_keys(bits: int) -> None:
    """Python cannot even print a number of 16610 bits, as in 10^5000."""
    value = 1 << bits
    data = canonical_encoding.dumps(value)
    with pytest.raises(PeerError):
        canonical_encoding.loads(data, 0)
    assert canonical_encoding.loads(data, 0, canonical_encoding.LONG_INTEGER_BYTES) == value
    with pytest.raises(PeerError):
        canonical_encoding.loads(
            canonical_encoding.dumps(1 << 40_000), 0, canonical_encoding.LONG_INTEGER_BYTES
        )
