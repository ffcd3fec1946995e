"""Forms that rewrites of ATen operators put in their place: what XNNPACK takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


MOST_AXES: Final = 6
"""Of a tensor: XNN_MAX_TENSOR_DIMS in XNNPACK's include/xnnpack.h."""


def aten_operators() -> Any:  # noqa: ANN401 - PyTorch's operators
    """Returns ATen's operators; PyTorch is imported when one is asked for."""
    import torch

    return torch.ops.aten


def is_static(*values: Tensor) -> bool:
    """Whether every size is a number, not a symbol."""
    return all(isinstance(size, int) for value in values for size in value.shape)


def is_static_float(*values: Tensor) -> bool:
    """Whether all are of floating-point numbers and of known sizes."""
    return is_static(*values) and all(value.dtype.is_floating_point for value in values)


def is_half(value: Tensor) -> bool:
    """Whether its elements are floating-point numbers of 16 bits."""
    return value.dtype.is_floating_point and value.dtype.itemsize == 2


def reshaped(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns it in `shape`: itself where it has that."""
    if list(value.shape) == list(shape):
        return value
    return aten_operators().reshape.default(value, list(shape))  # type: ignore[no-any-return]


def sliced(value: Tensor, dim: int, start: int, end: int) -> Tensor:
    """Returns `start` to `end` of a dimension: itself where that is all of it."""
    if (start, end) == (0, value.shape[dim]):
        return value
    return aten_operators().slice.Tensor(value, dim, start, end)  # type: ignore[no-any-return]


def divided(value: Tensor, dim: int, count: int) -> list[Tensor]:
    """Returns `count` slices of equal length."""
    length = value.shape[dim] // count
    return [sliced(value, dim, i * length, (i + 1) * length) for i in range(count)]


def joined(values: Sequence[Tensor], dim: int) -> Tensor:
    """Returns them one after the other; a single one as it is."""
    return values[0] if len(values) == 1 else aten_operators().cat.default(list(values), dim)


def row_mean(value: Tensor) -> Tensor:
    """Returns the mean over the last dimension, which is kept, as a product with a constant row."""
    count = value.shape[-1]
    row = aten_operators().full.default([1, count], 1 / count, dtype=value.dtype)
    return aten_operators().linear.default(value, row)  # type: ignore[no-any-return]


def repeated(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns it in `shape`, each dimension of one repeated: as a product with ones."""
    factors = [
        1 if is_ == should else should for is_, should in zip(value.shape, shape, strict=True)
    ]
    return value * aten_operators().full.default(factors, 1.0, dtype=value.dtype)  # type: ignore[no-any-return]
