"""Rewrites of whole layers: means, pools and norms as the sums, products and roots that XNNPACK takes.

All of them leave dynamic shapes alone: their results would hold for the traced sizes only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.rewrite import GraphRewrite
from etprof.backends.xnnpack.aten_forms import (
    aten_operators,
    is_static,
    is_static_float,
    joined,
    reshaped,
    row_mean,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_IMAGE_DIMENSIONS: Final = 4
_MOST_POOLED: Final = 2**16
"""Elements of a matrix that a pool of unequal windows becomes: 256 KiB."""


class KeptDimensions(GraphRewrite):
    """Means in the one form that the delegate has, and over the last dimension as a product."""

    name = "kept_dimensions"
    changes = (
        "a mean over both axes of an image keeps them, and a reshape drops them; a mean over other "
        "dimensions becomes a product with a constant row of 1/n, in float32"
    )
    legal = "the same sums, halves summed in float32; the order of summation may differ"
    rests_on = "XNNPACK's partitioner takes mean.dim of four dimensions, [2, 3], with keepdim only"

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the mean in those forms."""
        return {
            "aten.mean.dim": cls._mean,
        }

    @staticmethod
    def _mean(
        value: Tensor,
        dim: Sequence[int] | None,
        keepdim: bool = False,
        *,
        dtype: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if not is_static(value) or dtype not in (None, value.dtype) or not dim:
            return NotImplemented
        dims = sorted(axis % value.dim() for axis in dim)
        if value.dim() == _IMAGE_DIMENSIONS and dims == [2, 3]:
            if keepdim:
                return NotImplemented
            mean = aten_operators().mean.dim(value, [2, 3], keepdim=True)
            return reshaped(mean, value.shape[:2])
        left_axes = [axis for axis in range(value.dim()) if axis not in dims]
        if not left_axes or not value.dtype.is_floating_point:
            return NotImplemented
        order = [*left_axes, *dims]
        rows = value if order == sorted(order) else value.permute(order)
        kept = [value.shape[axis] for axis in left_axes]
        rows = reshaped(rows, [*kept, math.prod(value.shape[axis] for axis in dims)])
        # A sum of halves would lose what a sum of floats keeps.
        mean = row_mean(rows.float()).to(value.dtype)
        full = [1 if axis in dims else size for axis, size in enumerate(value.shape)]
        return reshaped(mean, full if keepdim else kept)


class PlainPools(GraphRewrite):
    """Adaptive average pools as pools of fixed windows, or as products."""

    name = "plain_pools"
    # XNNPACK's quantiser looks for the layer's own operator, and fails where it finds others.
    precedes_quantization = False
    changes = (
        "an adaptive average pool whose windows are equal becomes an average pool, any other a "
        "product with a constant matrix, in float32"
    )
    legal = "the same means; the order of summation may differ"
    rests_on = (
        "XNNPACK's partitioner takes avg_pool2d and products, and of adaptive pools only those to "
        "one element of an image, which PyTorch decomposes into a mean"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the pools in those forms."""
        return {
            "aten.adaptive_avg_pool1d.default": cls._pool_row,
            "aten.adaptive_avg_pool2d.default": cls._pool_image,
        }

    @classmethod
    def _pool_row(cls, value: Tensor, output_size: Sequence[int]) -> Any:  # noqa: ANN401
        if not is_static_float(value) or value.dim() != _IMAGE_DIMENSIONS - 1:
            return NotImplemented
        *outer, length = value.shape
        pooled = cls._pool(reshaped(value, [*outer, 1, length]), [1, *output_size])
        return pooled if pooled is NotImplemented else reshaped(pooled, [*outer, *output_size])

    @classmethod
    def _pool_image(cls, value: Tensor, output_size: Sequence[int]) -> Any:  # noqa: ANN401
        is_image = is_static_float(value) and value.dim() == _IMAGE_DIMENSIONS
        if not is_image or list(output_size) == [1, 1]:
            return NotImplemented
        return cls._pool(value, output_size)

    @staticmethod
    def _pool(image: Tensor, output_size: Sequence[int]) -> Any:  # noqa: ANN401
        """Pools [batch, channels, height, width]."""
        outer, sizes = image.shape[:2], image.shape[2:]
        aten = aten_operators()
        if list(output_size) == [1, 1]:
            return aten.mean.dim(image, [2, 3], keepdim=True)
        if not any(size % out for size, out in zip(sizes, output_size, strict=True)):
            window = [size // out for size, out in zip(sizes, output_size, strict=True)]
            return aten.avg_pool2d.default(image, window, window)
        if math.prod(sizes) * math.prod(output_size) > _MOST_POOLED:
            return NotImplemented
        rows, columns = (_weigh(size, out) for size, out in zip(sizes, output_size, strict=True))
        outer_product = reshaped(rows, [rows.shape[0], 1, rows.shape[1], 1]) * columns[:, None, :]
        matrix = reshaped(outer_product, [math.prod(output_size), math.prod(sizes)])
        flat = reshaped(image, [math.prod(outer), math.prod(sizes)]).float()
        pooled = aten.linear.default(flat, matrix).to(image.dtype)
        return reshaped(pooled, [*outer, *output_size])


def _weigh(size: int, out: int) -> Tensor:
    """Returns what each of `size` elements is worth in each of `out` means: [out, size].

    The windows are those of ATen's adaptive pools: from floor(i n / m) to ceil((i + 1) n / m)
    (aten/src/ATen/native/AdaptivePooling.h).
    """
    rows = []
    for i in range(out):
        start, end = i * size // out, -(-(i + 1) * size // out)
        spans = (start, 0.0), (end - start, 1 / (end - start)), (size - end, 0.0)
        # Made of operators: a tensor that is here while a graph is traced again is none of its constants.
        spans_weights = [
            aten_operators().full.default([1, count], weight) for count, weight in spans if count
        ]
        rows.append(joined(spans_weights, 1))
    return joined(rows, 0)


class SpelledNorms(GraphRewrite):
    """Norms for which the delegate has no operator."""

    name = "spelled_norms"
    precedes_quantization = False
    changes = (
        "a layer, RMS, group or instance norm becomes differences, products and a reciprocal root "
        "in float32, its means products with a constant row of 1/n"
    )
    legal = "the norm's definition, with sums in float32: nearer to eager than a sum of halves"
    rests_on = (
        "the portable kernel sums halves in half precision (kernels/portable/cpu/"
        "op_native_layer_norm.cpp), and XNNPACK has no norm"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the norm, spelled out."""
        return {
            "aten.layer_norm.default": cls._layer_norm,
            "aten.rms_norm.default": cls._rms_norm,
            "aten.group_norm.default": cls._group_norm,
            "aten.instance_norm.default": cls._instance_norm,
        }

    @classmethod
    def _layer_norm(  # noqa: PLR0913, PLR0917 - ATen's
        cls,
        value: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enable: bool = True,
    ) -> Any:  # noqa: ANN401
        del cudnn_enable
        if not is_static_float(value):
            return NotImplemented
        rows = cls._as_rows(value, normalized_shape)
        centred = rows - row_mean(rows)
        width = [math.prod(normalized_shape)]
        scaled = _scaled(_over_root(centred, centred, eps), weight, bias, width)
        return reshaped(scaled.to(value.dtype), value.shape)

    @classmethod
    def _rms_norm(
        cls,
        value: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> Any:  # noqa: ANN401
        import torch

        if not is_static_float(value):
            return NotImplemented
        rows = cls._as_rows(value, normalized_shape)
        # PyTorch's default is the spacing of the type that it computes in.
        epsilon = torch.finfo(rows.dtype).eps if eps is None else eps
        width = [math.prod(normalized_shape)]
        scaled = _scaled(_over_root(rows, rows, epsilon), weight, None, width)
        return reshaped(scaled.to(value.dtype), value.shape)

    @classmethod
    def _group_norm(  # noqa: PLR0913, PLR0917 - ATen's
        cls,
        value: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Any:  # noqa: ANN401
        del cudnn_enabled
        if not is_static_float(value):
            return NotImplemented
        batch, channels = value.shape[:2]
        spread = math.prod(value.shape[2:])
        rows = reshaped(value, [batch, num_groups, channels // num_groups * spread]).float()
        centred = rows - row_mean(rows)
        normal = reshaped(_over_root(centred, centred, eps), [batch, channels, spread])
        scaled = _scaled(normal, weight, bias, [channels, 1])
        return reshaped(scaled.to(value.dtype), value.shape)

    @classmethod
    def _instance_norm(  # noqa: PLR0913, PLR0917 - ATen's
        cls,
        value: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        use_input_stats: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Any:  # noqa: ANN401
        del running_mean, running_var, momentum, cudnn_enabled
        if not use_input_stats:
            return NotImplemented
        return cls._group_norm(value, value.shape[1], weight, bias, eps)

    @staticmethod
    def _as_rows(value: Tensor, normalized_shape: Sequence[int]) -> Tensor:
        """Returns [..., n] in float32, where n are all normalised elements, and no image."""
        leading = list(value.shape[: value.dim() - len(normalized_shape)])
        # Of four dimensions the delegate would transpose each product's input and output.
        if len(leading) == _IMAGE_DIMENSIONS - 1:
            leading = [leading[0], leading[1] * leading[2]]
        return reshaped(value, [*leading, math.prod(normalized_shape)]).float()


def _over_root(rows: Tensor, spread: Tensor, eps: float) -> Tensor:
    """Returns rows over the root of the mean square of `spread`, of the same shape."""
    root: Tensor = aten_operators().rsqrt.default(row_mean(spread * spread) + eps)
    return rows * root


def _scaled(
    normal: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]
) -> Tensor:
    """Returns it times the weight and with the bias added, each in `shape` and in float32."""
    if weight is not None:
        normal = normal * reshaped(weight, shape).float()
    return normal if bias is None else normal + reshaped(bias, shape).float()
