"""What the graph says of one operator, by hand: work, bytes, shapes, orders of dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from etprof.export.operators import (
    count_macs,
    find_traced,
    held_bytes,
    input_bytes,
    output_bytes,
    permutation_of,
    shape_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ATEN = torch.ops.aten


def call(operator: Callable[..., Any], *arguments: object, held: str = "p_") -> torch.fx.Node:
    """A node of a graph of its own; its first tensor comes in, the others are the program's."""
    graph = torch.fx.Graph()
    nodes: list[Any] = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            name = f"x{number}" if number == 0 and held == "p_" else f"{held}{number}"
            node = graph.placeholder(name)
            node.meta["val"] = argument
            nodes.append(node)
        else:
            nodes.append(argument)
    node = graph.call_function(operator, tuple(nodes))
    node.meta["val"] = operator(*arguments)
    return node


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


CONVOLUTION = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
IMAGE, KERNEL = zeros(2, 4, 5, 6), zeros(8, 4, 3, 3)


@pytest.mark.parametrize(
    ("operator", "arguments", "macs"),
    [
        (ATEN.convolution.default, (IMAGE, KERNEL, None, *CONVOLUTION), 2 * 8 * 5 * 6 * 4 * 9),
        (
            ATEN.convolution.default,
            (IMAGE, zeros(8, 1, 3, 3), None, *CONVOLUTION[:-1], 4),
            2 * 8 * 5 * 6 * 9,
        ),
        (
            ATEN.convolution.default,
            (IMAGE, zeros(4, 7, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
            2 * 4 * 5 * 6 * 7 * 9,
        ),
        (ATEN.linear.default, (zeros(3, 5), zeros(7, 5), zeros(7)), 3 * 7 * 5),
        (ATEN.mm.default, (zeros(3, 5), zeros(5, 7)), 3 * 7 * 5),
        (ATEN.bmm.default, (zeros(2, 3, 5), zeros(2, 5, 7)), 2 * 3 * 7 * 5),
        (ATEN.addmm.default, (zeros(7), zeros(3, 5), zeros(5, 7)), 3 * 7 * 5),
        (ATEN.baddbmm.default, (zeros(2, 3, 7), zeros(2, 3, 5), zeros(2, 5, 7)), 2 * 3 * 7 * 5),
        (
            ATEN.scaled_dot_product_attention.default,
            (zeros(2, 3, 4, 8), zeros(2, 3, 6, 8), zeros(2, 3, 6, 5)),
            2 * 3 * 4 * 6 * (8 + 5),
        ),
        (ATEN.relu.default, (zeros(3),), None),
    ],
)
def test_the_work_of_an_operator(
    operator: Callable[..., Any], arguments: tuple[object, ...], macs: int | None
) -> None:
    assert count_macs(call(operator, *arguments)) == macs


def test_bytes_that_are_held_are_the_programs_own() -> None:
    node = call(ATEN.linear.default, zeros(3, 5), zeros(7, 5), zeros(7))
    assert held_bytes(node) == 4 * (7 * 5 + 7)
    assert input_bytes(node) == 4 * (3 * 5 + 7 * 5 + 7)
    assert output_bytes(node) == 4 * 3 * 7
    assert shape_of(node) == [3, 7]


@pytest.mark.parametrize("rows", [2, 5, 10])
def test_of_a_table_the_rows_that_are_taken_are_read(rows: int) -> None:
    """Also where they are more than the table has."""
    indices = zeros(rows, dtype=torch.int64)
    node = call(ATEN.embedding.default, zeros(5, 3), indices, held="p_")
    table, _ = node.all_input_nodes
    table.name = "p_table"
    assert held_bytes(node) == 4 * 3 * rows + 8 * rows
    chosen = call(ATEN.index_select.default, zeros(5, 3), 0, indices, held="c_")
    assert held_bytes(chosen) == 4 * 3 * rows + 8 * rows


@pytest.mark.parametrize(
    ("operator", "arguments", "order"),
    [
        (ATEN.permute.default, ([2, 0, 1],), (2, 0, 1)),
        (ATEN.permute_copy.default, ([1, 2, 0],), (1, 2, 0)),
        (ATEN.transpose.int, (0, 2), (2, 1, 0)),
        (ATEN.transpose.int, (-1, -2), (0, 2, 1)),
        (ATEN.relu.default, (), None),
    ],
)
def test_orders_of_dimensions(
    operator: Callable[..., Any], arguments: tuple[object, ...], order: tuple[int, ...] | None
) -> None:
    assert permutation_of(call(operator, zeros(2, 3, 4), *arguments)) == order


def test_a_matrix_is_turned_without_naming_dimensions() -> None:
    assert permutation_of(call(ATEN.t.default, zeros(2, 3))) == (1, 0)
    node = call(ATEN.relu.default, zeros(2))
    node.meta["val"] = (zeros(2), zeros(2))
    assert shape_of(node) is None


def test_the_traced_node_is_the_first_of_all() -> None:
    class Source:
        def __init__(self, name: str, *sources: Source) -> None:
            self.name, self.target, self.from_node = name, f"aten.{name}", list(sources)

    node = call(ATEN.relu.default, zeros(2))
    assert find_traced(node) is None
    node.meta["from_node"] = [Source("last", Source("middle", Source("first"))), Source("other")]
    assert find_traced(node) == ("first", "aten.first")
