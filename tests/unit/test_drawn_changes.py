"""What single changes of a line went unnoticed: boundaries, factors, orders, and keys.

Drawn by `nox -s mutants -- --random 300`; each of these tests notices one of them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from etprof.base.cpu_list import parse_cpus
from etprof.base.errors import UsageError
from etprof.cli.history import _threshold
from etprof.cli.parser import _broken_command
from etprof.history.metric_names import METRICS
from etprof.statistics.change_points import find_change_points
from etprof.statistics.order_statistics import _binomial_half, median_interval
from etprof.tables.alternatives import _largest
from etprof.tables.table import Column, Table


def test_thresholds_reach_up_to_a_thousand_per_cent() -> None:
    assert _threshold("999") == (None, 9.99)
    assert _threshold("load_ns=400") == ("load_ns", 4.0)
    for text in ("1000", "0", "-1", "much"):
        with pytest.raises(UsageError, match="above 0"):
            _threshold(text)


def test_a_list_of_cpus_may_have_4096_letters() -> None:
    text = "0" + ",1" * 2047 + " "
    assert len(text) == 4096
    assert parse_cpus(text) == (0, 1)
    with pytest.raises(ValueError, match="4097 letters is too long"):
        parse_cpus(text + " ")


def test_six_runs_are_enough_for_a_change() -> None:
    (change,) = find_change_points([1.0, 1.01, 0.99, 2.0, 2.01, 1.99])
    assert (change.start, change.earliest, change.latest) == (3, 3, 3)
    assert find_change_points([1.0, 1.01, 0.99, 2.0, 2.01]) == []


def test_a_rate_has_no_factor_and_a_time_is_in_milliseconds() -> None:
    """As the names of benchmark tables have it."""
    factors = {(kind.unit, kind.hud_scale) for kind in METRICS.values()}
    assert factors == {("ns", 1e-6), ("bytes", 1e-6), ("1/s", 1.0)}


def test_heads_of_fair_tosses_are_binomial() -> None:
    for count in (1, 5, 20):
        masses = _binomial_half(count)
        expected = [math.comb(count, heads) / 2**count for heads in range(count + 1)]
        assert masses == pytest.approx(expected)


def test_the_interval_of_a_median_covers_what_it_says() -> None:
    """95 of 100 intervals of 8 draws hold the median of their distribution; 2 000 of them."""
    random = np.random.default_rng(3)
    held = 0
    for sample in random.exponential(size=(2000, 8)):
        interval = median_interval(sample.tolist())
        assert interval is not None
        held += interval.low <= math.log(2) <= interval.high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_command_breaks_where_the_sign_has_no_room() -> None:
    words = ["etprof", "profile", "net"]
    assert _broken_command(words, " ", 21) == [" etprof profile net"]
    assert _broken_command(words, " ", 20)[0] == " etprof profile \\"


def test_the_modules_that_take_most_come_first() -> None:
    table = Table("m", (Column("module", "string"), Column("a", "float64"), Column("b", "float64")))
    rows = [("small", 1.0, 2.0), ("large", 0.5, 9.0), ("middle", 5.0, None)]
    (first, second, third) = _largest(replace(table, rows=tuple(rows))).rows
    assert [first[0], second[0], third[0]] == ["large", "middle", "small"]
