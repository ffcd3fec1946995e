"""Rewrites of ATen operators into those that XNNPACK takes; each says what it rests on.

All of them leave dynamic shapes alone: their results would hold for the traced sizes only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.rewrite import GraphRewrite
from etprof.backends.xnnpack.weight_rewrites import ChannelScales, ChannelWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_IMAGE_DIMENSIONS: Final = 4
_LEAST_HALF = -6e4
"""Takes part in no softmax, and is finite in half precision, whose largest value is 65504."""


def _aten() -> Any:  # noqa: ANN401 - PyTorch's operators
    import torch

    return torch.ops.aten


def _is_static(*values: Tensor) -> bool:
    return all(isinstance(size, int) for value in values for size in value.shape)


def _is_static_float(*values: Tensor) -> bool:
    return _is_static(*values) and all(value.dtype.is_floating_point for value in values)


def _is_half(value: Tensor) -> bool:
    return value.dtype.is_floating_point and value.dtype.itemsize == 2


def _reshape(value: Tensor, shape: Sequence[int]) -> Tensor:
    return (
        value if list(value.shape) == list(shape) else _aten().reshape.default(value, list(shape))
    )


def _row_mean(value: Tensor) -> Tensor:
    """Returns the mean over the last dimension, which is kept, as a product with a constant row."""
    count = value.shape[-1]
    row = _aten().full.default([1, count], 1 / count, dtype=value.dtype)
    return _aten().linear.default(value, row)  # type: ignore[no-any-return]


def _repeated(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns it in `shape`, each dimension of one repeated: as a product with ones."""
    factors = [
        1 if is_ == should else should for is_, should in zip(value.shape, shape, strict=True)
    ]
    return value * _aten().full.default(factors, 1.0, dtype=value.dtype)  # type: ignore[no-any-return]


