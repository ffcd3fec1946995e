"""Edits of an XNNPACK graph that is yet to be serialised: transposes merged, products kept in float."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etprof.base.upstream_noise import quiet_upstream

with quiet_upstream():
    from executorch.backends.xnnpack.serialization.xnnpack_graph_schema import (
        PerTensorQuant,
        XNNBatchMatrixMultiply,
        XNNConvert,
        XNNDatatype,
        XNNGraph,
        XNNStaticReshape,
        XNNStaticTranspose,
        XNNTensorValue,
        XNode,
        XValue,
    )

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_ELEMENTS: Final = 2**24
"""Of a tensor whose order is followed element by element: half a second."""
_MOVES: Final = (XNNStaticTranspose, XNNStaticReshape)


def merge_transposes(graph: XNNGraph) -> int:
    """Takes transposes out of a graph that is yet to be serialised; returns how many are gone.

    Where transposes and reshapes in a row leave the elements in the order that they had, the last
    becomes a reshape of the first one's input, or is left out where the shape is the same; and two
    transposes in a row become one. What others read, or the caller, stays.
    """
    before = _count(graph)
    for node in list(graph.xnodes):
        if isinstance(node.xnode_union, _MOVES):
            _shorten(graph, node)
    _take_unread(graph)
    return before - _count(graph)


def _count(graph: XNNGraph) -> int:
    return sum(isinstance(node.xnode_union, XNNStaticTranspose) for node in graph.xnodes)


def _shorten(graph: XNNGraph, node: Any) -> None:  # noqa: ANN401 - ExecuTorch's XNode
    """Has a transpose or reshape read what is farthest before it."""
    last = node.xnode_union
    chain = _chain(graph, last)
    for length in range(len(chain), 0, -1):
        moves = chain[-length:]
        is_worth = any(isinstance(move, XNNStaticTranspose) for move in moves)
        if is_worth and _keeps_order(graph, moves):
            _become_reshape(graph, node, moves[0].input_id)
            return
    if len(chain) > 1 and all(isinstance(move, XNNStaticTranspose) for move in chain[-2:]):
        first, second = chain[-2:]
        if len(_readers(graph, first.output_id)) == 1 and not _is_output(graph, first.output_id):
            second.perm = [first.perm[axis] for axis in second.perm]
            second.input_id = first.input_id


def _chain(graph: XNNGraph, last: Any) -> list[Any]:  # noqa: ANN401 - ExecuTorch's
    """Returns the transposes and reshapes in a row that end in `last`, the first one first."""
    writers = {
        node.xnode_union.output_id: node.xnode_union
        for node in graph.xnodes
        if isinstance(node.xnode_union, _MOVES)
    }
    chain = [last]
    while chain[0].input_id in writers:
        chain.insert(0, writers[chain[0].input_id])
    return chain


def _keeps_order(graph: XNNGraph, moves: list[Any]) -> bool:
    """Whether all elements come out in the order in which they go in, of one type and scale."""
    source, end = _value(graph, moves[0].input_id), _value(graph, moves[-1].output_id)
    count = math.prod(_tensor(source).dims)
    if count > _MOST_ELEMENTS or _kind(source) != _kind(end):
        return False
    values = np.arange(count).reshape(_tensor(source).dims)
    for move in moves:
        if isinstance(move, XNNStaticTranspose):
            values = values.transpose(move.perm)
        else:
            values = values.reshape(_tensor(_value(graph, move.output_id)).dims)
    return bool((values.ravel()[:-1] < values.ravel()[1:]).all())


def _become_reshape(graph: XNNGraph, node: Any, source: int) -> None:  # noqa: ANN401
    """Makes `node` a reshape of `source`, or has its readers read that where it is of that shape."""
    output = node.xnode_union.output_id
    dims = list(_tensor(_value(graph, output)).dims)
    if dims == list(_tensor(_value(graph, source)).dims) and not _is_output(graph, output):
        for reader, name in _readers(graph, output):
            setattr(reader, name, source)
        graph.xnodes.remove(node)
        graph.xvalues.remove(_value(graph, output))
        return
    node.xnode_union = _reshape(source, output, dims)


def _take_unread(graph: XNNGraph) -> None:
    """Removes transposes and reshapes without readers, the last ones first."""
    for node in reversed(graph.xnodes[:]):
        move = node.xnode_union
        if not isinstance(move, _MOVES):
            continue
        if not _readers(graph, move.output_id) and not _is_output(graph, move.output_id):
            graph.xnodes.remove(node)
            graph.xvalues.remove(_value(graph, move.output_id))


def keep_products_float(graph: XNNGraph) -> int:
    """Puts reshapes around what dequantises second operands of products; returns of how many.

    Where nothing stands between, XNNPACK reads the integers themselves as soon as it loads the
    program (src/subgraph.c, rewrite_dequant_bmm_at), and floats times integers have no SME2
    microkernel. That needs a zero point of 0 and no other reader, and so happens by chance.
    """
    count = 0
    for node in list(graph.xnodes):
        product = node.xnode_union
        if isinstance(product, XNNBatchMatrixMultiply):
            convert = _reads_integers(graph, product)
            if convert is not None:
                _convert_flat(graph, convert)
                count += 1
    return count


def _reads_integers(graph: XNNGraph, product: XNNBatchMatrixMultiply) -> XNode | None:
    """Returns what dequantises a product's second operand, where XNNPACK would leave it out."""
    number = product.input2_id
    writer = next(
        (node for node in graph.xnodes if getattr(node.xnode_union, "output_id", None) == number),
        None,
    )
    if writer is None or not isinstance(writer.xnode_union, XNNConvert):
        return None
    source, operand = _value(graph, writer.xnode_union.input_id), _value(graph, number)
    scale = getattr(source.xvalue_union, "quant_params", None)
    is_read = (
        len(_readers(graph, number)) == 1
        and not _is_output(graph, number)
        and _tensor(source).datatype == XNNDatatype.xnn_datatype_qint8
        and _tensor(operand).datatype == XNNDatatype.xnn_datatype_fp32
        and isinstance(scale, PerTensorQuant)
        and scale.zero_point == 0
    )
    return writer if is_read else None


