"""An ETRecord is data (S1): what is no export's is refused, and nothing in it is run."""

from __future__ import annotations

import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etprof.base.errors import InputFileError
from etprof.etrecord import archive
from etprof.etrecord.graph import _read_modules
from etprof.etrecord.program import read_etrecord
from etprof.export.operators import call_nodes, count_macs, describe_node
from tests.etrecord_sample import EDGE, FLOAT, make_program, write_etrecord

CODE = "__import__('os').system('true')"


def test_a_module_of_a_node_has_its_path_and_its_type() -> None:
    text = "L__self__,,net.Net;getattr(L['self'].layers, '0'),layers.0,torch.nn.modules.conv.Conv2d"
    assert _read_modules(text) == {
        "L__self__": ("", "net.Net"),
        "getattr(L['self'].layers, '0')": ("layers.0", "torch.nn.modules.conv.Conv2d"),
    }
    assert _read_modules("no fields") == {}


def refused(path: Path) -> str:
    """Returns why a file is refused, which does not take long."""
    begun = time.process_time()
    with pytest.raises(InputFileError) as caught:
        read_etrecord(path)
    assert time.process_time() - begun < 5
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def spoil(where: str, value: object) -> dict[str, Any]:
    """Returns the sample with the value at `where` replaced: keys and indexes, joined by dots."""
    program = make_program()
    *way, last = where.split(".")
    place: Any = program["graph_module"]["graph"]
    for key in way:
        place = place[int(key) if key.isdigit() else key]
    place[int(last) if last.isdigit() else last] = value
    return program


def test_an_honest_graph_has_its_shapes_and_modules(tmp_path: Path) -> None:
    """S1: a dynamic size counts as that of the example inputs."""
    record = read_etrecord(write_etrecord(tmp_path / "x.etrecord", make_program()))
    graph: Any = record.graphs["forward"]
    (operator,) = [describe_node(node, None, None) for node in call_nodes(graph)]
    assert (operator.operator, operator.shape, operator.inputs) == ("add.Tensor", [5, 4], ("x",))
    assert (operator.origin.module_path, operator.input_bytes) == ("a", 80)
    assert record.handles == {"forward": {0: [1]}}


def test_the_work_of_a_product_is_counted(tmp_path: Path) -> None:
    """A-D19: by the rules that count a graph of PyTorch's own."""
    program = make_program()
    graph = program["graph_module"]["graph"]
    graph["nodes"][0]["target"] = "executorch.exir.dialects.edge.ops.aten.mm.default"
    square = {"dtype": FLOAT, "sizes": [{"as_int": 4}, {"as_int": 4}]}
    graph["tensor_values"] = {"x": square, "aten_add_tensor": square}
    record = read_etrecord(write_etrecord(tmp_path / "x.etrecord", program))
    read: Any = record.graphs["forward"]
    assert [count_macs(node) for node in call_nodes(read)] == [4 * 4 * 4]


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        ("tensor_values.x.sizes.0.as_expr.expr_str", CODE, "would be run as Python"),
        ("tensor_values.x.sizes.0.as_expr.expr_str", "9**9**9", "power of a power"),
        ("tensor_values.x.sizes.0.as_expr.expr_str", 7, "is refused"),
        ("sym_bool_values", {"b": {"as_expr": {"expr_str": CODE}}}, "would be run as Python"),
        ("nodes.0.inputs.0.arg", {"as_graph": {"graph": {"expr_str": CODE}}}, "run as Python"),
        ("inputs.0.as_tensor.name", f"x={CODE}", "not a node's name"),
        ("nodes.0.outputs.0.as_tensor.name", f"x={CODE}", "not a node's name"),
        ("inputs.0.as_tensor.name", "\u3164", "not a node's name"),  # an identifier, and invisible
        ("nodes.0.target", CODE, "not an operator's name"),
        ("nodes.0.inputs.0.arg.as_tensor.name", "y", "reads 'y'"),
        ("nodes.0.outputs.0.as_tensor.name", "x", "two nodes are called x"),
        ("tensor_values.x.sizes", [{"as_int": -1}], "a tensor of"),
        ("tensor_values.x.sizes", [{"as_int": 2**40}] * 2, "a tensor of"),
        ("tensor_values.x.sizes", [{"as_int": 1}] * 65, "a tensor of"),
        ("tensor_values.x.dtype", 99, "element type 99"),
        ("tensor_values.x.dtype", "7", "tensor_values.x.dtype"),
        ("nodes.0.metadata", [], "nodes.0.metadata"),
        ("nodes", [{}], "nodes.0.name"),
        ("nodes", None, "nodes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_no_export_writes_is_refused(
    tmp_path: Path, where: str, value: object, reason: str
) -> None:
    """S1: the message says what and why."""
    path = write_etrecord(tmp_path / "x.etrecord", spoil(where, value))
    assert reason in refused(path)


