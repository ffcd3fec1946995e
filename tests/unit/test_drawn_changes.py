"""What single changes of a line went unnoticed: boundaries, factors, orders, and keys.

Drawn by `nox -s mutants -- --random 300`; each of these tests notices one of them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from etprof.analysis.assessment import assess_run
from etprof.base.cpu_list import parse_cpus
from etprof.base.errors import UsageError
from etprof.bench.matrix import MOST_RUNS, _endless
from etprof.cli.history import _threshold
from etprof.cli.parser import _broken_command
from etprof.export.request import ExportRequest
from etprof.history.gate import _chance_of_state
from etprof.history.metric_names import METRICS
from etprof.report_files import _places
from etprof.run.program import TensorFile, _shapes
from etprof.statistics.change_points import find_change_points
from etprof.statistics.order_statistics import _binomial_half, median_interval
from etprof.tables.alternatives import _largest
from etprof.tables.brief import _routes
from etprof.tables.table import Column, Table
from etprof.tables.verdicts import Headline, head_of
from tests.known_runs import analyze, on_off_run


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


def test_a_state_that_none_of_eight_runs_showed_has_a_chance_of_a_tenth() -> None:
    """The rule of succession; two series that are beyond each other's square it."""
    alone: Any = SimpleNamespace(runs_before=8, outside=0)
    both: Any = SimpleNamespace(runs_before=8, outside=1)
    assert _chance_of_state(alone) == pytest.approx(0.1)
    assert _chance_of_state(both) == pytest.approx(0.01)


def test_as_many_runs_as_are_allowed_are_not_endless() -> None:
    def matrix(models: int) -> Any:  # noqa: ANN401 - as much of a matrix as is asked
        one = ("x",)
        return SimpleNamespace(
            models=range(models), precisions=one, backends=one, devices=one, threads=(1,),
            sme=("off",), measurement=SimpleNamespace(blocks=1),
        )  # fmt: skip

    assert _endless(matrix(MOST_RUNS)) == []
    assert "combinations of models" in _endless(matrix(MOST_RUNS + 1))[0]


def test_a_scalar_is_a_shape_and_one_that_nobody_recorded_is_none() -> None:
    image, scalar, unknown = (
        TensorFile(index=0, dtype="float32", shape=shape, path="input_0.bin")
        for shape in ([1, 3, 8], [], None)
    )
    assert _shapes((image, scalar)) == ("1x3x8", "scalar")
    assert _shapes((image, unknown)) == ()


@pytest.mark.parametrize(
    ("model", "name", "longer"),
    [
        ("unet.pt2", "unet", ["unet_pt2"]),
        ("nets/unet.py:Net", "Net", ["Net_unet"]),
        ("unet.py", "unet", []),
        ("toy_cnn", "toy_cnn", []),
    ],
)
def test_two_sources_of_one_name_are_told_apart_by_their_file(
    model: str, name: str, longer: list[str]
) -> None:
    assert ExportRequest(model)._longer_names(name) == longer


def test_a_run_without_a_breakdown_is_named_and_says_what_it_has() -> None:
    def head(*counted: str) -> Headline:
        run = SimpleNamespace(counted=counted, name="toy_cnn")
        assessment: Any = SimpleNamespace(primary_comparison=None, is_split=False, run=run)
        return head_of(assessment)

    assert (head("sme2").text, head("sme2").plain) == ("toy_cnn", "Kernels were counted in sme2.")
    assert head().plain == "Outputs were computed."


def test_runs_of_one_name_get_folders_from_1_on(tmp_path: Path) -> None:
    assessment = assess_run(analyze(tmp_path / "r", on_off_run()))
    folders = [folder.name for _, folder in _places([assessment, assessment], tmp_path)]
    assert [name.rpartition("_")[2] for name in folders] == ["1", "2"]
    assert _places([assessment], tmp_path) == [(assessment, tmp_path)]


def test_the_ways_of_convolutions_and_products_are_shares_of_all(tmp_path: Path) -> None:
    assessment = assess_run(analyze(tmp_path / "r", on_off_run()))
    for insight in assessment.insight.experiments:
        parts = _routes(insight)
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert all(0 < part.share <= 1 for part in parts)
