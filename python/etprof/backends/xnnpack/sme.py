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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from etprof.backends.backend import OperatorFacts, OperatorName, Reason, SmeRoute
from etprof.backends.kernel_names import SME_LEVELS, parse_kernel_name
from etprof.backends.xnnpack.labels import DEPTHWISE_MICROKERNELS, name_node, parse_label
from etprof.base.records import SmeInForce
from etprof.run.delegation import Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.backends.xnnpack.graph import XnnpackNode

_MODES: Final = get_args(SmeInForce)
"""Any other word says nothing."""
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

    @property
    def levels(self) -> frozenset[str]:
        """Levels of the microkernels that there are, such as sme2 or i8mm."""
        return _levels_by_types().get(self.kernel, frozenset())

    @property
    def has_plain_kernels(self) -> bool:
        """Whether XNNPACK gives the type without SME too, so that it names KleidiAI and no more."""
        return bool(self.levels - SME_LEVELS)

    def is_of(self, data_types: Sequence[str]) -> bool:
        """Whether an operator of these types, packed or plain, would run these microkernels."""
        types = set(plain_types(data_types))
        if self.weights is not None:
            return types == {self.plain, "F32", self.weights}
        # A label names weights with a scale per channel, or leaves them out.
        return self.plain in types and types <= {self.plain, "QC8W" if self.plain == "QS8" else ""}


PACKED_TYPES: Final = (
    PackedType("PF32", "F32", None, ("f32", "f32", "f32")),
    PackedType("PF16", "F16", None, ("f16", "f16", "f16")),
    PackedType("PQS8", "QS8", None, ("qai8", "qai8", "qsi8cx")),
    PackedType("QP8", "QD8", "QC8W", ("f32", "qai8dx", "qsi8cx")),
    PackedType("QP8", "QD8", "QC4W", ("f32", "qai8dx", "qsi4cx")),
    PackedType("QP8", "QD8", "QB4W", ("f32", "qai8dx", "qsi4c32")),
)
"""The one table of packed types."""
_PACKED: Final = frozenset(packed.name for packed in PACKED_TYPES)
_UNPACKED: Final = frozenset(
    {"F32", "F16", "BF16", "F64", "QS8", "QC8W", "QC4W", "QB4W", "QS4", "QD8", "QDU8", "QU8"}
)
"""Every other type that is known."""


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
    levels_by_types: dict[tuple[str, ...], set[str]] = {}
    names = kernel_table()["kernels"]
    for name in names if isinstance(names, list) else ():
        kernel = parse_kernel_name(name)
        if not kernel.is_packing and kernel.destination and kernel.level:
            levels_by_types.setdefault((kernel.destination, *kernel.inputs), set()).add(
                kernel.level
            )
    return {types: frozenset(levels) for types, levels in levels_by_types.items()}


def describe_source() -> str:
    """Says where the table of microkernels is from, with the library's revision."""
    table = kernel_table()
    revision = str(table["revision"] or "of unknown revision")[:12]
    return f"{table['library']} of ExecuTorch {table['executorch']} ({revision})"


def find_packed_type(data_types: Sequence[str]) -> PackedType | None:
    """Returns the table's row for an operator of these types; None when it has none."""
    return next((packed for packed in PACKED_TYPES if packed.is_of(data_types)), None)


def plain_types(data_types: Sequence[str]) -> tuple[str, ...]:
    """Replaces packed data types by plain ones; what only the packed name lists is dropped.

    `(PQS8, QS8, QC8W)` is `(QS8, QC8W)` without packing, so equal neighbours count once.
    """
    plain_of = {packed.name: packed.plain for packed in PACKED_TYPES}
    plain = [plain_of.get(name, name) for name in data_types]
    return tuple(name for i, name in enumerate(plain) if i == 0 or name != plain[i - 1])