def test_code_in_a_graph_that_is_not_asked_for_is_refused_too(tmp_path: Path) -> None:
    """S1: ExecuTorch's own tools read every graph of the file."""
    other = b'{"expr_str": "open(1)"}'
    path = write_etrecord(tmp_path / "x.etrecord", make_program(), exported_program=other)
    assert "exported_program: the expression 'open(1)'" in refused(path)


@pytest.mark.slow
def test_too_many_nodes_are_refused(tmp_path: Path) -> None:
    """S1: what is asked of a graph takes time by the square of its nodes."""
    program = make_program()
    graph = program["graph_module"]["graph"]
    graph["nodes"] = graph["nodes"] * 20_001
    assert "20001 nodes" in refused(write_etrecord(tmp_path / "x.etrecord", program))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"a":' * 100_000, "no JSON"),
        (b"9" * 5000, "no JSON"),
        (b"[" + b"[]," * 4_000_000 + b"[]]", "values"),
        (b"null", "document"),
        (b"[]", "document"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_graph_that_is_no_document_is_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    """S1, S5: depth included."""
    assert reason in refused(write_etrecord(tmp_path / "x.etrecord", text))


@pytest.mark.parametrize(
    "handles", [b"[]", b'{"forward": 1}', b'{"forward": {"x": 1}}', b'{"forward": {"0": ["y"]}}']
)
def test_handles_that_are_none_are_refused(tmp_path: Path, handles: bytes) -> None:
    """S1: the map from instructions to nodes is checked like the graph."""
    others = {"debug_handle_map": handles}
    path = write_etrecord(tmp_path / "x.etrecord", make_program(), **others)
    assert "debug_handle_map: " in refused(path)


def with_part(name: str, change: Callable[[zipfile.ZipInfo], None]) -> Callable[[Path], None]:
    """Adds a part called `name` whose entry `change` has spoilt."""

    def write(path: Path) -> None:
        write_etrecord(path, make_program())
        with zipfile.ZipFile(path, "a") as writer:
            entry = zipfile.ZipInfo(name)
            change(entry)
            writer.writestr(entry, b"x")

    return write


def link(entry: zipfile.ZipInfo) -> None:
    entry.external_attr = 0o120777 << 16


def many_parts(path: Path) -> None:
    write_etrecord(path, make_program(), **{f"p{n}_constants": b"" for n in range(1100)})


def long_directory(path: Path) -> None:
    names = {f"{'n' * 60_000}{number}_constants": b"" for number in range(20)}
    write_etrecord(path, make_program(), **names)


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("ETRECORD_V0", b"")
        writer.writestr("debug_handle_map", b" " * 2**24)


def large_part(path: Path) -> None:
    """Says that a part is larger than it is."""
    write_etrecord(path, make_program())
    content = path.read_bytes()
    with zipfile.ZipFile(path) as reader:
        size = reader.getinfo(EDGE).file_size
    huge = struct.pack("<I", archive.MAX_PART_BYTES + 1)
    path.write_bytes(content.replace(struct.pack("<I", size), huge))


def doubled(path: Path) -> None:
    write_etrecord(path, make_program())
    with (
        zipfile.ZipFile(path, "a") as writer,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        writer.writestr(EDGE, b"{}")


def encrypted(path: Path) -> None:
    """Sets the bit in every entry of the directory."""
    write_etrecord(path, make_program())
    content = bytearray(path.read_bytes())
    place = content.find(b"PK\1\2")
    while place >= 0:
        content[place + 8] |= 1
        place = content.find(b"PK\1\2", place + 1)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (with_part("../x_constants", lambda _: None), "name that no part has"),
        (with_part("/x_constants", lambda _: None), "name that no part has"),
        (with_part("a\x1b[2J_constants", lambda _: None), "name that no part has"),
        (with_part("x_constants", link), "not a regular file"),
        (with_part("x/", lambda _: None), "not a regular file"),
        (many_parts, "parts, more than"),
        (long_directory, "its directory has"),
        (bomb, "times its size"),
        (large_part, "bytes; a graph may have"),
        (doubled, "have one name"),
        (encrypted, "is encrypted"),
        (lambda path: path.write_bytes(b""), "not a zip file"),
        (lambda path: path.write_bytes(b"PK\5\6" + b"\xff" * 18), "cannot read"),
        (lambda path: zipfile.ZipFile(path, "w").close(), "no ETRecord"),
        (os.mkfifo, "named pipe"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.symlink_to("/dev/zero"), "device"),
        (lambda _: None, "No such file"),
    ],
)
def test_an_archive_that_no_export_writes_is_refused(
    tmp_path: Path, write: Callable[[Path], None], reason: str
) -> None:
    """S1, S6: bombs, links, doubled names, pipes."""
    path = tmp_path / "x.etrecord"
    write(path)
    assert reason in refused(path)


@pytest.mark.slow
def test_every_byte_may_be_wrong(tmp_path: Path) -> None:
    """S1: a spoilt file is read, or refused in one line; no other exception."""
    path = write_etrecord(tmp_path / "x.etrecord", make_program())
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        try:
            read_etrecord(path)
        except InputFileError as error:
            assert str(path) in str(error)  # noqa: PT017 - most places give none
