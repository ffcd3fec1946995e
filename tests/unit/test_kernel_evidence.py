"""Grades, alignment of modes and reasons, on kernel traces made by hand."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from rich.console import Console

from etprof.analysis.split.evidence import (
    GRADES,
    Grade,
    ModeEvidence,
    OperatorEvidence,
    align_modes,
    describe_operator,
    join_evidence,
    pair_phases,
    read_evidence,
)
from etprof.analysis.split.operators import OperatorRow
from etprof.backends.backend import SmeRoute
from etprof.backends.registry import BACKENDS, PORTABLE
from etprof.base.errors import InputFileError
from etprof.run.kernel_trace import KernelTrace, read_kernel_trace
from etprof.tables.kernels import MODES, USES, kernel_section
from etprof.views.terminal import terminal_sections
from tests.source_checkout import ROOT

SME2 = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
PACK = "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme"
LEVELS = {SME2: "sme2", PACK: "sme"}


def make_trace(mode: str, operators: list[tuple[str, dict[str, int]]]) -> KernelTrace:
    """A trace of two executions, the first one without calls of the first operator's kernels."""
    totals: dict[str, int] = {}
    for _, calls in operators:
        for name, count in calls.items():
            totals[name] = totals.get(name, 0) + count
    document: dict[str, Any] = {
        "schema_version": 1,
        "method": "forward",
        "sme": {"requested": mode, "in_force": mode},
        "clock": {"mark_cost_ns": 50.0, "marks": 10},
        "kernels": [
            {
                "name": name,
                "level": LEVELS.get(name),
                "load_calls": 0,
                "execution_calls": [count, count],
            }
            for name, count in totals.items()
        ],
        "executions": [
            {"phase": phase, "start_ns": 0, "duration_ns": 9, "aligned": True}
            for phase in ("First", "Execute")
        ],
        "all_operators_named": True,
        "operators": [
            {
                "name": name,
                "delegate": None if name.startswith("native_call_") else 0,
                "start_ns": [0, 0],
                "duration_ns": [1, 1],
                "kernels": [{"name": k, "execution_calls": [n, n]} for k, n in calls.items()],
            }
            for name, calls in operators
        ],
    }
    return KernelTrace.model_validate(document)


def evidence_of(mode: str, *operators: tuple[str, dict[str, int]]) -> ModeEvidence:
    return read_evidence(make_trace(mode, list(operators)))


def test_a_trace_with_a_value_missing_is_refused(tmp_path: Path) -> None:
    document = make_trace("sme2", [("Softmax (NC, F16) #1", {})]).model_dump(mode="json")
    document["operators"][0]["start_ns"] = [0]
    file = tmp_path / "t_kernels.json"
    file.write_text(json.dumps(document))
    with pytest.raises(InputFileError) as caught:
        read_kernel_trace(file)
    assert str(caught.value) == (
        f"{file} is damaged: document: Value error, Softmax (NC, F16) #1 has 1 values for 2 "
        f"executions; count the kernels again"
    )


def test_the_tables_name_types_kernels_and_reasons() -> None:
    modes = {
        "sme2": evidence_of(
            "sme2",
            ("Convolution (NHWC, PF16) IGEMM #1", {PACK: 4, SME2: 1234}),
            ("Convolution (NHWC, F16) DWConv #1", {}),
            ("Softmax (NC, F16) #1", {}),
        ),
        "off": evidence_of(
            "off",
            ("Convolution (NHWC, F16) IGEMM #1", {}),
            ("Convolution (NHWC, F16) DWConv #1", {}),
            ("Softmax (NC, F16) #1", {}),
        ),
    }
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(*terminal_sections([kernel_section(modes, {}, None)], top=1000), sep="\n")
    lines = [
        " ".join(re.split(r"[\s│┃]+", line)).strip() for line in console.export_text().split("\n")
    ]
    name = SME2.removeprefix("kai_run_")
    assert f"Convolution IGEMM #1 PF16 F16 {name} A 1,234" in lines
    assert "Convolution DWConv #1 F16 F16 no KleidiAI microkernel A 0 depthwise" in lines
    assert "1 other operator: no convolution or matrix product" in lines
    assert "sme2 1,234 0 0 0 0 0 yes yes" in lines
    packing = [use for use in USES.of_each([modes]).records() if use["is_packing"]]
    assert [(use["mode"], use["number"], use["calls"]) for use in packing] == [("sme2", 1, 4)]


