"""The predicted SME2 path, row by row of the kernel table it is made from."""

from __future__ import annotations

from typing import Any

import pytest

from etprof.backends.xnnpack.graph import XnnpackNode
from etprof.backends.xnnpack.sme import predict

POINTWISE: dict[str, Any] = {
    "kernel_height": 1,
    "kernel_width": 1,
    "subsampling_height": 1,
    "subsampling_width": 1,
    "padding_top": 0,
    "padding_right": 0,
    "padding_bottom": 0,
    "padding_left": 0,
    "groups": 1,
    "group_input_channels": 32,
    "group_output_channels": 64,
}
SPATIAL = POINTWISE | {"kernel_height": 3, "kernel_width": 3}
STRIDED = POINTWISE | {"subsampling_height": 2, "subsampling_width": 2}
DEPTHWISE = SPATIAL | {"groups": 32, "group_input_channels": 1, "group_output_channels": 1}


def node(kind: str, types: str, parameters: dict[str, Any]) -> XnnpackNode:
    *inputs, output = types.split()
    return XnnpackNode(0, kind, 1, (0, 1), 2, tuple(inputs), output, parameters)


TABLE = [
    ("FullyConnected", "fp32 fp32 fp32", {}, "PF32"),
    ("FullyConnected", "fp16 fp16 fp16", {}, "PF16"),
    ("FullyConnected", "fp16 fp32 fp16", {}, None),
    ("FullyConnected", "qint8 qcint8 qint8", {}, "PQS8"),
    ("FullyConnected", "qint8 qint8 qint8", {}, None),
    ("FullyConnected", "qdint8 qcint8 fp32", {}, "QP8"),
    ("FullyConnected", "qdint8 qcint4 fp32", {}, "QP8"),
    ("BatchMatrixMultiply", "fp32 fp32 fp32", {}, "PF32"),
    ("Conv2d", "fp32 fp32 fp32", SPATIAL, "PF32"),
    ("Conv2d", "fp16 fp32 fp16", SPATIAL, "PF16"),
    ("Conv2d", "fp16 fp32 fp16", STRIDED, "PF16"),
    ("Conv2d", "qint8 qcint8 qint8", SPATIAL, "PQS8"),
    ("Conv2d", "qint8 qint8 qint8", SPATIAL, "PQS8"),
    ("Conv2d", "qdint8 qcint8 fp32", SPATIAL, None),
    ("Conv2d", "fp32 fp32 fp32", POINTWISE, "PF32"),
    ("Conv2d", "fp16 fp32 fp16", POINTWISE, None),
    ("Conv2d", "qint8 qcint8 qint8", POINTWISE, "PQS8"),
    ("Conv2d", "qint8 qint8 qint8", POINTWISE, None),
    ("Conv2d", "fp32 fp32 fp32", DEPTHWISE, None),
    ("DepthwiseConv2d", "qint8 qcint8 qint8", DEPTHWISE, None),
    ("ConvTranspose2d", "fp32 fp32 fp32", SPATIAL, None),
    ("ConvTranspose2d", "qint8 qcint8 qint8", SPATIAL, "PQS8"),
    ("Softmax", "fp32 fp32", {}, None),
]


@pytest.mark.parametrize(("kind", "types", "parameters", "packed_type"), TABLE)
def test_prediction(
    kind: str, types: str, parameters: dict[str, Any], packed_type: str | None
) -> None:
    prediction = predict(node(kind, types, parameters))
    assert (prediction.packed_type, prediction.sme2) == (packed_type, packed_type is not None)
    assert prediction.reason


def test_a_pointwise_convolution_in_fp16_says_what_to_do() -> None:
    assert "needs FP16 weights" in predict(node("Conv2d", "fp16 fp32 fp16", POINTWISE)).reason


def test_four_bit_blocks_have_a_packed_type_but_no_sme2_kernel() -> None:
    prediction = predict(node("FullyConnected", "qdint8 qbint4 fp32", {}))
    assert (prediction.packed_type, prediction.sme2) == ("QP8", False)
