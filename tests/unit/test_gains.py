"""A finding's gain is what its own command gains, as predicted; without one there is no number."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.findings.gains import FACTORS
from etprof.analysis.insight import describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.backends.registry import BY_NAME
from etprof.run.load import Run as LoadedRun
from etprof.tables.findings import brief_gain, gain_text
from tests.known_etdumps import US
from tests.known_runs import Op, Run, write_run
from tests.unit.test_findings import CONV, findings_of, fired, insight, on_off, one
from tests.unit.test_findings_hold import attention, described, repeated, traced

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GELU, MEAN = "native_call_gelu.out", "native_call_mean.out"
LEAST, _, MOST = FACTORS["delegated_casts"]


def outside(rewrites: Mapping[str, tuple[str, ...]], run: Run) -> Run:
    """Describes operators outside the delegate, by their places, with what would replace them."""
    operators = [
        traced(f"o{at}", f"{kind}.out", f"aten.{kind}.default", instruction=at, rewrites=names,
               reason="the partitioner has no rule for this operator")
        for at, (kind, names) in enumerate(rewrites.items(), 1)
    ]  # fmt: skip
    return described(run, operators)


def launches(gelu_us: int, mean_us: int) -> Run:
    """Six operator launches of 1 ms of convolutions with two operators outside."""
    return repeated(
        *(
            [Op(CONV.format(1), 1000 - us), Op(GELU, gelu_us + us, 1), Op(MEAN, mean_us, 2),
             Op(CONV.format(2), 10, 3)]
            for us in (0, 1, 0, 1, 0, 1)
        )
    )  # fmt: skip


def test_a_gain_counts_only_what_the_command_replaces(tmp_path: Path) -> None:
    """N3-4: F5 claimed 132.8 µs of all that is outside, and its command gained 20.0."""
    rewrites: dict[str, tuple[str, ...]] = {"gelu": (), "mean": ("delegated_casts",)}
    found = fired(insight(tmp_path / "a", outside(rewrites, launches(300, 100))))["F5"]
    assert found.action.count("--rewrite delegated_casts`") == 1
    assert found.time_ns == pytest.approx(400 * US, rel=0.01)
    assert found.gain_ns == pytest.approx(100 * US, rel=0.01)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(LEAST * 100 * US, rel=0.02)
    assert found.interval.high == pytest.approx(MOST * 100 * US, rel=0.02)
    assert brief_gain(found) == "predicted gain 70 … 120 µs, 5 … 9 % of the latency"


def test_calls_that_merge_give_their_overhead_back(tmp_path: Path) -> None:
    """A MobileNet of 19 calls gained 5.2 % by operators that took 1.3 %."""
    ops = [
        Op(CONV.format(1), 400), Op(GELU, 50, 1), Op(CONV.format(2), 400, 2), Op(MEAN, 50, 3),
        Op(CONV.format(3), 400, 4),
    ]  # fmt: skip
    run = one(ops, delegate_overhead_us=90)
    both = outside({"gelu": ("plain_products",)}, run)
    report: dict[str, tuple[str, ...]] = {
        "gelu": ("plain_products",),
        "relu": (),
        "mean": ("delegated_casts",),
    }
    assert run.delegation is None
    (overhead,) = (
        row.times.mean_ns
        for row in insight(tmp_path / "b", run).experiments[0].experiment.split.overheads
        if row.label == "Delegate overhead"
    )
    assert overhead > 0
    assert only_gain(tmp_path / "a", both) == pytest.approx(50 * US + overhead / 3, rel=0.01)
    # AND two thirds where the second gap closes too: three calls become one
    assert only_gain(tmp_path / "c", outside(report, run)) == pytest.approx(
        100 * US + overhead * 2 / 3, rel=0.01
    )


def only_gain(folder: Path, run: Run) -> float | None:
    """Of the one finding that has one."""
    (gain,) = (each.gain_ns for each in findings_of(insight(folder, run)).findings if each.gain_ns)
    return gain


def test_a_norm_may_become_slower(tmp_path: Path) -> None:
    """A ConvNeXt in float32 lost 7.5 % by what its norms were said to gain."""
    rewrites: dict[str, tuple[str, ...]] = {"gelu": (), "mean": ("spelled_norms",)}
    found = fired(insight(tmp_path / "a", outside(rewrites, launches(300, 100))))["F5"]
    assert found.interval is not None
    assert found.interval.low < 0 < found.interval.high
    assert brief_gain(found) == "predicted gain −50 … 120 µs, −4 … 8 % of the latency"


def test_without_a_command_or_its_prediction_no_number_is_shown(tmp_path: Path) -> None:
    """N3-4: "up to 34.5 µs to gain" stood where norms cannot be left out."""
    nothing = {"gelu": (), "mean": ()}
    found = fired(insight(tmp_path / "a", outside(nothing, launches(300, 100))))["F5"]
    assert (found.gain_ns, gain_text(found)) == (None, "")
    unknown = {"gelu": ("half_pointwise_weights",), "mean": ("delegated_casts",)}
    found = fired(insight(tmp_path / "b", outside(unknown, launches(300, 100))))["F5"]
    assert "--rewrite" in found.action
    assert (found.gain_ns, gain_text(found)) == (None, "")


def test_findings_of_one_command_have_one_gain(tmp_path: Path) -> None:
    """F-g: six findings of one cause each claimed its time."""
    ops = [Op(CONV.format(1), 100), Op(GELU, 60, 1), Op(MEAN, 60, 2), Op(CONV.format(2), 100, 9)]
    rewrites = {"where": ("plain_attention",), "mean": ("delegated_casts",)}
    found = findings_of(insight(tmp_path / "a", outside(rewrites, one(ops))))
    of_command = [each for each in found.findings if "--rewrite" in each.action]
    assert {each.rule for each in of_command} >= {"F5", "F6"}
    assert [each.rule for each in of_command if each.gain_ns is not None] == ["F5"]


def test_times_that_do_not_agree_predict_nothing(tmp_path: Path) -> None:
    run = attention("aten.scaled_dot_product_attention.default", ["plain_attention"])
    sound = fired(insight(tmp_path / "a", run))["F5"]
    assert sound.gain_ns == pytest.approx(60 * US)
    assert brief_gain(sound) == "about 60.0 µs to gain", "one launch has no interval"
    doubtful = replace(run, experiments=[replace(run.experiments[0], latency_us=[90.0] * 10)])
    assert fired(insight(tmp_path / "b", doubtful))["F5"].gain_ns is None


def test_a_program_that_has_a_rewrite_gains_nothing_by_it_again(tmp_path: Path) -> None:
    """Its command keeps the rewrites that the program was exported with."""
    rewrites = {"gelu": ("plain_products",), "mean": ("delegated_casts",)}
    run = outside(rewrites, launches(300, 100))
    path = write_run(tmp_path / "a", run)
    before = {"name": "delegated_casts", "operators": 1}
    export = {"model": "known", "backend": "xnnpack", "precision": "fp16", "rewrites": [before]}
    (path / "export.json").write_text(json.dumps(export))
    found = fired(describe_run(analyze_run(LoadedRun.load(path))))["F5"]
    assert "--rewrite delegated_casts,plain_products`" in found.action
    assert found.gain_ns == pytest.approx(300 * US, rel=0.01)


def test_a_measured_gain_comes_first_and_the_prediction_shares_it(tmp_path: Path) -> None:
    """F-g: no nanosecond is gained twice."""
    before, after = (
        [Op(CONV.format(1), us), Op(GELU, us // 2, 1), Op(CONV.format(2), us // 2, 2)]
        for us in (50, 100)
    )
    run = outside({"gelu": ("plain_products",)}, on_off(before, after, off=100, on=200))
    found = findings_of(insight(tmp_path / "a", run))
    gains = {each.rule: each for each in found.findings if each.gain_ns is not None}
    assert gains["F11"].gain_ns == pytest.approx(100 * US, rel=0.02)
    assert brief_gain(gains["F11"]).endswith(" µs to gain")
    assert gains["F5"].shares_with == ("F11",)
    assert gains["F5"].gain_ns == pytest.approx(25 * US, rel=0.02)
    assert sum(each.gain_ns or 0 for each in gains.values()) <= 200 * US


def test_every_predictable_rewrite_exists() -> None:
    names = {rewrite.name for rewrite in BY_NAME["xnnpack"].exporter().rewrites()}
    assert names >= FACTORS.keys()


def test_one_launch_predicts_without_an_interval(tmp_path: Path) -> None:
    run = one([Op(CONV.format(1), 100), Op(GELU, 50, 1), Op(CONV.format(2), 50, 2)])
    found = fired(insight(tmp_path / "a", outside({"gelu": ("plain_products",)}, run)))["F5"]
    assert found.gain_ns == pytest.approx(50 * US)
    assert found.interval is None
