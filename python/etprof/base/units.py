"""Turns numbers into text: the only place that decides digits and units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

MISSING = "–"

_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def format_duration(duration_ns: float | None) -> str:
    """Formats nanoseconds with three significant digits, such as `1.83 ms`."""
    if duration_ns is None:
        return MISSING
    if abs(duration_ns) < 0.001:
        return "0 ns"
    scale, unit = _time_unit(duration_ns)
    return f"{_significant(duration_ns / scale)} {unit}"


def _time_unit(duration_ns: float) -> tuple[float, str]:
    """Returns the unit that a duration is written in: ns per unit, and its name.

    What three digits round up to 1000 is 1 of the next larger unit.
    """
    return next(
        (row for row in _TIME_UNITS if abs(duration_ns) >= row[0] * 0.9995), _TIME_UNITS[-1]
    )


def format_delta(delta_ns: float | None) -> str:
    """Formats a difference of times with its sign, such as `−1.83 ms`."""
    if delta_ns is None:
        return MISSING
    sign = "−" if delta_ns < 0 else "+" if delta_ns > 0 else ""
    return f"{sign}{format_duration(abs(delta_ns))}"


def format_interval(
    low_ns: float | None, high_ns: float | None, value_ns: float | None = None
) -> str:
    """Formats an interval of nanoseconds in one unit, such as `1.80 … 1.86 ms`.

    The unit is that of `value_ns`, the value that the interval is printed beside, where there is one.

    >>> format_duration(995_000), format_interval(980_000, 1_050_000, 995_000)
    ('995 µs', '980 … 1050 µs')
    """
    if low_ns is None or high_ns is None:
        return MISSING
    scale, unit = _time_unit(high_ns if value_ns is None else value_ns)
    return f"{_significant(low_ns / scale)} … {_significant(high_ns / scale)} {unit}"


def format_prediction(low_ns: float, high_ns: float) -> str:
    """Formats the ends of a prediction in one unit, to two digits of the larger: `350 … 820 µs`."""
    largest_ns = max(abs(low_ns), abs(high_ns))
    if largest_ns:
        # As it is shown: 999 ns are 1.0 µs in two digits.
        largest_ns = round(largest_ns, 1 - math.floor(math.log10(largest_ns)))
    scale, unit = next((row for row in _TIME_UNITS if largest_ns >= row[0]), _TIME_UNITS[-1])
    digits = 1 - math.floor(math.log10(largest_ns / scale)) if largest_ns else 0
    low, high = (
        f"{round(end_ns / scale, digits) + 0.0:.{max(digits, 0)}f}".replace("-", "−")
        for end_ns in (low_ns, high_ns)
    )
    return f"{low} … {high} {unit}"


def format_share(share: float | None) -> str:
    """Formats a fraction of one as per cent, such as `12.3 %`."""
    return MISSING if share is None else f"{share * 100:.1f} %"


def format_share_range(low: float, high: float) -> str:
    """Formats two fractions of one in whole per cent, such as `−4 … 12 %`."""
    ends = (f"{round(100 * end) + 0:d}".replace("-", "−") for end in (low, high))
    return f"{' … '.join(ends)} %"


def format_size(size_bytes: float | None) -> str:
    """Formats bytes with binary prefixes, such as `9.1 MiB`."""
    if size_bytes is None:
        return MISSING
    for scale, unit in _SIZE_UNITS:
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def format_count(count: float | None) -> str:
    """Formats a count, with a fraction only where it has one: `41`, `0.5`."""
    if count is None:
        return MISSING
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.2f}"


def be(count: int) -> str:
    """Returns the verb of so many: `is` of one, else `are`."""
    return "is" if count == 1 else "are"


def count_of(count: int, noun: str, plural: str | None = None) -> str:
    """Writes a count with its noun: `1 operator`, `2 operators`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def first_texts(texts: Sequence[str], most: int, noun: str = "") -> list[str]:
    """Returns at most `most` of the texts, and then how many more there are.

    The last one is `and 3 more`, or with a noun `and 3 more layers`; it is absent where all fit.
    """
    others = len(texts) - most
    if others <= 0:
        return list(texts)
    more = count_of(others, f"more {noun}") if noun else f"{others:,} more"
    return [*texts[:most], f"and {more}"]


