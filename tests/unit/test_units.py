"""Numbers become text in one place, with three significant digits and a unit."""

from __future__ import annotations

import pytest

from etprof.base.units import (
    MISSING,
    format_change,
    format_count,
    format_delta,
    format_duration,
    format_interval,
    format_prediction,
    format_range,
    format_rate,
    format_ratio,
    format_share,
    format_size,
    format_value,
)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (None, "–"),
        (0, "0 ns"),
        (0.000999, "0 ns"),
        (0.001, "0.00100 ns"),
        (1, "1.00 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 µs"),
        (33_612, "33.6 µs"),
        (1_830_000, "1.83 ms"),
        (2_500_000_000, "2.50 s"),
        (75e9, "75.0 s"),
        (-1_500, "-1.50 µs"),
    ],
)
def test_durations_have_the_unit_people_would_choose(duration_ns: float | None, text: str) -> None:
    assert format_duration(duration_ns) == text


def test_both_ends_of_an_interval_have_one_unit() -> None:
    assert format_interval(950_000, 1_020_000) == "0.950 … 1.02 ms"
    assert format_interval(None, 1) == "–"
    # GIVEN the value that it is printed beside THEN both have one unit
    assert format_interval(980_000, 1_050_000, 995_000) == "980 … 1050 µs"
    assert format_range("ns", 980, 1050, 999.6) == "0.980 … 1.05 µs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_share(0.1234), "12.3 %"),
        (format_share(None), "–"),
        (format_size(12), "12 B"),
        (format_size(9_437_184), "9.0 MiB"),
        (format_size(None), "–"),
        (format_count(3_504_872), "3,504,872"),
        (format_count(0.5), "0.50"),
        (format_ratio(3.861), "3.86×"),
        (format_ratio(5.52, 0.61), "5.52×"),
        (format_ratio(5.52, 0.03), "5.52×"),
        (format_ratio(5.52, 2.0), "5.5×"),
        (format_ratio(15.52, 12.0), "16×"),
        (format_ratio(120.4, 30.0), "120×"),
        (format_rate(41.234), "41.2 /s"),
        (format_rate(None), "–"),
        (format_change(0.1234), "+12.3 %"),
        (format_change(-0.05), "−5.0 %"),
        (format_change(-0.0001), "0.0 %"),
        (format_change(None), "–"),
        (format_value("ns", 1_830_000), "1.83 ms"),
        (format_value("bytes", 12), "12 B"),
        (format_value("1/s", 41.2), "41.2 /s"),
        (format_value("furlong", 41.2), "41.2 furlong"),
        (format_value("furlong", None), "–"),
    ],
)
def test_other_numbers(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("delta_ns", "text"),
    [(0, "0 ns"), (0.0, "0 ns"), (-1830000, "−1.83 ms"), (2, "+2.00 ns"), (None, MISSING)],
)
def test_a_difference_has_a_sign_where_there_is_one(delta_ns: float | None, text: str) -> None:
    assert format_delta(delta_ns) == text


def test_what_spans_many_decades_has_three_digits_and_a_power() -> None:
    assert format_value("scientific", 0.00012) == "1.20e-04"
    assert format_value("scientific", None) == MISSING


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "text"),
    [
        (346_000, 817_000, "350 … 820 µs"),
        (7_080, 14_100, "7 … 14 µs"),
        (72, 2_180, "0.1 … 2.2 µs"),
        (-49_900, 120_000, "−50 … 120 µs"),
        (-9_000, 3_000, "−9.0 … 3.0 µs"),
        (-2, 900_000, "0 … 900 µs"),
        (0, 0, "0 … 0 ns"),
        (1.2e6, 3.44e6, "1.2 … 3.4 ms"),
        (999, 999, "1.0 … 1.0 µs"),  # one unit up, where two digits round to it
        (5_000, 9_960, "5 … 10 µs"),
    ],
)
def test_a_prediction_has_no_more_digits_than_it_knows(
    low_ns: float, high_ns: float, text: str
) -> None:
    """An answer led with a gain of 0.0722 … 2.18 µs."""
    assert format_prediction(low_ns, high_ns) == text
