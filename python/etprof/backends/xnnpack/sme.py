"""Which operators of XNNPACK run on SME: one table of packed types, one answer for everyone.

Which microkernels exist is read from `kernels.json`, the symbols of the library that ExecuTorch
brings (cpp/kernel_trace/generate_symbols.py makes it). Which type an operator gets is XNNPACK's
own choice: src/subgraph.c, xnn_subgraph_optimize_packed_lhs; each reason names its own source,
files of google/XNNPACK at 92a7ad501b, the nearest known pin of this ExecuTorch.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.backends.backend import OperatorFacts, OperatorName, Reason, SmeRoute
from etprof.backends.kernel_names import parse_kernel_name
from etprof.backends.xnnpack.labels import DEPTHWISE_MICROKERNELS, parse_label
from etprof.run.delegation import Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.backends.xnnpack.graph import XnnpackNode

SME_LEVELS: Final = frozenset({"sme", "sme2"})
_MODE_LEVELS: Final = {"sme2": SME_LEVELS, "sme1": frozenset({"sme"}), None: SME_LEVELS}
_PRODUCT_MICROKERNELS: Final = frozenset({"GEMM", "IGEMM"})


@dataclass(frozen=True)
class PackedType:
    """A type that XNNPACK gives an operator whose inputs KleidiAI packs."""

    name: str
    plain: str
    """The type of the same operator where nothing is packed."""
    weights: str | None
    """The type of the weights, where the label names several kinds of them."""
    kernel: tuple[str, str, str]
    """What its microkernels write and read, in KleidiAI's words."""
    has_plain_kernels: bool
    """Whether XNNPACK gives the type without SME too, so that it names KleidiAI and no more."""

    @property
    def levels(self) -> frozenset[str]:
        """Levels of the microkernels that there are, such as sme2 or i8mm."""
        return _levels_by_types().get(self.kernel, frozenset())


PACKED_TYPES: Final = (
    PackedType("PF32", "F32", None, ("f32", "f32", "f32"), has_plain_kernels=False),
    PackedType("PF16", "F16", None, ("f16", "f16", "f16"), has_plain_kernels=False),
    PackedType("PQS8", "QS8", None, ("qai8", "qai8", "qsi8cx"), has_plain_kernels=False),
    PackedType("QP8", "QD8", "QC8W", ("f32", "qai8dx", "qsi8cx"), has_plain_kernels=True),
    PackedType("QP8", "QD8", "QC4W", ("f32", "qai8dx", "qsi4cx"), has_plain_kernels=True),
    PackedType("QP8", "QD8", "QB4W", ("f32", "qai8dx", "qsi4c32"), has_plain_kernels=True),
)
"""The one table of packed types."""


@functools.cache
def kernel_table() -> dict[str, object]:
    """Returns what the library has: its revision, and the names of its microkernels.

    On aarch64 it is that of the library which the installed runner links, made by the build; else
    that of the pinned SDK for aarch64.
    """
    folder = importlib.resources.files("etprof.backends.xnnpack")
    built = folder.joinpath("built_kernels.json")
    file = built if built.is_file() else folder.joinpath("kernels.json")
    table: dict[str, object] = json.loads(file.read_text())
    return table


@functools.cache
def _levels_by_types() -> dict[tuple[str, ...], frozenset[str]]:
    found: dict[tuple[str, ...], set[str]] = {}
    names = kernel_table()["kernels"]
    for name in names if isinstance(names, list) else ():
        kernel = parse_kernel_name(name)
        if not kernel.is_packing and kernel.destination and kernel.level:
            found.setdefault((kernel.destination, *kernel.inputs), set()).add(kernel.level)
    return {types: frozenset(levels) for types, levels in found.items()}


def describe_source() -> str:
    """Says where the table of microkernels is from, with the library's revision."""
    table = kernel_table()
    revision = str(table["revision"] or "of unknown revision")[:12]
    return f"{table['library']} of ExecuTorch {table['executorch']} ({revision})"


def find_packed_type(data_types: Sequence[str]) -> PackedType | None:
    """Returns the table's row of an operator's types; None when it has none."""
    return next(
        (
            packed
            for packed in PACKED_TYPES
            if packed.name in data_types
            and (packed.weights is None or packed.weights in data_types)
        ),
        None,
    )


def plain_types(data_types: Sequence[str]) -> tuple[str, ...]:
    """Replaces packed data types by plain ones; what only the packed name lists is dropped.

    `(PQS8, QS8, QC8W)` is `(QS8, QC8W)` without packing, so equal neighbours count once.
    """
    plain_of = {packed.name: packed.plain for packed in PACKED_TYPES}
    plain = [plain_of.get(name, name) for name in data_types]
    return tuple(name for i, name in enumerate(plain) if i == 0 or name != plain[i - 1])


def _has(facts: OperatorFacts, *types: str) -> bool:
    return any(data_type in types for data_type in facts.name.data_types)


@dataclass(frozen=True)
class _Rule:
    """A reason why an operator cannot take SME, and what it applies to."""

    applies: Callable[[OperatorFacts], bool]
    reason: Reason


