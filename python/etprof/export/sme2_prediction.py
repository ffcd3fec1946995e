"""Predicts, before anything runs, which operators have an SME2 kernel in XNNPACK.

Source: XNNPACK at commit 1adaa7c7, the one that ExecuTorch 1.5 builds. Which packed type a node
gets: `src/subgraph.c`, `xnn_subgraph_optimize_packed_lhs`. Which kernels each packed type has:
`src/configs/gemm-config.c` and `pack-lh-config.c`. Depthwise convolutions: `src/operators/
convolution-nhwc.c`, `select_microkernel_type`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etprof.export.xnnpack_graph import XnnpackNode

SOURCE = "XNNPACK 1adaa7c7: subgraph.c, gemm-config.c, pack-lh-config.c, convolution-nhwc.c"


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
    return _no(_NO_BLOCKS if weights == "qbint4" else f"no packed type for qdint8 x {weights}")


def _predict_convolution(node: XnnpackNode) -> Prediction:
    inputs, weights = node.input_types[0], node.input_types[1]
    channels = (node.parameters["group_input_channels"], node.parameters["group_output_channels"])
    if channels == (1, 1):
        return _no("one channel per group: runs as a depthwise convolution, on NEON")
    if inputs != node.output_type:
        return _no(f"no packed type for {inputs} x {weights} -> {node.output_type}")
    if inputs == "qint8" and weights in {"qint8", "qcint8"}:
        return _yes("PQS8", "IGEMM on static int8")
    if node.kind == "ConvTranspose2d":
        return _no(f"transposed convolutions have SME2 kernels for static int8 only, not {inputs}")
    if inputs in _FLOAT_WEIGHTS and weights in _FLOAT_WEIGHTS:
        return _yes(_PACKED_FLOATS[inputs], f"IGEMM on {inputs}")
    return _no(f"no packed type for {inputs} x {weights} -> {node.output_type}")
