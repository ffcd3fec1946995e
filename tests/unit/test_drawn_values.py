"""Single changes of a value, an order or a condition that went unnoticed: see test_drawn_changes.py."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from etprof.analysis.split.operators import _median_and_deviation
from etprof.backends.xnnpack import sme
from etprof.backends.xnnpack.labels import NEUTRAL_KINDS, parse_label
from etprof.base.errors import ExportError, UsageError
from etprof.cli.crash_report import write_report
from etprof.dashboard.addresses import PART, Address
from etprof.etrecord.program import _as_kernel
from etprof.export import lowering
from etprof.export.changes.failed_lowering import REWRITE
from etprof.export.changes.volumes import _sum_slices
from etprof.export.memory_plan import _levels
from etprof.export.request import ExportOptions
from etprof.export.state import vary_inputs
from etprof.history.exact.judging import _exact_judgement
from etprof.model_registry import plain_model
from etprof.model_registry.eager_model import ExportMethod
from etprof.model_registry.families import FAMILIES
from etprof.numerics.taps import _is_of_quantization
from etprof.run import generation
from etprof.run.accuracy import Verdict
from etprof.run.delegation import GraphOperator, PlannedTensor
from etprof.statistics.launch_ratio import flipped_intervals
from etprof.tables import comparisons
from etprof.tables.table import Column, Table
from etprof.views import charts
from etprof.views.cells import ShownColumn
from etprof.views.formats import html, perfetto
from etprof.views.trace import Counter, Slice, TraceProcess

if TYPE_CHECKING:
    from etprof.analysis.split.operators import PartTimes


def test_a_ratio_does_not_depend_on_the_unit_of_both_sides() -> None:
    """Of sums below one, too; a pair in which the baseline reads zero takes part."""
    baseline = np.array([0.0, 1, 2, 3, 4, 5, 6, 7]) / 64
    candidate = np.array([3.0, 1, 4, 2, 5, 6, 3, 9]) / 64
    intervals = flipped_intervals(baseline, candidate)
    assert intervals[0] is not None
    assert intervals == flipped_intervals(1024 * baseline, 1024 * candidate)


def test_an_input_in_another_order_may_have_any_number_of_axes() -> None:
    assert list(plain_model._of_other_order("1x4x2")) == ["1x2x4"]
    most = plain_model._MOST_AXES
    sizes = [1, *range(2, most + 1)]
    orders = list(plain_model._of_other_order("x".join(map(str, sizes))))
    assert len(set(orders)) == len(orders) > most
    assert "x".join(map(str, sizes)) not in orders
    assert list(plain_model._of_other_order("x".join(map(str, [*sizes, 9])))) == []


def test_inferences_in_a_row_take_the_samples_in_their_order() -> None:
    samples = [(torch.full((2,), float(number)),) for number in range(3)]
    method = ExportMethod(nn.Identity(), (torch.zeros(2),), calibration=samples)
    firsts = [float(vary_inputs(method, step)[0][0][0]) for step in (2, 3, 4, 5)]
    assert firsts == [0.0, 1.0, 2.0, 0.0]


def test_a_report_of_a_crash_is_its_owner_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert write_report("Traceback", ["runs"]).stat().st_mode & 0o777 == 0o600


def test_a_trace_s_tracks_have_numbers_of_their_own_and_notes_are_texts() -> None:
    event = Slice("conv", "Convolution", "Conv", 10, 20, is_synthetic=False)
    counters = tuple(Counter(name, "%", ((1, 2.0),)) for name in ("load", "clock"))
    packets = perfetto._process_packets(TraceProcess(1, "toy", (event,), counters))
    uuid = perfetto._TRACKS_A_PROCESS
    starts = [
        packet.find(perfetto.integer(1, uuid + track)) for track in range(4) for packet in packets
    ]
    assert sum(start >= 0 for start in starts) >= 4
    category = perfetto.message(4, perfetto.text(10, "category") + perfetto.text(6, "Conv"))
    assert any(category in packet for packet in packets)
    # A counter's values stand on its own track, never on that of the events.
    for track in (2, 3):
        points = perfetto.integer(9, perfetto._COUNTER) + perfetto.integer(11, uuid + track)
        assert any(points in packet for packet in packets)


def test_arenas_of_a_level_stand_in_order() -> None:
    tensors = [
        PlannedTensor(node="a", module_path="", arena=arena, offset_bytes=0, size_bytes=arena,
                      first_use=0, last_use=1)
        for arena in (8, 1, 2)
    ]  # fmt: skip
    levels = list(_levels(tensors, 1))
    assert list(levels[0]["args"].items()) == [("arena 1", 1), ("arena 2", 2), ("arena 8", 8)]
    assert levels[-1]["args"] == {"arena 1": 0, "arena 2": 0, "arena 8": 0}


def test_scales_and_zero_points_are_of_a_quantisation() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    scales = graph.call_function(
        torch.ops.quantized_decomposed.choose_qparams.tensor, (x, -128, 127, 1e-6, torch.int8)
    )
    scale = graph.call_function(__import__("operator").getitem, (scales, 0))
    plain = graph.call_function(torch.ops.aten.relu.default, (x,))
    assert [_is_of_quantization(node) for node in (scales, scale, plain)] == [True, True, False]


def test_a_part_of_a_list_has_at_most_six_digits() -> None:
    parts = [Address("runs", {PART: text}).part for text in ("999999", "1000000", "0", "x", "")]
    assert parts == [999_999, 1, 1, 1, 1]


def test_an_exact_change_is_relative_to_what_was() -> None:
    judgement = _exact_judgement("regression", 200.0, 250.0, "why")
    assert (judgement.change, judgement.smallest) == (0.25, 0.0)
    assert _exact_judgement("regression", 0.0, 1.0, "why").change is None


def test_an_exclusion_is_of_a_rewrite_that_is_asked_for() -> None:
    exclusion = ("plain_views=encoder",)
    for rewrites in (("all",), ("plain_views",)):
        ExportOptions(rewrites=rewrites, rewrite_exclusions=exclusion).check("xnnpack")
    with pytest.raises(UsageError, match="--rewrite does not ask for plain_views"):
        ExportOptions(rewrites=("whole_powers",), rewrite_exclusions=exclusion).check("xnnpack")


def test_each_axis_of_a_volume_has_its_own_dilation() -> None:
    generator = torch.Generator().manual_seed(1)
    volume = torch.randn(1, 2, 7, 6, 8, generator=generator)
    weight = torch.randn(3, 2, 2, 2, 3, generator=generator)
    for dilation in ((3, 1, 2), (1, 2, 1)):
        expected = torch.nn.functional.conv3d(volume, weight, dilation=dilation)
        assert torch.allclose(_sum_slices(volume, weight, dilation=dilation), expected, atol=1e-5)


def test_an_example_of_a_family_is_a_name_of_it() -> None:
    assert {prefix: family.example.partition(":")[0] for prefix, family in FAMILIES.items()} == {
        prefix: prefix for prefix in FAMILIES
    }


def test_a_tokenizer_that_is_not_there_is_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"tokenizer\.json"):
        generation.plan_generation(
            new_tokens=4, prompt_length=3, tokenizer=tmp_path / "tokenizer.json"
        )


@pytest.mark.parametrize("calls", [[9], [1, 8], [4, 5], [3, 3, 4], [5, 5], [2, 1, 7]])
def test_the_median_of_counted_calls_is_that_of_the_calls(calls: list[int]) -> None:
    durations = np.array([10, 20, 50])[: len(calls)]
    spelled = np.repeat(durations, calls)
    times = cast("PartTimes", SimpleNamespace(total_ns=float(spelled.sum())))
    median, deviation = _median_and_deviation(times, durations, np.array(calls))
    assert median == np.median(spelled)
    assert deviation == pytest.approx(spelled.std(ddof=1))


def test_a_kernel_of_another_name_does_none_of_the_operator_s_work() -> None:
    row = GraphOperator(name="mm", operator="aten::mm.default", macs=8)
    assert _as_kernel(row, "mm.out", 3).macs == 8
    assert _as_kernel(row, "transpose_copy.int_out", 3).macs is None
    assert (
        _as_kernel(row.model_copy(update={"operator": "my.lib::mm.default"}), "mm.out", 3).macs == 8
    )


def test_elementwise_kinds_alone_are_neutral() -> None:
    assert {"sigmoid", "multiply", "add"} <= NEUTRAL_KINDS
    assert not {"convolution", "transpose", "softmax", "batchmatrixmultiply"} & NEUTRAL_KINDS


def test_only_a_batched_product_reads_its_operand_as_integers() -> None:
    (asks,) = (rule[-1] for rule in sme._WHATEVER_THE_MODE if "rewrite_dequant_bmm_at" in rule[2])
    names = ("Batch Matrix Multiply (NC, F32, QC8W) #1", "Fully Connected (NC, F32, QC8W) #1",
             "Batch Matrix Multiply (NC, F32) #1")  # fmt: skip
    operators = [SimpleNamespace(name=parse_label(name)) for name in names]
    assert [asks(cast("Any", operator)) for operator in operators] == [True, False, False]


@pytest.mark.parametrize(("answer", "expected"), [("passed", ""), ("failed", "too far")])
def test_a_text_s_verdict_has_its_own_reason(answer: Any, expected: str) -> None:  # noqa: ANN401
    verdict = Verdict(question="text", answer=answer, where="", reason=expected)
    assert comparisons._reason(verdict) == expected
    equal = Verdict(question="lowering", answer="passed", where="", reason="")
    assert comparisons._reason(equal) == "no error: the outputs are equal"


def runs_of(*rows: tuple[Any, ...], columns: str) -> Table:
    """A table of runs to draw: number, run, kind, whether it is on the front, and these figures."""
    units = {"latency_ns": "ns", "sme_share": "fraction", "snr_db": "dB", "size_bytes": "bytes"}
    declared = [Column(name, "string") for name in ("number", "run", "kind", "is_unbeaten")]
    declared += [Column(name, "float64", units[name]) for name in columns.split()]
    return Table("front", tuple(declared), rows=tuple(rows))


def test_runs_are_drawn_by_latency_and_likeness() -> None:
    view = charts.front_of(
        runs_of(
            (1, "slow", "fp32", False, 4e6, 60.0, 400.0),
            (2, "fast", "fp16", True, 1e6, 20.0, 100.0),
            (3, "unknown", "fp16", False, None, 20.0, 100.0),
            columns="latency_ns snr_db size_bytes",
        )
    )
    assert view is not None
    dots = [(dot["number"], dot["left"], dot["bottom"], dot["size"]) for dot in view["dots"]]
    assert [(n, float(left), float(up), size) for n, left, up, size in dots] == [
        (1, 100.0, 100.0, 3.0), (2, 25.0, 0.0, 2.3),
    ]  # fmt: skip
    assert view["left_out"] == 1
    assert [dot["is_on_front"] for dot in view["dots"]] == [False, True]
    assert view["across"][1:] == ["0 ns", "4.00 ms"]
    assert view["up"][1:] == ["20.0 dB", "60.0 dB"]


def test_without_likeness_the_smaller_program_is_above() -> None:
    view = charts.front_of(
        runs_of(
            (1, "large", "fp32", True, None, 0.5, None, 400.0),
            (2, "small", "int8", True, None, 1.0, None, 100.0),
            columns="latency_ns sme_share snr_db size_bytes",
        )
    )
    assert view is not None
    places = [(float(dot["left"]), float(dot["bottom"])) for dot in view["dots"]]
    assert places == [(50.0, 0.0), (100.0, 75.0)]


@pytest.mark.parametrize(
    ("names", "levels"),
    [(("name", "kernels"), [0, 1]), (("name", "mean_ns", "kernels"), [0, 0, 2])],
)
def test_what_was_proven_is_seen_where_nothing_was_timed(
    names: tuple[str, ...], levels: list[int]
) -> None:
    columns = [ShownColumn(Column(name, "string", visibility="page"), name) for name in names]
    assert html._levels(columns, 0) == levels


class Untraceable(nn.Module):
    """A model whose own code fails while it is traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Raises."""
        raise ValueError(x.dtype)


@pytest.mark.parametrize(
    ("dtype", "way_out"), [(torch.float32, REWRITE), (torch.float16, lowering._IN_HALVES)]
)
def test_halves_alone_are_answered_with_float32(dtype: torch.dtype, way_out: str) -> None:
    method = ExportMethod(Untraceable(), (torch.ones(2, dtype=dtype),))
    with pytest.raises(ExportError) as caught:
        lowering.trace("forward", method)
    assert str(caught.value).endswith(way_out)
    assert os.linesep not in str(caught.value)
