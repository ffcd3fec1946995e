"""Real operator names fall into the right class; the traps of other tools stay shut."""

from __future__ import annotations

import pytest

from etprof.backends.backend import CATEGORIES
from etprof.backends.portable import ATEN_CLASSES, parse_kernel_name
from etprof.backends.xnnpack.labels import XNNPACK_CLASSES, parse_label

DELEGATED = {
    "Convolution (NHWC, F16) IGEMM #1": ("Convolution", "convolution"),
    "Convolution (NHWC, PF16) DWConv #3": ("Convolution", "depthwise"),
    "Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #12": ("Convolution", "convolution"),
    "Convolution (NHWC, F32) GEMM #2": ("Convolution", "pointwise"),
    "Convolution (NHWC, F32) VMulCAddC #2": ("Convolution", "depthwise"),
    "Deconvolution (NHWC, F32) Subconv2D #1": ("Convolution", "transposed convolution"),
    "Fully Connected (NC, PF32) GEMM #1": ("GEMM", "linear"),
    "Fully Connected (NC, QP8, F32, QC4W) GEMM #1": ("GEMM", "linear"),
    "Dynamic Fully Connected (NC, F32) GEMM #1": ("GEMM", "linear"),
    "Batch Matrix Multiply (NC, F32) GEMM #4": ("GEMM", "matrix product"),
    "Convert (NC, F32, QD8) #1": ("Elementwise", "quantise and convert"),
    "Resize Bilinear (NHWC) #1": ("Other", "resize"),
    "Transpose (ND, X16) Transpose #2": ("Data Movement", "layout"),
    "Pack LH (X32) #1": ("Data Movement", "packing"),
    "Static Reshape (NC) #1": ("Data Movement", "view"),
    "Softmax (NC, F32) #1": ("Other", "softmax"),
    "Mean (ND) #1": ("Other", "reduction"),
    "Average Pooling (NHWC, F32) Average Pooling #1": ("Other", "pool"),
    "HardSwish (NC) #7": ("Elementwise", "activation"),
    "Square (NC) #1": ("Elementwise", "arithmetic"),
    "Maximum (ND) #1": ("Elementwise", "arithmetic"),
    "Multiply (ND) #1": ("Elementwise", "arithmetic"),
}

KERNELS = {
    "native_call_addmm.out": ("GEMM", "linear"),
    "native_call_bmm.out": ("GEMM", "matrix product"),
    "native_call_convolution.out": ("Convolution", "convolution"),
    "native_call_upsample_bilinear2d.vec_out": ("Other", "resize"),
    "native_call_native_layer_norm.out": ("Other", "norm"),
    "native_call__native_batch_norm_legit_no_training.out": ("Other", "norm"),
    "native_call_permute_copy.out": ("Data Movement", "layout"),
    "native_call_cat.out": ("Data Movement", "copy"),
    "native_call_quantize_per_tensor.out": ("Elementwise", "quantise and convert"),
    "native_call_mean.out": ("Other", "reduction"),
    "native_call_copy_": ("Data Movement", "copy"),
    "aten::mul.out": ("Elementwise", "arithmetic"),
    "aten.linear.default": ("GEMM", "linear"),
}


@pytest.mark.parametrize(("label", "expected"), DELEGATED.items())
def test_delegated_operators(label: str, expected: tuple[str, str]) -> None:
    assert parse_label(label).operator_class == expected


@pytest.mark.parametrize(("name", "expected"), KERNELS.items())
def test_kernels_outside_delegates(name: str, expected: tuple[str, str]) -> None:
    assert parse_kernel_name(name).operator_class == expected


def test_a_label_gives_types_and_microkernel_type() -> None:
    name = parse_label("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #12")
    assert name.base == "Convolution"
    assert name.data_types == ("PQS8", "QS8", "QC8W")
    assert name.microkernel_type == "IGEMM"


@pytest.mark.parametrize("label", ["", "Convolution", "Frobnicate (NC) #1", "((((", "a" * 10_000])
def test_unknown_labels_are_said_to_be_unknown(label: str) -> None:
    name = parse_label(label)
    assert name.operator_class == ("Other", "unknown")
    assert not name.is_known


def test_every_class_has_a_headline_category() -> None:
    classes = [*XNNPACK_CLASSES.values(), *ATEN_CLASSES.values()]
    assert {entry.category for entry in classes} <= set(CATEGORIES)
