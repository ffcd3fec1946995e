"""Which transposes undo each other, proven on graphs of every shape."""

from __future__ import annotations

from typing import Any

import pytest

from etprof.analysis.split.transposes import find_inverse_pairs
from etprof.run.delegation import MethodReport

HERE, THERE = [0, 2, 3, 1], [0, 3, 1, 2]


def pairs_of(nodes: list[dict[str, Any]]) -> list[tuple[int | None, int | None]]:
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 7, "nodes": nodes}
    found = find_inverse_pairs(MethodReport.model_validate({"delegates": [delegate]}))
    assert all(place[0] == 7 for pair in found for place in (pair.first, pair.second))
    return [(pair.first[1], pair.second[1]) for pair in found]


def chain(*nodes: tuple[str, list[int] | None]) -> list[dict[str, Any]]:
    """Nodes that each read what the one before wrote."""
    return [
        {"kind": kind, "inputs": [number], "output": number + 1, "permutation": permutation}
        for number, (kind, permutation) in enumerate(nodes)
    ]


def transpose(permutation: list[int]) -> tuple[str, list[int]]:
    return ("StaticTranspose", permutation)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (chain(transpose(HERE), transpose(THERE)), [(0, 1)]),
        (chain(transpose(HERE), transpose(HERE)), []),
        (
            chain(transpose([1, 0]), ("Sigmoid", None), ("Square", None), transpose([1, 0])),
            [(0, 3)],
        ),
        (chain(transpose(HERE), ("Conv2d", None), transpose(THERE)), []),
        # Each transpose belongs to one pair: of three, the first two.
        (chain(transpose(HERE), transpose(THERE), transpose(HERE)), [(0, 1)]),
        (chain(transpose([1, 0]), transpose([0, 2, 1])), []),
        (chain(("Sigmoid", None), transpose(HERE)), []),
        # One that is its own inverse is no pair with itself.
        (chain(transpose([1, 0])), []),
    ],
)
def test_chains(nodes: list[dict[str, Any]], expected: list[tuple[int, int]]) -> None:
    assert pairs_of(nodes) == expected


def test_an_operator_of_two_inputs_between_them_is_no_proof() -> None:
    nodes = chain(transpose(HERE), ("Add", None), transpose(THERE))
    nodes[1]["inputs"] = [1, 99]
    assert pairs_of(nodes) == []


def test_a_graph_that_runs_in_circles_ends() -> None:
    nodes = chain(("Sigmoid", None), transpose(HERE))
    nodes[0]["inputs"] = [1]
    assert pairs_of(nodes) == []


def test_kernels_outside_delegates() -> None:
    names = [
        ("permute_copy.default", [0, 2, 1]),
        ("dim_order_ops._clone_dim_order.default", None),
        ("elu.default", None),
        ("transpose_copy.int", [0, 2, 1]),
    ]
    operators = [
        {"name": f"n{i}", "operator": operator, "inputs": [f"n{i - 1}"], "permutation": permutation,
         "instruction": 10 + i}
        for i, (operator, permutation) in enumerate(names)
    ]  # fmt: skip
    (pair,) = find_inverse_pairs(MethodReport.model_validate({"operators": operators}))
    assert (pair.first, pair.second, pair.between) == ((10, None), (13, None), 2)
