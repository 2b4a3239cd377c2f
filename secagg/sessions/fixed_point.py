"""Encode float64 contributions as ring elements, in fixed-point numbers, and decode their sums.

A contribution consists of named fields, which are arrays. An entry x of a field is clipped to
[-bound, bound], or to [0, bound] for counts and weights, and encoded as the integer round(x * 2^f),
with ties to even. f is the field's number of fraction bits. From public bounds,
`secagg.sessions.sum_plan` checks that no sum of these integers can overflow.

For differential privacy, noise is added to these integers (`add_noise`). The plan states the
largest noise that it allows (`tail`). Larger noise has a probability below 2^-100, whatever the
records are. If it is drawn, the site stops with an error.

Guarantees
    * The encoding error of an entry within its bound is at most 2^-(f+1). Sums of encoded values
      are exact.
    * Decoding rounds the exact sum correctly to float64, so equal sums give equal bits.
    * How many values were clipped is sent only as a contribution to a sum (`clipped`, with one
      count for each field). If there is noise, it is not sent at all.

With B = round(bound * 2^f):

=========================  =================================================================
entry                      encoded as
=========================  =================================================================
0, -0.0, subnormal         0 (a subnormal that is a multiple of 2^-f: exactly)
exactly the bound          B, not counted as clipped
above bound, any size      B, counted as clipped
below -bound (or below 0)  -B (or 0), counted as clipped
nan, inf, -inf             refused: `DataError` at the site, nothing leaves it
=========================  =================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Kind, Update
from secagg.core import ring
from secagg.core.ring import RingVector
from secagg.errors import DataError, InternalError, ProtocolAbort
from secagg.sessions.sum_plan import CLIPPED, FieldPlan, SumPlan

_BLOCK = 1 << 15  # values at a time, so that input, buffer and output fit in the L2 cache


def encode(plan: SumPlan, update: Update) -> RingVector:
    """Return one site's contribution as ring elements, clip counts last.

    Raises `DataError` for a value that is not finite, or beyond the bound of a strict field.
    Raises `InternalError` for a missing field, an unknown field, a wrong shape, or a count that is
    not an integer; these are bugs of the method.
    """
    declared = plan.fields[:-1]  # the last one is for the clip counts
    if set(update) != {p.field.name for p in declared}:
        raise InternalError("codec", f"contribution has fields {sorted(update)}, not the spec's")
    vector = ring.empty(plan.length, plan.ring_bits)
    clipped = np.zeros(len(declared), dtype=np.float64)
    at = 0
    for i, field_plan in enumerate(declared):
        values = np.asarray(update[field_plan.field.name], dtype=np.float64)
        if values.shape != field_plan.field.shape:
            raise InternalError("codec", f"field {field_plan.field.name!r} has {values.shape}")
        part = vector[at : at + field_plan.field.size]
        clipped[i] = _encode_field(field_plan, values.reshape(-1), part)
        at += field_plan.field.size
    _to_ring(clipped, vector[at:])  # integers, at most the size of the field
    return vector


def encode_cut_sum(plan: SumPlan, updates: Iterable[Update]) -> RingVector:
    """Return the sum of several contributions of one site, with each entry cut at its bound.

    For a site under differential privacy with more records than the bounds allow. The sum is exact,
    so it does not depend on how the records are split. Cutting every entry to an interval moves no
    two sums further apart, so the sensitivity of the sum still holds. Clip counts are not summed.
    Raises as `encode`.
    """
    sums = [0] * plan.length
    for update in updates:
        integers = ring.to_integers(encode(plan, update))
        sums = [a + b for a, b in zip(sums, integers, strict=True)]
    uppers = [p.largest for p in plan.fields for _ in range(p.field.size)]
    lowers = [
        0 if p.field.kind in (Kind.COUNT, Kind.WEIGHT) else -p.largest
        for p in plan.fields for _ in range(p.field.size)
    ]  # fmt: skip
    cut = [min(max(a, low), up) for a, low, up in zip(sums, lowers, uppers, strict=True)]
    return ring.from_integers(cut, plan.ring_bits)


def add_noise(plan: SumPlan, vector: RingVector, noise: NDArray[np.int64]) -> None:
    """Add integer noise, one number for each entry of the fields, and set the clip counts to zero.

    Raises `InternalError` for noise with another length, or beyond the plan's tail.
    """
    tail = min(p.tail for p in plan.fields[:-1])
    if noise.shape != (plan.noised,) or np.any(np.abs(noise) > tail):
        raise InternalError("codec", "noise has a wrong length, or exceeds the planned tail")
    ring.add_in_place(vector[: plan.noised], [ring.from_signed(noise, plan.ring_bits)])
    vector[plan.noised :] = 0


def _encode_field(plan: FieldPlan, values: NDArray[np.float64], out: RingVector) -> int:
    """Write the encoded values into `out`; return how many were clipped."""
    field = plan.field
    upper = field.bound
    lower = 0.0 if field.kind in (Kind.COUNT, Kind.WEIGHT) else -upper
    buffer = np.empty(min(_BLOCK, len(values)), dtype=np.float64)
    clipped = 0
    for start in range(0, len(values), _BLOCK):
        raw = values[start : start + _BLOCK]
        low, high = raw.min(), raw.max()
        if not (math.isfinite(low) and math.isfinite(high)):  # nan spreads to both
            raise DataError(f"field {field.name!r}", "a contribution is not a finite number")
        if field.kind is Kind.COUNT and not np.array_equal(np.rint(raw), raw):
            raise InternalError(
                "codec", f"field {field.name!r} holds a count that is not an integer"
            )
        if low < lower or high > upper:
            if field.strict:
                what = "a number is beyond the bound that the method derived for it"
                advice = "The coordinator's message is invalid, or this is a bug in secagg."
                raise DataError(f"field {field.name!r}", what, advice)
            clipped += int(np.count_nonzero((raw < lower) | (raw > upper)))
            raw = np.clip(raw, lower, upper)
        _round(plan, raw, buffer[: len(raw)], out[start : start + _BLOCK])
    return clipped


def _round(
    plan: FieldPlan, values: NDArray[np.float64], buffer: NDArray[np.float64], out: RingVector
) -> None:
    """Write round(x 2^f), ties to even, of clipped values; `buffer` has the same length.

    Small values need one addition. From 2^(52-f) to 2^(53-f) the floats are the multiples of 2^-f,
    and the bit patterns of neighbours, read as integers, differ by 1. For |x| < 2^(51-f) and
    M = 1.5 2^(52-f), whose bit pattern is even, the float M + x is M + round(x 2^f) 2^-f, and its
    bit pattern is that of M plus round(x 2^f).
    """
    if out.shape[1] == 1 and plan.largest < 2**51:
        anchor = np.float64(1.5 * 2.0 ** (52 - plan.field.fraction_bits))
        pattern = np.add(values, anchor, out=buffer).view(np.uint64)
        if out.itemsize == 8:
            np.subtract(pattern, anchor.view(np.uint64), out=out[:, 0])
        else:
            np.copyto(out[:, 0], pattern, casting="unsafe")  # the last 32 bits of M are zero
        return
    np.multiply(values, 2.0**plan.field.fraction_bits, out=buffer)  # a power of two: exact
    _to_ring(np.rint(buffer, out=buffer), out)


def _to_ring(integers: NDArray[np.float64], out: RingVector) -> None:
    """Write floats that are integers (|x| < 2^(bits-1)) as two's complement limbs, exactly."""
    if out.shape[1] == 1:
        np.copyto(ring.signed(out), integers, casting="unsafe")  # in range: exact
        return
    for rows in ring.blocks(out):
        # x = upper 2^64 + rest. Both have the sign of x and at most 53 bits, so this is exact.
        upper = np.trunc(integers[rows] * 2.0**-64)
        rest = integers[rows] - upper * 2.0**64
        negative = rest < 0
        out[rows, 0] = _negated(np.abs(rest).astype(np.uint64), negative)
        ring.signed(out[rows])[:] = upper.astype(np.int64) - negative  # borrow 2^64