def format_ratio(ratio: float | None, half_width: float | None = None) -> str:
    """Formats a speedup, such as `3.86×`; with an interval to two digits of half its width.

    >>> format_ratio(5.52, 0.61), format_ratio(15.52, 0.61), format_ratio(15.52, 12.0)
    ('5.52×', '15.5×', '16×')
    """
    return MISSING if ratio is None else f"{ratio:.{_ratio_decimals(ratio, half_width)}f}×"


def format_ratio_ends(ratio: float | None, low: float, high: float) -> tuple[str, str]:
    """Formats the ends of a speedup's interval as finely as the speedup between them.

    Rounded apart, a speedup of 1.552× would be 1.6×, above its upper end of 1.57×.

    >>> format_ratio(1.5524, 0.1526), format_ratio_ends(1.5524, 1.2618, 1.5670)
    ('1.55×', ('1.26×', '1.57×'))
    """
    middle = (low + high) / 2 if ratio is None else ratio
    decimals = _ratio_decimals(middle, (high - low) / 2)
    return f"{low:.{decimals}f}×", f"{high:.{decimals}f}×"


def _ratio_decimals(ratio: float, half_width: float | None) -> int:
    """Returns the decimals of a speedup: those of three digits, or fewer where its interval is wide."""
    decimals = len(_significant(ratio).partition(".")[2])
    if not half_width or not math.isfinite(half_width):
        return decimals
    return min(decimals, max(0, 1 - math.floor(math.log10(half_width))))


def format_rate(rate: float | None) -> str:
    """Formats a rate per second, such as `41.2 /s`."""
    return MISSING if rate is None else f"{_significant(rate)} /s"


def format_change(change: float | None) -> str:
    """Formats a relative change with its sign, such as `+12.3 %`."""
    if change is None:
        return MISSING
    text = format_share(abs(change))
    sign = "−" if change < 0 else "+"
    return text if text == format_share(0.0) else f"{sign}{text}"


def format_number(value: float | None) -> str:
    """Formats a bare number with three significant digits."""
    return MISSING if value is None else _significant(value)


_FORMATS: Final[Mapping[str, Callable[[float | None], str]]] = {
    "": format_number,
    "1": format_number,
    "MACs/B": format_number,
    "ns": format_duration,
    "±ns": format_delta,
    "bytes": format_size,
    "1/s": format_rate,
    "count": format_count,
    "bits": lambda value: MISSING if value is None else f"{format_count(value)} bits",
    "share": format_share,
    "ratio": format_ratio,
    "change": format_change,
    "≤": lambda value: f"≤ {format_number(value)}",
    "p": lambda value: MISSING if value is None else f"{value:.2g}",
    "scientific": lambda value: MISSING if value is None else f"{value:.2e}",
}


def format_value(unit: str, value: float | str | None) -> str:
    """Formats any value of a table by its unit; an unknown unit stands behind the number."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    return f"{_significant(value)} {unit}"


def format_range(
    unit: str, low: float | None, high: float | None, value: float | None = None
) -> str:
    """Formats the two ends of an interval, times in one unit: `1.80 … 1.86 ms`.

    It is the unit of `value`, the value that the interval belongs to, where there is one.
    """
    if low is None or high is None:
        return MISSING
    if unit == "ns":
        return format_interval(low, high, value)
    return f"{format_value(unit, low)} … {format_value(unit, high)}"


def _significant(value: float, digits: int = 3) -> str:
    """Rounds to `digits` significant digits without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"
