"""Brings a launch's files from the device: all of them as they were written, or none."""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING

from etprof.base.errors import OutputError, TargetError
from etprof.base.files import hash_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from etprof.targets.android.adb import Adb
    from etprof.targets.android.session import RemoteFile


def bring_results(
    adb: Adb, folder: str, files: Mapping[str, RemoteFile], wanted: Iterable[tuple[str, Path]]
) -> None:
    """Copies `wanted`, pairs of a name below `folder` and a path here, in that order.

    A name of a folder brings the files in it. Each file appears under its own name only once its
    SHA-256 is what the device said when the launch ended. Raises TargetError when the launch left
    no such file, OutputError when it cannot be written here.
    """
    for name, local in wanted:
        inside = {n.removeprefix(f"{name}/"): n for n in files if n.startswith(f"{name}/")}
        if name in files:
            _bring_file(adb, f"{folder}/{name}", files[name], local)
        elif inside:
            _bring_folder(adb, folder, {n: files[path] for n, path in inside.items()}, name, local)
        else:
            msg = f"device {adb.serial}: the runner ended well but left no {name}; run it again"
            raise TargetError(msg)


def _bring_file(adb: Adb, remote: str, expected: RemoteFile, local: Path) -> None:
    """Copies one file beside `local`, checks it, renames it."""
    part = local.parent / f".{secrets.token_hex(6)}.part"
    try:
        local.parent.mkdir(parents=True, exist_ok=True)
        adb.pull(remote, part, size_bytes=expected.size_bytes)
        if hash_file(part) != expected.sha256:
            msg = f"{remote} of device {adb.serial} arrived changed; run it again"
            raise TargetError(msg)
        part.chmod(0o644)
        part.replace(local)
    except OSError as error:
        msg = f"cannot write {local}: {error.strerror}; free space or choose another folder"
        raise OutputError(msg) from error
    finally:
        part.unlink(missing_ok=True)


def _bring_folder(
    adb: Adb, folder: str, files: Mapping[str, RemoteFile], name: str, local: Path
) -> None:
    """Copies the files of one folder into a new one that takes the place of `local`."""
    part = local.parent / f".{secrets.token_hex(6)}.parts"
    try:
        for file, expected in files.items():
            _bring_file(adb, f"{folder}/{name}/{file}", expected, part / file)
        if local.exists():
            shutil.rmtree(local)
        part.replace(local)
    except OSError as error:
        msg = f"cannot write {local}: {error.strerror}; free space or choose another folder"
        raise OutputError(msg) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
