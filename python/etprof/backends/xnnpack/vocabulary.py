"""What each operator name means: the one category table of the project.

Sources: XNNPACK's operator-type names (src/xnnpack/operator-type-defs.inc) with its microkernel
types, the `native_call_*` names registered by ExecuTorch's kernel libraries, and ATen's edge
operators, which share the latter's base names.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class OperatorClass(NamedTuple):
    """Where an operator's time is counted."""

    category: str
    """Headline category."""
    finer: str
    """Finer class below it."""


CATEGORIES: Final = ("Convolution", "GEMM", "Data Movement", "Elementwise", "Other")

UNKNOWN: Final = OperatorClass("Other", "unknown")
FRAMEWORK_OVERHEAD: Final = OperatorClass("Other", "framework overhead")
DELEGATE_OVERHEAD: Final = OperatorClass("Other", "delegate overhead")

_CONVOLUTION = OperatorClass("Convolution", "convolution")
_DECONVOLUTION = OperatorClass("Convolution", "transposed convolution")
_LINEAR = OperatorClass("GEMM", "linear")
_MATMUL = OperatorClass("GEMM", "matrix product")
_LAYOUT = OperatorClass("Data Movement", "layout")
_COPY = OperatorClass("Data Movement", "copy")
_VIEW = OperatorClass("Data Movement", "view")
_PACKING = OperatorClass("Data Movement", "packing")
_GATHER = OperatorClass("Data Movement", "gather and scatter")
_FILL = OperatorClass("Data Movement", "fill")
_CONVERT = OperatorClass("Elementwise", "quantise and convert")
_ARITHMETIC = OperatorClass("Elementwise", "arithmetic")
_ACTIVATION = OperatorClass("Elementwise", "activation")
_COMPARISON = OperatorClass("Elementwise", "comparison and logic")
_NORM = OperatorClass("Other", "norm")
_POOL = OperatorClass("Other", "pool")
_SOFTMAX = OperatorClass("Other", "softmax")
_REDUCTION = OperatorClass("Other", "reduction")
_RESIZE = OperatorClass("Other", "resize")
_SORT = OperatorClass("Other", "sort and select")
_TRANSFORM = OperatorClass("Other", "Fourier transform")
_RANDOM = OperatorClass("Other", "random")
_DISTANCE = OperatorClass("Other", "distance")

MICROKERNEL_CLASSES: Final = {
    ("Convolution", "DWConv"): OperatorClass("Convolution", "depthwise"),
    ("Convolution", "VMulCAddC"): OperatorClass("Convolution", "depthwise"),
    ("Convolution", "GEMM"): OperatorClass("Convolution", "pointwise"),
    ("Convolution", "SPMM"): OperatorClass("Convolution", "pointwise"),
}
"""XNNPACK operators whose microkernel type decides the class."""

_XNNPACK_TABLE: Final = {
    _CONVOLUTION: ("Convolution",),
    _DECONVOLUTION: ("Deconvolution",),
    _LINEAR: ("Fully Connected", "Dynamic Fully Connected"),
    _MATMUL: ("Batch Matrix Multiply",),
    _LAYOUT: ("Transpose", "Depth To Space", "Space To Depth"),
    _COPY: ("Copy", "Slice", "Constant Pad"),
    _VIEW: ("Static Reshape", "Static Expand Dims", "Fuse Dims", "Split Dims"),
    _PACKING: ("Pack LH",),
    _CONVERT: ("Convert",),
    _ARITHMETIC: (
        "Abs", "Add", "ATan2", "Bankders Rounding", "Bankers Rounding", "Binary Elementwise",
        "Ceiling", "Copy Sign", "Cosine", "Count Leading Zeros", "Cube Root", "Divide", "Exp",
        "Floor", "Log", "Maximum", "Minimum", "Modulus", "Multiply", "Negate", "Population Count",
        "Power", "Reciprocal Square Root", "RoPE", "Sign", "Sine", "Square", "Square Root",
        "Squared Difference", "Subtract", "Unary Elementwise",
    ),
    _ACTIVATION: (
        "ApproxGELU", "Clamp", "ELU", "GELU", "HardSwish", "LeakyReLU", "PReLU", "Sigmoid", "TanH",
    ),
    _COMPARISON: (
        "Bitwise And", "Bitwise Not", "Bitwise Or", "Bitwise Xor", "Shift Left",
        "Shift Right Arithmetic", "Shift Right Logical",
    ),
    _NORM: ("Normalize",),
    _POOL: ("ArgMax Pooling", "Average Pooling", "Max Pooling", "Unpooling"),
    _SOFTMAX: ("Softmax",),
    _REDUCTION: ("Mean", "Mean Squared", "Reduce Max", "Reduce Min", "Sum"),
    _RESIZE: ("Resize Bilinear",),
}  # fmt: skip

