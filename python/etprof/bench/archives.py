"""Programs and run directories as archives, for hosts without a folder in common."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etprof.atomic import write_json
from etprof.export.request import ExportedFiles
from etprof.measuring.git_state import read_git_state
from etprof.run_directory import MANIFEST, set_aside

if TYPE_CHECKING:
    from collections.abc import Iterable


def pack_program(program: Path) -> bytes:
    """Packs a program with everything that measuring needs of its export."""
    files = ExportedFiles(program)
    needed = [files.pte, files.external_data, files.manifest, files.report, files.data]
    return _pack((path, path.name) for path in needed if path.exists())


def unpack_program(archive: bytes, folder: Path) -> None:
    """Unpacks it into `folder`."""
    folder.mkdir(parents=True)
    _unpack(archive, folder)


def pack_run(run: Path) -> bytes:
    """Packs a run directory."""
    return _pack([(run, "run")])


def unpack_run(archive: bytes, run: Path, program: Path) -> None:
    """Puts a run directory from a worker in place, all at once; an earlier run is set aside.

    The program is where it was exported, and the commit that of the tree it was exported from.
    """
    set_aside(run)
    run.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=run.parent, prefix=".run-") as name:
        _unpack(archive, Path(name))
        found = Path(name, "run")
        manifest: dict[str, Any] = json.loads((found / MANIFEST).read_text(encoding="utf-8"))
        git = read_git_state(Path())
        manifest["git"] = dataclasses.asdict(git) if git else None
        manifest["model"]["path"] = str(program)
        write_json(found / MANIFEST, manifest)
        if run.exists():
            shutil.rmtree(run)
        found.rename(run)


def _pack(entries: Iterable[tuple[Path, str]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for path, name in entries:
            archive.add(path, name)
    return stream.getvalue()


def _unpack(data: bytes, folder: Path) -> None:
    """Unpacks files and folders, nothing else, and nothing outside `folder`."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
