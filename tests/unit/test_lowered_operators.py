"""Which instruction of a program is which operator of the lowered graph."""

from __future__ import annotations

import operator as python_operator

import pytest
import torch

from etprof.export.operators import LoweredMethod, add_instructions
from etprof.run.delegation import GraphOperator, Origin


def lowered(*operators: tuple[str, list[int] | None]) -> LoweredMethod:
    """A method of these names and shapes, all outside a delegate."""
    rows = [
        GraphOperator(
            name=name, operator="mul.Tensor", origin=Origin(module_path=name), shape=shape
        )
        for name, shape in operators
    ]
    return LoweredMethod(rows, [])


def emitted(*nodes: tuple[str, list[int]]) -> torch.fx.GraphModule:
    """A graph of nodes with these names and shapes, numbered as instructions."""
    graph = torch.fx.Graph()
    source = graph.placeholder("x")
    for number, (name, shape) in enumerate(nodes):
        node = graph.create_node("call_function", python_operator.mul, (source, source), name=name)
        node.meta = {"debug_handle": number, "val": torch.empty(shape)}
    graph.output(source)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def instructions(method: LoweredMethod) -> dict[str, int | None]:
    return {operator.name: operator.instruction for operator in method.operators}


def test_operators_are_found_by_their_order_where_they_are_numbered_anew() -> None:
    """Casts of one block had the module and the shape of another, by the number in their names."""
    method = lowered(("cast_2", [96]), ("cast", [1, 50]), ("mean", [1]), ("cast_1", [3]))
    add_instructions(
        method, emitted(("cast", [96]), ("cast_1", [1, 50]), ("mean", [1]), ("cast_2", [3]))
    )
    assert instructions(method) == {"cast_2": 0, "cast": 1, "mean": 2, "cast_1": 3}


def test_where_some_are_folded_the_others_keep_their_names() -> None:
    method = lowered(("view", [4]), ("view_1", [2, 2]), ("view_2", [4]))
    add_instructions(method, emitted(("view", [4]), ("view_2", [4])))
    assert instructions(method) == {"view": 0, "view_1": None, "view_2": 1}


@pytest.mark.parametrize(("shape", "number"), [([3], None), ([2], 0), (None, 0)])
def test_another_shape_is_another_operator(shape: list[int] | None, number: int | None) -> None:
    """A wrong module is worse than none."""
    method = lowered(("cast", shape))
    add_instructions(method, emitted(("cast", [2])))
    assert instructions(method) == {"cast": number}
