"""Rewrites of ATen operators into those that XNNPACK takes; each says what it rests on.

All of them leave dynamic shapes alone: their results would hold for the traced sizes only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.rewrite import GraphRewrite
from etprof.backends.xnnpack.aten_forms import (
    MOST_AXES,
    aten_operators,
    is_half,
    is_static,
    is_static_float,
    joined,
    repeated,
    reshaped,
    sliced,
)
from etprof.backends.xnnpack.layer_rewrites import KeptDimensions, PlainPools, SpelledNorms
from etprof.backends.xnnpack.recurrent_rewrites import PlainRecurrences
from etprof.backends.xnnpack.weight_rewrites import ChannelScales, ChannelWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_LEAST_HALF = -6e4
"""Takes part in no softmax, and is finite in half precision, whose largest value is 65504."""


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
        if not is_half(value):
            return NotImplemented
        return aten_operators().gelu.default(value.float(), approximate=approximate).to(value.dtype)

    @staticmethod
    def _silu(value: Tensor) -> Any:  # noqa: ANN401
        return value * aten_operators().sigmoid.default(value) if is_half(value) else NotImplemented

    @staticmethod
    def _hard_sigmoid(value: Tensor) -> Any:  # noqa: ANN401
        # An integer constant would be cast to the value's type outside the delegate.
        return aten_operators().hardtanh.default(value + 3.0, 0.0, 6.0) * (1 / 6)


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
        if not is_static_float(value) or exponent not in {2, 3, 4} or is_taken:
            return NotImplemented
        square = value * value
        return {2: lambda: square, 3: lambda: square * value, 4: lambda: square * square}[
            int(exponent)
        ]()


class LastSoftmaxes(GraphRewrite):
    """A softmax over another than the last dimension."""

    name = "last_softmaxes"
    changes = "a softmax over another dimension becomes one over the last, between two transposes"
    legal = "the same sums of the same elements"
    rests_on = "XNNPACK's partitioner takes a softmax over the last dimension only, and transposes"

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the transposed softmax; one over the last dimension is left alone."""
        return {"aten.softmax.int": cls._softmax, "aten._softmax.default": cls._softmax}

    @staticmethod
    def _softmax(value: Tensor, dim: int, dtype: object = None) -> Any:  # noqa: ANN401
        is_last = dim % max(value.dim(), 1) == value.dim() - 1
        if not is_static_float(value) or is_last or dtype not in {None, False, value.dtype}:
            return NotImplemented
        return value.transpose(dim, -1).softmax(-1).transpose(dim, -1)


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
            not is_static(query, key, value)
            or dropout_p
            or len(leading) < 1
            or value.shape[:-2] != key.shape[:-2]
            or not cls._shares_whole_groups(leading, key.shape[:-2], enable_gqa)
            or not cls._is_mask(attn_mask, [*leading, query.shape[-2], key.shape[-2]])
        ):
            return NotImplemented
        aten, batch = aten_operators(), math.prod(key.shape[:-2])
        rows, width = query.shape[-2:]
        columns = key.shape[-2]
        factor = 1 / math.sqrt(width) if scale is None else scale
        # Query heads of one key follow each other, so that no element moves.
        grouped = [batch, math.prod(leading) // batch * rows]
        keys = aten.permute.default(reshaped(key, [batch, columns, width]), [0, 2, 1])
        scores = aten.bmm.default(reshaped(query, [*grouped, width]) * factor, keys)
        if is_causal:
            full = aten.full.default([rows, columns], _LEAST_HALF, dtype=query.dtype)
            scores = reshaped(scores, [math.prod(leading), rows, columns]) + aten.triu.default(
                full, 1
            )
        weights = cls._weigh(scores, [*leading, rows, columns], attn_mask)
        mixed = aten.bmm.default(
            reshaped(weights, [*grouped, columns]),
            reshaped(value, [batch, columns, value.shape[-1]]),
        )
        return reshaped(mixed, [*leading, rows, value.shape[-1]])

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
        if not is_static(mask) or mask.dim() > len(shape):
            return False
        fits = zip(mask.shape[::-1], shape[::-1], strict=False)
        has_type = mask.dtype is torch.bool or mask.dtype.is_floating_point
        return has_type and all(size in {1, should} for size, should in fits)

    @staticmethod
    def _weigh(scores: Tensor, shape: Sequence[int], mask: Tensor | None) -> Tensor:
        """Returns the softmax of the scores, masked, in `shape` where there is a mask."""
        softmax = aten_operators()._softmax.default
        if mask is None:
            return softmax(scores, -1, False)  # type: ignore[no-any-return]
        masked = reshaped(scores, shape)
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
        if not is_static(left, right) or len(leading) < 1 or right.shape[:-2] != leading:
            return NotImplemented
        count = math.prod(leading)
        product = aten_operators().bmm.default(
            reshaped(left, [count, *left.shape[-2:]]), reshaped(right, [count, *right.shape[-2:]])
        )
        return reshaped(product, [*leading, left.shape[-2], right.shape[-1]])


class PlainViews(GraphRewrite):
    """Views that the delegate does not take, as those that it does."""

    name = "plain_views"
    changes = (
        "select, unbind, split and a roll become slices, squeeze and unsqueeze reshapes; an expand, "
        "and a concatenation with nothing, is left out where it has no effect; else an expand, as "
        "repetition and the nearest upsampling by whole numbers, is a product with ones"
    )
    legal = "the same elements"
    rests_on = (
        "XNNPACK's partitioner takes slices, reshape, concatenation and a product that broadcasts"
    )

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
            "aten.roll.default": cls._roll,
            "aten.upsample_nearest2d.vec": cls._upsample,
        }

    @classmethod
    def _select(cls, value: Tensor, dim: int, index: int) -> Any:  # noqa: ANN401
        if not is_static(value) or not isinstance(index, int):
            return NotImplemented
        dim, index = dim % value.dim(), index % value.shape[dim]
        shape = [size for axis, size in enumerate(value.shape) if axis != dim]
        return reshaped(sliced(value, dim, index, index + 1), shape)

    @classmethod
    def _unbind(cls, value: Tensor, dim: int = 0) -> Any:  # noqa: ANN401
        if not is_static(value):
            return NotImplemented
        return [cls._select(value, dim, index) for index in range(value.shape[dim])]

    @classmethod
    def _split(cls, value: Tensor, sizes: int | Sequence[int], dim: int = 0) -> Any:  # noqa: ANN401
        if not is_static(value):
            return NotImplemented
        dim %= value.dim()
        length = value.shape[dim]
        if isinstance(sizes, int):
            sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
        ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
        return [sliced(value, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]

    @staticmethod
    def _unsqueeze(value: Tensor, dim: int) -> Any:  # noqa: ANN401
        if not is_static(value):
            return NotImplemented
        shape = list(value.shape)
        shape.insert(dim % (value.dim() + 1), 1)
        return reshaped(value, shape)

    @staticmethod
    def _squeeze(value: Tensor, dim: int | Sequence[int] | None = None) -> Any:  # noqa: ANN401
        if not is_static(value):
            return NotImplemented
        axes = range(value.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        dims = [axis % value.dim() for axis in axes]
        shape = [size for axis, size in enumerate(value.shape) if not (axis in dims and size == 1)]
        return reshaped(value, shape)

    @staticmethod
    def _expand(value: Tensor, size: Sequence[int], *, implicit: bool = False) -> Any:  # noqa: ANN401
        del implicit
        if not is_static(value):
            return NotImplemented
        more = len(size) - value.dim()
        full = [
            value.shape[axis - more] if length == -1 else length for axis, length in enumerate(size)
        ]
        if list(value.shape) == full:
            return value
        if not value.dtype.is_floating_point or not all(isinstance(length, int) for length in full):
            return NotImplemented
        return repeated(reshaped(value, [1] * more + list(value.shape)), full)

    @staticmethod
    def _concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Any:  # noqa: ANN401
        del dim
        if not is_static(*tensors):
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
        if dim is None or not is_static_float(value):
            return NotImplemented
        dim %= value.dim()
        before, size, after = value.shape[:dim], value.shape[dim], value.shape[dim + 1 :]
        rows = reshaped(value, [*before, size, 1, *after])
        return reshaped(
            repeated(rows, [*before, size, repeats, *after]), [*before, size * repeats, *after]
        )

    @staticmethod
    def _roll(value: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:  # noqa: ANN401
        if not is_static(value) or not all(isinstance(shift, int) for shift in shifts):
            return NotImplemented
        # Without dimensions it is the flat tensor that rolls.
        result = value if dims else reshaped(value, [value.numel()])
        for shift, dim in zip(shifts, dims or [0], strict=True):
            axis = dim % result.dim()
            length = result.shape[axis]
            start = -shift % length if length else 0
            if start:
                halves = sliced(result, axis, start, length), sliced(result, axis, 0, start)
                result = joined(halves, axis)
        return reshaped(result, value.shape)

    @staticmethod
    def _upsample(
        value: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
    ) -> Any:  # noqa: ANN401
        if not is_static_float(value):
            return NotImplemented
        batch, channels, height, width = value.shape
        if output_size is not None:
            factors = [output_size[0] / height, output_size[1] / width]
        else:
            factors = list(scale_factors or [])
        if not factors or any(factor != int(factor) or factor < 1 for factor in factors):
            return NotImplemented
        rows, columns = (int(factor) for factor in factors)
        pixels = reshaped(value, [batch * channels, height, 1, width, 1])
        grown = repeated(pixels, [batch * channels, height, rows, width, columns])
        return reshaped(grown, [batch, channels, height * rows, width * columns])


class PlainSteps(GraphRewrite):
    """Slices with steps as slices of groups."""

    name = "plain_steps"
    changes = (
        "a slice with steps, but one of the last dimension, becomes a slice of each group of as many "
        "elements"
    )
    legal = "the same elements"
    rests_on = (
        "XNNPACK's partitioner takes slices without steps; its copies are slower than the portable "
        "ones where single elements are copied, in the last dimension"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the slice of groups; others are left alone."""
        return {"aten.slice.Tensor": cls._step}

    @classmethod
    def _step(
        cls,
        value: Tensor,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Any:  # noqa: ANN401
        numbers = (start or 0, end or 0, step)
        is_known = is_static(value) and all(isinstance(number, int) for number in numbers)
        if not is_known or step == 1 or value.dim() >= MOST_AXES:
            return NotImplemented
        dim, length = dim % value.dim(), value.shape[dim]
        if dim == value.dim() - 1:
            return NotImplemented
        taken = range(length)[slice(start, end, step)]
        if not taken:
            return NotImplemented
        last = sliced(value, dim, taken[-1], taken[-1] + 1)
        if len(taken) == 1:
            return last
        # Whole groups of `step` elements, of each the same one, in one axis more; the last may not
        # reach the end.
        before = max(0, taken.start + len(taken) * step - length)
        first = taken.start - before
        if first < 0:
            return joined([cls._step(value, dim, taken.start, taken[-1], step), last], dim)
        shape = list(value.shape)
        groups = sliced(value, dim, first, first + len(taken) * step)
        groups = reshaped(groups, [*shape[:dim], len(taken), step, *shape[dim + 1 :]])
        return reshaped(
            sliced(groups, dim + 1, before, before + 1),
            [*shape[:dim], len(taken), *shape[dim + 1 :]],
        )


GRAPH_REWRITES: Final[tuple[type[GraphRewrite], ...]] = (
    HalfActivations,
    KeptDimensions,
    PlainPools,
    SpelledNorms,
    WholePowers,
    LastSoftmaxes,
    PlainAttention,
    PlainProducts,
    PlainViews,
    PlainSteps,
    PlainRecurrences,
    ChannelWeights,
    ChannelScales,
)
