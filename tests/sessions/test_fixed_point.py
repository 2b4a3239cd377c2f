"""Encoding, plans and decoding against exact rational arithmetic; edge cases."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.protocols.integers import quantised

from secagg.contracts import Field, Kind
from secagg.contracts.noise import Noise, Placement
from secagg.core import ring
from secagg.errors import DataError, InternalError, JobError, OverflowRefusal, ProtocolAbort
from secagg.sessions.fixed_point import add_noise, decode, encode, encode_cut_sum
from secagg.sessions.sum_plan import SumPlan, plan_sum

SIGNED, UNSIGNED = (Kind.BOUNDED, Kind.PSD), (Kind.COUNT, Kind.WEIGHT)
TINY = 5e-324  # the least subnormal
QUICK = settings(deadline=None)


def field(size: int = 1, bound: float = 1.0, bits: int = 8, kind: Kind = Kind.BOUNDED) -> Field:
    return Field("x", (size,), bound, bits, kind)


def exact(value: float, f: Field) -> tuple[int, bool]:
    """The oracle: the integer that encodes `value`, and whether it was clipped."""
    least = Fraction(0) if f.kind in UNSIGNED else -Fraction(f.bound)
    inside = min(max(Fraction(value), least), Fraction(f.bound))
    return round(inside * Fraction(2) ** f.fraction_bits), inside != Fraction(value)


def carried(plan: SumPlan, values: list[float]) -> tuple[list[int], int]:
    *integers, clipped = quantised(plan, {"x": np.array(values, dtype=np.float64)})
    return integers, clipped


@st.composite
def fields(draw: st.DrawFn) -> Field:
    kind = draw(st.sampled_from([Kind.BOUNDED, Kind.PSD, Kind.WEIGHT]))
    bits = draw(st.sampled_from([-500, -200, -3, 0, 1, 20, 32, 60, 90, 200, 500]))
    whole = draw(st.floats(1, 2.0 ** draw(st.sampled_from([1, 10, 40, 55, 100]))))
    return field(1, whole * 2.0**-bits, bits, kind)


def near(f: Field) -> st.SearchStrategy[float]:
    """Values about the field's bound, its half steps, zero, and the ends of the float range."""
    step = 2.0**-f.fraction_bits
    anchors = [f.bound, -f.bound, 0.0, -0.0, step / 2, step, 1.5 * step, 2.5 * step, TINY, 1.7e308]
    about = st.sampled_from(anchors).flatmap(
        lambda x: st.sampled_from([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), -x])
    )
    inside = st.floats(-f.bound, f.bound)
    anywhere = st.floats(allow_nan=False, allow_infinity=False)
    return about.map(float).filter(np.isfinite) | inside | anywhere


@QUICK
@given(st.data(), fields(), st.integers(1, 60))
def test_encoding_is_exact(data: st.DataObject, f: Field, sites: int) -> None:
    values = data.draw(st.lists(near(f), min_size=1, max_size=8))
    f = field(len(values), f.bound, f.fraction_bits, f.kind)
    try:
        plan = plan_sum((f,), sites)
    except OverflowRefusal:
        assert sites * exact(f.bound, f)[0] > 2**127 - 1
        return
    wanted = [exact(v, f) for v in values]
    integers, clipped = carried(plan, values)
    assert integers == [whole for whole, _ in wanted]
    assert clipped == sum(outside for _, outside in wanted)
    assert all(abs(v) <= plan.fields[0].largest for v in integers)
    assert all(abs(v) < 2 ** (plan.value_bits - 1) for v in (*integers, clipped))


FRACTIONS = [(32, 20), (32, 0), (32, -4), (64, 30), (64, 0), (64, -4), (128, 80), (128, 500),
             (128, -90)]  # fmt: skip