def _convert_flat(graph: XNNGraph, node: XNode) -> None:
    """Has a conversion read one row and write one row, which is given its shape again.

    A reshape to the shape that is there already would be left out by XNNPACK.
    """
    convert, handle = node.xnode_union, node.debug_handle
    index = graph.xnodes.index(node)
    source, target = (_value(graph, value_id) for value_id in (convert.input_id, convert.output_id))
    dims = list(_tensor(target).dims)
    flat_source, flat_target = (_add_row(graph, value) for value in (source, target))
    before = _reshape(convert.input_id, flat_source, [math.prod(dims)])
    after = _reshape(flat_target, convert.output_id, dims)
    convert.input_id, convert.output_id = flat_source, flat_target
    graph.xnodes.insert(index + 1, XNode(xnode_union=after, debug_handle=handle))
    graph.xnodes.insert(index, XNode(xnode_union=before, debug_handle=handle))


def _add_row(graph: XNNGraph, value: Any) -> int:  # noqa: ANN401 - ExecuTorch's XValue
    """Adds a value of the same type and scale in one dimension; returns its id."""
    number: int = max(_tensor(existing).id_out for existing in graph.xvalues) + 1
    tensor, union = _tensor(value), value.xvalue_union
    row = dataclasses.replace(
        tensor, id_out=number, num_dims=1, dims=[math.prod(tensor.dims)], flags=0
    )
    is_plain = isinstance(union, XNNTensorValue)
    row_value = row if is_plain else dataclasses.replace(union, tensor_value=row)
    graph.xvalues.append(XValue(xvalue_union=row_value))
    return number


def _reshape(source: int, target: int, dims: list[int]) -> XNNStaticReshape:
    return XNNStaticReshape(
        num_dims=len(dims), new_shape=dims, input_id=source, output_id=target, flags=0
    )


def _readers(graph: XNNGraph, value: int) -> list[tuple[Any, str]]:
    """Returns the nodes that read a value, each with the name of its field."""
    return [
        (node.xnode_union, name)
        for node in graph.xnodes
        for name in _input_fields(node.xnode_union)
        if getattr(node.xnode_union, name) == value
    ]


def _input_fields(node: Any) -> Iterator[str]:  # noqa: ANN401
    """Yields the fields that hold a value's id; an unused one of a concatenation does no harm."""
    for field in dataclasses.fields(node):
        if field.name.endswith("_id") and not field.name.startswith("output"):
            yield field.name


def _value(graph: XNNGraph, number: int) -> Any:  # noqa: ANN401 - ExecuTorch's XValue
    return next(value for value in graph.xvalues if _tensor(value).id_out == number)


def _tensor(value: Any) -> XNNTensorValue:  # noqa: ANN401
    union = value.xvalue_union
    return union if isinstance(union, XNNTensorValue) else union.tensor_value


def _kind(value: Any) -> tuple[object, ...]:  # noqa: ANN401
    """The type of a value, and the scales where it has some."""
    return _tensor(value).datatype, getattr(value.xvalue_union, "quant_params", None)


def _is_output(graph: XNNGraph, number: int) -> bool:
    """Whether the caller gets this value."""
    return number in graph.output_ids or number in graph.input_ids