_BY_NATURE: Final = (
    _Rule(
        lambda o: not o.name.is_product,
        Reason(
            "kind",
            "SME2 microkernels are for convolutions and matrix products",
            "XNNPACK src/configs",
        ),
    ),
    _Rule(
        lambda o: o.mode == "off",
        Reason("mode", "SME was off in this run", "the SME mode in force"),
    ),
    _Rule(
        lambda o: o.name.microkernel_type in DEPTHWISE_MICROKERNELS,
        Reason(
            "depthwise",
            "depthwise convolution has NEON microkernels only",
            "XNNPACK src/configs/dwconv-config.c and vmulcaddc-config.c name no SME microkernel",
        ),
    ),
    _Rule(
        lambda o: o.name.base == "Deconvolution" and not _has(o, "PQS8"),
        Reason(
            "no kernel",
            "transposed convolution has SME2 microkernels for static INT8 only",
            "XNNPACK src/operators/deconvolution-nhwc.c",
        ),
    ),
)
"""Asked first, of every operator."""
_SME1: Final = Reason("mode", "this run allowed SME but not SME2", "the SME mode in force")
_BLOCKS: Final = Reason(
    "block-quantised weights",
    "block-wise INT4 weights have i8mm and dotprod microkernels only; per-channel INT4 has SME2 "
    "ones",
    f"the symbols of {describe_source()}",
)
_NO_KERNEL: Final = Reason(
    "no kernel",
    "this XNNPACK has no SME2 microkernel for these weights in this operator",
    f"the symbols of {describe_source()}",
)
_PACKED_UNUSED: Final = Reason(
    "packed, not executed",
    "the type names the packed path, yet no SME2 microkernel was called in this run",
    "counted calls",
)
_OF_PLAIN_TYPES: Final = (
    _Rule(
        lambda o: o.name.base == "Fully Connected" and o.name.data_types == ("F16",),
        Reason(
            "weight type",
            "the FP16 path of this operator needs FP16 weights; XNNPACK rewrites 1x1 convolutions "
            "as fully connected, and their weights are FP32 in ExecuTorch's programs",
            "XNNPACK src/subgraph.c, xnn_subgraph_optimize_packed_lhs",
        ),
    ),
    _Rule(
        lambda o: o.name.base == "Convolution" and _has(o, "QD8", "QDU8"),
        Reason(
            "data type",
            "convolution with dynamically quantised activations has no SME2 microkernel; quantise "
            "statically",
            "XNNPACK src/operators/convolution-nhwc.c, qd8",
        ),
    ),
    _Rule(
        lambda o: _has(o, "QU8"),
        Reason(
            "data type",
            "unsigned INT8 has no SME2 microkernel; quantise to signed INT8",
            "XNNPACK src/configs/gemm-config.c, qu8",
        ),
    ),
    _Rule(lambda o: _has(o, "QP8", "QD8", "QDU8"), _NO_KERNEL),
    _Rule(
        lambda o: _has(o, "BF16", "F64", "QS4"),
        Reason(
            "data type",
            "SME2 microkernels exist for FP32, FP16 and signed INT8",
            "XNNPACK src/configs/gemm-config.c",
        ),
    ),
    _Rule(
        lambda o: o.name.base == "Batch Matrix Multiply" and _has(o, "QS8"),
        Reason(
            "data type",
            "statically quantised batch matrix products have no SME2 microkernel",
            "XNNPACK src/operators/batch-matrix-multiply-nc.c",
        ),
    ),
    _Rule(
        lambda o: o.mode is None,
        Reason("mode", "the SME mode of this run is not known", "the run's manifest"),
    ),
    _Rule(
        lambda _: True,
        Reason(
            "shape",
            "an SME2 microkernel exists for these types, but XNNPACK chose another for this shape, "
            "grouping or weight layout",
            "XNNPACK src/subgraph.c, xnn_subgraph_optimize_packed_lhs",
        ),
    ),
)
"""Asked of operators whose type is not packed; the last one always applies."""


def sme_route(facts: OperatorFacts) -> SmeRoute:
    """Says whether an operator runs on SME.

    Counted calls decide; without them the type in its name does, in the mode in force, if such
    microkernels exist. `QP8` names KleidiAI alone, so without the mode it says nothing.
    """
    if facts.counted is not None and SME_LEVELS & facts.counted:
        return SmeRoute("proven")
    packed = find_packed_type(facts.name.data_types)
    reason = next((rule.reason for rule in _BY_NATURE if rule.applies(facts)), None)
    if reason is None and packed is not None and not SME_LEVELS & packed.levels:
        reason = _BLOCKS if packed.weights == "QB4W" else _NO_KERNEL
    if reason is None and facts.mode == "sme1" and (packed is None or facts.counted is not None):
        reason = _SME1
    if reason is None and packed is not None:
        return _packed_route(facts, packed)
    if reason is None and facts.counted is None and _has(facts, "QP8"):
        return SmeRoute("unknown")  # weights that the table does not have
    reason = reason or next(rule.reason for rule in _OF_PLAIN_TYPES if rule.applies(facts))
    return SmeRoute("excluded", reason)