def test_work_without_an_operator_is_told() -> None:
    """T11: calls outside operators, and work that has no name, were written and never read."""
    document = make_trace("sme2", [("Softmax (NC, F16) #1", {SME2: 1})]).model_dump(mode="json")
    document["executions"][-1]["kernels_outside_operators"] = [{"name": SME2, "calls": 3}]
    document["all_operators_named"] = False
    found = read_evidence(KernelTrace.model_validate(document))
    (row,) = MODES.of([("sme2", found)]).records()
    assert (row["outside"], row["complete"]) == (3, False)


def test_counted_calls_are_grade_a() -> None:
    found = evidence_of("sme2", ("Convolution (NHWC, PF16) IGEMM #1", {PACK: 4, SME2: 8}))
    (operator,) = found.operators
    assert (operator.grade, operator.level) == ("A", "sme2")
    assert [(k.name, k.calls) for k in operator.compute_kernels] == [(SME2, 8)]
    assert found.count_level("sme2") == 8
    assert found.count_level("sme") == 0, "packing is no computing"
    assert found.steady


@pytest.mark.parametrize(
    ("label", "mode", "grade"),
    [
        ("Convolution (NHWC, PF16) IGEMM #1", "sme2", "B"),
        ("Fully Connected (NC, PF32) GEMM #3", "sme1", "B"),
        ("Fully Connected (NC, PQS8, QC8W) GEMM #1", "sme2", "B"),
        # A packed type proves nothing where SME is off, for a depthwise convolution, or as QP8 without a mode.
        ("Fully Connected (NC, PF32) GEMM #3", "off", None),
        ("Convolution (NHWC, PF16) DWConv #1", "sme2", None),
        ("Convolution (NHWC, PQS8, QS8, QC8W) DWConv #1", "sme2", None),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", None, None),
        ("Convolution (NHWC, F16) IGEMM #1", "sme2", None),
    ],
)
def test_a_label_alone_is_grade_b_at_most(label: str, mode: str | None, grade: str | None) -> None:
    assert describe_operator(label, BACKENDS[0], mode).grade == grade


