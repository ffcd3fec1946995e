"""Shapes and sizes of the values in an exported graph."""

from __future__ import annotations

import math
from typing import Any

import torch

QUANTIZE = "quantize"
DEQUANTIZE = "dequantize"
_LONGEST_CHAIN = 16
"""Of dequantisations one after the other; an export has one, a stranger's graph may have 20 000."""


def target_name(node: torch.fx.Node) -> str:
    """Returns an operator's name without its namespace, such as `convolution.default`."""
    name = getattr(node.target, "__name__", None) or str(node.target)
    return name.removeprefix("aten.")


def is_quantize(node: torch.fx.Node) -> bool:
    """Tells whether the node turns floats into integers or back, or computes the scales for it."""
    name = target_name(node)
    return QUANTIZE in name or "choose_qparams" in name


def shape_of(node: torch.fx.Node) -> list[int] | None:
    """Returns the shape for the example inputs.

    None when the node is not one tensor, or when its size depends on values inside the model.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [_size(size) for size in value.shape]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else None


def permutation_of(node: torch.fx.Node) -> list[int] | None:
    """Returns how a permute or transpose moves the dimensions; None for other operators."""
    shape = shape_of(node)
    name = target_name(node).partition(".")[0].removesuffix("_copy")
    if shape is None or name not in {"permute", "transpose", "t"}:
        return None
    dimensions = list(range(len(shape)))
    if name == "t":
        return dimensions[::-1]
    if name == "permute":
        order: Any = node.args[1]
        return [dimensions[index] for index in order]
    one, other = (int(str(index)) for index in node.args[1:3])
    dimensions[one], dimensions[other] = dimensions[other], dimensions[one]
    return dimensions


def _size(size: Any) -> int | None:  # noqa: ANN401 - int or torch.SymInt
    """Returns a dimension as a number; a dynamic one has the size of the example inputs."""
    if isinstance(size, int):
        return size
    return None if size.node.hint is None else int(size.node.hint)


def element_count(node: torch.fx.Node) -> int:
    """Returns the number of elements; 0 where the shape is not known."""
    shape = shape_of(node)
    return 0 if shape is None else math.prod(shape)


def stored_node(node: torch.fx.Node) -> torch.fx.Node:
    """Looks through dequantisation: returns the node whose tensor really is in memory."""
    for _ in range(_LONGEST_CHAIN):
        if node.op != "call_function" or DEQUANTIZE not in target_name(node):
            break
        node = node.all_input_nodes[0]
    return node


def input_bytes(node: torch.fx.Node) -> int:
    """Returns the bytes an operator reads from its inputs and weights, as they are stored."""
    return sum(_bytes(stored_node(source), _bits(source)) for source in node.all_input_nodes)


def output_bytes(node: torch.fx.Node) -> int:
    """Returns the bytes of the result, one byte per element where only its quantised form stays."""
    users = list(node.users)
    quantized = (
        bool(users)
        and all(
            target_name(user).find(QUANTIZE) >= 0 and DEQUANTIZE not in target_name(user)
            for user in users
            if user.op == "call_function"
        )
        and any(user.op == "call_function" for user in users)
    )
    return element_count(node) if quantized else _bytes(node, None)


def _bytes(node: torch.fx.Node, bits: int | None) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    return math.ceil(element_count(node) * (bits or value.element_size() * 8) / 8)


def _bits(source: torch.fx.Node) -> int | None:
    """Returns 4 for a dequantised 4-bit tensor, which PyTorch holds in int8; else None."""
    limits = [argument for argument in source.args if isinstance(argument, int)]
    return 4 if DEQUANTIZE in str(source.target) and {-8, 7} <= set(limits) else None
