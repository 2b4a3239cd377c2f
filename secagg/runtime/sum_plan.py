"""The plan of a sum: proof from public numbers, before any record is read, that no sum overflows.

An entry x of a field is carried as the integer round(x * 2^f), f the field's fraction bits
(`secagg.runtime.fixed_point`). Entries are clipped to the field's bound, and rounding is monotone,
so that no integer exceeds B = round(bound * 2^f) in magnitude. A sum over K sites then has
magnitude at most K * B, and a ring of w bits, read as signed, holds it if K * B <= 2^(w-1) - 1.
`plan_sum` checks that for every field, or refuses.

Where noise is added for differential privacy, the proof includes it: a site's noise v has |v| <= T,
twelve of its standard deviations, and the sum has magnitude at most K * (B + T).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from secagg.contracts import Field, Kind, Shape, Spec
from secagg.contracts.noise import Noise
from secagg.core import ring
from secagg.errors import InternalError, JobError, OverflowRefusal

CLIPPED = "clipped"
"""The field of the clip counts, which every plan adds."""
_MAX_FRACTION_BITS = 500  # 2.0**f and its inverse stay normal floats
_TAIL_SD = 12  # standard deviations: a Gaussian exceeds them with a probability of 2^-108


@dataclass(frozen=True)
class FieldPlan:
    """One field's proof: K * (largest + tail) <= 2^(sum_bits - 1) - 1.

    tail: largest magnitude of a site's noise; 0 without noise
    """

    field: Field
    largest: int
    sum_bits: int
    tail: int = 0


@dataclass(frozen=True)
class SumPlan:
    """How a spec is carried for at most `sites` sites; `fields` ends with the clip counts."""

    fields: tuple[FieldPlan, ...]
    sites: int
    ring_bits: int

    @cached_property
    def length(self) -> int:
        """Ring elements in one contribution."""
        return sum(plan.field.size for plan in self.fields)

    @property
    def noised(self) -> int:
        """How many of them are entries of the spec's fields, to which noise may be added."""
        return self.length - self.fields[-1].field.size

    @property
    def sum_bits(self) -> int:
        """Bits that the widest field's sum needs, sign included."""
        return max(plan.sum_bits for plan in self.fields)

    @property
    def value_bits(self) -> int:
        """Bits that the widest field of one contribution needs, sign included."""
        return max(_signed_bits(plan.largest + plan.tail) for plan in self.fields)

    @property
    def shape(self) -> Shape:
        """What a protocol may know of the numbers."""
        return Shape(self.ring_bits, self.length, self.value_bits)


def plan_sum(
    spec: Spec,
    sites: int,
    ring_bits: tuple[int, ...] = ring.RING_BITS,
    noise: Noise | None = None,
) -> SumPlan:
    """Return the smallest ring of `ring_bits` that provably holds the sums; pure arithmetic.

    Raises `OverflowRefusal` naming the widest field if none does, `JobError` for an unusable bound.
    """
    clip_counts = Field(CLIPPED, (len(spec),), max(f.size for f in spec), 0, Kind.COUNT)
    tail = 0
    if noise is not None:
        widest_noise = noise.site_variance(noise.min_sites) * max(noise.weights, default=1)
        tail = _TAIL_SD * (math.isqrt(widest_noise) + 1)
    if noise is not None and {field.fraction_bits for field in spec} != {noise.fraction_bits}:
        raise InternalError("codec", "noise is for fields on one grid")
    plans = (*(_plan_field(f, sites, tail) for f in spec), _plan_field(clip_counts, sites, 0))
    if len({plan.field.name for plan in plans}) != len(plans):
        raise InternalError("codec", f"two fields have the same name, or one is named {CLIPPED!r}")
    widest = max(plans, key=lambda plan: plan.sum_bits)
    for bits in sorted(ring_bits):
        if widest.sum_bits <= bits:
            return SumPlan(plans, sites, bits)
    field = widest.field
    noised = ", with noise," if widest.tail else ""
    raise OverflowRefusal(
        f"field {field.name!r}",
        f"the sum over {sites} sites of values up to {field.bound:g} in steps of "
        f"2^-{field.fraction_bits}{noised} needs {widest.sum_bits} bits, and the protocol's "
        f"largest ring has {max(ring_bits)}",
        "Lower the bound (max_rows, low, high) or the resolution.",
    )


def _plan_field(field: Field, sites: int, tail: int) -> FieldPlan:
    if not (math.isfinite(field.bound) and field.bound > 0):
        raise JobError(f"field {field.name!r}", f"bound {field.bound} is not positive and finite")
    if abs(field.fraction_bits) > _MAX_FRACTION_BITS:
        raise JobError(f"field {field.name!r}", f"resolution 2^-{field.fraction_bits} is absurd")
    largest = round(Fraction(field.bound) * Fraction(2) ** field.fraction_bits)
    if largest == 0:
        raise JobError(
            f"field {field.name!r}",
            f"its bound {field.bound:g} is at most half a step of 2^-{field.fraction_bits}",
            "Raise the resolution.",
        )
    return FieldPlan(field, largest, _signed_bits(sites * (largest + tail)), tail)


def _signed_bits(magnitude: int) -> int:
    """Bits of a two's complement integer that holds [-magnitude, magnitude]."""
    return magnitude.bit_length() + 1
