"""Tensors inside nested inputs: casting, flattening, and their bytes as the runner reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def cast_floating(tree: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401 - any nesting of tensors
    """Casts the floating-point tensors of `tree`; token ids, masks and numbers stay as they are."""
    return pytree.tree_map(lambda leaf: _cast(leaf, dtype), tree)


def _cast(leaf: object, dtype: torch.dtype) -> object:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.to(dtype)
    return leaf


def flatten(tree: Any) -> list[Any]:  # noqa: ANN401 - any nesting of tensors
    """Returns the leaves of `tree` in the order in which a program takes or gives them."""
    return pytree.tree_leaves(tree)


def dtype_name(tensor: torch.Tensor) -> str:
    """Returns PyTorch's name of the element type, such as `float16`."""
    return str(tensor.dtype).removeprefix("torch.")


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Returns the elements in logical (row-major) order, little-endian, without a header."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()
