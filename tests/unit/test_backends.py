"""What a delegate means: whose words, which unit, and whether SME; one answer for everyone."""

from __future__ import annotations

import ast
import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import etprof
from etprof.analysis.assessment import assess_run
from etprof.analysis.compare.pairs import compare_within
from etprof.analysis.findings.finding import required
from etprof.analysis.insight import describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.backends import registry
from etprof.backends.backend import CONVOLUTION, Backend, OperatorFacts, OperatorName
from etprof.backends.kernel_names import SME_LEVELS, parse_kernel_name
from etprof.backends.registry import BACKENDS, OPAQUE, backend_of
from etprof.backends.xnnpack import sme
from etprof.run.load import Run as LoadedRun
from tests.etdump_writer import etdump, event, event_block, profile_event, write_etdump
from tests.known_etdumps import US, span, timed
from tests.known_runs import Experiment, Op, Run, analyze, build_etdump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.insight import ExperimentInsight

PACKAGE = Path(etprof.__file__).parent
XNNPACK = backend_of("XnnpackBackend")
PER_CHANNEL = "Fully Connected (NC, QP8, F32, QC8W) GEMM #1"
BLOCKS = "Fully Connected (NC, QP8, F32, QB4W) GEMM #1"
FLOAT = "Fully Connected (NC, PF32) GEMM #1"


def insight_of(folder: Path, ops: Sequence[Op], mode: str) -> ExperimentInsight:
    run = Run([Experiment("e", ops, sme=mode)])
    return describe_run(analyze(folder / "r", run)).experiments[0]


@pytest.mark.parametrize(
    ("label", "mode", "counted", "answer", "code"),
    [
        (FLOAT, "sme2", ["sme2"], "proven", None),
        (FLOAT, "sme1", ["sme"], "proven", None),
        (FLOAT, "sme2", None, "named", None),
        (FLOAT, None, None, "named", None),
        (FLOAT, "off", None, "excluded", "mode"),
        (FLOAT, "sme2", [], "excluded", "packed, not executed"),
        (PER_CHANNEL, "sme2", None, "named", None),
        (PER_CHANNEL, "sme2", ["sme2"], "proven", None),
        (PER_CHANNEL, "sme2", ["i8mm"], "excluded", "packed, not executed"),
        (PER_CHANNEL, "off", None, "excluded", "mode"),
        (PER_CHANNEL, None, None, "unknown", None),
        ("Fully Connected (NC, QP8, F32, QC2W) GEMM #1", "sme2", None, "unknown", None),
        (BLOCKS, "sme2", None, "excluded", "block-quantised weights"),
        (BLOCKS, None, None, "excluded", "block-quantised weights"),
        ("Convolution (NHWC, PF16) DWConv #1", "sme2", None, "excluded", "depthwise"),
        ("Convolution (NHWC, F16) IGEMM #1", "sme2", None, "excluded", "shape"),
        ("Convolution (NHWC, F16) IGEMM #1", None, None, "unknown", None),
        ("Softmax (NC, F32) #1", "sme2", None, "excluded", "kind"),
    ],
)
def test_the_route_has_four_answers(
    label: str, mode: str | None, counted: list[str] | None, answer: str, code: str | None
) -> None:
    """T9: counted, named, excluded with its reason, or unknown; never a yes from nothing."""
    levels = None if counted is None else frozenset[str | None](counted)
    route = XNNPACK.sme_route(OperatorFacts(XNNPACK.read_label(label), mode, levels))
    assert (route.answer, route.reason.code if route.reason else None) == (answer, code)


def test_per_channel_products_are_told_although_their_name_is_one_on_both_sides(
    tmp_path: Path,
) -> None:
    """T9: a real 2.5x printed "No operator changed to a packed type", ceiling 1.0."""
    run = Run(
        [
            Experiment("off", [Op(PER_CHANNEL, 250), Op("Softmax (NC, F32) #1", 50)], sme="off"),
            Experiment("on", [Op(PER_CHANNEL, 100), Op("Softmax (NC, F32) #1", 50)], sme="sme2"),
        ]
    )
    (comparison,) = compare_within(analyze(tmp_path / "r", run))
    panel = required(timed(comparison).amdahl)
    assert panel.accelerated_operators == 1
    assert panel.accelerated_speed_up == pytest.approx(2.5)
    assert panel.ceiling == pytest.approx(6.0)


