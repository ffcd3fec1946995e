"""Tensors inside nested inputs: casting, flattening, and their bytes as the runner reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.model_registry.eager_model import ExportMethod

HALF_PRECISIONS: Final = frozenset({torch.float16, torch.bfloat16})


def cast_floating(tree: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401 - any nesting of tensors
    """Casts the floating-point tensors of `tree`; token ids, masks and numbers stay as they are."""
    return pytree.tree_map(lambda leaf: _cast(leaf, dtype), tree)


def half_precision_of(tree: Any) -> torch.dtype | None:  # noqa: ANN401 - any nesting of tensors
    """Returns the first half precision of the tensors in `tree`; None without any."""
    dtypes = (leaf.dtype for leaf in flatten(tree) if isinstance(leaf, torch.Tensor))
    return next((dtype for dtype in dtypes if dtype in HALF_PRECISIONS), None)


def _cast(leaf: object, dtype: torch.dtype) -> object:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.to(dtype)
    return leaf


def with_plain_strides(tree: Any) -> Any:  # noqa: ANN401 - any nesting of tensors
    """Stores row by row what is row by row and NHWC at once, such as an image of one channel.

    Its strides say NHWC, which ExecuTorch 1.5.1 takes for another shape (pytorch/executorch#19153).
    """
    return pytree.tree_map(_with_plain_strides, tree)


def _with_plain_strides(leaf: object) -> object:
    if not (
        isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.is_contiguous()
    ):
        return leaf
    plain = torch.empty(leaf.shape, dtype=leaf.dtype, device="meta").stride()
    return leaf if leaf.stride() == plain else leaf.as_strided(leaf.shape, plain).clone()


def flatten(tree: Any) -> list[Any]:  # noqa: ANN401 - any nesting of tensors
    """Returns the leaves of `tree` in the order in which a program takes or gives them."""
    return pytree.tree_leaves(tree)


def dtype_name(tensor: torch.Tensor) -> str:
    """Returns PyTorch's name of the element type, such as `float16`."""
    return str(tensor.dtype).removeprefix("torch.")


def with_channels_last(method: ExportMethod) -> ExportMethod:
    """Returns `method` with its four-dimensional floating-point inputs stored as NHWC."""
    inputs, kwarg_inputs = pytree.tree_map(
        _channels_last, (method.inputs, dict(method.kwarg_inputs))
    )
    return replace(method, inputs=inputs, kwarg_inputs=kwarg_inputs)


def _channels_last(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor) and leaf.dim() == 4 and leaf.is_floating_point():
        return _with_plain_strides(leaf.to(memory_format=torch.channels_last))
    return leaf


def store_in_order(module: torch.nn.Module) -> None:
    """Stores transposed parameters and buffers of a module element after element, in place.

    ExecuTorch reads them with the shape that they were transposed from. Images' weights may have their
    channels last, for which it has a dimension order.
    """
    for tensor in (*module.parameters(), *module.buffers()):
        is_plain = tensor.layout == torch.strided and type(tensor.data) is torch.Tensor
        is_image = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        if is_plain and not (is_image or tensor.is_contiguous()):
            tensor.data = tensor.data.contiguous()


def stored_like(value: object, example: object) -> object:
    """Returns tensor `value` stored in the dimension order of `example`."""
    if not (isinstance(value, torch.Tensor) and isinstance(example, torch.Tensor)):
        return value
    order = example.dim_order()
    inverse = [order.index(dimension) for dimension in range(len(order))]
    return value.permute(order).contiguous().permute(inverse)


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Returns the elements in the tensor's own dimension order, little-endian, without a header."""
    stored = tensor.detach().cpu().permute(tensor.dim_order()).contiguous().reshape(-1)
    return stored.view(torch.uint8).numpy().tobytes()


def with_dtypes(values: Sequence[Any], dtypes: Sequence[torch.dtype | None]) -> list[Any]:
    """Returns reference outputs in the element types that the program gives."""
    return [
        value if dtype is None else value.to(dtype)
        for value, dtype in zip(values, dtypes, strict=True)
    ]


def exact_and_stored_like(values: Sequence[Any], outputs: Sequence[object]) -> list[Any]:
    """Returns reference outputs in the memory order of a program's outputs, and not rounded as these are.

    Rounded to halves, they would be nearer to no program and farther from a good one: 66 dB at most.
    """
    dtypes = [getattr(output, "dtype", None) for output in outputs]
    exact = with_dtypes(
        values, [torch.float32 if dtype in HALF_PRECISIONS else dtype for dtype in dtypes]
    )
    return [stored_like(*pair) for pair in zip(exact, outputs, strict=True)]


def cast_and_stored_like(values: Sequence[Any], outputs: Sequence[object]) -> list[Any]:
    """Returns reference outputs with the types, and in the memory order, of a program's outputs."""
    cast = with_dtypes(values, [getattr(output, "dtype", None) for output in outputs])
    return [stored_like(*pair) for pair in zip(cast, outputs, strict=True)]
