"""Rules by their cases (test_finding_cases.py asks them), and what they say in them."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.findings.finding import Thresholds
from etprof.analysis.findings.rules import ExperimentFindings, evaluate_run
from etprof.analysis.findings.sme import is_faster
from etprof.analysis.insight import RunInsight, describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import UsageError
from etprof.cli.report import load_thresholds
from etprof.run.load import Run as LoadedRun
from tests.known_etdumps import US, timed
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, Op, Run, analyze, on_off_run, write_run
from tests.manifests import edit_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.analysis.findings.finding import Finding

CONV = "Convolution (NHWC, F16) IGEMM #{}"
DWCONV = "Convolution (NHWC, F16) DWConv #{}"
LAYER_NORM = "native_call_native_layer_norm.out"


def insight(folder: Path, run: Run) -> RunInsight:
    return describe_run(analyze(folder, run))


def one(ops: Sequence[Op], **changes: Any) -> Run:  # noqa: ANN401 - fields of Experiment
    return Run([Experiment("e", ops, **changes)])


def small_transposes(count: int, us: int, rest_us: int) -> list[Op]:
    transposes = [Op(f"Transpose (ND, X32) #{i}", us) for i in range(1, count + 1)]
    return [*transposes, Op(CONV.format(1), rest_us)]


def around(movement_us: int, rest_us: int) -> list[Op]:
    return [Op("Copy (NC, X32) #1", movement_us), Op(CONV.format(1), rest_us)]


def convolutions(*times_us: int) -> list[Op]:
    return [Op(CONV.format(i), us) for i, us in enumerate(times_us, start=1)]


def with_portable(us: int) -> list[Op]:
    return [Op(CONV.format(1), 1000, 0), Op("native_call_gelu.out", us, 1)]


def on_off(
    before: Sequence[Op], after: Sequence[Op], off: float | None = None, on: float | None = None
) -> Run:
    """Latencies are those of the operators, where they are not given."""
    off_us, on_us = (None if us is None else [us + i % 2 for i in range(10)] for us in (off, on))
    experiments = [
        Experiment("off", before, latency_us=off_us),
        Experiment("e", after, sme="sme2", latency_us=on_us),
    ]
    return Run(experiments)


def threads(*latencies_us: float) -> Run:
    names = ["t1", "e"]
    return Run(
        [
            Experiment(name, OFF_OPS, threads=1 + 3 * i, latency_us=[us + k % 2 for k in range(10)])
            for i, (name, us) in enumerate(zip(names, latencies_us, strict=True))
        ]
    )


def transposed(second: list[int], between: str, **first: object) -> Run:
    """Transposes by [1, 2, 0], does something to the result, and transposes again."""
    nodes = [
        {"kind": "StaticTranspose", "inputs": [0], "output": 1, "permutation": [1, 2, 0]},
        {"kind": between, "inputs": [1], "output": 2},
        {"kind": "StaticTranspose", "inputs": [2], "output": 3, "permutation": second},
        {"kind": "FullyConnected", "inputs": [3], "output": 4},
    ]
    nodes[0] |= first
    labels = {"Hardswish": "HardSwish (NC) #1", "Softmax": "Softmax (NC, F32) #1"}
    ops = [
        Op("Transpose (ND, X32) #1", 9), Op(labels[between], 9), Op("Transpose (ND, X32) #2", 8),
        Op("Fully Connected (NC, F32) GEMM #1", 100),
    ]  # fmt: skip
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    method = {"operators": [], "delegates": [delegate]}
    report = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    return replace(one(ops), delegation=report)


PACKED = "Convolution (NHWC, PF16) IGEMM #1"
STEADY_LATENCY = [100.0, 100.1] * 5
CASES: dict[str, tuple[Run, Run]] = {
    "F1": (
        one([*convolutions(400), Op(LAYER_NORM, 100, 1)]),
        one([*convolutions(400), Op(LAYER_NORM, 60, 1)]),
    ),
    "F2": (one(small_transposes(12, 20, 1000)), one(small_transposes(9, 20, 1000))),
    "F2b": (transposed([2, 0, 1], "Hardswish"), transposed([1, 2, 0], "Hardswish")),
    "F2c": (one(around(31, 69)), one(around(29, 71))),
    "F3": (one(convolutions(10, 11, 12, 300)), one(convolutions(10, 11, 12, 90))),
    "F3b": (
        one([*convolutions(10), Op("native_call_convolution.out", 5, 1)]),
        one([*convolutions(10), Op("native_call_linear.out", 5, 1)]),
    ),
    "F3c": (
        one([*convolutions(100), Op(DWCONV.format(1), 10)]),
        one([*convolutions(100), Op(DWCONV.format(1), 4)]),
    ),
    "F5": (one(with_portable(60)), one(with_portable(40))),
    "F6": (
        one([*convolutions(85), Op("Softmax (NC, F32) #1", 15)]),
        one([*convolutions(92), Op("Softmax (NC, F32) #1", 8)]),
    ),
    "F9": (
        on_off([*convolutions(70), Op("Copy (NC, X16) #1", 30)],
               [Op(PACKED, 10), Op("Copy (NC, X16) #1", 30)]),
        on_off([*convolutions(70), Op("Copy (NC, X16) #1", 30)],
               [Op(PACKED, 60), Op("Copy (NC, X16) #1", 30)]),
    ),
    "F10": (
        on_off(convolutions(100), convolutions(100)),
        on_off(convolutions(100), [Op(PACKED, 50)]),
    ),
    "F11": (
        on_off(convolutions(100), [Op(PACKED, 150)], off=100, on=150),
        on_off(convolutions(100), [Op(PACKED, 101)], off=100, on=101),
    ),
    "F12": (
        one(convolutions(100), delegate_overhead_us=15),
        one(convolutions(100), delegate_overhead_us=9),
    ),
    "F13": (
        one(convolutions(9), latency_us=[100, 120] * 5),
        one(convolutions(9), latency_us=STEADY_LATENCY),
    ),
    "F14": (threads(100, 130), threads(100, 80)),
    "F15": (
        replace(one(convolutions(9)), build_type="Debug"),
        replace(one(convolutions(9)), build_type="RelWithDebInfo"),
    ),
    "F16": (
        one(convolutions(9)),
        replace(one(convolutions(9)), delegation={"schema_version": 1, "model": "known",
                "methods": {"forward": {}}}),
    ),
}  # fmt: skip
DRIFTING = [100.0 + 2 * i for i in range(10)]


def findings_of(run: RunInsight, **others: Any) -> ExperimentFindings:  # noqa: ANN401
    return next(f for f in evaluate_run(run, **others) if f.experiment == "e")


def fired(run: RunInsight, **others: Any) -> dict[str, Finding]:  # noqa: ANN401
    return {finding.rule: finding for finding in findings_of(run, **others).findings}


def test_fp16_faster_than_int8(tmp_path: Path) -> None:
    int8 = replace(one(convolutions(9), latency_us=[90, 91] * 5), precision="int8")
    fast = one(convolutions(9), latency_us=[50, 51] * 5)
    fp16, *again = (insight(tmp_path / f"a{i}", fast) for i in range(3))
    slow = [insight(tmp_path / f"b{i}", int8) for i in range(3)]
    found = fired(fp16, rivals=slow, repeats=again)
    assert "FP16 runs 1.79× as fast as INT8" in found["F4"].summary
    # WHEN INT8 is the faster one, or precision is the same
    assert "F4" not in fired(slow[0], rivals=[fp16, *again], repeats=slow[1:])
    same = [insight(tmp_path / f"c{i}", replace(int8, precision="fp16")) for i in range(3)]
    assert "F4" not in fired(fp16, rivals=same, repeats=again)


def test_one_run_a_precision_is_no_finding(tmp_path: Path) -> None:
    """N1: F4 rested on the comparison of two runs, which calls the same thing twice faster."""
    fp16 = insight(tmp_path / "a", one(convolutions(9), latency_us=[50, 51] * 5))
    int8 = replace(one(convolutions(9), latency_us=[90, 91] * 5), precision="int8")
    assert "F4" not in fired(fp16, rivals=[insight(tmp_path / "b", int8)])


def test_layout_advice_is_about_this_model(tmp_path: Path) -> None:
    # GIVEN layout operators in a model with convolutions, and in one without
    turned = [Op("Transpose (NC, X32) #1", 31), *convolutions(69)]
    convolutional = fired(insight(tmp_path / "a", one(turned)))["F2c"]
    products = [Op("Copy (NC, X32) #1", 31), Op("Fully Connected (NC, F32) GEMM #1", 69)]
    plain = fired(insight(tmp_path / "b", one(products)))["F2c"]
    # THEN only the first is told about the layout of images
    assert "channels-last" in convolutional.action
    assert plain.action == "move the transposes and copies to the model's edge, or leave them out"
    # AND what a delegate could have taken is counted
    outside = [*products, *(Op("native_call_slice_copy.Tensor_out", 20, i) for i in (1, 2))]
    action = fired(insight(tmp_path / "c", one(outside)))["F2c"].action
    assert action.startswith(f"{plain.action}; have the 2 outside the delegate delegated")


@pytest.mark.parametrize(
    ("shape", "order", "is_advised"),
    [
        ((1, 3, 8, 8), (0, 1, 2, 3), True),
        ((1, 3, 8, 8), (0, 2, 3, 1), False),
        ((1, 1, 8, 8), (0, 1, 2, 3), False),
        ((8, 8), (0, 1), False),
        ((1, 3, 8, 8), None, True),
    ],
)
def test_a_layout_that_is_there_already_is_not_advised(
    tmp_path: Path, shape: tuple[int, ...], order: tuple[int, ...] | None, is_advised: bool
) -> None:
    """The report of a program exported with --channels-last said: export with --channels-last."""
    run = write_run(
        tmp_path / "r",
        replace(one([Op("Transpose (NC, X32) #1", 31), *convolutions(69)]), model="m"),
    )
    given = {"index": 0, "dtype": "float32", "shape": shape, "dim_order": order, "path": "i.bin"}
    export = {"schema_version": 1, "model": "m", "backend": "xnnpack", "precision": "fp32"}
    methods = {"methods": {"forward": {"inputs": [given]}}}
    (run / "export.json").write_text(json.dumps(export | methods))
    found = fired(describe_run(analyze_run(LoadedRun.load(run))))["F2c"]
    assert ("channels-last" in found.action) is is_advised


def test_inverse_transposes_are_proven_by_permutation_and_data_flow(tmp_path: Path) -> None:
    finding = fired(insight(tmp_path / "a", transposed([2, 0, 1], "Hardswish")))["F2b"]
    assert finding.time_ns == pytest.approx(17 * US)
    assert [(row.label, row.text) for row in finding.evidence] == [
        (
            "Transpose (ND, X32) #1 … Transpose (ND, X32) #2",
            "permutation (1, 2, 0), 1 operator between, 9.00 µs + 8.00 µs",
        )
    ]
    # WHEN what is between them needs its layout, or the second reads something else
    softmax = insight(tmp_path / "b", transposed([2, 0, 1], "Softmax"))
    assert "F2b" not in fired(softmax)
    unrelated = insight(tmp_path / "c", transposed([2, 0, 1], "Hardswish", output=9))
    assert "F2b" not in fired(unrelated)


def test_a_transpose_that_others_read_stays(tmp_path: Path) -> None:
    run = transposed([2, 0, 1], "Hardswish")
    assert run.delegation is not None
    delegate = run.delegation["methods"]["forward"]["delegates"][0]
    delegate["nodes"].append({"kind": "Add", "inputs": [1, 4], "output": 5})
    finding = fired(insight(tmp_path / "r", run))["F2b"]
    assert finding.time_ns == pytest.approx(8 * US)
    assert finding.evidence[0].text.endswith("others read the first one's result too")
    assert finding.action.endswith("keep the first of 1 pair, for others read it")


def pairs_exported(folder: Path, between: str | None, **manifest: object) -> str:
    """What F2b asks for, of an exported program; with `between` None nothing is between the pair."""
    run = transposed([2, 0, 1], between or "Hardswish")
    assert run.delegation is not None
    nodes = run.delegation["methods"]["forward"]["delegates"][0]["nodes"]
    if between is None:
        nodes[1]["inputs"], nodes[2]["inputs"] = [0], [1]
    path = write_run(folder, run)
    export = {"model": "known", "backend": "xnnpack", "precision": "fp16", **manifest}
    (path / "export.json").write_text(json.dumps(export))
    return fired(describe_run(analyze_run(LoadedRun.load(path))))["F2b"].action


def test_the_rewrite_that_merges_transposes_is_offered_where_it_does_it(tmp_path: Path) -> None:
    command = "`etprof export known --dtype fp16 --rewrite merged_transposes` does it for 1 of 1"
    assert pairs_exported(tmp_path / "near", None).endswith(f": {command}")
    # It follows transposes in a row only, and what it left in place it will leave again.
    assert "--rewrite" not in pairs_exported(tmp_path / "far", "Hardswish")
    applied = [{"name": "merged_transposes", "operators": 1}]
    assert "--rewrite" not in pairs_exported(tmp_path / "made", None, rewrites=applied)
    refused = {"merged_transposes": "known to hold for ExecuTorch 1.5, not for 2.0.0"}
    assert "--rewrite" not in pairs_exported(tmp_path / "not", None, rewrites_left_out=refused)


def test_without_the_data_flow_nothing_is_guessed_about_transposes(tmp_path: Path) -> None:
    run = replace(transposed([2, 0, 1], "Hardswish"), delegation=None)
    assert "F2b" not in findings_of(insight(tmp_path / "r", run)).checked


def test_a_latency_that_drifts_is_told(tmp_path: Path) -> None:
    """Each launch is near the median; the second half is a tenth slower than the first."""
    summary = fired(insight(tmp_path / "r", one(convolutions(9), latency_us=DRIFTING)))["F13"]
    assert "is 9.6 % slower than the first" in summary.summary


@pytest.mark.parametrize(
    ("platform", "command", "action"),
    [
        ("linux", ["profile", "net.py:Net", "--blocks=10", "--threads", "1"],
         "close other programs, and measure again: `etprof profile net.py:Net --threads 1 --blocks 20`"),
        ("android", ["profile", "n.pte", "--blocks", "10", "--target", "android"],
         "close other programs, let the device cool, and measure again: `etprof profile n.pte --target android --blocks 20`"),
        ("linux", ["run", "config.json"],
         "close other programs, and measure again with 20 in the config's measurement.blocks"),
        ("linux", ["profile", "net.pte", "--runner", "theirs/runner"],
         "close other programs, and measure again with --blocks 20"),
    ],
)  # fmt: skip
def test_a_noisy_run_names_its_own_command_with_more_launches(
    platform: str, command: list[str], action: str, tmp_path: Path
) -> None:
    """ "measure again with --blocks 24" was no command, and a computer was to cool."""
    run = replace(one(convolutions(9), latency_us=DRIFTING), platform=platform)
    path = write_run(tmp_path / "r", run)
    edit_manifest(path, lambda document: document.update(command=["etprof", *command]))
    assert fired(describe_run(analyze_run(LoadedRun.load(path))))["F13"].action == action


def test_a_noisy_run_that_began_slow_is_measured_with_a_longer_warm_up(tmp_path: Path) -> None:
    """--warmup-steady was advised in the answer, and the next command did not have it."""
    drifting = replace(one(convolutions(9), latency_us=DRIFTING), platform="linux")
    path = write_run(tmp_path / "r", drifting)
    metrics = json.loads((path / "metrics.json").read_text())
    for blocks in metrics["experiments"].values():
        for number, block in enumerate(blocks["blocks"]):
            usual_ns = block["latency_ns"][0]
            # Eight of ten launches must be steady from the start; here seven are.
            extra_ns = usual_ns if number % 10 < 3 else 0
            block["latency_ns"] = [usual_ns + extra_ns] * 20 + [usual_ns + i % 3 for i in range(30)]
    (path / "metrics.json").write_text(json.dumps(metrics))
    command = ["etprof", "profile", "net.py:Net"]
    edit_manifest(path, lambda document: document.update(command=command))
    action = fired(describe_run(analyze_run(LoadedRun.load(path))))["F13"].action
    assert action.endswith(": `etprof profile net.py:Net --blocks 20 --warmup-steady`")
    # AND a config has a name of its own for it
    edit_manifest(path, lambda document: document.update(command=["etprof", "run", "config.json"]))
    action = fired(describe_run(analyze_run(LoadedRun.load(path))))["F13"].action
    assert action.endswith("measurement.blocks and warmup_steady in its experiments")


def test_data_movement_above_the_reference(tmp_path: Path) -> None:
    mine = insight(tmp_path / "a", one(around(20, 80)))
    lower, higher = (
        insight(tmp_path / name, one(around(us, 100 - us))) for name, us in (("b", 10), ("c", 25))
    )
    finding = fired(mine, reference=lower)["F7"]
    assert finding.time_ns == pytest.approx(10 * US), "of 20 µs, the excess over the reference"
    assert finding.gain_ns is None
    assert "F7" not in fired(mine, reference=higher)


def test_convolution_below_the_reference_is_good_news(tmp_path: Path) -> None:
    run = on_off([*convolutions(70), Op("Copy (NC, X16) #1", 30)],
                 [Op(PACKED, 30), Op("Copy (NC, X16) #1", 30)])  # fmt: skip
    mine = insight(tmp_path / "a", run)
    high, low = (
        insight(tmp_path / name, one(around(100 - us, us), sme="sme2"))
        for name, us in (("b", 60), ("c", 40))
    )
    assert fired(mine, reference=high)["F8"].severity == "good"
    assert "F8" not in fired(mine, reference=low)


def test_the_reference_answers_three_questions(tmp_path: Path) -> None:
    mine = insight(tmp_path / "a", one(around(20, 80)))
    reference = insight(tmp_path / "b", one(around(10, 90)))
    answers = findings_of(mine, reference=reference).reference_answers
    assert [(a.question, a.answer) for a in answers] == [
        ("Is its Data Movement share higher?", "Yes, higher: layout churn."),
        ("Is its Other share higher?", "No, not higher."),
        (
            "Is its Convolution share lower?",
            "Yes, lower: other classes take more of the time (1x1 convolutions count as products).",
        ),
    ]
    assert [(a.share, a.reference_share) for a in answers][::2] == [(0.2, 0.1), (0.8, 0.9)]


def test_shares_that_are_alike_are_neither_higher_nor_lower(tmp_path: Path) -> None:
    """R252: one thousandth more was "Yes, higher"."""
    mine = insight(tmp_path / "a", one(around(11, 89)))
    reference = insight(tmp_path / "b", one(around(10, 90)))
    answers = findings_of(mine, reference=reference).reference_answers
    assert all(answer.answer.startswith("No, not ") for answer in answers)


def test_advice_on_norms_comes_from_this_export(tmp_path: Path) -> None:
    # GIVEN a layer norm that the export's own report says was left out, and why
    operator = {
        "name": "layer_norm", "operator": "native_layer_norm.default", "instruction": 1,
        "reason": "not supported by XNNPACK",
        "origin": {"module_path": "blocks.0.norm", "module_type": "LayerNorm"},
    }  # fmt: skip
    report = {
        "schema_version": 1,
        "model": "known",
        "methods": {"forward": {"operators": [operator]}},
    }
    run = replace(CASES["F1"][0], delegation=report)
    finding = fired(insight(tmp_path / "r", run))["F1"]
    assert finding.advice == (
        "No rewrite of etprof helps here: `native_layer_norm` at blocks.0.norm stays outside the "
        "XNNPACK delegate: not supported by XNNPACK (what to do: `etprof docs F1`)"
    )
    assert finding.evidence[0].label == "blocks.0.norm"
    assert finding.time_ns == 100 * US


def test_a_large_convolution_at_normal_throughput_is_not_slow(tmp_path: Path) -> None:
    # GIVEN four convolutions; the last takes 30 times as long for 30 times the work
    nodes = [
        {"kind": "Conv2d", "operators": [f"c{i}"], "attribution": "exact", "macs": macs}
        for i, macs in enumerate((1000, 1100, 1200, 30_000))
    ]
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    report = {
        "schema_version": 1,
        "model": "known",
        "methods": {"forward": {"delegates": [delegate]}},
    }
    run = replace(CASES["F3"][0], delegation=report)
    assert "F3" not in fired(insight(tmp_path / "a", run))
    # WHEN it does little work in that time
    nodes[3]["macs"] = 1000
    finding = fired(insight(tmp_path / "b", run))["F3"]
    assert finding.ruled_out == ("more work: throughput, not time, is what is low",)
    assert finding.time_ns == pytest.approx(290 * US, rel=0.01)


def test_most_convolutions_may_be_the_slow_ones(tmp_path: Path) -> None:
    """Three depthwise ones of 49 taps beside two that do the work: the median of rates was theirs."""
    nodes = [
        {"kind": "Conv2d", "operators": [f"c{i}"], "attribution": "exact", "macs": macs}
        for i, macs in enumerate((10**6, 10**6, 10**4, 10**4, 10**4))
    ]
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    report = {
        "schema_version": 1,
        "model": "known",
        "methods": {"forward": {"delegates": [delegate]}},
    }
    run = replace(one(convolutions(100, 100, 90, 90, 90)), delegation=report)
    finding = fired(insight(tmp_path / "a", run))["F3"]
    assert finding.summary.endswith(
        "half of the convolutions' work is computed at 20.0 GFLOP/s or more."
    )
    assert len(finding.claims) == 3


def test_emulated_runs_get_only_what_needs_no_times(tmp_path: Path) -> None:
    run = replace(on_off(convolutions(100), convolutions(100)), meaningful=False)
    found = findings_of(insight(tmp_path / "r", run))
    assert found.checked == ("F5", "F10", "F15", "F16")
    assert {finding.rule for finding in found.findings} == {"F10", "F16"}


def test_interruptions_are_no_property_of_the_model(tmp_path: Path) -> None:
    # GIVEN a softmax of 1 µs that the system interrupted once, not for long
    usual = [*convolutions(99), Op("Softmax (NC, F32) #1", 1)]
    interrupted = [*convolutions(99), Op("Softmax (NC, F32) #1", 49)]
    found = fired(insight(tmp_path / "r", one(usual, last_ops=interrupted)))
    # THEN "Other" is not called large
    assert "F6" not in found


def test_an_execution_far_from_the_median_is_not_in_the_split(tmp_path: Path) -> None:
    """N2: one interruption of milliseconds was most of a split of microseconds."""
    usual = [*convolutions(99), Op("Softmax (NC, F32) #1", 1)]
    interrupted = [*convolutions(99), Op("Softmax (NC, F32) #1", 2000)]
    run = insight(tmp_path / "r", one(usual, last_ops=interrupted))
    (entry,) = run.experiments
    assert (entry.experiment.split.executions, entry.experiment.split.left_out.disturbed) == (7, 1)
    assert timed(entry.details[-1].row).mean_ns == US
    assert any(
        "1 of 8 executions is left out of the per-operator breakdown" in n for n in run.run.notes
    )


def test_why_not_sme2_with_its_worth(tmp_path: Path) -> None:
    run = insight(tmp_path / "r", on_off_run())
    (found,) = (f for f in evaluate_run(run) if f.experiment == "android_sme2")
    groups = {group.code: group for group in found.why_not_sme2}
    assert set(groups) == {"depthwise"}
    depthwise = groups["depthwise"]
    assert depthwise.mean_ns == 50 * US
    latency_ns, split_ns = 301 * US, 291 * US
    assert depthwise.gain_ns == pytest.approx(50 * US * (1 - 185 / 800) * latency_ns / split_ns)
    assert len(ON_OPS) == 7


def test_thresholds_are_one_table_that_a_file_overrides(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps({"norm_share": 0.05}))
    thresholds = load_thresholds(path)
    near_miss = insight(tmp_path / "r", CASES["F1"][1])
    assert "F1" in fired(near_miss, thresholds=thresholds)
    assert load_thresholds(None) == Thresholds()


def test_unknown_thresholds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps({"norm_shar": 0.05, "drift": 7}))
    with pytest.raises(UsageError) as refusal:
        load_thresholds(path)
    message = str(refusal.value)
    assert message.startswith(f"{path} cannot be used: drift: Input should be less than or equal")
    assert "norm_shar: Extra inputs are not permitted" in message
    assert "the thresholds are norm_share, least_share" in message


def test_norms_between_layout_operators_weigh_more(tmp_path: Path) -> None:
    norm, copies = (
        Op("Normalize (NC, F32) #1", 100),
        [Op(f"Copy (NC, X32) #{i}", 1) for i in (1, 2)],
    )
    beside = fired(
        insight(
            tmp_path / "a", one([Op("Copy (NC, X32) #3", 1), copies[0], norm, *convolutions(400)])
        )
    )["F1"]
    between = [*convolutions(400), copies[0], norm, copies[1]]
    squeezed = fired(insight(tmp_path / "b", one(between)))["F1"]
    assert (beside.severity, squeezed.severity) == ("medium", "high")
    assert squeezed.summary.endswith("; 0 outside the delegate, 1 between layout operators.")
    assert "neighbouring operators for 1 norm" in squeezed.action
    assert "layout" not in beside.action


def test_a_program_without_any_delegate_is_told(tmp_path: Path) -> None:
    portable = [Op("native_call_linear.out", 90, 1), Op("native_call_gelu.out", 9, 2)]
    finding = fired(insight(tmp_path / "r", one(portable)))["F5"]
    assert (finding.title, finding.severity) == ("Nothing is delegated", "high")
    assert finding.summary.startswith("All 2 operators run on ExecuTorch's portable kernels")
    assert finding.time_ns == 99 * US


def test_a_runner_with_a_log_is_not_built_for_timing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", one(convolutions(9)))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["runner"]["build"]["xnnpack_log"] = True
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert fired(describe_run(analyze_run(LoadedRun.load(run))))["F15"].summary == (
        "Build type Release with the delegate's log."
    )


@pytest.mark.parametrize(
    ("low", "speed_up", "faster"),
    [
        (None, 1.2, True),
        (None, 1.199, False),
        (None, None, False),
        (1.2, 9.0, True),
        (1.19, 9.0, False),
    ],
)
def test_what_sped_up_by_just_the_ratio_is_faster(
    low: float | None, speed_up: float | None, faster: bool
) -> None:
    interval = None if low is None else SimpleNamespace(low=low)
    change: Any = SimpleNamespace(interval=interval, speed_up=speed_up)
    assert is_faster(change, 1.2) is faster