@pytest.mark.parametrize("fraction", [-490, 0, 400])
@pytest.mark.parametrize(
    ("bits", "largest"),
    [
        (32, 2**30 - 1),
        *((b, n) for b in (64, 128) for n in (2**49 + 1, 2**51 - 1, 2**51 + 3, 2**53)),
    ],
)
def test_ties_round_to_even_at_every_magnitude(bits: int, largest: int, fraction: int) -> None:
    """Multiples of 1/4 near zero and the bound, below and above 2^51 (two algorithms)."""
    about = {0, 1, 2, 3, largest // 3, largest // 2, largest - 2, largest - 1, largest}
    offsets = [k / 4 for k in range(-4, 5)]
    wholes = [sign * (v + off) for v in sorted(about) for off in offsets for sign in (1, -1)]
    values = [v * 2.0**-fraction for v in wholes]
    f = field(len(values), largest * 2.0**-fraction, fraction)
    plan = plan_sum((f,), 1, (bits,))
    assert plan.fields[0].largest == largest
    assert carried(plan, values)[0] == [exact(v, f)[0] for v in values]


def sums_near_ties(limit: int) -> st.SearchStrategy[int]:
    """Integers up to `limit`, many halfway between two floats, or one step off it, or all ones."""
    tie = st.builds(
        lambda k, odd, off: (((1 << 52) + odd) << 1 | 1) * (1 << k) + off,
        st.integers(0, 80),
        st.integers(0, 2**52 - 1),
        st.sampled_from([-1, 0, 1]),
    )
    ones = st.integers(1, 127).map(lambda k: (1 << k) - 1)
    power = st.builds(lambda k, off: (1 << k) + off, st.integers(0, 126), st.integers(-1, 1))
    size = st.integers(0, 127).flatmap(lambda k: st.integers(0, 2**k))
    magnitude = (tie | ones | power | size | st.just(limit)).filter(lambda v: v <= limit)
    return st.builds(lambda v, sign: sign * v, magnitude, st.sampled_from([1, -1]))


@settings(deadline=None, max_examples=50)
@given(st.data(), st.sampled_from(FRACTIONS))
def test_decoding_rounds_to_the_nearest_float(data: st.DataObject, drawn: tuple[int, int]) -> None:
    """float64 of the exact rational sum, whatever the sum."""
    bits, fraction = drawn
    largest = 2 ** (bits - 3) - (bits == 32)
    if bits == 128:
        largest = 2**125 - 2**72  # the largest float below 2^125; three of it are near 2^127
    plan = plan_sum((field(9, float(largest) * 2.0**-fraction, fraction),), 3, (bits,))
    sums = data.draw(st.lists(sums_near_ties(3 * largest), min_size=9, max_size=9))
    decoded, clipped = decode(plan, ring.from_integers([*sums, 7], bits))
    step = Fraction(2) ** -fraction
    assert decoded["x"].tolist() == [float(v * step) for v in sums]
    assert clipped.tolist() == [7.0]


@pytest.mark.parametrize("shift", [0, 1, 9, 10, 11, 12, 63, 64, 65, 72])
def test_decoding_breaks_all_ties_in_128_bits_correctly(shift: int) -> None:
    """Even and odd neighbours, exactly halfway and one either side, over each place of the tie."""
    tops = [(1 << 53) + 1, (1 << 53) + 3, (1 << 54) - 1, (1 << 53) + 2]  # 54 bits: 53, then the tie
    numbers = [
        sign * ((top << shift) + off)
        for top in tops
        for off in (-1, 0, 1, (1 << shift) - 1)
        for sign in (1, -1)
    ]
    plan = plan_sum((field(len(numbers), 2.0**125, 0),), 3, (128,))
    decoded, _ = decode(plan, ring.from_integers([*numbers, 0], 128))
    assert decoded["x"].tolist() == [float(v) for v in numbers]


@pytest.mark.parametrize("bits", ring.RING_BITS)
@pytest.mark.parametrize("size", [0, 1, 8193, 32768, 32769])
def test_vectors_of_lengths_around_a_block_are_encoded_exactly(size: int, bits: int) -> None:
    """Encoded and decoded in blocks of 2^15 values, and of 2^13 elements of 128 bits."""
    values = np.random.default_rng(size).integers(-4000, 4000, size) / 2**8
    values[-1:] = 99.0  # clipped
    f = field(size, 16.0, 8)
    plan = plan_sum((f, Field("y", (1,), 1.0, 0, Kind.COUNT)), 2, (bits,))
    vector = encode(plan, {"x": values, "y": np.ones(1)})
    assert ring.is_vector(vector, size + 3, bits) and vector.flags.c_contiguous
    expected = [exact(v, f)[0] for v in values.tolist()]
    assert ring.to_integers(vector) == [*expected, 1, min(size, 1), 0]
    decoded, _ = decode(plan, vector)
    assert decoded["x"].tolist() == [v / 2**8 for v in expected]


# --- the table of edge cases, row by row ---------------------------------------------------------


@pytest.mark.parametrize("ring_bits", ring.RING_BITS)
@pytest.mark.parametrize("kind", [*SIGNED, Kind.WEIGHT])
class TestTable:
    def plan(self, ring_bits: int, kind: Kind, size: int, bound: float, bits: int) -> SumPlan:
        return plan_sum((field(size, bound, bits, kind),), 2, (ring_bits,))

    def test_zero_subnormal_and_negative_values_are_encoded(
        self, ring_bits: int, kind: Kind
    ) -> None:
        plan = self.plan(ring_bits, kind, 4, 1.0, 8)
        assert carried(plan, [0.0, -0.0, TINY, 2.0**-1023]) == ([0, 0, 0, 0], 0)
        plan = self.plan(ring_bits, kind, 5, 1.0, 8)
        negative = [-0.5, -TINY, float(np.nextafter(-1.0, -2)), -1e9, -1e308]
        signed = ([-(2**7), 0, -(2**8), -(2**8), -(2**8)], 3)
        assert carried(plan, negative) == (signed if kind in SIGNED else ([0] * 5, 5))

    @pytest.mark.parametrize("bound", [1.0, 0.1, 0.7, 3.3])
    def test_the_bound_itself_is_not_clipped(
        self, ring_bits: int, kind: Kind, bound: float
    ) -> None:
        """Also if bound * 2^f is not an integer, and rounds up (0.7, 3.3) or down (0.1)."""
        plan = self.plan(ring_bits, kind, 1, bound, 8)
        largest = round(Fraction(bound) * 2**8)
        assert plan.fields[0].largest == largest
        assert carried(plan, [bound]) == ([largest], 0)
        if kind in SIGNED:
            assert carried(plan, [-bound]) == ([-largest], 0)

    @pytest.mark.parametrize("bound", [1.0, 0.1, 0.7])
    def test_values_above_the_bound_are_clipped(
        self, ring_bits: int, kind: Kind, bound: float
    ) -> None:
        above = [float(np.nextafter(bound, 2)), bound * 1.001, 1e9, 1e308, 1.7976931348623157e308]
        plan = self.plan(ring_bits, kind, len(above), bound, 8)
        assert carried(plan, above) == ([plan.fields[0].largest] * len(above), len(above))

    @pytest.mark.parametrize(("bad", "at"), [(np.nan, 40_000), (np.inf, 0), (-np.inf, 1)])
    def test_nan_is_refused(self, ring_bits: int, kind: Kind, bad: float, at: int) -> None:
        """The error does not quote the value."""
        plan = self.plan(ring_bits, kind, 40_001, 1.0, 8)  # more than one block
        values = np.full(40_001, 0.5)
        values[at] = bad
        with pytest.raises(DataError) as caught:
            encode(plan, {"x": values})
        assert str(bad) not in str(caught.value).replace("finite", "")


def test_a_high_resolution_encodes_tiny_values() -> None:
    plan = plan_sum((field(2, 2.0**-450, 500),), 2)
    assert carried(plan, [2.0**-500, 3 * 2.0**-501]) == ([1, 2], 0)


@pytest.mark.parametrize("bits", ring.RING_BITS)
def test_counts_are_clipped_and_fractions_refused(bits: int) -> None:
    plan = plan_sum((field(4, 10.0, 0, Kind.COUNT),), 2, (bits,))
    assert carried(plan, [0, 3, 10, 11]) == ([0, 3, 10, 10], 1)
    assert carried(plan, [-1, 0, 0, 1e300]) == ([0, 0, 0, 10], 2)
    for fraction in (0.5, 9.75, -0.25, TINY):
        with pytest.raises(InternalError):
            encode(plan, {"x": np.array([1, 2, 3, fraction])})


def test_each_field_has_its_own_clip_count() -> None:
    spec = (Field("a", (2, 2), 1.0, 4, Kind.PSD), Field("b", (), 2.0, 4, Kind.WEIGHT))
    plan = plan_sum(spec, 3)
    update = {"a": np.array([[9.0, -9.0], [0.25, 9.0]]), "b": np.array(-0.5)}
    total = ring.total([encode(plan, update)] * 3, plan.length, plan.ring_bits)
    fields, clipped = decode(plan, total)
    assert clipped.tolist() == [9.0, 3.0]
    assert fields["a"].tolist() == [[3.0, -3.0], [0.75, 3.0]]
    assert fields["b"].shape == () and fields["b"] == 0


def test_clip_counts_fit_if_every_entry_is_clipped_at_every_site() -> None:
    """The bound of the clip counts: every entry of the largest field, at every site."""
    plan = plan_sum((field(5), Field("y", (2,), 1.0, 8, Kind.BOUNDED)), 4)
    update = {"x": np.full(5, 2.0), "y": np.full(2, -2.0)}
    _, clipped = decode(plan, ring.total([encode(plan, update)] * 4, plan.length, 32))
    assert clipped.tolist() == [20.0, 8.0]


# --- the method's own mistakes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "update",
    [{}, {"y": np.zeros(1)}, {"x": np.zeros(1), "y": np.zeros(1)}, {"x": np.zeros(2)},
     {"x": np.zeros((1, 1))}, {"x": np.float64(0)}],
)  # fmt: skip
def test_wrong_fields_or_shapes_are_errors(update: dict[str, np.ndarray]) -> None:
    with pytest.raises(InternalError):
        encode(plan_sum((field(),), 2), update)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "clipped")])