_SYMBOLS: Final = "the symbols of {source}"
_CALLS: Final = "counted calls"
_MODE: Final = "the SME mode in force"
_PACKING: Final = "XNNPACK src/subgraph.c, xnn_subgraph_optimize_packed_lhs"
_FP32_WEIGHTS: Final = (
    "the FP16 path of this operator needs FP16 weights; XNNPACK rewrites 1x1 convolutions as fully "
    "connected, and their weights are FP32 in ExecuTorch's programs"
)
_OTHER_SHAPE: Final = (
    "an SME microkernel exists for these types, but XNNPACK chose another for this shape, grouping "
    "or weight layout"
)
_OF_THIS_VERSION: Final = frozenset(
    {"depthwise", "no kernel", "data type", "block-quantised weights", "weight type"}
)
"""Codes of reasons that another version may mend."""
_Reasons = tuple[tuple[str, str, str, "Callable[[OperatorFacts], bool]"], ...]
"""Code, text, source and condition of a reason; the first that applies is reported."""
_WHATEVER_ITS_TYPES: Final[_Reasons] = (
    (
        "kind",
        "SME2 microkernels are for convolutions and matrix products",
        "XNNPACK src/configs",
        lambda o: o.name.is_known and not o.name.is_product,
    ),
    (
        "mode",
        "no SME was in use in this run: it was off, or the CPU has none",
        _MODE,
        lambda o: o.mode == "off",
    ),
    (
        "depthwise",
        "depthwise convolution has NEON microkernels only",
        "XNNPACK src/configs/dwconv-config.c and vmulcaddc-config.c name no SME microkernel",
        lambda o: o.name.is_known and o.name.microkernel_type in DEPTHWISE_MICROKERNELS,
    ),
    (
        "not executed",
        "no SME microkernel was called in this run",
        _CALLS,
        lambda o: o.counted is not None and not _are_types_known(o.name),
    ),
)
_WHATEVER_THE_MODE: Final[_Reasons] = (
    (
        "no kernel",
        "transposed convolution has SME2 microkernels for static INT8 only",
        "XNNPACK src/operators/deconvolution-nhwc.c",
        lambda o: o.name.base == "Deconvolution" and not _has(o, "PQS8", "QS8"),
    ),
    (
        "data type",
        "dynamically quantised convolution has no SME2 microkernel; quantise statically",
        "XNNPACK src/operators/convolution-nhwc.c, qd8",
        lambda o: o.name.base == "Convolution" and _has(o, "QD8", "QDU8"),
    ),
    (
        "data type",
        "unsigned INT8 has no SME2 microkernel; quantise to signed INT8",
        "XNNPACK src/configs/gemm-config.c, qu8",
        lambda o: _has(o, "QU8"),
    ),
    (
        "data type",
        "statically quantised batch matrix products have no SME2 microkernel",
        "XNNPACK src/operators/batch-matrix-multiply-nc.c",
        lambda o: o.name.base == "Batch Matrix Multiply" and _has(o, "QS8"),
    ),
    (
        "data type",
        (
            "XNNPACK reads the operand as integers, which floats are multiplied with on NEON only; "
            "`--rewrite float_products` keeps it in float32"
        ),
        "XNNPACK src/subgraph.c, rewrite_dequant_bmm_at",
        lambda o: o.name.base == "Batch Matrix Multiply" and o.name.data_types == ("F32", "QC8W"),
    ),
    (
        "block-quantised weights",
        "block-wise INT4 weights have no SME2 microkernel",
        _SYMBOLS,
        lambda o: _has(o, "QB4W") and not _sme_levels(o),
    ),
    (
        "no kernel",
        "this XNNPACK has no SME2 microkernel for these types",
        _SYMBOLS,
        lambda o: not _sme_levels(o),
    ),
    (
        "mode",
        "this run allowed SME but not SME2",
        _MODE,
        lambda o: o.mode == "sme1" and "sme" not in _sme_levels(o),
    ),
)
_NEITHER_COUNTED_NOR_NAMED: Final[_Reasons] = (
    (
        "packed, not executed",
        "the type names the packed path, yet no SME microkernel was called in this run",
        _CALLS,
        lambda o: _has(o, *_PACKED),
    ),
    (
        "mode",
        "no SME microkernel was called, and the SME mode of this run is not known",
        _CALLS,
        lambda o: o.mode not in _MODES,
    ),
    (
        "weight type",
        _FP32_WEIGHTS,
        _PACKING,
        lambda o: o.name.base == "Fully Connected" and o.name.data_types == ("F16",),
    ),
    (
        "shape",
        _OTHER_SHAPE,
        _PACKING,
        lambda _: True,
    ),
)


def _has(facts: OperatorFacts, *types: str) -> bool:
    return any(data_type in types for data_type in facts.name.data_types)


def _sme_levels(facts: OperatorFacts) -> frozenset[str]:
    """Levels of SME that the library has microkernels of the operator's types for."""
    packed = find_packed_type(facts.name.data_types)
    return packed.levels & SME_LEVELS if packed else frozenset()


def _are_types_known(name: OperatorName) -> bool:
    """Whether the kernel table covers the types; it is unknown for packed types that it does not list."""
    types = set(name.data_types)
    is_listed = find_packed_type(name.data_types) is not None or not types & _PACKED
    return name.is_known and bool(types) and types <= _PACKED | _UNPACKED and is_listed


def _exclude(reasons: _Reasons, facts: OperatorFacts) -> SmeRoute | None:
    matching = ((code, text, source) for code, text, source, holds in reasons if holds(facts))
    for code, text, source in matching:
        version = str(kernel_table()["executorch"]).partition("+")[0]
        scope = f" (true of ExecuTorch {version})" if code in _OF_THIS_VERSION else ""
        known_from = source.format(source=describe_source())
        return SmeRoute("excluded", Reason(code, f"{text}{scope}", known_from))
    return None


def sme_route(facts: OperatorFacts) -> SmeRoute:
    """Says whether an operator runs on SME.

    Counted calls decide; without them the type in its name does, in the mode in force, if such
    microkernels exist. What hangs on a mode or a name that is not known is not known itself.
    """
    if facts.prove_sme:
        return SmeRoute("proven")
    excluded = _exclude(_WHATEVER_ITS_TYPES, facts)
    if excluded is None and _are_types_known(facts.name):
        excluded = _exclude(_WHATEVER_THE_MODE, facts)
        if excluded is None and facts.counted is None:
            return _named_route(facts)
        excluded = excluded or _exclude(_NEITHER_COUNTED_NOR_NAMED, facts)
    return excluded or SmeRoute("unknown")