_ATEN_TABLE: Final = {
    _CONVOLUTION: ("convolution", "convolution_backward", "conv1d", "conv2d", "conv3d"),
    _LINEAR: ("addmm", "linear", "mixed_linear"),
    _MATMUL: ("baddbmm", "bmm", "matmul", "mixed_mm", "mm"),
    _LAYOUT: (
        "_clone_dim_order", "_to_dim_order_copy", "channel_shuffle", "flip", "permute",
        "permute_copy", "pixel_shuffle", "pixel_unshuffle", "roll", "t_copy", "transpose_copy",
    ),
    _COPY: (
        "_d2h_copy", "_h2d_copy", "alias_copy", "as_strided_copy", "cat", "clone",
        "constant_pad_nd", "copy", "copy_", "detach_copy", "diagonal_copy", "expand_copy",
        "lift_fresh_copy", "narrow_copy", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "repeat", "repeat_interleave", "replication_pad1d",
        "replication_pad2d", "replication_pad3d", "select_copy", "select_scatter", "slice_copy",
        "slice_scatter", "split_copy", "split_with_sizes_copy", "stack", "tril", "triu",
        "unbind_copy", "unfold_copy",
    ),
    _VIEW: (
        "squeeze_copy", "unsqueeze_copy", "view_as_real_copy", "view_copy", "_reshape_alias_copy",
    ),
    _GATHER: (
        "embedding", "embedding_2bit", "embedding_4bit", "embedding_byte", "gather", "index",
        "index_put", "index_put_", "index_select", "masked_scatter", "masked_select", "nonzero",
        "scatter", "scatter_add", "update_cache",
    ),
    _FILL: (
        "_empty_dim_order", "arange", "empty", "fill", "full", "full_like", "ones",
        "scalar_tensor", "zeros",
    ),
    _CONVERT: (
        "_to_copy", "choose_qparams", "choose_qparams_per_token_asymmetric",
        "dequantize_affine", "dequantize_per_channel", "dequantize_per_tensor",
        "dequantize_per_token", "quantize_affine", "quantize_per_channel", "quantize_per_tensor",
        "quantize_per_token", "choose_qparams_affine",
    ),
    _ARITHMETIC: (
        "_conj_physical", "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh",
        "ceil", "cos", "cosh", "cumsum", "div", "erf", "exp", "expm1", "floor", "floor_divide",
        "fmod", "log", "log10", "log1p", "log2", "maximum", "minimum", "mul", "neg", "pow",
        "reciprocal", "remainder", "round", "rsqrt", "rsub", "sign", "sin", "sinh", "sqrt", "sub",
        "tan", "trunc",
    ),
    _ACTIVATION: (
        "clamp", "elu", "gelu", "glu", "hardswish", "hardtanh", "leaky_relu", "logit",
        "native_dropout", "relu", "sigmoid", "silu", "tanh",
    ),
    _COMPARISON: (
        "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
        "bitwise_xor", "eq", "ge", "gt", "isinf", "isnan", "le", "logical_and", "logical_not",
        "logical_or", "logical_xor", "lt", "masked_fill", "ne", "where",
    ),
    _NORM: (
        "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "native_batch_norm",
        "native_group_norm", "native_layer_norm", "rms_norm",
    ),
    _POOL: (
        "_adaptive_avg_pool2d", "avg_pool2d", "max_pool2d_with_indices",
        "max_pool2d_with_indices_backward",
    ),
    _SOFTMAX: ("_log_softmax", "_softmax", "custom_sdpa", "sdpa_with_kv_cache"),
    _REDUCTION: (
        "amax", "amin", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum", "var",
        "var_mean",
    ),
    _RESIZE: (
        "_upsample_bilinear2d_aa", "grid_sampler_2d", "upsample_bilinear2d", "upsample_nearest2d",
    ),
    _SORT: ("topk",),
    _TRANSFORM: ("_fft_c2r", "_fft_r2c"),
    _RANDOM: ("rand", "randn"),
    _DISTANCE: ("_cdist_forward", "_pdist_forward"),
}  # fmt: skip

XNNPACK_CLASSES: Final = {name: entry for entry, names in _XNNPACK_TABLE.items() for name in names}
ATEN_CLASSES: Final = {name: entry for entry, names in _ATEN_TABLE.items() for name in names}
