"""Edits of a delegate's graph leave what it computes: graphs by hand, run before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.backends.xnnpack.graph_edits import keep_products_float, merge_transposes
from etprof.base.upstream_noise import quiet_upstream

with quiet_upstream():
    from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Move = tuple[str, list[int]]
FLOAT, INTEGER = schema.XNNDatatype.xnn_datatype_fp32, schema.XNNDatatype.xnn_datatype_qint8


def tensor(number: int, dims: Sequence[int], datatype: Any = FLOAT) -> schema.XValue:  # noqa: ANN401
    found = schema.XNNTensorValue(
        datatype=datatype, num_dims=len(dims), dims=list(dims), external_id=number, flags=0,
        id_out=number, constant_buffer_idx=0,
    )  # fmt: skip
    return schema.XValue(xvalue_union=found)


def moved(number: int, source: int, target: int, move: Move) -> schema.XNode:
    kind, numbers = move
    shared: dict[str, Any] = {
        "num_dims": len(numbers), "input_id": source, "output_id": target, "flags": 0,
    }  # fmt: skip
    union = (
        schema.XNNStaticTranspose(perm=numbers, **shared)
        if kind == "transpose"
        else schema.XNNStaticReshape(new_shape=numbers, **shared)
    )
    return schema.XNode(xnode_union=union, debug_handle=number)


def chain(
    shape: Sequence[int], moves: Sequence[Move], given: Sequence[int] = (), *, reads: bool = True
) -> schema.XNNGraph:
    """Value 0 comes in, each move writes the next; the last is read by an operator, or is given."""
    values, nodes, array = [tensor(0, shape)], [], np.zeros(shape)
    for number, (kind, numbers) in enumerate(moves, start=1):
        array = array.transpose(numbers) if kind == "transpose" else array.reshape(numbers)
        values.append(tensor(number, array.shape))
        nodes.append(moved(number, number - 1, number, (kind, numbers)))
    last = len(moves)
    outputs = [*given, *([] if reads else [last])]
    if reads:
        values.append(tensor(last + 1, array.shape))
        absolute = schema.XNNAbs(input_id=last, output_id=last + 1, flags=0)
        nodes.append(schema.XNode(xnode_union=absolute, debug_handle=99))
        outputs.append(last + 1)
    return schema.XNNGraph(
        version="0", xnodes=nodes, xvalues=values, num_externs=1 + len(outputs), input_ids=[0],
        output_ids=outputs, constant_data=[],
    )  # fmt: skip


def dims_of(graph: schema.XNNGraph) -> dict[int, list[int]]:
    return {each.xvalue_union.id_out: each.xvalue_union.dims for each in graph.xvalues}


def run(graph: schema.XNNGraph) -> list[NDArray[np.float64]]:
    """What the caller gets of elements that are all different; sizes must be those declared."""
    dims = dims_of(graph)
    (source,) = graph.input_ids
    values = {source: np.arange(np.prod(dims[source]), dtype=float).reshape(dims[source])}
    for node in graph.xnodes:
        union = node.xnode_union
        found = values[union.input_id]
        if isinstance(union, schema.XNNStaticTranspose):
            found = found.transpose(union.perm)
        elif isinstance(union, schema.XNNStaticReshape):
            found = found.reshape(union.new_shape)
        assert list(found.shape) == dims[union.output_id]
        values[union.output_id] = found
    return [values[number] for number in graph.output_ids]


def kinds(graph: schema.XNNGraph) -> list[str]:
    return [type(node.xnode_union).__name__.removeprefix("XNN") for node in graph.xnodes]


@pytest.mark.parametrize(
    ("shape", "moves", "gone", "left"),
    [
        # There and back again.
        ([2, 3], [("transpose", [1, 0]), ("transpose", [1, 0])], 2, ["Abs"]),
        # Two that are one, and three that are none.
        ([2, 3, 4], [("transpose", [1, 2, 0])] * 2, 1, ["StaticTranspose", "Abs"]),
        ([2, 3, 4], [("transpose", [1, 2, 0])] * 3, 3, ["Abs"]),
        # What moves a dimension of one element is a reshape.
        ([1, 2, 3], [("transpose", [1, 0, 2])], 1, ["StaticReshape", "Abs"]),
        # A reshape between them that keeps what is turned apart.
        (
            [2, 3, 4],
            [("transpose", [0, 2, 1]), ("reshape", [2, 4, 3, 1]), ("transpose", [0, 2, 1, 3])],
            2,
            ["StaticReshape", "Abs"],
        ),
        # One that does not.
        (
            [2, 3],
            [("transpose", [1, 0]), ("reshape", [2, 3]), ("transpose", [1, 0])],
            0,
            ["StaticTranspose", "StaticReshape", "StaticTranspose", "Abs"],
        ),
        # Reshapes alone are not its business.
        ([2, 3], [("reshape", [3, 2]), ("reshape", [6])], 0, ["StaticReshape"] * 2 + ["Abs"]),
        ([2, 3], [("transpose", [1, 0])], 0, ["StaticTranspose", "Abs"]),
    ],
)
def test_transposes_are_merged_where_the_order_stays(
    shape: list[int], moves: list[Move], gone: int, left: list[str]
) -> None:
    graph = chain(shape, moves)
    before = run(graph)
    assert merge_transposes(graph) == gone
    for one, other in zip(before, run(graph), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    assert kinds(graph) == left
    # AND no value is left that nothing writes.
    written = {node.xnode_union.output_id for node in graph.xnodes}
    assert set(dims_of(graph)) == {0, *written}


def test_what_others_read_or_the_caller_gets_stays() -> None:
    both = [("transpose", [1, 0]), ("transpose", [1, 0])]
    graph = chain([2, 3], both, given=[1])
    before = run(graph)
    assert merge_transposes(graph) == 1
    assert kinds(graph) == ["StaticTranspose", "Abs"]
    np.testing.assert_equal(run(graph), before)
    # The last is a reshape where the caller gets it.
    graph = chain([2, 3], both, reads=False)
    before = run(graph)
    assert merge_transposes(graph) == 2
    assert kinds(graph) == ["StaticReshape"]
    np.testing.assert_equal(run(graph), before)
    # Two that could be one are two where the first is given.
    graph = chain([2, 3, 4], [("transpose", [1, 2, 0])] * 2, given=[1])
    before = run(graph)
    assert merge_transposes(graph) == 0
    np.testing.assert_equal(run(graph), before)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_moves_the_result_is_the_same(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = [int(size) for size in random.choice([1, 2, 3], size=3)]
    moves: list[Move] = []
    sizes = list(shape)
    for _ in range(5):
        if random.random() < 0.7:
            order = [int(axis) for axis in random.permutation(len(sizes))]
            moves.append(("transpose", order))
            sizes = [sizes[axis] for axis in order]
        else:
            sizes = [sizes[0] * sizes[1], *sizes[2:]] if len(sizes) > 2 else [*sizes, 1]
            moves.append(("reshape", list(sizes)))
    given = [int(number) for number in random.choice(range(1, 5), size=random.integers(0, 2))]
    graph = chain(shape, moves, given)
    before = run(graph)
    count = kinds(graph).count("StaticTranspose")
    assert merge_transposes(graph) == count - kinds(graph).count("StaticTranspose")
    for one, other in zip(before, run(graph), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def product_graph(
    *, zero_point: int = 0, given: bool = False, turned: bool = False
) -> schema.XNNGraph:
    """A product whose second operand is dequantised."""
    scale = schema.PerTensorQuant(scale=0.5, zero_point=zero_point)
    quantised = schema.XValue(
        xvalue_union=schema.XNNQuantizedTensorValue(
            tensor_value=tensor(1, [2, 3, 4], INTEGER).xvalue_union, quant_params=scale
        )
    )
    operands = (2, 0) if turned else (0, 2)
    nodes = [
        schema.XNNConvert(input_id=1, output_id=2, flags=0),
        schema.XNNBatchMatrixMultiply(
            input1_id=operands[0], input2_id=operands[1], output_id=3, flags=0
        ),
    ]
    return schema.XNNGraph(
        version="0", xvalues=[tensor(0, [2, 5, 3]), quantised, tensor(2, [2, 3, 4]), tensor(3, [2, 5, 4])],
        xnodes=[schema.XNode(xnode_union=each, debug_handle=5) for each in nodes], num_externs=3,
        input_ids=[0, 1], output_ids=[3, *([2] if given else [])], constant_data=[],
    )  # fmt: skip


def test_reshapes_keep_a_product_float() -> None:
    graph = product_graph()
    assert keep_products_float(graph) == 1
    assert kinds(graph) == ["StaticReshape", "Convert", "StaticReshape", "BatchMatrixMultiply"]
    first, convert, second, product = (node.xnode_union for node in graph.xnodes)
    assert (first.input_id, first.new_shape) == (1, [24])
    assert (convert.input_id, convert.output_id) == (first.output_id, second.input_id)
    assert (second.new_shape, second.output_id, product.input2_id) == ([2, 3, 4], 2, 2)
    assert len({first.output_id, second.input_id, 0, 1, 2, 3}) == 6
    assert {node.debug_handle for node in graph.xnodes} == {5}
    # AND it is found no second time.
    assert keep_products_float(graph) == 0


@pytest.mark.parametrize("facts", [{"zero_point": 1}, {"given": True}, {"turned": True}])
def test_products_that_stay_float_anyway_are_left_alone(facts: dict[str, Any]) -> None:
    graph = product_graph(**facts)
    assert keep_products_float(graph) == 0
    assert kinds(graph) == ["Convert", "BatchMatrixMultiply"]