def _named_route(facts: OperatorFacts) -> SmeRoute:
    """What the name says in this mode, of types that have SME microkernels."""
    packed = find_packed_type(facts.name.data_types)
    is_told = facts.mode in _MODES
    if packed is None or packed.name not in facts.name.data_types:
        excluded = _exclude(_NEITHER_COUNTED_NOR_NAMED, facts) if is_told else None
        return excluded or SmeRoute("unknown")
    says_sme = is_told or not packed.has_plain_kernels
    is_product = facts.name.microkernel_type in _PRODUCT_MICROKERNELS
    return SmeRoute("named" if says_sme and is_product else "unknown")


_PLAIN_LABELS: Final = {
    "fp16": "F16", "fp32": "F32", "qint8": "QS8", "qdint8": "QD8", "quint8": "QU8"
}  # fmt: skip
_WEIGHT_LABELS: Final = {"qcint8": "QC8W", "qcint4": "QC4W", "qbint4": "QB4W"}
_OPERATORS: Final = {
    "FullyConnected": "Fully Connected",
    "BatchMatrixMultiply": "Batch Matrix Multiply",
    "Conv2d": "Convolution",
    "ConvTranspose2d": "Deconvolution",
    "DepthwiseConv2d": "Convolution",
}
_TYPES_OF_PRECISIONS: Final = {
    "fp32": ("fp32", "fp32", "fp32"),
    "fp16": ("fp16", "fp32", "fp16"),
    "int8": ("qint8", "qcint8", "qcint8"),
}
"""Of inputs and outputs, a convolution's weights and a matrix product's, as ExecuTorch writes them:
float weights of convolutions are float32 (backends/xnnpack/operators/op_conv2d.py, force_fp32)."""
PRODUCTS: Final = frozenset(_OPERATORS)
"""Kinds of nodes that multiply and accumulate."""


def predict(node: XnnpackNode) -> Prediction:
    """Says what one node of a serialized graph becomes where SME2 is on, before anything runs."""
    name = _name_with_sme2(node)
    packed = find_packed_type(name.data_types)
    route = sme_route(OperatorFacts(name, "sme2"))
    is_named = packed is not None and packed.name in name.data_types
    keeps_name = packed is not None and (route.answer != "excluded" or packed.has_plain_kernels)
    packed_type = packed.name if packed and is_named and keeps_name else None
    if route.answer == "unknown":
        reason = "the table lacks its kind or its types"
        return Prediction(sme2=None, packed_type=packed_type, reason=reason)
    reason = route.reason.text if route.reason else f"{name.microkernel_type} on {packed_type}"
    return Prediction(sme2=route.takes_sme, packed_type=packed_type, reason=reason)


def sme2_precisions(node: XnnpackNode) -> tuple[str, ...] | None:
    """Returns the precisions in which an export would give a product an SME2 kernel."""
    if node.kind not in PRODUCTS:
        return None
    return tuple(
        name
        for name, (value, weight, matrix_weight) in _TYPES_OF_PRECISIONS.items()
        if predict(
            replace(
                node,
                input_types=(value, matrix_weight if "Conv" not in node.kind else weight),
                output_type=value,
            )
        ).sme2
    )


def _name_with_sme2(node: XnnpackNode) -> OperatorName:
    """Returns the name that an ETDump will have for the node."""
    if node.kind not in PRODUCTS:
        return name_node(node.kind)
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
    is_same, is_float = inputs == node.output_type, inputs in {"fp16", "fp32"}
    plain, of_weights = _PLAIN_LABELS.get(inputs, inputs.upper()), _WEIGHT_LABELS.get(weights)
    if inputs == "qdint8":
        packed = is_matrix and node.output_type == "fp32" and of_weights is not None
        return ["QP8" if packed else plain, "F32", of_weights or weights.upper()]
    per_channel = of_weights == "QC8W" or (weights == inputs and not is_matrix)
    if is_same and inputs == "qint8" and per_channel:
        return ["PQS8", "QS8", "QC8W"]
    floats = {"fp16", "fp32"} if inputs == "fp32" or not is_matrix else {inputs}
    if is_same and is_float and weights in floats and node.kind != "ConvTranspose2d":
        return [f"P{plain}"]
    is_told = weights == inputs or (is_float and weights in {"fp16", "fp32"})
    return [plain] if is_told else [plain, of_weights or weights.upper()]


def _is_depthwise(node: XnnpackNode) -> bool:
    """One channel per group runs as a depthwise convolution."""
    fields = node.parameters
    return node.kind == "DepthwiseConv2d" or (
        (fields["group_input_channels"], fields["group_output_channels"]) == (1, 1)
    )


def _becomes_matrix_product(node: XnnpackNode) -> bool:
    """Returns whether XNNPACK defines the convolution as a fully connected operator.

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
