"""What a delegate's graph says, and which operators its nodes are, on graphs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from etprof.backends.xnnpack import graph
from etprof.backends.xnnpack.graph import NO_HANDLE, XnnpackGraph, XnnpackNode, map_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

ATEN = torch.ops.aten


def value(
    number: int,
    dtype: str = "fp32",
    dims: Sequence[int] = (2, 3),
    **more: Any,  # noqa: ANN401
) -> dict[str, Any]:
    tensor = {
        "id_out": number, "datatype": f"xnn_datatype_{dtype}", "dims": list(dims),
        "constant_buffer_idx": 0, "flags": 0, **more,
    }  # fmt: skip
    return {"xvalue_union": tensor}


def quantised(number: int, zero_point: int, scales: str = "PerTensorQuant") -> dict[str, Any]:
    tensor = value(number, "qint8")["xvalue_union"]
    return {
        "xvalue_union": {
            "tensor_value": tensor, "quant_params_type": scales,
            "quant_params": {"zero_point": zero_point},
        }
    }  # fmt: skip


def node(kind: str, handle: int, **fields: int) -> dict[str, Any]:
    return {"xnode_union_type": f"XNN{kind}", "xnode_union": fields, "debug_handle": handle}


def read(monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], mark: bytes) -> XnnpackGraph:
    """Reads a blob whose FlatBuffer is `document`."""

    def flatc(words: list[str]) -> None:
        assert Path(words[-1]).read_bytes() == b"flat"
        text = json.dumps(document).replace("Infinity", "inf")
        Path(words[words.index("-o") + 1], "graph.json").write_text(text)

    monkeypatch.setattr(graph, "_run_flatc", flatc)
    sizes = (20).to_bytes(4, "little") + (4).to_bytes(4, "little")
    return graph.read_xnnpack_graph(mark + b"XH00" + b"\0\0" + sizes + b"??" + b"flat" + b"rest")


def test_a_graph_is_read_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "xvalues": [
            value(0), value(1, constant_buffer_idx=1), value(2, dims=(1, 1)), value(3, flags=2),
            value(4, flags=1), value(5),
        ],
        "xnodes": [
            node("FullyConnected", 7, input1_id=0, filter_id=1, bias_id=2, output_id=3),
            node("Concatenate2", 8, input1_id=4, input2_id=0, input3_id=0, input4_id=0, output_id=5),
            node("ScaledDotProductAttention", 9, query_id=0, key_id=4, value_id=5, output_id=3),
        ],
        "constant_data": [
            {"size": 10, "named_key": "a"}, {"size": 10, "named_key": "a"}, {"size": 5}, {"size": 5},
        ],
        "scale": float("inf"),
    }  # fmt: skip
    found = read(monkeypatch, document, b"1234")
    # Constants have a place in the program, or one element; those that are given have bit 2.
    assert found.constant_ids == {1, 2}
    assert found.output_ids == {3}
    assert found.weight_bytes == 20
    assert [(each.kind, each.debug_handle, each.index) for each in found.nodes] == [
        ("FullyConnected", 7, 0), ("Concatenate2", 8, 1), ("ScaledDotProductAttention", 9, 2),
    ]  # fmt: skip
    assert [each.input_ids for each in found.nodes] == [(0, 1), (4, 0), (4, 0, 5)]
    assert [each.output_id for each in found.nodes] == [3, 5, 3]
    # Value 3 is read by none and given; value 5 is read once.
    assert [found.count_readers(each) for each in found.nodes] == [1, 1, 1]


@pytest.mark.parametrize(
    ("left_out", "second"),
    [
        ("", "qcint8"),
        ("a zero point", "fp32"),
        ("a scale for each channel", "fp32"),
        ("another reader", "fp32"),
        ("the caller gets it", "fp32"),
        ("the first operand", "fp32"),
    ],
)
def test_products_read_integers_where_nothing_else_reads_the_floats(
    monkeypatch: pytest.MonkeyPatch, left_out: str, second: str
) -> None:
    scales = "PerChannelQuant" if "channel" in left_out else "PerTensorQuant"
    operands = (2, 0) if left_out == "the first operand" else (0, 2)
    document = {
        "xvalues": [
            value(0), quantised(1, 3 if left_out == "a zero point" else 0, scales),
            value(2, flags=2 if left_out == "the caller gets it" else 0), value(3), value(4),
        ],
        "xnodes": [
            node("Convert", 1, input_id=1, output_id=2),
            node("BatchMatrixMultiply", 2, input1_id=operands[0], input2_id=operands[1], output_id=3),
            *([node("Abs", 3, input_id=2, output_id=4)] if left_out == "another reader" else []),
        ],
    }  # fmt: skip
    found = read(monkeypatch, document, f"{left_out:4.4}".encode())
    assert found.nodes[1].input_types == ("fp32", second)
    assert found.nodes[0].input_types == ("qint8",)


def xnnpack(*rows: tuple[str, int, tuple[int, ...], int]) -> XnnpackGraph:
    """Nodes by kind, debug handle, values read and value written."""
    nodes = (
        XnnpackNode(i, kind, handle, inputs, output, ("fp32",) * len(inputs), "fp32", {})
        for i, (kind, handle, inputs, output) in enumerate(rows)
    )
    return XnnpackGraph(tuple(nodes), frozenset())


def chain(*operators: tuple[Any, str, int]) -> list[torch.fx.Node]:
    """Operators with their names and handles, each on the result of the one before."""
    traced = torch.fx.Graph()
    last = traced.placeholder("x")
    found = []
    for operator, name, handle in operators:
        last = traced.create_node("call_function", operator, (last,), name=name)
        last.meta["debug_handle"] = handle
        found.append(last)
    return found


def mapped(
    read_graph: XnnpackGraph, nodes: list[torch.fx.Node], bookkeeping: tuple[str, ...] = ()
) -> list[tuple[str, tuple[str, ...], str]]:
    found = map_nodes(read_graph, nodes, lambda each: each.name in bookkeeping)
    return [(each.node.kind, each.operators, each.attribution) for each in found]


CONV, RELU, NORM = ATEN.convolution.default, ATEN.relu.default, ATEN.mul.Tensor


def test_operators_belong_to_the_node_that_they_led_into() -> None:
    """What is before a node of its own comes first; what has nothing before it goes downstream."""
    read_graph = xnnpack(
        ("Transpose", NO_HANDLE, (0,), 1),
        ("Conv2d", 2, (1,), 3),
        ("Transpose", NO_HANDLE, (3,), 4),
        ("Softmax", 5, (4,), 6),
        ("Transpose", NO_HANDLE, (6,), 7),
        ("Transpose", NO_HANDLE, (8,), 9),
    )
    nodes = chain(
        (ATEN.pad.default, "pad", 1), (CONV, "conv", 2), (RELU, "relu", 3),
        (ATEN.alias.default, "alias", 2), (ATEN.softmax.int, "softmax", 5),
    )  # fmt: skip
    assert mapped(read_graph, nodes, ("alias",)) == [
        ("Transpose", ("conv",), "inserted"),
        ("Conv2d", ("conv", "pad", "relu"), "fused"),
        # It prepares what reads it, rather than finishing what wrote it.
        ("Transpose", ("softmax",), "inserted"),
        ("Softmax", ("softmax",), "exact"),
        ("Transpose", ("softmax",), "inserted"),
        ("Transpose", (), "unknown"),
    ]


def test_a_conversion_does_not_compute_what_it_follows() -> None:
    read_graph = xnnpack(("Conv2d", 2, (0,), 1), ("Convert", 2, (1,), 2), ("Convert", 4, (2,), 3))
    nodes = chain((CONV, "conv", 2), (ATEN.to.dtype, "to", 4))
    assert mapped(read_graph, nodes) == [
        ("Conv2d", ("conv",), "exact"),
        ("Convert", ("to",), "inserted"),
        ("Convert", ("to",), "exact"),
    ]


def test_batch_norms_that_were_not_folded_are_the_last_ones() -> None:
    """Of three norms that one handle was given, two became convolutions of their own, in order."""
    read_graph = xnnpack(
        ("Conv2d", 1, (0,), 1), ("DepthwiseConv2d", NO_HANDLE, (1,), 2),
        ("DepthwiseConv2d", NO_HANDLE, (2,), 3),
    )  # fmt: skip
    nodes = chain(
        (CONV, "conv", 1), (NORM, "native_batch_norm_0", 5), (NORM, "native_batch_norm_1", 6),
        (NORM, "native_batch_norm_2", 7),
    )  # fmt: skip
    assert mapped(read_graph, nodes) == [
        ("Conv2d", ("conv", "native_batch_norm_0"), "fused"),
        ("DepthwiseConv2d", ("native_batch_norm_1",), "exact"),
        ("DepthwiseConv2d", ("native_batch_norm_2",), "exact"),
    ]


def test_each_product_of_one_handle_has_its_own_operator() -> None:
    read_graph = xnnpack(
        ("BatchMatrixMultiply", 3, (0, 1), 2), ("Softmax", 3, (2,), 3),
        ("BatchMatrixMultiply", 3, (3, 4), 5),
    )  # fmt: skip
    nodes = chain(
        (ATEN.bmm.default, "bmm", 3), (ATEN.softmax.int, "softmax", 3),
        (ATEN.bmm.default, "bmm_1", 3),
    )  # fmt: skip
    assert mapped(read_graph, nodes) == [
        ("BatchMatrixMultiply", ("bmm", "softmax"), "exact"),
        ("Softmax", ("bmm", "softmax", "bmm_1"), "exact"),
        ("BatchMatrixMultiply", ("softmax", "bmm_1"), "exact"),
    ]


def steps_of(count: int, *, lost: int = 0) -> list[tuple[str, tuple[str, ...], str]]:
    """A layer of so many steps, all of one handle, of which `lost` sums became no node."""
    kinds = {"Add": ATEN.add.Tensor, "Tanh": ATEN.tanh.default}
    names = [(kind, f"{kind.lower()}_{step}") for step in range(count) for kind in kinds]
    nodes = [kind for kind, name in names if name not in {f"add_{step}" for step in range(lost)}]
    read_graph = xnnpack(*((kind, 3, (i,), i + 1) for i, kind in enumerate(nodes)))
    return mapped(read_graph, chain(*((kinds[kind], name, 3) for kind, name in names)))


def test_each_step_of_a_long_layer_has_its_own_operator() -> None:
    """Every node named the operators of all steps: 308 MB for two layers of twelve, and nobody read it."""
    rows = steps_of(40)
    assert [names for _, names, _ in rows[:3]] == [("add_0",), ("tanh_0",), ("add_1",)]
    assert [names for _, names, _ in rows[-1:]] == [("tanh_39",)]
    assert {attribution for _, _, attribution in rows} == {"exact"}


def test_steps_that_cannot_be_paired_name_some_of_their_kind() -> None:
    rows = steps_of(40, lost=1)
    assert [names for kind, names, _ in rows if kind == "Tanh"][7] == ("tanh_7",)
    first_sums = tuple(f"add_{step}" for step in range(32))
    assert {names for kind, names, _ in rows if kind == "Add"} == {first_sums}


def test_a_short_layer_is_told_as_one() -> None:
    rows = steps_of(16)
    assert {len(names) for _, names, _ in rows} == {32}
