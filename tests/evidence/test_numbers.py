"""Numbers as a report writes them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.evidence import numbers as written


@pytest.mark.parametrize(
    ("x", "digits", "text"),
    [
        (0.0, 3, "0"),
        (1234567.8, 3, "1,234,568"),
        (12345678.0, 3, "1.23 × 10⁷"),
        (0.000012345, 3, "1.23 × 10⁻⁵"),
        (-1.5e-300, 2, "−1.5 × 10⁻³⁰⁰"),
        (9.996, 3, "10.0"),
        (None, 3, "–"),
        (math.nan, 3, "–"),
        (-math.inf, 3, "–"),
    ],
)
def test_numbers_are_written_to_significant_digits(x: float | None, digits: int, text: str) -> None:
    assert written.significant(x, digits) == text


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        (1.04863, 0.0877, "1.049"),
        (-2.8368, 0.488, "−2.84"),
        (5210.4, 4321.0, "5,210"),
        (-0.001, 0.3, "0.00"),
        (1.0, 1e-12, "1.000"),
        (1.23456789, None, "1.23"),
        (None, 0.1, "–"),
    ],
)
def test_numbers_are_rounded_by_their_error(
    x: float | None, error: float | None, text: str
) -> None:
    assert written.by_error(x, error) == text


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        (1.0486, 0.00877, "1.0486"),
        (1.797, 0.287, "1.80"),
        (0.02251, 0.0286, "0.023"),
        (0.00001, 40.0, "1.0 × 10⁻⁵"),  # never 0
        (1.5, None, "1.50"),
        (0.0, 0.1, "0"),
        (math.inf, 0.1, "–"),
    ],
)
def test_ratios_are_written_by_their_error(x: float, error: float | None, text: str) -> None:
    assert written.ratio(x, error) == text


@pytest.mark.parametrize(
    ("x", "error", "log_error", "text"),
    [
        (3.9015587154662e-31, 1e-43, 16.0, "3.9 × 10⁻³¹"),  # end of an interval about 6.6e-45
        (142_565.0, 270_000.0, 1.9, "140,000"),
        (4.65, 0.58, 1.1, "4.65"),
        (1.0144, 0.0053, 0.0053, "1.0144"),
    ],
)
def test_ends_of_long_intervals_have_no_more_digits_than_mean_something(
    x: float, error: float, log_error: float, text: str
) -> None:
    assert written.ratio(x, error, log_error) == text


@pytest.mark.parametrize(
    ("x", "log_odds", "text"),
    [(None, 800.0, "> 10³⁰⁸"), (0.0, -800.0, "< 10⁻³⁰⁸"), (None, None, "–")],
)
def test_odds_beyond_the_numbers_of_a_computer_are_not_a_dash(
    x: float | None, log_odds: float | None, text: str
) -> None:
    assert written.exponential(x, log_odds, None, None) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0, "< 0.0001"),
        (0.0001, "0.00010"),
        (0.0049182, "0.0049"),
        (0.0996, "0.10"),
        (1.0, "1.00"),
        (None, "–"),
    ],
)
def test_p_values_are_written(p: float | None, text: str) -> None:
    assert written.p_value(p) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (7_300_000_000_000, "7,300.0 GB"),
    ],
)
def test_sizes_are_written_with_units(number: int, text: str) -> None:
    assert written.size(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000.0, "1,000"),
        (0.1, "0.1"),
        (-5, "−5"),
        (1e-8, "1 × 10⁻⁸"),
        (-2.5e-6, "−2.5 × 10⁻⁶"),
        (2.0**60, "1.15292 × 10¹⁸"),
        (True, "yes"),
        (["a", 0.5], "a, 0.5"),
        (1 / 3, "0.3333"),
        ("gcv", "gcv"),
    ],
)
def test_settings_are_written_as_declared(value: object, text: str) -> None:
    assert written.any_setting(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a factor e^8, plus 1e-05, over", "a factor e⁸, plus 10⁻⁵, over"),
        ("e^0.5, plus 2.5e-06.", "e^0.5, plus 2.5 × 10⁻⁶."),
        ("at most 2^-40, <= 0.1 or >= 2", "at most 2⁻⁴⁰, ≤ 0.1 or ≥ 2"),
        ("site_1e-05x, e^x, 3 rows", "site_1e-05x, e^x, 3 rows"),
        ("at delta 1e-08 for ever", "at delta 10⁻⁸ for ever"),
    ],
)
def test_a_sentence_in_ascii_gets_the_signs_of_the_format(text: str, shown: str) -> None:
    assert written.typeset(text) == shown


def test_a_measured_share_has_a_tenth_of_a_percent() -> None:
    shares = (0, 0.0004, 0.01, 0.1026, 0.9996, 12.5)
    shown = ["0 %", "less than 0.1 %", "1 %", "10.3 %", "100 %", "1,250 %"]
    assert [written.percent(x) for x in shares] == shown


def test_statistics_are_written_by_their_key() -> None:
    assert written.any_number("lr_p_value", 1e-9) == "< 0.0001"
    assert written.any_number("aic", 909.6364) == "909.6"
    assert written.any_number("r_squared", 0.0571897) == "0.05719"
    assert written.any_number("n", 12788) == "12,788"


def test_counts_lists_and_intervals_are_written_in_words() -> None:
    assert written.counted(1, "site") == "1 site"
    assert written.counted(1200, "site") == "1,200 sites"
    assert written.listing(["a"]) == "a"
    assert written.listing(["a", "b", "c"]) == "a, b and c"
    assert written.interval("1", "2") == "1 to 2"
    assert written.interval("1", written.NONE) == ""
    assert written.power_of_two(-36) == "2⁻³⁶"
    assert written.integer(4 * 2**40) == "4.398 × 10¹²"
    assert written.integer(4000) == "4,000"
    assert written.share(0.95) == "95 %" and written.share(0.9995) == "99.95 %"
    assert written.share(0.999999) == "99.9999 %" and written.share(-0.1) == "−10 %"
    assert written.epsilon_or_no_bound(None) == written.epsilon_or_no_bound(math.inf) == "no bound"
    assert written.seconds(0.1184) == "0.1 s"
    assert written.moment("2030-01-31T13:00:00.5+01:00") == "2030-01-31 12:00:00 UTC"


def value_of(text: str) -> float:
    mantissa, _, power = text.replace(",", "").replace("−", "-").partition(" × 10")
    digits = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
    return float(f"{mantissa}e{power.translate(digits) or 0}")


@given(st.floats(-1e300, 1e300, allow_subnormal=False), st.integers(1, 8))
def test_significant_reads_back_to_its_digits(x: float, digits: int) -> None:
    text = written.significant(x, digits)
    assert value_of(text) == pytest.approx(x, rel=0.5001 * 10 ** (1 - digits), abs=0)


@given(st.floats(-1e6, 1e6), st.floats(1e-4, 1e4))
def test_by_error_is_off_by_at_most_a_twentieth_of_the_error(x: float, error: float) -> None:
    assert abs(value_of(written.by_error(x, error)) - x) <= error / 20 * 1.001


@given(st.floats(1e-12, 1e6), st.floats(1e-3, 1e4))
def test_a_ratio_is_never_written_as_zero(x: float, error: float) -> None:
    shown = value_of(written.ratio(x, error))
    assert shown > 0
    assert abs(shown - x) <= error / 20 * 1.001 or shown == pytest.approx(x, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"), (89.4, "89 s"), (90, "2 min"), (89.4 * 60, "89 min"), (90 * 60, "1 h 30 min"),
        (12_000, "3 h 20 min"), (1e6, "12 days"),
    ],
)  # fmt: skip
def test_durations_have_whole_units(seconds: float, text: str) -> None:
    assert written.duration(seconds) == text


@pytest.mark.parametrize(
    ("x", "text"), [(3.72251, "3.723"), (6.0, "6"), (0.1 + 0.2, "0.3"), (0.12341, "0.1235")]
)
def test_a_bound_is_rounded_up(x: float, text: str) -> None:
    assert written.rounded_up(x) == text
