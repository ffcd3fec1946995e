"""ExecuTorch's own kernels, which run what no delegate takes: their names, and why no SME.

Sources: the `native_call_*` names registered by ExecuTorch's kernel libraries, and ATen's edge
operators, which share their base names.
"""

from __future__ import annotations

import re
from typing import Final

from etprof.backends import backend
from etprof.backends.backend import Backend, OperatorFacts, OperatorName, Reason, SmeRoute
from etprof.etdump.plausibility import KERNEL_PREFIX

_ATEN_TABLE: Final = {
    backend.CONVOLUTION: ("convolution", "convolution_backward", "conv1d", "conv2d", "conv3d"),
    backend.LINEAR: ("addmm", "linear", "mixed_linear"),
    backend.MATMUL: ("baddbmm", "bmm", "matmul", "mixed_mm", "mm"),
    backend.LAYOUT: (
        "_clone_dim_order", "_to_dim_order_copy", "channel_shuffle", "flip", "permute",
        "permute_copy", "pixel_shuffle", "pixel_unshuffle", "roll", "t_copy", "transpose_copy",
    ),
    backend.COPY: (
        "_d2h_copy", "_h2d_copy", "alias_copy", "as_strided_copy", "cat", "clone",
        "constant_pad_nd", "copy", "copy_", "detach_copy", "diagonal_copy", "expand_copy",
        "lift_fresh_copy", "narrow_copy", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "repeat", "repeat_interleave", "replication_pad1d",
        "replication_pad2d", "replication_pad3d", "select_copy", "select_scatter", "slice_copy",
        "slice_scatter", "split_copy", "split_with_sizes_copy", "stack", "tril", "triu",
        "unbind_copy", "unfold_copy",
    ),
    backend.VIEW: (
        "squeeze_copy", "unsqueeze_copy", "view_as_real_copy", "view_copy", "_reshape_alias_copy",
    ),
    backend.GATHER: (
        "embedding", "embedding_2bit", "embedding_4bit", "embedding_byte", "gather", "index",
        "index_put", "index_put_", "index_select", "masked_scatter", "masked_select", "nonzero",
        "scatter", "scatter_add", "update_cache",
    ),
    backend.FILL: (
        "_empty_dim_order", "arange", "empty", "fill", "full", "full_like", "ones",
        "scalar_tensor", "zeros",
    ),
    backend.CONVERT: (
        "_to_copy", "choose_qparams", "choose_qparams_per_token_asymmetric",
        "dequantize_affine", "dequantize_per_channel", "dequantize_per_tensor",
        "dequantize_per_token", "quantize_affine", "quantize_per_channel", "quantize_per_tensor",
        "quantize_per_token", "choose_qparams_affine",
    ),
    backend.ARITHMETIC: (
        "_conj_physical", "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh",
        "ceil", "cos", "cosh", "cumsum", "div", "erf", "exp", "expm1", "floor", "floor_divide",
        "fmod", "log", "log10", "log1p", "log2", "maximum", "minimum", "mul", "neg", "pow",
        "reciprocal", "remainder", "round", "rsqrt", "rsub", "sign", "sin", "sinh", "sqrt", "sub",
        "tan", "trunc",
    ),
    backend.ACTIVATION: (
        "clamp", "elu", "gelu", "glu", "hardswish", "hardtanh", "leaky_relu", "logit",
        "native_dropout", "relu", "sigmoid", "silu", "tanh",
    ),
    backend.COMPARISON: (
        "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
        "bitwise_xor", "eq", "ge", "gt", "isinf", "isnan", "le", "logical_and", "logical_not",
        "logical_or", "logical_xor", "lt", "masked_fill", "ne", "where",
    ),
    backend.NORM: (
        "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "native_batch_norm",
        "native_group_norm", "native_layer_norm", "rms_norm",
    ),
    backend.POOL: (
        "_adaptive_avg_pool2d", "avg_pool2d", "max_pool2d_with_indices",
        "max_pool2d_with_indices_backward",
    ),
    backend.SOFTMAX: ("_log_softmax", "_softmax", "custom_sdpa", "sdpa_with_kv_cache"),
    backend.REDUCTION: (
        "amax", "amin", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum", "var",
        "var_mean",
    ),
    backend.RESIZE: (
        "_upsample_bilinear2d_aa", "grid_sampler_2d", "upsample_bilinear2d", "upsample_nearest2d",
    ),
    backend.SORT: ("topk",),
    backend.TRANSFORM: ("_fft_c2r", "_fft_r2c"),
    backend.RANDOM: ("rand", "randn"),
    backend.DISTANCE: ("_cdist_forward", "_pdist_forward"),
    backend.RECURRENCE: ("channelwise_gated_delta_rule", "gated_delta_rule"),
}  # fmt: skip

ATEN_CLASSES: Final = {
    name: operator_class for operator_class, names in _ATEN_TABLE.items() for name in names
}
_NOT_DELEGATED: Final = Reason(
    "not delegated",
    "ExecuTorch's own kernel ran it: no delegate took it at export",
    "the event stands outside every delegate",
)


def parse_kernel_name(name: str) -> OperatorName:
    """Reads the name of a kernel outside delegates, such as `native_call_addmm.out`.

    ATen names are read as well: `aten::addmm.out`, `aten.addmm.default`.
    """
    text = name.removeprefix(KERNEL_PREFIX)
    text = re.sub(r"^[a-z_0-9]+::", "", text)
    text = re.sub(r"^(aten|quantized_decomposed|dim_order_ops|torchao|llama)\.", "", text)
    base = text.split(".")[0]
    return OperatorName(base, (), None, ATEN_CLASSES.get(base, backend.UNKNOWN))


class PortableBackend(Backend):
    """No delegate at all."""

    name = "portable"
    title = "ExecuTorch's own kernels"
    ns_per_tick = 1.0

    def read_label(self, label: str) -> OperatorName:
        """Reads a kernel's name."""
        return parse_kernel_name(label)

    def sme_route(self, facts: OperatorFacts) -> SmeRoute:
        """Not unless it was counted: ExecuTorch's kernels know no SME."""
        return SmeRoute("proven") if facts.prove_sme else SmeRoute("excluded", _NOT_DELEGATED)