class HalfActivations(GraphRewrite):
    """Activations whose usual forms compute in float32, or have no half-precision kernel."""

    name = "half_activations"
    changes = (
        "SiLU becomes x * sigmoid(x), hard-sigmoid relu6(x + 3) / 6, both in half precision; "
        "GELU is computed in float32 between two casts"
    )
    legal = "the same functions; SiLU and hard-sigmoid round their intermediate values to half"
    rests_on = (
        "PyTorch decomposes them through float32 (torch/_decomp/decompositions.py, "
        "pw_cast_for_opmath), and XNNPACK's partitioner refuses GELU of halves"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the activation in the delegate's operators; float32 is left alone."""
        return {
            "aten.gelu.default": cls._gelu,
            "aten.silu.default": cls._silu,
            "aten.hardsigmoid.default": cls._hard_sigmoid,
        }

    @staticmethod
    def _gelu(value: Tensor, *, approximate: str = "none") -> Any:  # noqa: ANN401
        if not _is_half(value):
            return NotImplemented
        return _aten().gelu.default(value.float(), approximate=approximate).to(value.dtype)

    @staticmethod
    def _silu(value: Tensor) -> Any:  # noqa: ANN401
        return value * _aten().sigmoid.default(value) if _is_half(value) else NotImplemented

    @staticmethod
    def _hard_sigmoid(value: Tensor) -> Any:  # noqa: ANN401
        # An integer constant would be cast to the value's type outside the delegate.
        return _aten().hardtanh.default(value + 3.0, 0.0, 6.0) * (1 / 6)


class KeptDimensions(GraphRewrite):
    """Means in the one form that the delegate has, and over the last dimension as a product."""

    name = "kept_dimensions"
    changes = (
        "a mean over both axes of an image keeps them, and a reshape drops them; a mean over the "
        "last dimension becomes a product with a constant row of 1/n, in float32"
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
        if not _is_static(value) or dtype not in (None, value.dtype) or not dim:
            return NotImplemented
        dims = sorted(axis % value.dim() for axis in dim)
        if value.dim() == 4 and dims == [2, 3] and not keepdim:
            mean = _aten().mean.dim(value, [2, 3], keepdim=True)
            return _reshape(mean, value.shape[:2])
        if dims == [value.dim() - 1] and value.dim() > 1 and value.dtype.is_floating_point:
            # A sum of halves would lose what a sum of floats keeps.
            mean = _row_mean(value.float()).to(value.dtype)
            return mean if keepdim else _reshape(mean, value.shape[:-1])
        return NotImplemented


class SpelledNorms(GraphRewrite):
    """Norms over the last dimensions, for which the delegate has no operator."""

    name = "spelled_norms"
    precedes_quantization = False
    changes = (
        "a layer or RMS norm becomes differences, products and a reciprocal root in float32, its "
        "means products with a constant row of 1/n"
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
        if not _is_static_float(value):
            return NotImplemented
        rows = cls._as_rows(value, normalized_shape)
        centred = rows - _row_mean(rows)
        return cls._scaled(value, centred, centred, weight, bias, eps)

    @classmethod
    def _rms_norm(
        cls,
        value: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> Any:  # noqa: ANN401
        import torch

        if not _is_static_float(value):
            return NotImplemented
        rows = cls._as_rows(value, normalized_shape)
        # PyTorch's default is the spacing of the type that it computes in.
        epsilon = torch.finfo(rows.dtype).eps if eps is None else eps
        return cls._scaled(value, rows, rows, weight, None, epsilon)

    @staticmethod
    def _as_rows(value: Tensor, normalized_shape: Sequence[int]) -> Tensor:
        """Returns [..., n] in float32, where n are all normalised elements, and no image."""
        leading = list(value.shape[: value.dim() - len(normalized_shape)])
        # Of four dimensions the delegate would transpose each product's input and output.
        if len(leading) == _IMAGE_DIMENSIONS - 1:
            leading = [leading[0], leading[1] * leading[2]]
        return _reshape(value, [*leading, math.prod(normalized_shape)]).float()

    @staticmethod
    def _scaled(  # noqa: PLR0913, PLR0917
        value: Tensor,
        rows: Tensor,
        spread: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> Tensor:
        normal = rows * _aten().rsqrt.default(_row_mean(spread * spread) + eps)
        if weight is not None:
            normal = normal * _reshape(weight, [weight.numel()]).float()
        if bias is not None:
            normal = normal + _reshape(bias, [bias.numel()]).float()
        return _reshape(normal.to(value.dtype), value.shape)


class WholePowers(GraphRewrite):
    """Powers with small whole exponents."""

    name = "whole_powers"
    changes = "a power of 2, 3 or 4, also where it is written as 3.0, becomes products"
    legal = "the same powers; halves round after each product instead of once"
    rests_on = "XNNPACK's partitioner takes pow.Tensor_Scalar with the integer 2 only"

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the products; integers and the form that is taken are left alone."""
        return {"aten.pow.Tensor_Scalar": cls._power}

    @staticmethod
    def _power(value: Tensor, exponent: float) -> Any:  # noqa: ANN401
        is_taken = isinstance(exponent, int) and exponent == 2
        if not _is_static_float(value) or exponent not in {2, 3, 4} or is_taken:
            return NotImplemented
        square = value * value
        return {2: lambda: square, 3: lambda: square * value, 4: lambda: square * square}[
            int(exponent)
        ]()


class PlainAttention(GraphRewrite):
    """Attention as two products and a softmax."""

    name = "plain_attention"
    changes = (
        "scaled dot-product attention becomes softmax(q k / sqrt(d) + mask) v on batches of "
        "matrices, its causal mask a constant, a boolean mask a sum and a product; query heads "
        "that share a key are the rows of one matrix"
    )
    legal = (
        "the same where each row attends to something; a row that an additive mask hides entirely, "
        "for which PyTorch gives zeros, becomes a mean"
    )
    rests_on = (
        "PyTorch decomposes it through _safe_softmax (where, eq, any, full_like, logical_not) and "
        "4-D products with expand, none of which XNNPACK's partitioner takes"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the plain form; dropout, and heads that share no whole groups, are left alone."""
        return {
            "aten.scaled_dot_product_attention.default": cls._attend,
        }

    @classmethod
    def _attend(  # noqa: PLR0913, PLR0917 - ATen's
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:  # noqa: ANN401
        leading = query.shape[:-2]
        if (
            not _is_static(query, key, value)
            or dropout_p
            or len(leading) < 1
            or value.shape[:-2] != key.shape[:-2]
            or not cls._shares_whole_groups(leading, key.shape[:-2], enable_gqa)
            or not cls._is_mask(attn_mask, [*leading, query.shape[-2], key.shape[-2]])
        ):
            return NotImplemented
        aten, batch = _aten(), math.prod(key.shape[:-2])
        rows, width = query.shape[-2:]
        columns = key.shape[-2]
        factor = 1 / math.sqrt(width) if scale is None else scale
        # Query heads of one key follow each other, so that no element moves.
        grouped = [batch, math.prod(leading) // batch * rows]
        keys = aten.permute.default(_reshape(key, [batch, columns, width]), [0, 2, 1])
        scores = aten.bmm.default(_reshape(query, [*grouped, width]) * factor, keys)
        if is_causal:
            full = aten.full.default([rows, columns], _LEAST_HALF, dtype=query.dtype)
            scores = _reshape(scores, [math.prod(leading), rows, columns]) + aten.triu.default(
                full, 1
            )
        weights = cls._weigh(scores, [*leading, rows, columns], attn_mask)
        mixed = aten.bmm.default(
            _reshape(weights, [*grouped, columns]),
            _reshape(value, [batch, columns, value.shape[-1]]),
        )
        return _reshape(mixed, [*leading, rows, value.shape[-1]])

    @staticmethod
    def _shares_whole_groups(
        leading: Sequence[int], key_leading: Sequence[int], enable_gqa: bool
    ) -> bool:
        """Whether each key, in order, is that of equally many query heads in order."""
        if len(leading) != len(key_leading):
            return False
        if enable_gqa:
            same = leading[:-1] == key_leading[:-1]
            return same and leading[-1] % key_leading[-1] == 0
        # A dimension of one is repeated: all after it must be, or keys would come round again.
        shared = [is_ != key for is_, key in zip(leading, key_leading, strict=True)]
        first = shared.index(True) if any(shared) else len(shared)
        return all(size == 1 for size in key_leading[first:])

    @staticmethod
    def _is_mask(mask: Tensor | None, shape: Sequence[int]) -> bool:
        """Whether it is none, or one of booleans or numbers that broadcasts to the scores' shape."""
        import torch

        if mask is None:
            return True
        if not _is_static(mask) or mask.dim() > len(shape):
            return False
        fits = zip(mask.shape[::-1], shape[::-1], strict=False)
        has_type = mask.dtype is torch.bool or mask.dtype.is_floating_point
        return has_type and all(size in {1, should} for size, should in fits)

    @staticmethod
    def _weigh(scores: Tensor, shape: Sequence[int], mask: Tensor | None) -> Tensor:
        """Returns the softmax of the scores, masked, in `shape` where there is a mask."""
        softmax = _aten()._softmax.default
        if mask is None:
            return softmax(scores, -1, False)  # type: ignore[no-any-return]
        masked = _reshape(scores, shape)
        if mask.dtype.is_floating_point:
            return softmax(masked + mask, -1, False)  # type: ignore[no-any-return]
        kept = mask.to(scores.dtype)
        # The sum hides what is masked; the product makes a row zero of which nothing is kept.
        return softmax(masked + (kept - 1.0) * -_LEAST_HALF, -1, False) * kept  # type: ignore[no-any-return]


class PlainProducts(GraphRewrite):
    """Batched products without their expand of no effect."""

    name = "plain_products"
    changes = "a product of two batches of equal size becomes bmm between reshapes"
    legal = "the same products"
    rests_on = "PyTorch decomposes it through expand, which XNNPACK's partitioner does not take"

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the product as bmm."""
        return {
            "aten.matmul.default": cls._multiply,
        }

    @staticmethod
    def _multiply(left: Tensor, right: Tensor) -> Any:  # noqa: ANN401
        leading = left.shape[:-2]
        if not _is_static(left, right) or len(leading) < 1 or right.shape[:-2] != leading:
            return NotImplemented
        count = math.prod(leading)
        product = _aten().bmm.default(
            _reshape(left, [count, *left.shape[-2:]]), _reshape(right, [count, *right.shape[-2:]])
        )
        return _reshape(product, [*leading, left.shape[-2], right.shape[-1]])


class PlainViews(GraphRewrite):
    """Views that the delegate does not take, as those that it does."""

    name = "plain_views"
    changes = (
        "select, unbind and split become slices, squeeze and unsqueeze reshapes; an expand, and a "
        "concatenation with nothing, is left out where it has no effect; else an expand, as "
        "repetition, is a product with ones"
    )
    legal = "the same elements"
    rests_on = "XNNPACK's partitioner takes slice, reshape and a product that broadcasts"

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the view in slices and reshapes."""
        return {
            "aten.select.int": cls._select,
            "aten.unbind.int": cls._unbind,
            "aten.split_with_sizes.default": cls._split,
            "aten.split.Tensor": cls._split,
            "aten.unsqueeze.default": cls._unsqueeze,
            "aten.squeeze.default": cls._squeeze,
            "aten.squeeze.dim": cls._squeeze,
            "aten.squeeze.dims": cls._squeeze,
            "aten.expand.default": cls._expand,
            "aten.cat.default": cls._concatenate,
            "aten.repeat_interleave.self_int": cls._repeat,
        }

    @staticmethod
    def _part(value: Tensor, dim: int, start: int, end: int) -> Tensor:
        if (start, end) == (0, value.shape[dim]):
            return value
        return _aten().slice.Tensor(value, dim, start, end)  # type: ignore[no-any-return]

    @classmethod
    def _select(cls, value: Tensor, dim: int, index: int) -> Any:  # noqa: ANN401
        if not _is_static(value) or not isinstance(index, int):
            return NotImplemented
        dim, index = dim % value.dim(), index % value.shape[dim]
        shape = [size for axis, size in enumerate(value.shape) if axis != dim]
        return _reshape(cls._part(value, dim, index, index + 1), shape)

    @classmethod
    def _unbind(cls, value: Tensor, dim: int = 0) -> Any:  # noqa: ANN401
        if not _is_static(value):
            return NotImplemented
        return [cls._select(value, dim, index) for index in range(value.shape[dim])]

    @classmethod
    def _split(cls, value: Tensor, sizes: int | Sequence[int], dim: int = 0) -> Any:  # noqa: ANN401
        if not _is_static(value):
            return NotImplemented
        dim %= value.dim()
        length = value.shape[dim]
        if isinstance(sizes, int):
            sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
        ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
        return [
            cls._part(value, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)
        ]

    @staticmethod
    def _unsqueeze(value: Tensor, dim: int) -> Any:  # noqa: ANN401
        if not _is_static(value):
            return NotImplemented
        shape = list(value.shape)
        shape.insert(dim % (value.dim() + 1), 1)
        return _reshape(value, shape)

    @staticmethod
    def _squeeze(value: Tensor, dim: int | Sequence[int] | None = None) -> Any:  # noqa: ANN401
        if not _is_static(value):
            return NotImplemented
        axes = range(value.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        dims = [axis % value.dim() for axis in axes]
        shape = [size for axis, size in enumerate(value.shape) if not (axis in dims and size == 1)]
        return _reshape(value, shape)

    @staticmethod
    def _expand(value: Tensor, size: Sequence[int], *, implicit: bool = False) -> Any:  # noqa: ANN401
        del implicit
        if not _is_static(value):
            return NotImplemented
        more = len(size) - value.dim()
        full = [
            value.shape[axis - more] if length == -1 else length for axis, length in enumerate(size)
        ]
        if list(value.shape) == full:
            return value
        if not value.dtype.is_floating_point or not all(isinstance(length, int) for length in full):
            return NotImplemented
        return _repeated(_reshape(value, [1] * more + list(value.shape)), full)

    @staticmethod
    def _concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Any:  # noqa: ANN401
        del dim
        if not _is_static(*tensors):
            return NotImplemented
        # An empty cache, of one dimension as PyTorch allows, comes before the first keys of GPT-2.
        filled = [value for value in tensors if value.numel()]
        if len(filled) != 1 or any(value.dtype != filled[0].dtype for value in tensors):
            return NotImplemented
        return filled[0]

    @staticmethod
    def _repeat(
        value: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
    ) -> Any:  # noqa: ANN401
        del output_size
        if dim is None or not _is_static_float(value):
            return NotImplemented
        dim %= value.dim()
        before, size, after = value.shape[:dim], value.shape[dim], value.shape[dim + 1 :]
        rows = _reshape(value, [*before, size, 1, *after])
        return _reshape(
            _repeated(rows, [*before, size, repeats, *after]), [*before, size * repeats, *after]
        )


GRAPH_REWRITES: Final[tuple[type[GraphRewrite], ...]] = (
    HalfActivations,
    KeptDimensions,
    SpelledNorms,
    WholePowers,
    PlainAttention,
    PlainProducts,
    PlainViews,
    ChannelWeights,
    ChannelScales,
)
