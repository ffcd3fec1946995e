"""More than a hundred names as real ETDumps have them, each with the class it must get.

Those of XNNPACK follow src/operator-type-defs.inc and the labels that ExecuTorch's profiler makes of
it; `native_call_*` names are those of ExecuTorch's portable, optimized and quantized kernels.
"""

from __future__ import annotations

import pytest

from etprof.backends.portable import parse_kernel_name
from etprof.backends.xnnpack.labels import parse_label

NAMES = {
    ("Convolution", "convolution"): """
        Convolution (NHWC, F16) IGEMM #1
        Convolution (NHWC, F32) IGEMM #22
        Convolution (NHWC, PF16) IGEMM #1
        Convolution (NHWC, PF32) IGEMM #3
        Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #2
        Convolution (NHWC, QS8, QC8W) IGEMM #2
        Convolution (NHWC, QD8, F32, QC8W) IGEMM #2
        Convolution (NHWC, QU8) IGEMM #2
        native_call_convolution.out
        native_call_quantized_decomposed::conv2d.out
        """,
    ("Convolution", "depthwise"): """
        Convolution (NHWC, F16) DWConv #17
        Convolution (NHWC, PF16) DWConv #1
        Convolution (NHWC, PQS8, QS8, QC8W) DWConv #4
        Convolution (NHWC, F32) VMulCAddC #1
        """,
    ("Convolution", "pointwise"): """
        Convolution (NHWC, F32) GEMM #4
        """,
    ("Convolution", "transposed convolution"): """
        Deconvolution (NHWC, F32) IGEMM #1
        Deconvolution (NHWC, F32) Subconv2D #1
        Deconvolution (NHWC, PQS8, QS8, QC8W) IGEMM #1
        """,
    ("GEMM", "linear"): """
        Fully Connected (NC, F32) GEMM #34
        Fully Connected (NC, PF16) GEMM #1
        Fully Connected (NC, QD8, F32, QC4W) GEMM #7
        Fully Connected (NC, QD8, F32, QB4W) GEMM #7
        Fully Connected (NC, QP8, F32, QC8W) GEMM #7
        Fully Connected (NC, PQS8, QS8, QC8W) GEMM #1
        Dynamic Fully Connected (NC, F32) GEMM #1
        native_call_addmm.out
        native_call_linear.out
        """,
    ("GEMM", "matrix product"): """
        Batch Matrix Multiply (NC, F32) GEMM #24
        Batch Matrix Multiply (NC, PF16) GEMM #2
        native_call_bmm.out
        native_call_mm.out
        """,
    ("Data Movement", "layout"): """
        Transpose (ND, X32) #1
        Transpose (ND, X16) #2
        Transpose (ND, X8) Transpose #3
        Depth To Space (NHWC, X32) #1
        native_call_permute_copy.out
        native_call_transpose_copy.int_out
        native_call__to_dim_order_copy.out
        native_call__clone_dim_order.out
        native_call_pixel_shuffle.out
        """,
    ("Data Movement", "copy"): """
        Copy (NC, X32) #12
        Slice (ND, X32) #2
        Constant Pad (ND, X16) #1
        native_call_cat.out
        native_call_clone.out
        native_call_copy_
        native_call_expand_copy.out
        native_call_select_copy.int_out
        native_call_slice_copy.Tensor_out
        native_call_split_with_sizes_copy.out
        native_call_stack.out
        native_call_repeat.out
        native_call_constant_pad_nd.out
        """,
    ("Data Movement", "view"): """
        Static Reshape (NC) #1
        Static Expand Dims (NC) #1
        native_call_view_copy.out
        native_call_squeeze_copy.dims_out
        native_call_unsqueeze_copy.out
        """,
    ("Data Movement", "packing"): """
        Pack LH (X8) #1
        Pack LH (X16) #1
        Pack LH (X32) #1
        """,
    ("Data Movement", "gather and scatter"): """
        native_call_embedding.out
        native_call_quantized_decomposed::embedding_byte.out
        native_call_gather.out
        native_call_index.Tensor_out
        native_call_index_put.out
        native_call_index_select.out
        """,
    ("Data Movement", "fill"): """
        native_call_arange.start_out
        native_call_full.out
        native_call_full_like.out
        """,
    ("Other", "recurrence"): """
        native_call_llama::gated_delta_rule.out
        """,
    ("Elementwise", "quantise and convert"): """
        Convert (NC, F32, QD8) #1
        Convert (NC, QS8, F32) #4
        Convert (NC, F16, F32) #1
        native_call_quantize_per_tensor.out
        native_call_quantized_decomposed::dequantize_per_channel.out
        native_call_quantized_decomposed::choose_qparams.Tensor_out
        native_call__to_copy.out
        """,
    ("Elementwise", "arithmetic"): """
        Add (ND) #1
        Add (ND, QS8) #1
        Subtract (ND) #1
        Multiply (ND, F16) #1
        Divide (ND) #1
        Maximum (ND) #1
        Square (NC) #1
        Square Root (NC) #1
        Reciprocal Square Root (NC) #1
        Negate (NC) #1
        Abs (NC) #1
        Exp (NC) #1
        native_call_add.out
        native_call_mul.Scalar_out
        native_call_rsqrt.out
        native_call_pow.Tensor_Scalar_out
        """,
    ("Elementwise", "activation"): """
        Clamp (NC) #1
        Clamp (NC, F32) #1
        HardSwish (NC) #7
        Sigmoid (NC) #1
        GELU (NC) #12
        ELU (NC) #1
        LeakyReLU (NC) #1
        TanH (NC) #1
        native_call_gelu.out
        native_call_relu.out
        native_call_hardtanh.out
        """,
    ("Elementwise", "comparison and logic"): """
        native_call_eq.Scalar_out
        native_call_gt.Tensor_out
        native_call_logical_not.out
        native_call_where.self_out
        """,
    ("Other", "norm"): """
        native_call_native_layer_norm.out
        native_call_native_group_norm.out
        native_call__native_batch_norm_legit_no_training.out
        """,
    ("Other", "pool"): """
        Max Pooling (NHWC, F32) #1
        Average Pooling (NHWC, F32) #1
        native_call_max_pool2d_with_indices.out
        native_call__adaptive_avg_pool2d.out
        """,
    ("Other", "softmax"): """
        Softmax (NC, F32) #24
        native_call__softmax.out
        native_call__log_softmax.out
        """,
    ("Other", "reduction"): """
        Mean (ND) #1
        Sum (ND) #1
        native_call_mean.out
        native_call_sum.IntList_out
        native_call_amax.out
        native_call_argmax.out
        native_call_any.out
        """,
    ("Other", "resize"): """
        Resize Bilinear (NHWC, F32) #1
        native_call_upsample_bilinear2d.vec_out
        native_call_upsample_nearest2d.vec_out
        """,
}
CASES = [
    (line.strip(), expected)
    for expected, lines in NAMES.items()
    for line in lines.strip().splitlines()
]


def test_there_are_more_than_a_hundred() -> None:
    assert len({name for name, _ in CASES}) > 100


@pytest.mark.parametrize(("name", "expected"), CASES, ids=[name for name, _ in CASES])
def test_class(name: str, expected: tuple[str, str]) -> None:
    read = parse_kernel_name if name.startswith("native_call_") else parse_label
    assert read(name).operator_class == expected