def _negated(limb: NDArray[np.uint64], where: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return the limbs, negated modulo 2^64 at `where`: -x = ~x - (-1), and x = x - 0."""
    ones = np.subtract(0, where, dtype=np.uint64)  # -1, or 0
    return (limb ^ ones) - ones


def decode(plan: SumPlan, total: RingVector) -> tuple[Update, NDArray[np.float64]]:
    """Return the summed fields as float64, and the summed clip counts (one for each field).

    Raises `ProtocolAbort` if an element is outside the range of the plan: then a party did not
    follow the protocol, and the sum is wrong.
    """
    fields: Update = {}
    at = 0
    for field_plan in plan.fields:
        field = field_plan.field
        part = total[at : at + field.size]
        fields[field.name] = _decode_field(field_plan, plan.sites, part).reshape(field.shape)
        at += field.size
    return fields, fields.pop(CLIPPED)


def _decode_field(plan: FieldPlan, sites: int, part: RingVector) -> NDArray[np.float64]:
    upper = sites * (plan.largest + plan.tail)
    lower = -sites * plan.tail if plan.field.kind in (Kind.COUNT, Kind.WEIGHT) else -upper
    smallest, largest = _extremes(part)
    if smallest < lower or largest > upper:
        raise ProtocolAbort("codec", f"the sum of field {plan.field.name!r} is out of its range")
    if part.shape[1] == 1:
        values = ring.signed(part).astype(np.float64)  # rounds to nearest, ties to even
    else:
        values = np.empty(len(part), dtype=np.float64)
        for rows in ring.blocks(part):
            values[rows] = _rounded(part[rows])
    values *= 2.0**-plan.field.fraction_bits  # a power of two: exact
    return values


def _extremes(part: RingVector) -> tuple[int, int]:
    """Return the smallest and the largest element, exactly; zeros if there is no element."""
    if not len(part):
        return 0, 0
    high = ring.signed(part)
    first, last = int(high.min()), int(high.max())
    if part.shape[1] == 1:
        return first, last
    low = part[:, 0]
    low_of_first = np.where(high == first, low, np.uint64(2**64 - 1)).min()
    low_of_last = np.where(high == last, low, np.uint64(0)).max()
    return (first << 64) + int(low_of_first), (last << 64) + int(low_of_last)


def _rounded(part: RingVector) -> NDArray[np.float64]:
    """Return elements of Z_2^128 (but not -2^127) as the nearest float64, ties to even.

    A magnitude high 2^64 + low with high > 0 becomes t 2^shift. Here t is its top 64 bits (or 63),
    with the last bit set if any bit below is set (a sticky bit). Rounding t to 53 bits depends on
    bit 54 and on whether a later bit is set, and t has at least 63 bits. So t rounds like the whole
    magnitude, in the single rounding of the conversion from uint64. The scaling is exact.
    """
    sign = ring.signed(part)
    low, high = part.T.copy()
    negative = sign < 0
    high += negative & (low != 0)  # -(high 2^64 + low) = -(high + 1) 2^64 + (2^64 - low)
    low, high = _negated(low, negative), _negated(high, negative)
    # The smallest shift with high < 2^shift, or one more (if converting `high` rounded up to a
    # power of two). At most 63, since high < 2^63.
    shift = np.minimum(np.frexp(high.astype(np.float64))[1], 63).astype(np.uint64)
    left = 63 - shift  # a shift by 64 - shift takes two steps: each must be less than 64
    top = high << left << 1 | low >> shift
    top |= (low << left << 1) != 0
    values: NDArray[np.float64] = np.ldexp(top.astype(np.float64), shift.astype(np.int32))
    np.copysign(values, sign, out=values)
    return values
