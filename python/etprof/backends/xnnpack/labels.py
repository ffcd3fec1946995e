"""XNNPACK's words: its operators' labels, their classes, and the kinds of its graph's nodes.

Sources: XNNPACK's operator-type names (src/xnnpack/operator-type-defs.inc) with its microkernel
types; ExecuTorch's serialisation schema for the kinds of nodes.
"""

from __future__ import annotations

import re
from typing import Final

from etprof.backends import backend
from etprof.backends.backend import OperatorClass, OperatorName

MICROKERNEL_CLASSES: Final = {
    ("Convolution", "DWConv"): OperatorClass("Convolution", "depthwise"),
    ("Convolution", "VMulCAddC"): OperatorClass("Convolution", "depthwise"),
    ("Convolution", "GEMM"): OperatorClass("Convolution", "pointwise"),
    ("Convolution", "SPMM"): OperatorClass("Convolution", "pointwise"),
}
"""XNNPACK operators whose microkernel type decides the class."""

_XNNPACK_TABLE: Final = {
    backend.CONVOLUTION: ("Convolution",),
    backend.DECONVOLUTION: ("Deconvolution",),
    backend.LINEAR: ("Fully Connected", "Dynamic Fully Connected"),
    backend.MATMUL: ("Batch Matrix Multiply",),
    backend.LAYOUT: ("Transpose", "Depth To Space", "Space To Depth"),
    backend.COPY: ("Copy", "Slice", "Constant Pad"),
    backend.VIEW: ("Static Reshape", "Static Expand Dims", "Fuse Dims", "Split Dims"),
    backend.PACKING: ("Pack LH",),
    backend.CONVERT: ("Convert",),
    backend.ARITHMETIC: (
        "Abs", "Add", "ATan2", "Bankders Rounding", "Bankers Rounding", "Binary Elementwise",
        "Ceiling", "Copy Sign", "Cosine", "Count Leading Zeros", "Cube Root", "Divide", "Exp",
        "Floor", "Log", "Maximum", "Minimum", "Modulus", "Multiply", "Negate", "Population Count",
        "Power", "Reciprocal Square Root", "RoPE", "Sign", "Sine", "Square", "Square Root",
        "Squared Difference", "Subtract", "Unary Elementwise",
    ),
    backend.ACTIVATION: (
        "ApproxGELU", "Clamp", "ELU", "GELU", "HardSwish", "LeakyReLU", "PReLU", "Sigmoid", "TanH",
    ),
    backend.COMPARISON: (
        "Bitwise And", "Bitwise Not", "Bitwise Or", "Bitwise Xor", "Shift Left",
        "Shift Right Arithmetic", "Shift Right Logical",
    ),
    backend.NORM: ("Normalize",),
    backend.POOL: ("ArgMax Pooling", "Average Pooling", "Max Pooling", "Unpooling"),
    backend.SOFTMAX: ("Softmax",),
    backend.REDUCTION: ("Mean", "Mean Squared", "Reduce Max", "Reduce Min", "Sum"),
    backend.RESIZE: ("Resize Bilinear",),
}  # fmt: skip

XNNPACK_CLASSES: Final = {
    name: operator_class for operator_class, names in _XNNPACK_TABLE.items() for name in names
}

_LABEL: Final = re.compile(
    r"(?P<base>[A-Za-z0-9][A-Za-z0-9 ]*) \((?P<detail>[^()]*)\)"
    r"(?: (?P<microkernel>[A-Za-z0-9][A-Za-z0-9 ]*?))?(?: #(?P<number>\d+))?"
)
_LAYOUTS: Final = frozenset({"NC", "ND", "NHWC", "NCHW", "NWC", "NCHW2NHWC"})
DEPTHWISE_MICROKERNELS: Final = frozenset({"DWConv", "VMulCAddC"})

# A pointwise convolution runs as a fully connected operator, so these two are one kind.
_SYNONYMS: Final = {
    "div": "divide",
    "conv": "product",
    "convolution": "product",
    "fullyconnected": "product",
    "depthwiseconv": "depthwise",
    "convtranspose": "deconvolution",
    "avgpooling": "averagepooling",
    "globalavgpooling": "mean",
    "concatenate": "copy",
    "argmaxpooling": "argmaxpooling",
    "reshape": "copy",
    "bilinear": "resizebilinear",
    "prelu": "leakyrelu",
    "sin": "sine",
    "cos": "cosine",
}
PRODUCT_KINDS: Final = frozenset({"product", "depthwise", "deconvolution", "batchmatrixmultiply"})


def parse_label(label: str) -> OperatorName:
    """Reads the label of an operator, such as `Softmax (NC, F32) #1`."""
    match = _LABEL.fullmatch(label)
    if match is None:
        return OperatorName(label, (), None, backend.UNKNOWN)
    base, microkernel = match["base"], match["microkernel"]
    fields = [field.strip() for field in match["detail"].split(",")]
    types = tuple(field for field in fields if field and field not in _LAYOUTS)
    by_microkernel = MICROKERNEL_CLASSES.get((base, microkernel or ""))
    operator_class = by_microkernel or XNNPACK_CLASSES.get(base, backend.UNKNOWN)
    return OperatorName(base, types, microkernel, operator_class)


def canonical_kind(text: str) -> str:
    """Makes one word of a node's kind or an operator's name: `MaxPooling2d`, `Max Pooling`."""
    kind = re.sub(r"[^a-z]", "", re.sub(r"\d+d?", "", text.lower()))
    kind = re.sub(r"^(static|dynamic)(?=.)", "", kind)
    return _SYNONYMS.get(kind, kind)


_KINDS: Final = {
    canonical_kind(name): operator_class for name, operator_class in XNNPACK_CLASSES.items()
}
NEUTRAL_KINDS: Final = frozenset(
    kind for kind, operator_class in _KINDS.items() if operator_class.category == "Elementwise"
)


def name_node(kind: str) -> OperatorName:
    """Returns the name of a node that is no product; its types are not in it."""
    return OperatorName(kind, (), None, _KINDS.get(canonical_kind(kind), backend.UNKNOWN))