def test_fields_with_equal_names_are_errors(names: tuple[str, str]) -> None:
    with pytest.raises(InternalError):
        plan_sum(tuple(Field(n, (1,), 1.0, 8, Kind.BOUNDED) for n in names), 2)


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", ring.RING_BITS)
@pytest.mark.parametrize("sites", [2, 3, 1000])
def test_the_plan_accepts_the_largest_bound_that_fits(sites: int, bits: int) -> None:
    """The largest bound whose sums fit is accepted, the next float that is an integer is not."""
    limit = (2 ** (bits - 1) - 1) // sites
    fits = float(limit)
    while int(fits) > limit:
        fits = float(np.nextafter(fits, 0))
    plan = plan_sum((field(1, fits, 0),), sites, (bits,))
    assert (plan.ring_bits, plan.fields[0].largest) == (bits, int(fits))
    for sign in (1, -1):
        vectors = [encode(plan, {"x": np.array([sign * fits])})] * sites
        total = ring.total(vectors, plan.length, bits)
        assert ring.to_integers(total)[0] == sign * sites * int(fits)
        assert decode(plan, total)[0]["x"][0] == float(sign * sites * int(fits))
    with pytest.raises(OverflowRefusal):
        plan_sum((field(1, max(fits + 1, float(np.nextafter(fits, np.inf))), 0),), sites, (bits,))


