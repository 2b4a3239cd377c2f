"""The one number format of reports, terminal and plan: only digits that mean something.

==========================  ======================================================  ================
number                      digits                                                  function
==========================  ======================================================  ================
estimate with an error      both to the error's second significant digit            `by_error`
estimate without an error   three                                                   `by_error`
error, half an interval     two                                                     `significant`
odds ratio                  by its error, at least two                              `ratio`, `odds`
statistic                   four                                                    `any_number`
count                       all, with commas: 12,788                                `count`
p-value                     two, or "< 0.0001"                                      `p_value`
epsilon                     four; a bound is never rounded down                     `rounded_up`
delta                       as declared, a power of ten as 10⁻⁵                     `probability`
declared share, setting     as declared (`share` for a percentage)                  `declared`
measured share              to a tenth of a percent                                 `percent`
==========================  ======================================================  ================

Negative numbers have a minus sign, and a dash stands for a missing number. `typeset` puts the same
signs into a sentence that lower layers wrote in ASCII. The exact numbers are in result.json;
nothing is computed from these texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

NONE = "–"
_MAX_DECIMALS = 6
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

_POWER = re.compile(r"\b(e|2|10)\^(-?\d+)(?![.\w])")
_EXPONENT = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e[-+]\d+(?!\w)")


def count(number: float) -> str:
    """Write a whole number: 12,788."""
    return f"{int(number):,}".replace("-", "−")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: 1 site, 4 sites, 2 boundaries."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def significant(x: float | None, digits: int = 4) -> str:
    """Write x with `digits` significant digits, as a power of ten if it is huge or tiny."""
    if x is None or not math.isfinite(x):
        return NONE
    if x == 0:
        return "0"
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 <= power < 7:
        return fixed(x, max(digits - 1 - power, 0))
    return _times_power(mantissa, power)


def rounded_up(x: float, digits: int = 4) -> str:
    """Write an upper bound as `significant` does, but never below it, and without zeros at the end.

    So an epsilon of 8 that was added up is written as the one that a job states.
    """
    if not math.isfinite(x) or x <= 0:
        return significant(x, digits)
    power = math.floor(math.log10(x)) - digits + 1
    step = 10.0**power
    text = significant(math.ceil(x / step * (1 - 1e-12)) * step, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def _times_power(mantissa: str, power: int) -> str:
    return f"{mantissa.replace('-', '−')} × {power_of_ten(power)}"


def epsilon_or_no_bound(epsilon: float | None, digits: int = 4) -> str:
    """Write an epsilon; infinity, which is None in run.json, is "no bound"."""
    return "no bound" if epsilon is None or math.isinf(epsilon) else significant(epsilon, digits)


def fixed(x: float | None, decimals: int) -> str:
    """Write x with that many decimals; a value that rounds to zero has no sign."""
    if x is None or not math.isfinite(x):
        return NONE
    text = f"{x:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def by_error(x: float | None, error: float | None) -> str:
    """Write an estimate to the decimal place of its standard error's second significant digit.

    Without an error it has three digits.
    """
    if x is None or error is None or not 0 < error < math.inf:
        return significant(x, 3)
    decimals = max(1 - math.floor(math.log10(error)), 0)
    if decimals > _MAX_DECIMALS or abs(x) >= 1e7:
        return significant(x)
    return fixed(x, decimals)


def ratio(x: float | None, error: float | None, log_error: float | None = None) -> str:
    """Write a ratio, or an end of its interval, to the decimal place of its error.

    error: standard error of the ratio itself. There are at least two digits: the low end of a
        wide interval must not appear as 0.
    log_error: standard error of its logarithm. The end of a long interval has no more digits than
        this allows, whatever the error of the estimate.
    """
    if x is None or error is None or not (0 < x < math.inf and 0 < error < math.inf):
        return significant(x, 3)
    digits = math.floor(math.log10(x)) - math.floor(math.log10(error)) + 2
    if log_error is not None and log_error > 0:
        digits = min(digits, 3 - math.floor(math.log10(log_error)))
    digits = max(digits, 2)
    return significant(float(f"{x:.{digits - 1}e}"), digits)  # 140,000 and not 142,565


def exponential(
    x: float | None, log: float | None, log_error: float | None, error: float | None
) -> str:
    """Write a ratio as `ratio` does, also one that is beyond the numbers of a computer.

    log: its logarithm, or None if it does not exist
    """
    if log is not None and not x:  # result.json has no infinity, and exp(-800) is 0
        return f"> {power_of_ten(308)}" if log > 0 else f"< {power_of_ten(-308)}"
    return ratio(x, error, log_error)


def interval(low: str, high: str) -> str:
    """Write an interval from its written ends; "" if an end does not exist."""
    return "" if NONE in (low, high) else f"{low} to {high}"


def p_value(p: float | None) -> str:
    """Write a p-value with two digits, or "< 0.0001"."""
    if p is None or not math.isfinite(p):
        return NONE
    return "< 0.0001" if p < 1e-4 else significant(p, 2) if p < 0.0995 else fixed(p, 2)


def typeset(text: str) -> str:
    """Return a sentence with the signs of this format: ≤, e⁸, 10⁻⁵, in place of <=, e^8, 1e-05."""
    text = text.replace("<=", "≤").replace(">=", "≥")
    text = _POWER.sub(lambda found: found[1] + found[2].translate(_SUPERSCRIPT), text)
    return _EXPONENT.sub(lambda found: probability(float(found[0])), text)


def size(number: int) -> str:
    """Write a number of bytes: 980 B, 12.8 kB (a kB is 1000 B)."""
    if number < 1000:
        return f"{number} B"
    for unit, step in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if number < 999.95 * step or unit == "GB":
            return f"{number / step:,.1f} {unit}"
    raise AssertionError


def seconds(number: float) -> str:
    """Write a duration in seconds with one decimal, as in run.json."""
    return f"{number:,.1f} s"


def duration(number: float) -> str:
    """Write about how long something takes, in whole units: 40 s, 12 min, 3 h 20 min."""
    if number < 90:
        return f"{number:.0f} s"
    minutes = round(number / 60)
    if minutes < 90:
        return f"{minutes} min"
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes < 48 * 60
        else f"{minutes / 1440:.0f} days"
    )


def power_of_two(exponent: int) -> str:
    """Write 2 to a whole power: 2⁻³⁶."""
    return f"2{str(exponent).translate(_SUPERSCRIPT)}"


def power_of_ten(exponent: int) -> str:
    """Write 10 to a whole power: 10⁻⁵."""
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def power_of_e(exponent: float) -> str:
    """Write e to a declared power: e⁸, e^0.5."""
    if exponent == int(exponent):
        return f"e{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return f"e^{exponent:g}"


def probability(x: float) -> str:
    """Write a declared small probability; a power of ten as 10⁻⁵."""
    exponent = round(math.log10(x)) if x > 0 else 0
    return power_of_ten(exponent) if exponent < 0 and x == 10.0**exponent else declared(x)


def deviation(x: float) -> str:
    """Write the standard deviation of a count: one digit below 10, else two."""
    return significant(x, 1 if x < 10 else 2)


def integer(number: int) -> str:
    """Write an exact integer, or its leading digits if it is long."""
    return count(number) if abs(number) < 10**9 else significant(float(Fraction(number)))


def share(x: float | None) -> str:
    """Write a declared fraction as a percentage: 95 %, 99.9 %."""
    return NONE if x is None else f"{declared(100 * x)} %"


def percent(share: float) -> str:
    """Write a measured share in percent; a tenth shows on which side of a limit it lies."""
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{fixed(100 * share, 1).removesuffix('.0')} %"


def listing(names: Sequence[str]) -> str:
    """Write names as a list: a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def field_kind(kind: str) -> str:
    """Write the kind of a field's numbers in plain words."""
    return {"psd": "sums of squares and products"}.get(kind, kind)


