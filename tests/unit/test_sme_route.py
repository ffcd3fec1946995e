"""The SME route over all labels, types, modes and counts: unknown stays unknown, claims hold.

T9, and what was left of it: reasons against the kernel table, "excluded" where nobody knows.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from etprof.backends.backend import OperatorFacts, SmeRoute
from etprof.backends.kernel_names import parse_kernel_name
from etprof.backends.registry import BACKENDS, OPAQUE, PORTABLE
from etprof.backends.xnnpack import sme
from etprof.backends.xnnpack.graph import XnnpackNode
from etprof.export.delegation import summarize
from etprof.run.delegation import Delegate, DelegateNode, GraphOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

XNNPACK = BACKENDS[0]
PRODUCTS: Final = (
    "Convolution", "Deconvolution", "Fully Connected", "Dynamic Fully Connected",
    "Batch Matrix Multiply",
)  # fmt: skip
BASES: Final = (*PRODUCTS, "Softmax", "Copy", "Invalid Unary Op")
MICROKERNELS: Final = (None, "GEMM", "IGEMM", "DWConv", "VMulCAddC", "SPMM")
TYPES: Final = (
    "", "F32", "F16", "BF16", "QU8", "QS8", "QS8, QC8W", "QS8, QC4W", "F32, QC8W", "F32, QC4W",
    "QD8, F32, QC8W", "QD8, F32, QC4W", "QD8, F32, QB4W", "QD8, F16, QC8W", "QDU8, F32, QC8W",
    "PF32", "PF16", "PQS8", "PQS8, QC8W", "PQS8, QS8, QC8W", "QP8, F32, QC8W", "QP8, F32, QC4W",
    "QP8, F32, QB4W", "QP8, F16, QC8W", "QP8, F32, QC2W", "PF8", "F32, NEW",
)  # fmt: skip
MODES: Final = ("sme2", "sme1", "off", None, "auto", "sme3")
TOLD: Final = {"sme2": {"sme", "sme2"}, "sme1": {"sme"}, "off": set[str]()}
COUNTS: Final = (None, (), ("i8mm",), ("sme",), ("sme2", "neon"))

IN_KLEIDIAI: Final = {
    "F32": ("f32", "f32", "f32"), "F16": ("f16", "f16", "f16"),
    "QS8": ("qai8", "qai8", "qsi8cx"), "QS8, QC8W": ("qai8", "qai8", "qsi8cx"),
    "QD8, F32, QC8W": ("f32", "qai8dx", "qsi8cx"), "QD8, F32, QC4W": ("f32", "qai8dx", "qsi4cx"),
    "QD8, F32, QB4W": ("f32", "qai8dx", "qsi4c32"), "QD8, F16, QC8W": ("f16", "qai8dx", "qsi8cx"),
}  # fmt: skip
"""What a microkernel for these types would write and read, packed or not."""
PLAIN: Final = {
    "PF32": "F32", "PF16": "F16", "PQS8": "QS8", "PQS8, QC8W": "QS8, QC8W",
    "PQS8, QS8, QC8W": "QS8, QC8W", "QP8, F32, QC8W": "QD8, F32, QC8W",
    "QP8, F32, QC4W": "QD8, F32, QC4W", "QP8, F32, QB4W": "QD8, F32, QB4W",
}  # fmt: skip
LIBRARY: Final = [parse_kernel_name(name) for name in sme.kernel_table()["kernels"]]  # type: ignore[attr-defined]
NOBODY_KNOWS: Final = {"", "PF8", "F32, NEW", "QP8, F32, QC2W", "QP8, F16, QC8W"}


def sme_levels(types: str) -> set[str | None]:
    """What the library has for the types, read from its symbols anew."""
    wanted = IN_KLEIDIAI.get(PLAIN.get(types, types))
    return {
        kernel.level
        for kernel in LIBRARY
        if not kernel.is_packing and (kernel.destination, *kernel.inputs) == wanted
    } & {"sme", "sme2"}


def route_of(
    base: str,
    types: str,
    microkernel: str | None,
    mode: str | None,
    counted: tuple[str, ...] | None,
) -> SmeRoute:
    label = f"{base} (NC, {types})" + (f" {microkernel}" if microkernel else "")
    levels = None if counted is None else frozenset[str | None](counted)
    return XNNPACK.sme_route(OperatorFacts(XNNPACK.read_label(label), mode, levels))


def every_label() -> Iterator[tuple[str, str, str | None]]:
    return itertools.product(BASES, TYPES, MICROKERNELS)


def test_counted_calls_decide() -> None:
    for label, mode, counted in itertools.product(every_label(), MODES, COUNTS):
        answer = route_of(*label, mode, counted).answer
        assert (answer == "proven") == bool(set(counted or ()) & {"sme", "sme2"}), (label, mode)
        if counted is not None:
            assert answer != "named", (label, mode)


def test_what_was_counted_is_proven_whoever_ran_it() -> None:
    """A kernel of ExecuTorch that called SME was "not delegated", so excluded."""
    for backend in (*BACKENDS, OPAQUE):
        facts = OperatorFacts(backend.read_label("native_call_x.out"), "sme2", frozenset({"sme2"}))
        assert backend.sme_route(facts).answer == "proven"
    name = PORTABLE.read_label("native_call_x.out")
    assert PORTABLE.sme_route(OperatorFacts(name, "sme2", frozenset())).answer == "excluded"


def test_what_hangs_on_an_unknown_mode_is_unknown() -> None:
    """B-D6, B-D15: mode None was an exclusion, and "auto" a KeyError."""
    for label in every_label():
        told = [route_of(*label, mode, None) for mode in ("sme2", "sme1")]
        for mode in (None, "auto", "sme3"):
            route = route_of(*label, mode, None)
            if route.answer == "excluded":
                assert [route] * 2 == told, label
            elif route.answer == "named":
                assert told[0].answer == "named", label
                assert label[1].startswith("PF") or label[1].startswith("PQS8"), label
        for mode in ("auto", "sme3"):
            for counted in COUNTS:
                assert route_of(*label, mode, counted) == route_of(*label, None, counted)


def test_a_label_that_the_table_lacks_is_unknown() -> None:
    """B-D6: every label that the table lacks was told to be no product."""
    for label in every_label():
        base, types, microkernel = label
        is_other = base in {"Softmax", "Copy"}
        is_depthwise = base in PRODUCTS and microkernel in {"DWConv", "VMulCAddC"}
        if is_other or is_depthwise or (base in PRODUCTS and types not in NOBODY_KNOWS):
            continue
        for mode in MODES:
            expected = "excluded" if mode == "off" else "unknown"
            assert route_of(*label, mode, None).answer == expected, (label, mode)
            counted = route_of(*label, mode, ())
            assert counted.reason is not None
            assert counted.reason.code == ("mode" if mode == "off" else "not executed")


@pytest.mark.slow
def test_no_reason_contradicts_the_library() -> None:
    """B-D5: "no SME2 microkernel for these weights" of weights that have one."""
    seen = set()
    for label, mode, counted in itertools.product(every_label(), MODES, COUNTS):
        route, levels = route_of(*label, mode, counted), sme_levels(label[1])
        said = (label, mode, counted, route)
        assert (route.reason is not None) == (route.answer == "excluded"), said
        if route.answer == "named":
            assert levels & TOLD.get(mode or "", levels), said
        if route.reason is None:
            continue
        seen.add(route.reason.code)
        if route.reason.source.startswith("the symbols"):
            assert not levels, said
        if route.reason.code in {"shape", "weight type"}:
            assert levels & TOLD[mode or ""], said
        if route.reason.code in {"packed, not executed", "not executed"}:
            assert counted is not None, said
        if route.reason.code == "packed, not executed":
            assert levels, said
        if route.reason.code == "mode" and mode != "off":
            assert counted is not None or (mode == "sme1" and levels == {"sme2"}), said
    assert seen >= {"kind", "mode", "depthwise", "no kernel", "data type", "shape", "weight type"}


def test_a_mode_without_the_kernel_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    only = {("f32", "f32", "f32"): frozenset({"sme2"})}
    monkeypatch.setattr(sme, "_levels_by_types", lambda: only)
    for types in ("F32", "PF32"):
        route = route_of("Fully Connected", types, "GEMM", "sme1", None)
        assert route.reason is not None
        assert (route.answer, route.reason.code) == ("excluded", "mode")


def node(kind: str, types: str) -> XnnpackNode:
    *inputs, output = types.split()
    return XnnpackNode(0, kind, 1, (0, 1), 2, tuple(inputs), output, {})


@pytest.mark.parametrize(
    ("kind", "types", "sme2"),
    [
        ("Sin", "fp32 fp32", False),
        ("StaticTranspose", "fp32 fp32", False),
        ("ScaledDotProductAttention", "fp32 fp32", None),
        ("FullyConnected", "qdint8 newint2 fp32", None),
        ("FullyConnected", "fp32 qcint8 fp32", False),
        ("FullyConnected", "fp32 fp32 fp32", True),
    ],
)
def test_a_prediction_that_nobody_can_make_is_none(
    kind: str, types: str, sme2: bool | None
) -> None:
    """B-D6: unknown was predicted as no."""
    assert sme.predict(node(kind, types)).sme2 is sme2


@pytest.mark.parametrize(
    ("kind", "types", "share"),
    [
        ("FullyConnected", "fp32 fp32 fp32", 1.0),
        ("FullyConnected", "fp16 fp32 fp16", 0.0),
        ("FullyConnected", "qdint8 newint2 fp32", None),
    ],
)
def test_a_share_with_an_unknown_part_is_none(kind: str, types: str, share: float | None) -> None:
    """B-D6: multiply-accumulates without a prediction counted as such without SME2."""
    operator = GraphOperator(name="a", operator="linear", delegate=0, macs=100)
    product = DelegateNode(kind=kind, macs=100, prediction=sme.predict(node(kind, types)))
    other = DelegateNode(kind="ScaledDotProductAttention")
    delegate = Delegate(name="d", backend="XnnpackBackend", nodes=(product, other))
    assert summarize([operator], [delegate]).predicted_sme2_macs_share == share
    foreign = Delegate(name="d", backend="CoreMLBackend")
    assert summarize([operator], [foreign]).predicted_sme2_macs_share is None


@pytest.mark.parametrize(
    ("types", "kernel"),
    [
        ("PF32", ("f32", "f32", "f32")),
        ("F32", ("f32", "f32", "f32")),
        ("PF16", ("f16", "f16", "f16")),
        ("PQS8, QS8, QC8W", ("qai8", "qai8", "qsi8cx")),
        ("QP8, F32, QC8W", ("f32", "qai8dx", "qsi8cx")),
        ("QD8, F32, QC4W", ("f32", "qai8dx", "qsi4cx")),
        ("QP8, F32, QB4W", ("f32", "qai8dx", "qsi4c32")),
        # Without what it writes, with another, or with weights of another kind: nobody's.
        ("QP8, QC8W", None),
        ("QP8, F16, QC8W", None),
        ("QD8, F32", None),
        ("QP8, F32, QC2W", None),
        ("PF32, QC8W", None),
        ("PF16, F32", None),
        ("PQS8, QC4W", None),
        ("", None),
    ],
)
def test_a_packed_type_is_of_all_that_its_microkernels_write_and_read(
    types: str, kernel: tuple[str, str, str] | None
) -> None:
    """M3, tests: a packed type named without its output passed for one that has kernels."""
    found = sme.find_packed_type([name for name in types.split(", ") if name])
    assert (found.kernel if found else None) == kernel
