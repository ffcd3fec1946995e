from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pytest

from etprof.base.errors import OutputError
from etprof.cli import main
from etprof.export import upstream
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.model_registry.registry import find_model
from etprof.run.git_state import is_tracked, read_git_state

if TYPE_CHECKING:
    from etprof.export.request import ExportedFiles
    from tests.integration.conftest import Exports


@pytest.fixture(scope="session")
def toy_fp16(exports: Exports) -> ExportedFiles:
    return exports.get(ExportRequest("toy_cnn"))


def test_an_export_leaves_exactly_the_files_of_the_contract(toy_fp16: ExportedFiles) -> None:
    theirs = {"done", "lock"}  # of the tests that share the export
    names = {path.name for path in toy_fp16.pte.parent.iterdir()} - theirs
    assert names == {
        "toy_cnn_xnnpack_fp16.pte",
        "toy_cnn_xnnpack_fp16.pte.etrecord",
        "toy_cnn_xnnpack_fp16.pte.json",
        "toy_cnn_xnnpack_fp16.pte.delegation.json",
        "toy_cnn_xnnpack_fp16.pte.data",
    }


def test_the_manifest_tells_hashes_sizes_and_shapes(toy_fp16: ExportedFiles) -> None:
    manifest = json.loads(toy_fp16.manifest.read_text(encoding="utf-8"))
    program = toy_fp16.pte.read_bytes()
    assert manifest["pte"]["sha256"] == hashlib.sha256(program).hexdigest()
    assert manifest["pte"]["size_bytes"] == len(program)
    record = toy_fp16.pte.with_name(f"{toy_fp16.pte.name}.etrecord").read_bytes()
    assert manifest["etrecord"]["sha256"] == hashlib.sha256(record).hexdigest()
    (entry,) = manifest["methods"][manifest["method"]]["inputs"]
    assert (entry["dtype"], entry["shape"], entry["size_bytes"]) == (
        "float16",
        [1, 3, 32, 32],
        6144,
    )
    data = (toy_fp16.manifest.parent / entry["path"]).read_bytes()
    assert entry["sha256"] == hashlib.sha256(data).hexdigest()
    # AND which code it was made of
    source = find_model("toy_cnn")
    assert manifest["source"]["origin"] == source.origin
    assert manifest["source"]["sha256"] == source.hash_files()
    state = read_git_state(Path(source.origin).parent) if is_tracked(Path(source.origin)) else None
    assert manifest["source"]["git"] == (state and state.model_dump())


def test_the_inputs_are_not_constant(toy_fp16: ExportedFiles) -> None:
    values = np.fromfile(toy_fp16.data / "input_0.bin", dtype="<f2")
    assert values.size == 3 * 32 * 32
    assert 0.9 < values.astype(np.float32).std() < 1.1


def test_the_same_model_gives_the_same_program(toy_fp16: ExportedFiles, tmp_path: Path) -> None:
    out = tmp_path / "again.pte"
    export_model(ExportRequest("toy_cnn", out=out))
    assert out.read_bytes() == toy_fp16.pte.read_bytes()


def test_a_folder_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    words = ["export", "toy_cnn", "--dtype", "fp32", "--quiet", "--outdir", str(blocked)]
    assert main(words) == 7
    assert capsys.readouterr().err == (
        f"etprof: cannot write into {blocked}: File exists; free space or choose another folder\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a disk that is full after the program's first bytes
    def write_some(_program: object, stream: BinaryIO) -> None:
        stream.write(b"ET12")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(upstream.ExecutorchProgramManager, "write_to_file", write_some)
    # THEN the export says so, and neither the program nor anything else is there
    with pytest.raises(
        OutputError, match=f"cannot write into {re.escape(str(tmp_path))}: No space left on device"
    ):
        export_model(ExportRequest("toy_cnn", precision="fp32", outdir=tmp_path))
    assert list(tmp_path.iterdir()) == []