def test_products_without_a_kernel_do_not_pass_for_sme2(tmp_path: Path) -> None:
    """T9: `QP8 … QB4W` passed as SME2 wherever calls were not counted."""
    (detail,) = insight_of(tmp_path, [Op(BLOCKS, 100)], "sme2").details
    assert (detail.evidence.grade, detail.kernel_hint) == (None, None)
    assert detail.why_not_sme2 is not None
    assert detail.why_not_sme2.code == "block-quantised weights"


def test_without_a_mode_a_type_that_both_modes_have_says_nothing(tmp_path: Path) -> None:
    """T9: nothing turns unknown into yes, or into no."""
    file = tmp_path / "alone.etdump"
    file.write_bytes(build_etdump(Experiment("e", [Op(PER_CHANNEL, 100), Op(FLOAT, 100)])))
    channel, floats = describe_run(analyze_run(LoadedRun.load(file))).experiments[0].details
    assert (channel.evidence.route.answer, channel.evidence.grade) == ("unknown", None)
    assert (channel.why_not_sme2, channel.kernel_hint) == (None, None)
    assert (floats.evidence.route.answer, floats.evidence.grade) == ("named", "B")


def test_every_part_asks_the_one_function(tmp_path: Path) -> None:
    """T9: finding, headline panel, why-not and grade of one run agree."""
    ops = [Op(FLOAT, 100), Op(BLOCKS, 100), Op("Convolution (NHWC, F32) DWConv #1", 50)]
    run = Run([Experiment("off", ops, sme="off"), Experiment("on", ops, sme="sme2")])
    assessment = assess_run(analyze(tmp_path / "r", run))
    details = assessment.insight.of("on").details
    takes = [detail.evidence.route.takes_sme for detail in details]
    assert takes == [True, False, False]
    assert [detail.evidence.grade == "B" for detail in details] == takes
    assert [detail.why_not_sme2 is None for detail in details] == takes
    groups = assessment.findings_of("on").why_not_sme2
    assert sum(len(group.operators) for group in groups) == takes.count(False)
    (comparison,) = assessment.comparisons
    assert required(timed(comparison).amdahl).accelerated_operators == takes.count(True)


def test_the_packed_types_stand_in_one_table() -> None:
    """T9: five lists disagreed."""
    names = {packed.name for packed in sme.PACKED_TYPES}
    holders = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert holders == {"backends/xnnpack/sme.py"}


def test_the_table_of_microkernels_is_of_the_pinned_sdk() -> None:
    """T15: whoever moves the pin makes the table again, with generate_symbols.py --table."""
    table = sme.kernel_table()
    assert str(table["executorch"]).partition("+")[0] == version("executorch").partition("+")[0]
    assert str(table["revision"])[:12] in sme.describe_source()


def test_the_table_of_microkernels_is_the_library_s_own() -> None:
    """T15: each packed type with SME2 has a symbol for it, and blocks of four bits have none."""
    levels = {(p.name, p.weights): p.levels for p in sme.PACKED_TYPES}
    assert levels == {
        ("PF32", None): {"sme", "sme2"},
        ("PF16", None): {"sme", "sme2"},
        ("PQS8", None): {"sme", "sme2"},
        ("QP8", "QC8W"): {"sme", "sme2", "dotprod", "i8mm"},
        ("QP8", "QC4W"): {"sme", "sme2", "dotprod", "i8mm"},
        ("QP8", "QB4W"): {"dotprod", "i8mm"},
    }
    computing = [
        kernel
        for name in sme.kernel_table()["kernels"]  # type: ignore[attr-defined]
        if not (kernel := parse_kernel_name(name)).is_packing and kernel.level in SME_LEVELS
    ]
    known = {packed.kernel for packed in sme.PACKED_TYPES}
    assert {(kernel.destination, *kernel.inputs) for kernel in computing} <= known


