"""Predicts, before anything runs, which operators have an SME2 kernel in XNNPACK.

Source: XNNPACK at commit 1adaa7c7. Which packed type a node gets: `src/subgraph.c`,
`xnn_subgraph_optimize_packed_lhs`. Which kernels each packed type has: `src/configs/gemm-config.c`
and `pack-lh-config.c`. Depthwise convolutions: `src/operators/convolution-nhwc.c`,
`select_microkernel_type`. Pointwise convolutions, which become fully connected operators:
`src/subgraph/convolution-2d.c`, `xnn_define_convolution_2d`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etprof.backends.xnnpack.graph import XnnpackNode

SOURCE = (
    "XNNPACK 1adaa7c7: subgraph.c, gemm-config.c, pack-lh-config.c, convolution-nhwc.c, "
    "convolution-2d.c"
)


@dataclass(frozen=True)
class Prediction:
    """Whether an operator can use SME2, and through which packed type or why not."""

    sme2: bool
    packed_type: str | None
    """The type in the ETDump's operator name once SME2 is used: `PF32`, `PF16`, `PQS8`, `QP8`."""
    reason: str


_PACKED_FLOATS = {"fp16": "PF16", "fp32": "PF32"}
_FLOAT_WEIGHTS = tuple(_PACKED_FLOATS)
_MATRIX_KINDS = ("FullyConnected", "BatchMatrixMultiply")
_CONVOLUTIONS = ("Conv2d", "ConvTranspose2d")
PRODUCTS = frozenset({*_MATRIX_KINDS, *_CONVOLUTIONS, "DepthwiseConv2d"})
"""Kinds of nodes that multiply and accumulate."""
_NO_BLOCKS = (
    "4-bit weights with a scale per block or row group (qbint4) have KleidiAI kernels for "
    "dotprod and i8mm only"
)


def predict(node: XnnpackNode) -> Prediction:
    """Returns the prediction for one node of a serialized XNNPACK graph."""
    if node.kind in _MATRIX_KINDS:
        return _predict_matrix(node)
    if node.kind == "DepthwiseConv2d":
        return _no("depthwise convolutions run NEON kernels, whatever the type in their name")
    if node.kind in _CONVOLUTIONS:
        return _predict_convolution(node)
    return _no(f"XNNPACK has no SME2 kernel for {node.kind}")


def _no(reason: str) -> Prediction:
    return Prediction(sme2=False, packed_type=None, reason=reason)


def _yes(packed_type: str, reason: str) -> Prediction:
    return Prediction(sme2=True, packed_type=packed_type, reason=reason)


def _predict_matrix(node: XnnpackNode) -> Prediction:
    inputs, weights = node.input_types[0], node.input_types[1]
    if inputs == node.output_type == "fp16" and weights == "fp16":
        return _yes("PF16", "GEMM on fp16")
    if inputs == node.output_type == "fp32" and weights in _FLOAT_WEIGHTS:
        return _yes("PF32", "GEMM on fp32")
    if inputs == node.output_type == "qint8" and weights == "qcint8":
        return _yes("PQS8", "GEMM on static int8 with a scale per channel")
    if inputs == "qdint8" and node.output_type == "fp32":
        return _predict_dynamic(weights)
    return _no(f"no packed type for {inputs} x {weights} -> {node.output_type}")


def _predict_dynamic(weights: str) -> Prediction:
    if weights == "qcint8":
        return _yes("QP8", "GEMM on dynamic int8; QP8 alone proves KleidiAI, not SME2")
    if weights == "qcint4":
        return _yes("QP8", "GEMM on dynamic int8 x int4; QP8 alone proves KleidiAI, not SME2")
    if weights == "qbint4":
        return Prediction(sme2=False, packed_type="QP8", reason=_NO_BLOCKS)
    return _no(f"no packed type for qdint8 x {weights}")


def _predict_convolution(node: XnnpackNode) -> Prediction:
    inputs, weights = node.input_types[0], node.input_types[1]
    channels = (node.parameters["group_input_channels"], node.parameters["group_output_channels"])
    if channels == (1, 1):
        return _no("one channel per group: runs as a depthwise convolution, on NEON")
    if _becomes_matrix_product(node):
        return _predict_pointwise(node)
    if inputs == node.output_type == "qint8" and weights in {"qint8", "qcint8"}:
        return _yes("PQS8", "IGEMM on static int8")
    if node.kind == "ConvTranspose2d":
        return _no(f"transposed convolutions have SME2 kernels for static int8 only, not {inputs}")
    if inputs == node.output_type and inputs in _FLOAT_WEIGHTS and weights in _FLOAT_WEIGHTS:
        return _yes(_PACKED_FLOATS[inputs], f"IGEMM on {inputs}")
    return _no(f"no packed type for {inputs} x {weights} -> {node.output_type}")


def _becomes_matrix_product(node: XnnpackNode) -> bool:
    """Tells whether XNNPACK defines the convolution as a fully connected operator."""
    fields = node.parameters
    padding = (f"padding_{side}" for side in ("top", "right", "bottom", "left"))
    ones = ("kernel_height", "kernel_width", "subsampling_height", "subsampling_width", "groups")
    return (
        node.kind == "Conv2d"
        and all(fields[name] == 1 for name in ones)
        and not any(fields[name] for name in padding)
    )


def _predict_pointwise(node: XnnpackNode) -> Prediction:
    result = _predict_matrix(node)
    if result.sme2:
        return result
    if node.input_types[:2] == ("fp16", "fp32"):
        return _no(
            "a pointwise convolution runs as a fully connected operator, and ExecuTorch stores its "
            "fp16 weights as fp32, for which there is no packed type; nn.Linear has it"
        )
    return _no(f"a pointwise convolution runs as a fully connected operator: {result.reason}")
