"""Fixed point between float64 contributions and ring elements.

An entry x is clipped to [-bound, bound], or [0, bound] for counts and weights, and carried as the
integer round(x * 2^f), f its field's fraction bits, ties to even. That no sum of these integers
overflows is proved before any record is read (`secagg.runtime.sum_plan`).

Where noise is added for differential privacy, it is added to these integers (`add_noise`). A draw
beyond the tail that the plan provided for, of probability below 2^-100, is refused at the site; it
depends on no record.

Guarantees
    * Encoding an entry within its bound errs by at most 2^-(f+1); sums of encoded values are exact.
    * Decoding rounds the exact sum correctly to float64, so equal sums give equal bits.
    * What was clipped is counted, and the counts leave the site only as a declared sum of their own
      (field `clipped`, one count for each field of the spec); with noise they do not leave it.

=========================  =================================================================
entry                      what is carried
=========================  =================================================================
0, -0.0, subnormal         0 (unless f is so large that it is a multiple of 2^-f)
exactly the bound          B, not counted as clipped
above bound, any size      B, counted as clipped
below -bound (or below 0)  -B (or 0), counted as clipped
nan, inf, -inf             refused: `DataError` at the site, nothing leaves it
=========================  =================================================================
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Kind, Update
from secagg.core import ring
from secagg.core.ring import RingVector
from secagg.errors import DataError, InternalError, ProtocolAbort
from secagg.runtime.sum_plan import CLIPPED, FieldPlan, SumPlan

_BLOCK = 1 << 15  # values at a time: what they are read from, made in and written to stays in L2


def encode(plan: SumPlan, update: Update) -> RingVector:
    """Return one site's contribution as ring elements, clip counts last.

    Raises `DataError` for a value that is not finite, or beyond a strict field's bound,
    `InternalError` for a missing, unknown or misshapen field or a count that is not whole (the
    method's bug, not the data's).
    """
    declared = plan.fields[:-1]  # the last is for the clip counts
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
    _to_ring(clipped, vector[at:])  # whole, and no more than a field has entries
    return vector


def add_noise(plan: SumPlan, vector: RingVector, noise: NDArray[np.int64]) -> None:
    """Add integer noise, one number for each of the fields' entries, and take out the clip counts.

    Raises `InternalError` for noise that the plan did not provide for.
    """
    tail = min(p.tail for p in plan.fields[:-1])
    if noise.shape != (plan.noised,) or np.any(np.abs(noise) > tail):
        raise InternalError("codec", "noise is not as long, or not as small, as was planned")
    ring.add_in_place(vector[: plan.noised], [ring.from_signed(noise, plan.ring_bits)])
    vector[plan.noised :] = 0


def _encode_field(plan: FieldPlan, values: NDArray[np.float64], out: RingVector) -> int:
    """Write the encoded values into `out`; return how many were clipped."""
    field = plan.field
    most = field.bound
    least = 0.0 if field.kind in (Kind.COUNT, Kind.WEIGHT) else -most
    buffer = np.empty(min(_BLOCK, len(values)), dtype=np.float64)
    clipped = 0
    for start in range(0, len(values), _BLOCK):
        raw = values[start : start + _BLOCK]
        low, high = raw.min(), raw.max()
        if not (math.isfinite(low) and math.isfinite(high)):  # nan spreads to both
            raise DataError(f"field {field.name!r}", "a contribution is not a finite number")
        if field.kind is Kind.COUNT and not np.array_equal(np.rint(raw), raw):
            raise InternalError("codec", f"field {field.name!r} holds a count that is not whole")
        if low < least or high > most:
            if field.strict:
                what = "a number is beyond the bound that was shown for it"
                advice = "The coordinator's message is invalid, or this is a bug in secagg."
                raise DataError(f"field {field.name!r}", what, advice)
            clipped += int(np.count_nonzero((raw < least) | (raw > most)))
            raw = np.clip(raw, least, most)
        _round(plan, raw, buffer[: len(raw)], out[start : start + _BLOCK])
    return clipped


def _round(
    plan: FieldPlan, values: NDArray[np.float64], buffer: NDArray[np.float64], out: RingVector
) -> None:
    """Write round(x 2^f), ties to even, of clipped values; `buffer` is as long, for the way there.

    Small ones take one addition. From 2^(52-f) to 2^(53-f) the floats are the multiples of 2^-f,
    and neighbours among them are neighbours as bit patterns, read as integers. So for
    |x| < 2^(51-f) and M = 1.5 2^(52-f), whose pattern is even, the float M + x is
    M + round(x 2^f) 2^-f, and its pattern is that of M plus round(x 2^f).
    """
    if out.shape[1] == 1 and plan.largest < 2**51:
        anchor = np.float64(1.5 * 2.0 ** (52 - plan.field.fraction_bits))
        pattern = np.add(values, anchor, out=buffer).view(np.uint64)
        if out.itemsize == 8:
            np.subtract(pattern, anchor.view(np.uint64), out=out[:, 0])
        else:
            np.copyto(out[:, 0], pattern, casting="unsafe")  # the last 32 bits of M's are zero
        return
    np.multiply(values, 2.0**plan.field.fraction_bits, out=buffer)  # a power of two: exact
    _to_ring(np.rint(buffer, out=buffer), out)


def _to_ring(whole: NDArray[np.float64], out: RingVector) -> None:
    """Write whole floats (|x| < 2^(bits-1)) as two's complement limbs, exactly."""
    if out.shape[1] == 1:
        np.copyto(ring.signed(out), whole, casting="unsafe")  # whole and in range: nothing is lost
        return
    for rows in ring.blocks(out):
        # x = upper 2^64 + rest. Both have its sign and at most its 53 bits: both steps are exact.
        upper = np.trunc(whole[rows] * 2.0**-64)
        rest = whole[rows] - upper * 2.0**64
        negative = rest < 0
        out[rows, 0] = _negated(np.abs(rest).astype(np.uint64), negative)
        ring.signed(out[rows])[:] = upper.astype(np.int64) - negative  # it borrows 2^64