ADJACENCIES = {
    "add_remove": "one {} added or removed",
    "replace": "one {} replaced by another",
}
"""The difference between neighbours under each adjacency; {} is the unit."""


def declared(x: float) -> str:
    """Write a setting or bound with the digits of its declaration (of a huge number six)."""
    if not math.isfinite(x):
        return NONE
    if x == int(x) and abs(x) < 1e7:
        return count(x)
    if abs(x) < 1e7 and float(f"{x:.12g}") != x and float(f"{x:.15g}") != x:
        return significant(x)  # nobody declares 0.3333333333333333
    mantissa, _, power = (f"{x:,.12g}" if abs(x) < 1e7 else f"{x:.6g}").partition("e")
    return _times_power(mantissa, int(power)) if power else mantissa.replace("-", "−")


def moment(iso: str) -> str:
    """Write a time of the log to the second: 2030-01-31 12:00:00 UTC."""
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def any_number(key: str, value: float | str) -> str:
    """Write a statistic in the format of its key; text stays as it is."""
    if isinstance(value, float):
        if key.endswith("p_value"):
            return p_value(value)
        return significant(value)
    return any_setting(value)


def any_setting(value: object) -> str:
    """Write a setting with the digits of its declaration."""
    match value:
        case None:
            return "not set"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return declared(value)
        case list() | tuple():
            parts = (
                f"({any_setting(v)})" if isinstance(v, list | tuple) else any_setting(v)
                for v in value
            )
            return ", ".join(parts) or "none"
        case _:
            return str(value)


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested tables with its dotted name; leave out unset values."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            for i, item in enumerate(value, start=1):
                yield from flat(item, f"{name}[{i}].")
        elif value is not None:
            yield name, value