def _packed_route(facts: OperatorFacts, packed: PackedType) -> SmeRoute:
    """Of an operator whose packed type has SME microkernels, none of which was counted."""
    if facts.counted is not None:
        return SmeRoute("excluded", _NO_KERNEL if packed.has_plain_kernels else _PACKED_UNUSED)
    if not _MODE_LEVELS[facts.mode] & packed.levels:
        return SmeRoute("excluded", _SME1)
    if facts.name.microkernel_type not in _PRODUCT_MICROKERNELS:
        return SmeRoute("unknown")
    needs_mode = packed.has_plain_kernels and facts.mode is None
    return SmeRoute("unknown" if needs_mode else "named")


_PLAIN_LABELS: Final = {"fp16": "F16", "fp32": "F32", "qint8": "QS8", "qdint8": "QD8"}
_WEIGHT_LABELS: Final = {"qcint8": "QC8W", "qcint4": "QC4W", "qbint4": "QB4W"}
_OPERATORS: Final = {
    "FullyConnected": "Fully Connected",
    "BatchMatrixMultiply": "Batch Matrix Multiply",
    "Conv2d": "Convolution",
    "ConvTranspose2d": "Deconvolution",
    "DepthwiseConv2d": "Convolution",
}
PRODUCTS: Final = frozenset(_OPERATORS)
"""Kinds of nodes that multiply and accumulate."""


def predict(node: XnnpackNode) -> Prediction:
    """Says what one node of a serialized graph becomes where SME2 is on, before anything runs."""
    name = _name_with_sme2(node)
    packed = find_packed_type(name.data_types)
    route = sme_route(OperatorFacts(name, "sme2"))
    if route.takes_sme and packed is not None:
        reason = f"{name.microkernel_type} on {packed.name}"
        return Prediction(sme2=True, packed_type=packed.name, reason=reason)
    reason = route.reason.text if route.reason else "its types are not in the table"
    is_named = packed is not None and packed.has_plain_kernels
    known = packed.name if packed and is_named else None
    return Prediction(sme2=False, packed_type=known, reason=reason)


def _name_with_sme2(node: XnnpackNode) -> OperatorName:
    """Returns the name that an ETDump will have for the node."""
    if node.kind not in PRODUCTS:
        return parse_label(node.kind)
    base = "Fully Connected" if _becomes_matrix_product(node) else _OPERATORS[node.kind]
    is_matrix = base in {"Fully Connected", "Batch Matrix Multiply"}
    types = ", ".join(_types_with_sme2(node, is_matrix=is_matrix))
    microkernel = "GEMM" if is_matrix else "DWConv" if _is_depthwise(node) else "IGEMM"
    return parse_label(f"{base} ({types}) {microkernel}")


def _types_with_sme2(node: XnnpackNode, *, is_matrix: bool) -> list[str]:
    """The types in its label, by xnn_subgraph_optimize_packed_lhs in XNNPACK's src/subgraph.c.

    Convolutions convert floating-point weights and make one scale per channel of one per tensor.
    """
    inputs, weights = node.input_types[:2]
    same = inputs == node.output_type
    plain, of_weights = _PLAIN_LABELS.get(inputs, inputs.upper()), _WEIGHT_LABELS.get(weights)
    if inputs == "qdint8":
        packed = is_matrix and node.output_type == "fp32" and of_weights is not None
        return ["QP8" if packed else plain, "F32", of_weights or weights.upper()]
    if (
        same
        and inputs == "qint8"
        and (of_weights == "QC8W" or (weights == inputs and not is_matrix))
    ):
        return ["PQS8", "QS8", "QC8W"]
    floats = ("fp16", "fp32") if inputs == "fp32" or not is_matrix else (inputs,)
    if same and inputs in ("fp16", "fp32") and weights in floats and node.kind != "ConvTranspose2d":
        return [f"P{plain}"]
    return (
        [plain] if same and inputs in ("fp16", "fp32") else [plain, of_weights or weights.upper()]
    )


def _is_depthwise(node: XnnpackNode) -> bool:
    """One channel per group runs as a depthwise convolution."""
    fields = node.parameters
    return node.kind == "DepthwiseConv2d" or (
        (fields["group_input_channels"], fields["group_output_channels"]) == (1, 1)
    )


def _becomes_matrix_product(node: XnnpackNode) -> bool:
    """Tells whether XNNPACK defines the convolution as a fully connected operator.

    Source: src/subgraph/convolution-2d.c, xnn_define_convolution_2d.
    """
    fields = node.parameters
    padding = (f"padding_{side}" for side in ("top", "right", "bottom", "left"))
    ones = ("kernel_height", "kernel_width", "subsampling_height", "subsampling_width", "groups")
    return (
        node.kind == "Conv2d"
        and not _is_depthwise(node)
        and all(fields[name] == 1 for name in ones)
        and not any(fields[name] for name in padding)
    )
