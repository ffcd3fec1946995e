"""Reads the graphs that XNNPACK will run back out of a finished program.

A `.pte` holds one blob per delegate call: a header (`XH00` at byte 4), a FlatBuffer with the
graph, and constants. Each node of the graph carries the debug handle of the node it was made
from. The FlatBuffer is read with the schema and the `flatc` that come with ExecuTorch.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etprof.base.errors import ExportError
from etprof.export import upstream

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA_PACKAGE = "executorch.backends.xnnpack.serialization"
_INPUT_FIELD = re.compile(r"input\d*_id|query_id|key_id|value_id")
_BARE_NON_FINITE = re.compile(r"(?<=[:\[,\s])(-?)(inf|nan)(?=[,\s\]}])")
_NON_FINITE = {"inf": "Infinity", "nan": "NaN"}


@dataclass(frozen=True)
class XnnpackNode:
    """One node of a serialized XNNPACK graph."""

    index: int
    kind: str
    """The node's type without its prefix: `Conv2d`, `FullyConnected`, `StaticTranspose` …"""
    debug_handle: int
    input_ids: tuple[int, ...]
    """Values it reads: inputs, then weights."""
    output_id: int
    """The value it writes; the first one of several."""
    input_types: tuple[str, ...]
    """Element types as XNNPACK names them, such as `fp16`, `qint8`, `qcint4`; inputs, weights."""
    output_type: str
    parameters: dict[str, Any]
    """The node's other fields: ids, kernel size, stride, groups …"""


@dataclass(frozen=True)
class XnnpackGraph:
    """The graph of one delegate call, in the order in which its nodes are executed."""

    nodes: tuple[XnnpackNode, ...]
    blob_bytes: int
    constant_ids: frozenset[int]
    """Values stored in the program, and single numbers: no layout concerns them at run time."""


def read_xnnpack_graph(blob: bytes) -> XnnpackGraph:
    """Returns the graph inside a delegate's blob; raises ExportError when it is not XNNPACK's."""
    if blob[4:8] != b"XH00":
        msg = "a delegate of the program is not XNNPACK's, or of another ExecuTorch version"
        raise ExportError(msg)
    offset = int.from_bytes(blob[10:14], "little")
    size = int.from_bytes(blob[14:18], "little")
    document = _decode(blob[offset : offset + size])
    types = dict(_value_types(document["xvalues"]))
    nodes = tuple(_read_node(index, node, types) for index, node in enumerate(document["xnodes"]))
    return XnnpackGraph(nodes, len(blob), frozenset(_constant_ids(document["xvalues"])))


def _decode(flatbuffer: bytes) -> Any:  # noqa: ANN401 - the schema's own structure
    schema = importlib.resources.files(_SCHEMA_PACKAGE).joinpath("schema.fbs").read_bytes()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.fbs").write_bytes(schema)
        (folder / "graph.bin").write_bytes(flatbuffer)
        upstream.run_flatc(
            [
                *("--json", "--strict-json", "--raw-binary", "--defaults-json"),
                *("-o", name, str(folder / "schema.fbs"), "--", str(folder / "graph.bin")),
            ]
        )
        text = (folder / "graph.json").read_text(encoding="utf-8")
    # flatc writes infinities bare, which is not JSON; Python's reader knows them by another name.
    return json.loads(_BARE_NON_FINITE.sub(lambda match: match[1] + _NON_FINITE[match[2]], text))


def _value_types(values: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yields the id and the element type of every tensor."""
    for value in values:
        union = value["xvalue_union"]
        tensor = union.get("tensor_value", union)
        yield tensor["id_out"], tensor["datatype"].removeprefix("xnn_datatype_")


def _constant_ids(values: list[dict[str, Any]]) -> Iterator[int]:
    """Yields the ids of the tensors that have their content in the program, or one element."""
    for value in values:
        union = value["xvalue_union"]
        tensor = union.get("tensor_value", union)
        if tensor["constant_buffer_idx"] or math.prod(tensor["dims"]) == 1:
            yield tensor["id_out"]


def _read_node(index: int, node: dict[str, Any], types: dict[int, str]) -> XnnpackNode:
    kind = node["xnode_union_type"].removeprefix("XNN")
    fields = node["xnode_union"]
    inputs = [value for value in _input_ids(kind, fields) if value in types]
    output = fields["output_id"] if "output_id" in fields else fields["output_value_id"]
    return XnnpackNode(
        index=index,
        kind=kind,
        debug_handle=node["debug_handle"],
        input_ids=tuple(inputs),
        output_id=output,
        input_types=tuple(types[value] for value in inputs),
        output_type=types[output],
        parameters=fields,
    )


def _input_ids(kind: str, fields: dict[str, Any]) -> list[int]:
    """Returns the ids of inputs and weights; a concatenation has fields for more than it joins."""
    ids = [
        value
        for name, value in sorted(fields.items())
        if name == "filter_id" or _INPUT_FIELD.fullmatch(name)
    ]
    if kind.startswith("Concatenate"):
        return ids[: int(kind.removeprefix("Concatenate"))]
    # Sorting by name puts `filter_id` before `input1_id`; the input comes first for a reader.
    return ids[::-1] if "filter_id" in fields else ids