FOREIGN = "CoreMLBackend"


def foreign_run(folder: Path, unit: int) -> Path:
    """A run whose one delegate reports two operators of 3 and 4 µs in ticks of another unit."""
    label = {"delegate_debug_id_str": b"Convolution (NHWC, PF16) IGEMM #1"}
    blocks = []
    for start in (0, 20 * US, 40 * US):
        events = [
            span(None, 5 * US, 3 * unit, instruction_id=0, **label),
            span(None, 5 * US + 3 * unit * US, 4 * unit, instruction_id=0, **label),
            span(b"DELEGATE_CALL", start, 8, instruction_id=0),
            span(b"Method::execute", start, 9),
        ]
        blocks.append(event_block(b"Execute", events))
    folder.mkdir()
    (folder / "m.etdump").write_bytes(bytes(write_etdump(etdump(blocks)).data))
    delegate = {"name": "lowered_module_0", "backend": FOREIGN, "instruction": 0}
    report = {"schema_version": 1, "model": "m", "methods": {"forward": {"delegates": [delegate]}}}
    (folder / "delegation.json").write_text(json.dumps(report))
    return folder


@pytest.mark.parametrize("unit", [1, 1000])
def test_a_delegate_that_nobody_knows_is_one_row_in_the_runtime_s_time(
    tmp_path: Path, unit: int
) -> None:
    """T16: its events were read by another backend's grammar, and as nanoseconds."""
    run = analyze_run(LoadedRun.load(foreign_run(tmp_path / "r", unit)))
    split = run.experiments[0].split
    (row,) = split.rows
    assert (row.label, row.backend, timed(row).mean_ns) == (FOREIGN, OPAQUE, 8 * US)
    assert (row.is_known, row.data_types, row.microkernel_type) == (False, (), None)
    assert sum(times.total_ns for _, times in split.parts) == timed(split).execute.total_ns
    (evidence,) = run.experiments[0].evidence
    assert (evidence.route.answer, evidence.grade) == ("unknown", None)
    ticks = 3 * 7 * unit * US
    assert any(f"{ticks} ticks of a unit that is not known" in note for note in run.notes)


def test_every_backend_says_what_it_means() -> None:
    assert [each.name for each in BACKENDS] == ["xnnpack", "portable"]
    assert len({each.delegate for each in BACKENDS}) == len(BACKENDS)
    assert backend_of("NoSuchBackend") is OPAQUE
    assert OPAQUE.ns_per_tick is None


class CountingMicroseconds(Backend):
    """A delegate with a unit of its own that is known."""

    delegate = FOREIGN
    ns_per_tick = 1000.0

    def read_label(self, label: str) -> OperatorName:
        return OperatorName(label, (), None, CONVOLUTION)


def test_a_delegate_s_own_unit_is_turned_into_ns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T16: nothing is nanoseconds by default; 3 and 4 ticks of a µs clock are 3 and 4 µs."""
    backend = CountingMicroseconds()
    monkeypatch.setattr(registry, "BACKENDS", (*BACKENDS, backend))
    events = [
        profile_event(start_time=90, end_time=93, instruction_id=0, delegate_debug_id_str=b"conv"),
        profile_event(start_time=93, end_time=97, instruction_id=0, delegate_debug_id_str=b"conv"),
        profile_event(b"DELEGATE_CALL", start_time=0, end_time=8 * US, instruction_id=0),
        profile_event(b"Method::execute", start_time=0, end_time=9 * US),
    ]
    block = event_block(b"Execute", [event(profile=each) for each in events])
    folder = foreign_run(tmp_path / "r", 1)
    (folder / "m.etdump").write_bytes(bytes(write_etdump(etdump([block])).data))
    (row,) = analyze_run(LoadedRun.load(folder)).experiments[0].split.rows
    assert (row.backend, timed(row).mean_ns, row.calls) == (backend, 7 * US, 2)
