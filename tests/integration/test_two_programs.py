"""Two real exports in turns on this host: aligned by what they compute, whatever their delegates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.export.request import ExportOptions, ExportRequest
from etprof.run.load import Run
from tests.integration.report_truth import check_comparison
from tests.world.host import etprof

if TYPE_CHECKING:
    from etprof.analysis.compare.comparison import Comparison
    from tests.integration.conftest import Exports

FEW = ("--threads", "1", "--blocks", "6", "--min-seconds", "0.02")


def measured(folder: Path, first: Path, second: Path) -> Comparison:
    """Measures again while operator times and latency disagree: the machine was busy for a moment."""
    for trial in range(4):
        run = folder / f"run{trial}"
        done = etprof(folder, "profile", first, "--against", second, *FEW, "--out", run)
        assert done.exit_code == 0, done.stderr
        assessment = assess_run(analyze_run(Run.load(run)))
        (comparison,) = assessment.comparisons
        sides = (comparison.baseline, comparison.candidate)
        if not any(side.experiment.is_in_doubt for side in sides):
            break
    assert all(check.is_within for check in assessment.outputs)
    assert Counter(check.against for check in assessment.outputs)["eager"] == 2
    return comparison


def pairs_of(comparison: Comparison) -> dict[str, tuple[list[str], list[str], str]]:
    """The aligned operators by the module of their first part."""
    found: dict[str, tuple[list[str], list[str], str]] = {}
    for each in (change.aligned for change in comparison.operators):
        if each.before and each.after:
            experiment = comparison.baseline.experiment
            place = [id(row) for row in experiment.split.rows].index(id(each.before[0]))
            known = experiment.attributions[place]
            if known is not None and known.certainty != "inserted" and known.origin is not None:
                before, after = ([row.base for row in rows] for rows in (each.before, each.after))
                found[known.origin.module_path] = (before, after, each.match)
    return found


@pytest.mark.slow
def test_two_precisions_are_aligned_by_module(exports: Exports, tmp_path: Path) -> None:
    """N14: every operator of the float16 program has its counterpart in the quantised one."""
    programs = [exports.get(ExportRequest("toy_cnn", each)).pte for each in ("fp16", "int8")]
    comparison = measured(tmp_path, *programs)
    check_comparison(comparison)
    found = pairs_of(comparison)
    assert {name: pair[0] for name, pair in found.items()} == {
        "stem": ["Convolution"], "depthwise": ["Convolution"], "pointwise": ["Fully Connected"],
        "pool": ["Max Pooling"], "": ["mean"], "head": ["Fully Connected"],
    }  # fmt: skip
    assert all(pair[0] == pair[1] for pair in found.values())
    # The quantised program converts its inputs and outputs; nothing else is new.
    new = [e.aligned.row.base for e in comparison.operators if e.aligned.match == "candidate only"]
    assert {*new} == {"Convert"}
    # The two got the same example inputs, in types of their own.
    (between,) = comparison.outputs
    assert between.against == comparison.baseline.experiment.name
    assert between.minimum_snr_db == pytest.approx(19.96, abs=0.01)
    assert comparison.differences == ()


@pytest.mark.slow
def test_another_partitioning_names_what_left_the_delegate(
    exports: Exports, tmp_path: Path
) -> None:
    """N14: the waterfall was `#1 286 µs → 0, #35 0 → 335 µs, 227 others`."""
    whole = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    options = ExportOptions(operators=("convolution",))
    parts = exports.get(ExportRequest("toy_cnn", "fp32", options=options)).pte
    comparison = measured(tmp_path, whole, parts)
    check_comparison(comparison)
    found = pairs_of(comparison)
    assert found["pool"] == (["Max Pooling"], ["max_pool2d_with_indices"], "other type")
    assert found["head"] == (["Fully Connected"], ["permute_copy", "addmm"], "split")
    assert {found[name][2] for name in ("stem", "depthwise", "pointwise")} == {"same"}
    assert comparison.times is not None
    assert comparison.times.waterfall is not None
    largest = comparison.times.waterfall.largest(1)[0].label
    assert largest == "Max Pooling (NHWC, F32) #1 → native_call_max_pool2d_with_indices.out"
