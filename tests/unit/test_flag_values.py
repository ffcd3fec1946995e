"""What the values of flags may be: each bound is still taken, and what is beyond it refused."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

import pytest

from etprof.base.limits import LARGEST_SEED, MOST_SECONDS
from etprof.cli.flags import (
    choice_list,
    decibels,
    duration,
    fraction,
    hertz,
    name_list,
    path_list,
    seconds,
    share,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = whole_number(2, 30)
SEED = whole_number(0)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (hertz, "1", 1.0),
        (hertz, "1e12", 1e12),
        (seconds, "1e-9", 1e-9),
        (seconds, str(MOST_SECONDS), MOST_SECONDS),
        (duration, "90", 90.0),
        (duration, "90s", 90.0),
        (duration, "10min", 600.0),
        (duration, "10m", 600.0),
        (duration, "1.5h", 5400.0),
        (fraction, "0.001", 0.001),
        (fraction, "0.999", 0.999),
        (decibels, "0", 0.0),
        (decibels, "200", 200.0),
        (share, "0", 0.0),
        (share, "1", 1.0),
        (COUNT, "2", 2),
        (COUNT, "30", 30),
        (COUNT, "0000000000000000000000000007", 7),
        (SEED, str(LARGEST_SEED), LARGEST_SEED),
        (SEED, "0", 0),
        (choice_list("a", "b"), "b,a", ("b", "a")),
        (choice_list(1, 2), "2", (2,)),
        (name_list, " a, ,b,", ("a", "b")),
        (path_list, "", ()),
    ],
)
def test_a_value_within_its_bounds_is_taken(
    parse: Callable[[str], object], text: str, value: object
) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (hertz, "0.99", "must be from 1 to 1e+12 a second, not 0.99"),
        (hertz, "1.01e12", "must be from 1 to 1e+12 a second, not 1.01e12"),
        (hertz, "much", "must be from 1 to 1e+12 a second, not much"),
        (seconds, "0", "must be above 0 s, not 0"),
        (seconds, "nan", "must be above 0 s, not nan"),
        (seconds, "1e9", f"must be at most {MOST_SECONDS} s, not 1e9"),
        (duration, "0h", "must be above 0 s, not 0.0"),
        (duration, "2d", "'2d' is no time; write 90s, 10min or 2h"),
        (duration, "soon", "'soon' is no time; write 90s, 10min or 2h"),
        (duration, "1e9h", f"must be at most {MOST_SECONDS} s, not 3600000000000.0"),
        (fraction, "0", "must be a fraction above 0 and below 1, such as 0.02, not 0"),
        (fraction, "1", "must be a fraction above 0 and below 1, such as 0.02, not 1"),
        (decibels, "-0.1", "must be from 0 to 200 dB, not -0.1"),
        (decibels, "200.1", "must be from 0 to 200 dB, not 200.1"),
        (share, "-0.1", "must be from 0 to 1, not -0.1"),
        (share, "1.1", "must be from 0 to 1, not 1.1"),
        (share, "most", "must be from 0 to 1, not most"),
        (COUNT, "1", "must be at least 2, not 1"),
        (COUNT, "31", "must be at most 30, not 31"),
        (COUNT, "-3", "must be at least 2, not -3"),
        (COUNT, "two", "must be a whole number, at least 2, not two"),
        (COUNT, "", "must be a whole number, at least 2, not "),
        (COUNT, "٣", "must be at least 2, not ٣"),
        (COUNT, "1" * 20, f"must be at most 30, not {'1' * 20}"),
        (COUNT, "1" * 21, f"must be at most 30, not {'1' * 20}…"),
        (choice_list("a", "b"), "a,a", "'a,a': give a, b, or several of them with commas between"),
        (choice_list("a", "b"), "a,c", "'a,c': give a, b, or several of them with commas between"),
    ],
)
def test_a_value_beyond_its_bounds_is_refused_with_them(
    parse: Callable[[str], object], text: str, reason: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{re.escape(reason)}$"):
        parse(text)
