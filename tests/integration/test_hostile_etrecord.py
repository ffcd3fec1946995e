"""A stranger's ETRecord, made of a real one: nothing in it is run, found or named (S1)."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch

from etprof.base.process import run_command
from etprof.cli import main
from etprof.etrecord.program import describe_program, read_etrecord
from etprof.export.operators import call_nodes, describe_node
from etprof.export.request import ExportRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import Exports

EDGE = "edge_dialect_exported_program/forward"
QUICK = ("--blocks", "1", "--iterations", "1", "--threads", "1", "--min-seconds", "0.001")
ZOO = [
    ("toy_cnn", "int8"),
    ("mobilenet_v3_small", "fp16"),
    ("decoder", "fp32"),
    ("transformer_encoder", "fp32"),
]

WATCHED = """
import sys
from pathlib import Path
from etprof.base.errors import InputFileError
from etprof.etrecord.program import read_etrecord
# What is imported on the way is not the file's doing, so it is there before.
import etprof.etrecord.graph
import encodings.idna, encodings.cp437
etrecord = Path(sys.argv[1])
seen = []
def watch(event, arguments):
    if event in {"exec", "compile", "import", "marshal.loads", "pickle.find_class", "os.system"}:
        seen.append((event, str(arguments)[:200]))
    elif event.startswith(("subprocess", "os.exec", "os.posix_spawn", "os.fork", "socket", "ctypes")):
        seen.append((event, str(arguments)[:200]))
    elif event == "open" and not isinstance(arguments[0], int) and str(arguments[0]) != str(etrecord):
        seen.append((event, str(arguments)[:200]))
sys.addaudithook(watch)
try:
    read_etrecord(etrecord)
    result = "read"
except InputFileError as error:
    result = str(error)
print(result)
print(seen)
"""


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """Copies an ETRecord, each part as `change` returns it."""
    with zipfile.ZipFile(source) as reader, zipfile.ZipFile(target, "w") as writer:
        for name in reader.namelist():
            writer.writestr(name, change(name, reader.read(name)))
    return target


def in_graphs(edit: Callable[[dict[str, Any]], None]) -> Callable[[str, bytes], bytes]:
    """Applies `edit` to the graph of each program in the file."""

    def change(name: str, content: bytes) -> bytes:
        if name not in {EDGE, "exported_program"}:
            return content
        document = json.loads(content)
        edit(document["graph_module"]["graph"])
        return json.dumps(document).encode()

    return change


def touch(marker: Path) -> str:
    """A line for a shell, which leaves a mark."""
    return f"touch {shlex.quote(str(marker))}"


def code(marker: Path) -> str:
    return f"__import__('os').system({touch(marker)!r})"


def in_a_size(marker: Path) -> Callable[[str, bytes], bytes]:
    def edit(graph: dict[str, Any]) -> None:
        value = next(iter(graph["tensor_values"].values()))
        value["sizes"][0] = {"as_expr": {"expr_str": code(marker), "hint": {"as_int": 32}}}

    return in_graphs(edit)


def in_a_flag(marker: Path) -> Callable[[str, bytes], bytes]:
    def edit(graph: dict[str, Any]) -> None:
        graph["sym_bool_values"]["flag"] = {"as_expr": {"expr_str": code(marker)}}

    return in_graphs(edit)


def in_a_name(marker: Path) -> Callable[[str, bytes], bytes]:
    """PyTorch writes `def forward(self, NAME)` of an input's name, and runs it."""

    def change(name: str, content: bytes) -> bytes:
        evil = json.dumps(f"image={code(marker)}").encode()
        return content.replace(b'"image"', evil) if name in {EDGE, "exported_program"} else content

    return change


SPOILT = [in_a_size, in_a_flag, in_a_name]