@pytest.mark.parametrize("bits", ring.RING_BITS)
def test_one_site_too_many_for_the_ring_is_refused(bits: int) -> None:
    bound = 2.0 ** (bits - 11)  # 1024 of them make 2^(bits - 1), one more than the ring holds
    assert plan_sum((field(1, bound, 0),), 1023, (bits,)).sum_bits == bits
    with pytest.raises(OverflowRefusal) as caught:
        plan_sum((field(1, bound, 0),), 1024, (bits,))
    assert caught.value.where == "field 'x'" and f"{bits + 1} bits" in caught.value.what


def test_the_smallest_ring_is_chosen() -> None:
    assert plan_sum((field(1, 2.0**20, 10),), 1).ring_bits == 32
    assert plan_sum((field(1, 2.0**20, 11),), 1).ring_bits == 64
    assert plan_sum((field(1, 2.0**20, 10),), 2).ring_bits == 64
    assert plan_sum((field(1, 2.0**52, 10),), 1).ring_bits == 64
    assert plan_sum((field(1, 2.0**52, 11),), 1).ring_bits == 128
    assert plan_sum((field(), Field("y", (1,), 2.0**52, 11, Kind.PSD)), 1).ring_bits == 128
    assert plan_sum((field(),), 2, (128,)).ring_bits == 128


@pytest.mark.parametrize(
    ("bound", "bits"),
    [*((bound, 8) for bound in (0.0, -1.0, np.nan, np.inf, 2.0**-9)),
     (2.0**-450, 501), (2.0**520, -501), (1.0, 10**6)],
)  # fmt: skip
def test_invalid_bounds_and_resolutions_are_errors(bound: float, bits: int) -> None:
    with pytest.raises(JobError):
        plan_sum((field(1, bound, bits),), 2)


