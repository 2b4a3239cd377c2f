"""The plan of a sum: a check from public bounds, before data is read, that no sum overflows.

An entry x of a field is encoded as the integer round(x * 2^f), where f is the number of fraction
bits of the field (`secagg.sessions.fixed_point`). Entries are clipped to the field's bound, and
rounding is monotone, so every integer has magnitude at most B = round(bound * 2^f). A sum over K
sites then has magnitude at most K * B, and a ring of w bits, read as signed, holds it if
K * B <= 2^(w-1) - 1. `plan_sum` checks this for every field, and raises an error if it fails.

With noise for differential privacy, the check includes the noise. A site's noise v has |v| <= T,
which is 12 of its standard deviations, and the sum has magnitude at most K * (B + T).
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
"""The field with the clip counts; every plan adds it."""
_MAX_FRACTION_BITS = 500  # 2.0**f and its inverse stay normal floats
_TAIL_SD = 12  # standard deviations; a Gaussian exceeds them with probability 2^-108


@dataclass(frozen=True)
class FieldPlan:
    """The bound of one field: K * (largest + tail) <= 2^(sum_bits - 1) - 1.

    tail: largest magnitude of a site's noise; 0 without noise
    """

    field: Field
    largest: int
    sum_bits: int
    tail: int = 0


@dataclass(frozen=True)
class SumPlan:
    """The encoding of a spec for at most `sites` sites; `fields` ends with the clip counts."""

    fields: tuple[FieldPlan, ...]
    sites: int
    ring_bits: int

    @cached_property
    def length(self) -> int:
        """The number of ring elements in one contribution."""
        return sum(plan.field.size for plan in self.fields)

    @property
    def noised(self) -> int:
        """The number of elements that may get noise: the entries of the fields of the spec."""
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
        """The sizes that a protocol may know."""
        return Shape(self.ring_bits, self.length, self.value_bits)


def plan_sum(
    spec: Spec,
    sites: int,
    ring_bits: tuple[int, ...] = ring.RING_BITS,
    noise: Noise | None = None,
) -> SumPlan:
    """Return the plan with the smallest ring of `ring_bits` that holds the sums.

    Raises `OverflowRefusal` for the widest field if no ring does, and `JobError` for an invalid
    bound.
    """
    clip_counts = Field(CLIPPED, (len(spec),), max(f.size for f in spec), 0, Kind.COUNT)
    tail = 0
    if noise is not None:
        widest_noise = noise.site_variance(noise.min_sites) * max(noise.weights, default=1)
        tail = _TAIL_SD * (math.isqrt(widest_noise) + 1)
    if noise is not None and {field.fraction_bits for field in spec} != {noise.fraction_bits}:
        raise InternalError("codec", "noise requires the same fraction_bits in all fields")
    plans = (*(_plan_field(f, sites, tail) for f in spec), _plan_field(clip_counts, sites, 0))
    if len({plan.field.name for plan in plans}) != len(plans):
        raise InternalError(
            "codec", f"two fields have the same name, or a field is named {CLIPPED!r}"
        )
    widest = max(plans, key=lambda plan: plan.sum_bits)
    for bits in sorted(ring_bits):
        if widest.sum_bits <= bits:
            return SumPlan(plans, sites, bits)
    field = widest.field
    with_noise = ", with noise," if widest.tail else ""
    raise OverflowRefusal(
        f"field {field.name!r}",
        f"the sum over {sites} sites of values up to {field.bound:g} in steps of "
        f"2^-{field.fraction_bits}{with_noise} needs {widest.sum_bits} bits, and the protocol's "
        f"largest ring has {max(ring_bits)}",
        "Lower the bound (max_rows, low, high) or the resolution.",
    )


def _plan_field(field: Field, sites: int, tail: int) -> FieldPlan:
    if not (math.isfinite(field.bound) and field.bound > 0):
        raise JobError(f"field {field.name!r}", f"bound {field.bound} is not positive and finite")
    if abs(field.fraction_bits) > _MAX_FRACTION_BITS:
        what = f"fraction_bits is {field.fraction_bits}, which is beyond +-{_MAX_FRACTION_BITS}"
        raise JobError(f"field {field.name!r}", what, "Change the resolution.")
    largest = round(Fraction(field.bound) * Fraction(2) ** field.fraction_bits)
    if largest == 0:
        raise JobError(
            f"field {field.name!r}",
            f"its bound {field.bound:g} is at most half a step of 2^-{field.fraction_bits}",
            "Raise the resolution.",
        )
    return FieldPlan(field, largest, _signed_bits(sites * (largest + tail)), tail)


def _signed_bits(magnitude: int) -> int:
    """Return the bits of a two's complement integer that holds [-magnitude, magnitude]."""
    return magnitude.bit_length() + 1
