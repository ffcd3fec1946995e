"""Programs and run directories as archives, for hosts without a folder in common."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from etprof.base.errors import InputFileError
from etprof.base.files import MOST_PROGRAM_BYTES
from etprof.export.request import ExportedFiles
from etprof.run.directory import set_aside
from etprof.run.git_state import read_git_state
from etprof.run.manifest import MANIFEST, load_manifest, save_manifest

MOST_MEMBERS: Final = 100_000
"""Files of a run: a thousand launches leave a hundred times fewer."""
MOST_BYTES: Final = MOST_PROGRAM_BYTES
_REFUSED_MEMBERS: Final = (errno.ENAMETOOLONG, errno.EFBIG, errno.EEXIST, errno.ENOTDIR)
"""What the system answers to a name or a size that no file has, and to a file within a file.

A full disk is not the archive's fault.
"""


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
        unpacked = Path(name, "run")
        manifest = load_manifest(unpacked)
        if manifest is None:
            raise InputFileError(f"the archive of a worker has no {MANIFEST}; measure again")
        model = manifest.model.model_copy(update={"path": str(program)})
        update = {"git": read_git_state(Path()), "model": model}
        save_manifest(unpacked, manifest.model_copy(update=update))
        if run.exists():
            shutil.rmtree(run)
        unpacked.rename(run)


def _pack(entries: Iterable[tuple[Path, str]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for path, name in entries:
            archive.add(path, name)
    return stream.getvalue()


def _unpack(data: bytes, folder: Path) -> None:
    """Unpacks files and folders, nothing else, and nothing outside `folder`.

    Raises InputFileError for a damaged archive, and for one of more members or bytes than a run has.
    """
    members, size_bytes = 0, 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            # One after another: what an archive claims to hold may be far longer than itself.
            for member in archive:
                members, size_bytes = members + 1, size_bytes + member.size
                if members > MOST_MEMBERS or size_bytes > MOST_BYTES:
                    raise InputFileError(
                        f"an archive from another host has more than {MOST_MEMBERS} files or "
                        f"{MOST_BYTES // 2**30} GiB; measure there with `etprof run`"
                    )
                _unpack_member(archive, member, folder)
    # ValueError: a number in a header that is none.
    except (tarfile.TarError, EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(str(error)) from error
    except OSError as error:
        if error.errno in _REFUSED_MEMBERS:
            # Its name would be that of a folder here, and as long as the archive likes.
            raise _damaged(os.strerror(error.errno)) from error
        raise


def _damaged(reason: str) -> InputFileError:
    return InputFileError(f"an archive from another host is damaged ({reason}); measure again")


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes one file or folder. Links are never made, so no name can lead out of `folder`.

    `tarfile` has its own filters since Python 3.11.4 only, and Debian 12 has 3.11.2.
    """
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\0" in member.name:
        raise tarfile.ExtractError(f"{member.name!r} is no place inside it")
    target = folder / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member) if member.isfile() else None
    if content is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(content, file)