def _negated(limb: NDArray[np.uint64], where: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return the limbs, some of them negated modulo 2^64: -x = ~x - (-1), and x = x - 0."""
    ones = np.subtract(0, where, dtype=np.uint64)  # -1, or 0
    return (limb ^ ones) - ones


def decode(plan: SumPlan, total: RingVector) -> tuple[Update, NDArray[np.float64]]:
    """Return the summed fields as float64, and the summed clip counts (one for each field).

    Raises `ProtocolAbort` if an element lies outside what `plan` proved: some party did not send
    what it should have, and the sum is wrong.
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
    most = sites * (plan.largest + plan.tail)
    least = -sites * plan.tail if plan.field.kind in (Kind.COUNT, Kind.WEIGHT) else -most
    smallest, largest = _extremes(part)
    if smallest < least or largest > most:
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
    """Return the smallest and the largest element, exactly; of none, zeros."""
    if not len(part):
        return 0, 0
    high = ring.signed(part)
    first, last = int(high.min()), int(high.max())
    if part.shape[1] == 1:
        return first, last
    low = part[:, 0]
    least = np.where(high == first, low, np.uint64(2**64 - 1)).min()
    most = np.where(high == last, low, np.uint64(0)).max()
    return (first << 64) + int(least), (last << 64) + int(most)


def _rounded(part: RingVector) -> NDArray[np.float64]:
    """Return elements of Z_2^128 (but not -2^127) as the nearest float64, ties to even.

    A magnitude high 2^64 + low with high > 0 becomes t 2^shift, where t is its top 64 bits (or 63)
    with the last one set if any bit below is: "sticky". Rounding t to 53 bits looks at its bit 54
    and at whether anything follows, and t has at least 63: so t rounds as the whole magnitude does,
    in the one rounding of the conversion from uint64. The scaling is exact.
    """
    sign = ring.signed(part)
    low, high = part.T.copy()
    negative = sign < 0
    high += negative & (low != 0)  # -(high 2^64 + low) = -(high + 1) 2^64 + (2^64 - low)
    low, high = _negated(low, negative), _negated(high, negative)
    # high < 2^shift, tight or one too much (where high's own float rounded up to a power of two);
    # no more than 63 are ever needed, since high < 2^63.
    shift = np.minimum(np.frexp(high.astype(np.float64))[1], 63).astype(np.uint64)
    left = 63 - shift  # with one more: 64 - shift in two steps, each less than the width
    top = high << left << 1 | low >> shift
    top |= (low << left << 1) != 0
    values: NDArray[np.float64] = np.ldexp(top.astype(np.float64), shift.astype(np.int32))
    np.copysign(values, sign, out=values)
    return values
