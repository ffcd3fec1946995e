"""Multiply-accumulates of an operator, from the shapes in the graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from etprof.export.tensor_shapes import element_count, shape_of, target_name

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def count_macs(node: torch.fx.Node) -> int | None:
    """Returns the multiply-accumulates of one execution; None for operators without any."""
    counter = _COUNTERS.get(target_name(node).partition(".")[0])
    return None if counter is None else counter(node)


def _inputs(node: torch.fx.Node) -> list[list[int]]:
    return [shape_of(source) or [] for source in node.all_input_nodes]


def _convolution(node: torch.fx.Node) -> int:
    """Output elements x (input channels / groups) x kernel; mirrored when transposed."""
    weight = _inputs(node)[1]
    transposed = len(node.args) > 6 and bool(node.args[6])
    elements = element_count(node.all_input_nodes[0]) if transposed else element_count(node)
    return elements * math.prod(weight[1:])


def _linear(node: torch.fx.Node) -> int:
    """Output elements x input features; the bias is not counted."""
    return element_count(node) * _inputs(node)[0][-1]


def _addmm(node: torch.fx.Node) -> int:
    return element_count(node) * _inputs(node)[1][-1]


def _attention(node: torch.fx.Node) -> int:
    """Two products, query x key and weights x value: B·H·L·S·(E + Ev)."""
    query, key, value = _inputs(node)[:3]
    return math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


_COUNTERS: dict[str, Callable[[torch.fx.Node], int]] = {
    "convolution": _convolution,
    "linear": _linear,
    "mm": _linear,
    "bmm": _linear,
    "matmul": _linear,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
}
