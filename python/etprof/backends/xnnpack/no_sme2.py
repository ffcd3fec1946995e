"""Says why a convolution or matrix product did not take an SME2 microkernel.

Sources are files of google/XNNPACK at 92a7ad501b, the nearest known pin of this ExecuTorch; each
reason carries its own. Whether a microkernel ran is counted, never looked up here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Reason:
    """Why SME2 was not taken, what could be done, and where that is known from."""

    code: str
    text: str
    source: str


@dataclass(frozen=True)
class OperatorFacts:
    """What is known of an operator that took no SME2 microkernel."""

    base: str
    """XNNPACK's operator, such as `Convolution`, or ExecuTorch's, such as `convolution`."""
    data_types: tuple[str, ...]
    microkernel_type: str | None
    is_delegated: bool
    mode_in_force: str
    level: str | None
    """Level of the best KleidiAI microkernel that ran; None when none did."""


@dataclass(frozen=True)
class _Rule:
    applies: Callable[[OperatorFacts], bool]
    reason: Reason


def _has(operator: OperatorFacts, *types: str) -> bool:
    return any(data_type in types for data_type in operator.data_types)


_RULES: tuple[_Rule, ...] = (
    _Rule(
        lambda o: not o.is_delegated,
        Reason(
            "not delegated",
            "ExecuTorch's own kernel ran it: XNNPACK did not take it at export",
            "the event stands outside every delegate",
        ),
    ),
    _Rule(
        lambda o: o.mode_in_force == "off",
        Reason("mode", "SME was off in this run", "the SME mode in force"),
    ),
    _Rule(
        lambda o: o.mode_in_force == "sme1",
        Reason("mode", "this run allowed SME but not SME2", "the SME mode in force"),
    ),
    _Rule(
        lambda o: o.microkernel_type in {"DWConv", "VMulCAddC"},
        Reason(
            "depthwise",
            "depthwise convolution has NEON microkernels only",
            "XNNPACK src/configs/dwconv-config.c and vmulcaddc-config.c name no SME microkernel",
        ),
    ),
    _Rule(
        lambda o: _has(o, "QB4W"),
        Reason(
            "block-quantised weights",
            "block-wise INT4 weights have i8mm and dotprod microkernels only; per-channel INT4 has "
            "SME2 ones",
            "XNNPACK src/configs/gemm-config.c, qp8_f32_qb4w",
        ),
    ),
    _Rule(
        lambda o: o.base == "Deconvolution" and not _has(o, "PQS8"),
        Reason(
            "no kernel",
            "transposed convolution has SME2 microkernels for static INT8 only",
            "XNNPACK src/operators/deconvolution-nhwc.c",
        ),
    ),
    _Rule(
        lambda o: o.base == "Fully Connected" and o.data_types == ("F16",),
        Reason(
            "weight type",
            "the FP16 path of this operator needs FP16 weights; XNNPACK rewrites 1x1 convolutions "
            "as fully connected, and their weights are FP32 in ExecuTorch's programs",
            "XNNPACK src/subgraph.c, xnn_subgraph_optimize_packed_lhs",
        ),
    ),
    _Rule(
        lambda o: o.base == "Convolution" and _has(o, "QD8", "QDU8"),
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
    _Rule(
        lambda o: _has(o, "QP8", "QD8", "QDU8"),
        Reason(
            "no kernel",
            "this XNNPACK has no SME2 microkernel for these weights in this operator",
            "XNNPACK src/configs/gemm-config.c, qp8_*",
        ),
    ),
    _Rule(
        lambda o: _has(o, "BF16", "F64", "QS4"),
        Reason(
            "data type",
            "SME2 microkernels exist for FP32, FP16 and signed INT8",
            "XNNPACK src/configs/gemm-config.c",
        ),
    ),
    _Rule(
        lambda o: o.base == "Batch Matrix Multiply" and _has(o, "QS8"),
        Reason(
            "data type",
            "statically quantised batch matrix products have no SME2 microkernel",
            "XNNPACK src/operators/batch-matrix-multiply-nc.c",
        ),
    ),
)

_SHAPE = Reason(
    "shape",
    "an SME2 microkernel exists for these types, but XNNPACK chose another for this shape, "
    "grouping or weight layout",
    "XNNPACK src/subgraph.c, xnn_subgraph_optimize_packed_lhs",
)
_PACKED_UNUSED = Reason(
    "packed, not executed",
    "the type names the packed path, yet no SME2 microkernel was called in this run",
    "counted calls",
)


def why_not_sme2(operator: OperatorFacts) -> Reason:
    """Returns the first reason that applies."""
    for rule in _RULES:
        if rule.applies(operator):
            return rule.reason
    packed = _has(operator, "PF32", "PF16", "PQS8")
    return _PACKED_UNUSED if packed else _SHAPE