@pytest.fixture(name="theirs")
def theirs_fixture(exports: Exports, tmp_path: Path) -> Path:
    """A program with nothing of etprof's beside it."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    shutil.copy(exports.get(ExportRequest("toy_cnn", "fp32")).pte, folder / "theirs.pte")
    return folder / "theirs.pte"


@pytest.fixture(name="original")
def original_fixture(exports: Exports) -> Path:
    return exports.get(ExportRequest("toy_cnn", "fp32")).etrecord


@pytest.mark.parametrize("spoil", SPOILT)
def test_named_it_is_refused_with_the_reason_and_nothing_is_run(
    theirs: Path,
    original: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], Callable[[str, bytes], bytes]],
) -> None:
    """S1: exit code 4, before anything is measured."""
    marker, run = tmp_path / "marker", tmp_path / "run"
    evil = rewrite(original, tmp_path / "evil.etrecord", spoil(marker))
    words = ["profile", str(theirs), "--etrecord", str(evil), "--out", str(run)]
    assert main(words) == 4
    message = capsys.readouterr().err.splitlines()[-1]
    assert str(evil) in message
    assert "run as Python" in message
    assert "--etrecord" in message
    assert not marker.exists()
    assert not run.exists()


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("theirs.etrecord", in_a_size), ("theirs.pte.etrecord", in_a_name)],
)
def test_beside_a_model_it_is_not_opened_and_the_flag_is_named(  # noqa: PLR0917 - fixtures
    theirs: Path,
    original: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], Callable[[str, bytes], bytes]],
    name: str,
) -> None:
    """S1: `etprof profile model.pte` used to read it unasked."""
    marker, run = tmp_path / "marker", tmp_path / "run"
    evil = rewrite(original, theirs.with_name(name), spoil(marker))
    evil.chmod(0)
    assert main(["profile", str(theirs), *QUICK, "--out", str(run)]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if str(evil) in line]
    assert len(notes) == 1
    assert f"--etrecord {evil}" in notes[0]
    assert not marker.exists()
    assert not (run / "delegation.json").exists()


def test_the_one_of_our_own_export_is_read_unasked(
    exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1: its hash stands in the manifest; with another one beside the program it is not read."""
    files = exports.get(ExportRequest("toy_cnn", "fp32"))
    for file in (files.pte, files.manifest, files.etrecord):
        shutil.copy(file, tmp_path / file.name)
    shutil.copytree(files.data, tmp_path / files.data.name)
    program, etrecord = tmp_path / files.pte.name, tmp_path / files.etrecord.name
    words = ["profile", str(program), *QUICK, "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert f"Reading {etrecord}" in capsys.readouterr().err
    # WHEN it is exchanged
    rewrite(files.etrecord, etrecord, in_a_size(tmp_path / "marker"))
    assert main(words) == 0
    # THEN
    assert f"{etrecord} was not opened" in capsys.readouterr().err
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("spoil", [None, *SPOILT])
def test_reading_starts_and_runs_nothing(
    original: Path,
    tmp_path: Path,
    spoil: Callable[[Path], Callable[[str, bytes], bytes]] | None,
) -> None:
    """S1: no compile, exec, import, pickle, process, socket or other file; honest or not."""
    path, marker = tmp_path / "x.etrecord", tmp_path / "marker"
    rewrite(original, path, spoil(marker) if spoil else lambda _, content: content)
    completed = run_command([sys.executable, "-c", WATCHED, path], timeout_s=120)
    assert completed.exit_code == 0, completed.stderr
    result, seen = completed.stdout.splitlines()
    assert (result == "read") == (spoil is None), result
    assert seen == "[]"
    assert not marker.exists()


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.system, (touch(self.marker),)


def test_no_pickle_is_opened(exports: Exports, original: Path, tmp_path: Path) -> None:
    """S1: tensors are not asked for, so a pickle that is a program is never read."""
    marker = tmp_path / "marker"

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith(("_state_dict", "_constants", "_example_inputs")):
            return content
        torch.save(_Evil(marker), tmp_path / "evil.pt")
        return (tmp_path / "evil.pt").read_bytes()

    evil = rewrite(original, tmp_path / "evil.etrecord", change)
    program = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    assert describe_program(program, evil) == describe_program(program, original)
    assert not marker.exists()


@pytest.mark.parametrize(("model", "precision"), ZOO)
def test_honest_files_say_what_executorchs_own_reader_says(
    exports: Exports, model: str, precision: str
) -> None:
    """S1: read as data, a graph has the same operators, shapes, modules and lines."""
    etrecord = exports.get(ExportRequest(model, precision)).etrecord
    compare_with_executorch(etrecord)


def compare_with_executorch(etrecord: Path) -> None:
    from etprof.export import upstream

    record = read_etrecord(etrecord)
    with upstream.quiet_upstream():
        from executorch.devtools import parse_etrecord

        theirs = parse_etrecord(str(etrecord))
    programs = theirs.edge_dialect_program
    programs = programs if isinstance(programs, dict) else {"forward": programs}
    assert record.graphs.keys() == programs.keys()
    for method, program in programs.items():
        graph: Any = record.graphs[method]
        own = [describe_node(node, None, None) for node in call_nodes(graph)]
        assert own == [describe_node(node, None, None) for node in call_nodes(program.graph)]
        assert own
        handles = theirs._debug_handle_map[method].items()
        assert record.handles[method] == {
            int(key): value if isinstance(value, list) else [value] for key, value in handles
        }


class _Strided(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 3, 3, stride=2, padding=1) for _ in range(3))
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(image)
        return result.flatten(1)


class _Halves(torch.nn.Module):
    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.split(rows, rows.shape[0] // 2)[0], torch.topk(rows, 2)[0]


class _Unbacked(torch.nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(values)


DYNAMIC: list[tuple[torch.nn.Module, torch.Tensor, tuple[int, ...]]] = [
    (_Strided(), torch.randn(2, 3, 65, 65), (0, 2, 3)),
    (_Halves(), torch.randn(8, 8), (0,)),
    (_Unbacked(), torch.randn(8), ()),
]


@pytest.mark.parametrize(("module", "given", "dynamic"), DYNAMIC)
def test_dynamic_shapes_are_read(
    tmp_path: Path, module: torch.nn.Module, given: torch.Tensor, dynamic: tuple[int, ...]
) -> None:
    """S1: sizes such as `(((s0 - 1)//8)) + 1` are arithmetic."""
    from etprof.export import upstream

    shapes = (dict.fromkeys(dynamic, torch.export.Dim.DYNAMIC),)
    path = tmp_path / "dynamic.etrecord"
    with upstream.quiet_upstream():
        exported = torch.export.export(module.eval(), (given,), dynamic_shapes=shapes)
        lowered = upstream.to_edge_transform_and_lower(exported, generate_etrecord=True)
        lowered.to_executorch().get_etrecord().save(path)
    with zipfile.ZipFile(path) as archive:
        assert b"expr_str" in archive.read(EDGE)
    compare_with_executorch(path)
