"""A small ETRecord, built part by part, to be spoilt in one place at a time."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

EDGE = "edge_dialect_exported_program/forward"
FLOAT = 7
"""The element type float32."""


def make_program() -> dict[str, Any]:
    """Returns a program of one addition, of a tensor with a dynamic size to itself."""
    size = {"as_expr": {"expr_str": "2*s0 + 1", "hint": {"as_int": 5}}}
    value = {"dtype": FLOAT, "sizes": [size, {"as_int": 4}]}
    node = {
        "name": "aten_add_tensor",
        "target": "executorch.exir.dialects.edge.ops.aten.add.Tensor",
        "inputs": [
            {"name": each, "arg": {"as_tensor": {"name": "x"}}} for each in ("self", "other")
        ],
        "outputs": [{"as_tensor": {"name": "aten_add_tensor"}}],
        "metadata": {"debug_handle": "1", "nn_module_stack": "L__self__,,M;L__self___a,a,m.Add"},
    }
    graph = {
        "inputs": [{"as_tensor": {"name": "x"}}],
        "outputs": [{"as_tensor": {"name": "aten_add_tensor"}}],
        "nodes": [node],
        "tensor_values": {"x": value, "aten_add_tensor": value},
    }
    return {"graph_module": {"graph": graph}}


def write_etrecord(path: Path, program: Any, **others: bytes) -> Path:  # noqa: ANN401 - or spoilt
    """Writes an archive with `program` as its method forward, and further or other parts."""
    text = program if isinstance(program, bytes) else json.dumps(program).encode()
    parts = {"ETRECORD_V0": b"", EDGE: text, "debug_handle_map": b'{"forward": {"0": [1]}}'}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**parts, **others}.items():
            archive.writestr(name, content)
    return path