def test_the_grades_are_those_that_code_gives_and_docs_name() -> None:
    """T5, I8: a grade C, which no operator could get, stood in the type, the legend and the docs."""
    answers = get_args(get_type_hints(SmeRoute)["answer"])
    parts = BACKENDS[0].read_label("Softmax (NC, F16) #1")
    given = {
        OperatorEvidence("x", parts, BACKENDS[0], (), is_counted, SmeRoute(answer)).grade
        for answer in answers
        for is_counted in (True, False)
    }
    text = "\n".join(file.read_text() for file in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
    named = set(re.findall(r"\bgrades?:?\s+([A-Z])\b", text, re.IGNORECASE))
    assert given - {None} == set(get_args(Grade)) == set(GRADES) == named


def test_modes_are_paired_by_order_whatever_their_types() -> None:
    # GIVEN a mode with one conversion more than the other
    on = evidence_of(
        "sme2",
        ("Convert (NC, F32, QP8) #1", {}),
        ("Fully Connected (NC, QP8, F32, QC8W) GEMM #1", {}),
        ("native_call_mean.out", {}),
    )
    off = evidence_of(
        "off", ("Fully Connected (NC, QD8, F32, QC8W) GEMM #1", {}), ("native_call_mean.out", {})
    )
    names = [
        {mode: found.name if found else None for mode, found in row.by_mode.items()}
        for row in align_modes({"sme2": on, "off": off})
    ]
    assert names == [
        {"sme2": "Convert (NC, F32, QP8) #1", "off": None},
        {
            "sme2": "Fully Connected (NC, QP8, F32, QC8W) GEMM #1",
            "off": "Fully Connected (NC, QD8, F32, QC8W) GEMM #1",
        },
        {"sme2": "native_call_mean.out", "off": "native_call_mean.out"},
    ]


@pytest.mark.parametrize(
    ("label", "code"),
    [
        ("Convolution (NHWC, F16) DWConv #1", "depthwise"),
        ("Convolution (NHWC, QC8) DWConv #1", "depthwise"),
        ("Convolution (NHWC, F32) VMulCAddC #1", "depthwise"),
        ("Fully Connected (NC, QP8, F32, QB4W) GEMM #1", "block-quantised weights"),
        ("Fully Connected (NC, F16) GEMM #1", "weight type"),
        ("Convolution (NHWC, QD8, F32, QC8W) IGEMM #1", "data type"),
        ("Deconvolution (NHWC, F32) IGEMM #1", "no kernel"),
        ("Batch Matrix Multiply (NC, QS8) GEMM #1", "data type"),
        ("Fully Connected (NC, QU8) GEMM #1", "data type"),
        ("Convolution (NHWC, F32) IGEMM #1", "shape"),
        ("Convolution (NHWC, PF32) IGEMM #1", "packed, not executed"),
        ("native_call_convolution.out", "not delegated"),
        ("native_call_bmm.out", "not delegated"),
    ],
)
def test_every_operator_without_sme2_has_its_reason(label: str, code: str) -> None:
    (operator,) = evidence_of("sme2", (label, {})).operators
    assert operator.why_not_sme2 is not None
    assert operator.why_not_sme2.code == code
    assert operator.why_not_sme2.source


def test_operators_that_took_sme2_or_never_could_need_no_reason() -> None:
    found = evidence_of(
        "sme2", ("Convolution (NHWC, PF16) IGEMM #1", {SME2: 1}), ("Softmax (NC, F16) #1", {})
    )
    assert [operator.why_not_sme2 for operator in found.operators] == [None, None]


def test_the_mode_is_a_reason() -> None:
    (operator,) = evidence_of("off", ("Convolution (NHWC, F16) IGEMM #1", {})).operators
    reason = operator.why_not_sme2
    assert reason is not None
    assert reason.code == "mode"


def test_products_that_run_alike_in_prefill_and_decode_are_one_row() -> None:
    """Kernels of the largest shape were shown as those of a step."""
    step, read = {SME2: 1}, {"kai_run_matmul_other_neon_i8mm": 1}
    gemm = "Fully Connected (NC, QP8, F32, QC4W) GEMM"
    decode = {
        "sme2": evidence_of("sme2", (f"{gemm} #1", step), (f"{gemm} #2", step), ("Softmax #1", {}))
    }
    prefill = {
        "sme2": evidence_of("sme2", (f"{gemm} #1", read), (f"{gemm} #2", step)),
        "off": evidence_of("off", (f"{gemm} #1", read)),
    }
    found = list(pair_phases(prefill, decode))
    assert [(each.mode, each.count) for each in found] == [("sme2", 1), ("sme2", 1)]
    console = Console(width=160, record=True, file=io.StringIO())
    section = kernel_section(decode, prefill, 20)
    console.print(*terminal_sections([section], top=1000), sep="\n")
    text = " ".join(console.export_text().split())
    assert "the prompt is read 20 tokens at once" in text
    assert "Reading the prompt and adding a token" in text
    assert "matmul_other_neon_i8mm" in text
    assert f"{gemm} #" not in text.partition("Reading the prompt and adding")[2]


NEON = "kai_run_matmul_clamp_f32_f32_f32p8x1biasf32_6x8x4_neon_mla"


def split_row(label: str, *, is_delegated: bool = True) -> OperatorRow:
    """A row of a split, as far as evidence is joined to it."""
    backend = BACKENDS[0] if is_delegated else PORTABLE
    parts = backend.read_label(label)
    return OperatorRow(
        label=label,
        backend=backend,
        base=parts.base,
        operator_class=parts.operator_class,
        is_known=True,
        instruction_id=0,
        data_types=parts.data_types,
        microkernel_type=parts.microkernel_type,
        executions=1,
        calls=1,
        step_ns=0.0,
        times=None,
    )


def counts_of(found: OperatorEvidence) -> tuple[Grade | None, dict[str, int]]:
    return found.grade, {kernel.name: kernel.calls for kernel in found.kernels}


def test_operators_of_one_name_keep_the_kernels_of_their_order() -> None:
    """M3, tests: two delegate calls with one name each swapped their kernels and stayed grade A."""
    label = "Fully Connected (NC, PF32) GEMM #1"
    traced = evidence_of("sme2", (label, {SME2: 3}), (label, {NEON: 5}), (label, {SME2: 7}))
    joined = join_evidence([split_row(label)] * 4, traced, "sme2")
    assert [counts_of(found) for found in joined] == [
        ("A", {SME2: 3}),
        ("A", {NEON: 5}),
        ("A", {SME2: 7}),
        # Nothing was counted for a fourth one, so that its name is all there is.
        ("B", {}),
    ]


def test_a_delegate_s_operator_has_no_share_in_a_portable_one_s_calls() -> None:
    """M3, tests: counts of a delegate's and of a portable operator of one name shared a key."""
    document = make_trace("sme2", [("mean", {SME2: 3}), ("mean", {NEON: 5})]).model_dump()
    document["operators"][0]["delegate"] = None
    traced = read_evidence(KernelTrace.model_validate(document))
    rows = [split_row("mean"), split_row("mean", is_delegated=False)]
    joined = join_evidence(rows, traced, "sme2")
    assert [(each.is_delegated, counts_of(each)) for each in joined] == [
        (True, ("A", {NEON: 5})),
        (False, ("A", {SME2: 3})),
    ]


def test_operators_of_a_mode_meet_their_own_kind_of_another() -> None:
    """M3, tests: a delegate's operator stood beside a portable one of its name."""
    document = make_trace("off", [("mean", {})]).model_dump()
    document["operators"][0]["delegate"] = None
    portable = read_evidence(KernelTrace.model_validate(document))
    rows = align_modes({"sme2": evidence_of("sme2", ("mean", {})), "off": portable})
    assert [list(row.by_mode.values()).count(None) for row in rows] == [1, 1]


@pytest.mark.parametrize(
    ("calls", "steady"),
    [
        ([9, 4, 4, 4], True),
        ([4, 9, 4, 4], False),
        ([4, 4, 9, 4], False),
        ([4, 4, 4, 9], False),
        ([4], True),
    ],
)
def test_every_execution_but_the_first_has_to_make_the_same_calls(
    calls: list[int], steady: bool
) -> None:
    """M3, tests: the second of all executions was not looked at."""
    document = make_trace("sme2", [("Softmax (NC, F16) #1", {})]).model_dump()
    phases = ["First", *["Execute"] * (len(calls) - 1)]
    document["executions"] = [{**document["executions"][0], "phase": phase} for phase in phases]
    document["kernels"] = [{"name": SME2, "load_calls": 0, "execution_calls": calls}]
    times = dict.fromkeys(("start_ns", "duration_ns"), [1] * len(calls))
    document["operators"][0].update(times)
    found = read_evidence(KernelTrace.model_validate(document))
    assert found.steady is steady
    assert dict(found.kernel_calls) == {SME2: calls[-1]}
    (row,) = MODES.of([("sme2", found)]).records()
    assert row["steady"] is steady