def test_a_bound_just_above_half_a_step_is_encoded_as_one() -> None:
    assert carried(plan_sum((field(1, 0.6 * 2.0**-8, 8),), 2), [0.6 * 2.0**-8]) == ([1], 0)


# --- noise ----------------------------------------------------------------------------------------


def test_under_noise_clip_counts_are_zero() -> None:
    """They depend on the records, and have no noise."""
    noise = Noise(Placement.SITE, 4**8, 8, colluding=0, min_sites=1)
    plan = plan_sum((field(3),), 2, noise=noise)
    vector = encode(plan, {"x": np.array([5.0, 0.5, -5.0])})
    assert ring.to_integers(vector) == [256, 128, -256, 2]
    tail = plan.fields[0].tail
    add_noise(plan, vector, np.array([10, -20, tail], dtype=np.int64))
    assert ring.to_integers(vector) == [266, 108, tail - 256, 0]
    for invalid in ([10, -20], [10, -20, 0, 0], [10, -20, -tail - 1], [tail + 1, 0, 0]):
        with pytest.raises(InternalError):
            add_noise(plan, vector, np.array(invalid, dtype=np.int64))


def test_the_tail_is_at_least_twelve_standard_deviations() -> None:
    for weights in ((), (1, 9, 4)):
        noise = Noise(Placement.SITE, 4**8 + 1000, 8, 0, 1, weights)
        tail = plan_sum((field(3),), 2, noise=noise).fields[0].tail
        assert tail**2 >= 12**2 * noise.site_variance(1) * max(weights, default=1)


def test_a_noised_count_may_be_negative_by_the_noise_of_all_sites() -> None:
    noise = Noise(Placement.SITE, 4**8, 8, colluding=0, min_sites=1)
    plan = plan_sum((field(1, 4.0, 8, Kind.COUNT),), 3, noise=noise)
    low = -3 * plan.fields[0].tail
    assert decode(plan, ring.from_integers([low, 0], plan.ring_bits))[0]["x"] == low / 256
    with pytest.raises(ProtocolAbort):
        decode(plan, ring.from_integers([low - 1, 0], plan.ring_bits))


# --- a sum that honest sites cannot produce ------------------------------------------------------


@pytest.mark.parametrize("bits", ring.RING_BITS)
@pytest.mark.parametrize(
    ("kind", "least"), [*((k, -512) for k in SIGNED), *((k, 0) for k in UNSIGNED)]
)
def test_sums_out_of_range_are_refused(kind: Kind, least: int, bits: int) -> None:
    plan = plan_sum((field(1, 256.0, 0, kind),), 2, (bits,))
    for inside in (least, 0, 512):
        assert decode(plan, ring.from_integers([inside, 2], bits))[0]["x"][0] == inside
    ends = (2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2**63 - 1 if bits > 32 else 2**31)
    for outside in (least - 1, 513, *ends):
        with pytest.raises(ProtocolAbort):
            decode(plan, ring.from_integers([outside, 0], bits))
    with pytest.raises(ProtocolAbort):
        decode(plan, ring.from_integers([0, 3], bits))


@pytest.mark.parametrize("kind", [Kind.BOUNDED, Kind.WEIGHT])
@pytest.mark.parametrize("beyond", [1.0 + 2.0**-20, -1.5, 1e300])
def test_values_beyond_a_strict_bound_are_refused(kind: Kind, beyond: float) -> None:
    plan = plan_sum((Field("x", (2,), 1.0, 20, kind, strict=True),), 3)
    encode(plan, {"x": np.array([1.0, 0.0])})
    with pytest.raises(DataError):
        encode(plan, {"x": np.array([0.5, beyond])})


def test_noise_is_added_to_a_cut_sum() -> None:
    """That of a site with more records than `max_rows`."""
    noise = Noise(Placement.SITE, 9, 4, 0, 1)
    plan = plan_sum((Field("a", (2,), 3.0, 4, Kind.BOUNDED),), 1, noise=noise)
    vector = encode_cut_sum(plan, [{"a": np.array([1.0, 2.0])}, {"a": np.array([0.5, 2.0])}])
    add_noise(plan, vector, np.array([3, -2]))
    total, _ = decode(plan, vector)
    assert total["a"].tolist() == [1.5 + 3 / 16, 3.0 - 2 / 16]
