"""Writes files so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from etprof.base.errors import OutputError
from etprof.base.text import escape_unfit_json

_MARK: Final = ".scratch"
"""A file in each folder of `scratch_folder`, locked as long as that is used."""
_NEW_S: Final = 60.0
"""Younger folders may be those of a process that has not locked its mark yet."""


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Yields a new folder in TMPDIR, which goes when the block ends.

    After a SIGKILL it stays; the next process of this user that needs such a folder removes it.
    """
    _remove_lost_folders()
    folder = tempfile.TemporaryDirectory(prefix=f"etprof-{purpose}-")
    with folder as name, (Path(name) / _MARK).open("wb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        yield Path(name)


@functools.cache
def _remove_lost_folders() -> None:
    """Removes this user's folders whose process has ended without doing so; once a process."""
    for folder in Path(tempfile.gettempdir()).glob("etprof-*-*"):
        # Somebody else's, or none of these: it stays.
        with suppress(OSError):
            state = folder.lstat()
            is_ours = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()
            if is_ours and time.time() - state.st_mtime > _NEW_S:
                _remove_if_lost(folder)


def _remove_if_lost(folder: Path) -> None:
    """Removes a folder whose mark is not locked; raises OSError when it is in use or has no mark."""
    mark = os.open(folder / _MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(mark)


@contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path`; renames it to `path` when the block succeeds.

    `mode` holds its permissions, which the umask restricts. Raises OutputError, and leaves nothing behind, when the folder or the disk refuses.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
        # Not mkstemp: its files are private, and the umask cannot be read without changing it
        # for other threads. O_EXCL refuses whatever someone else may have put there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, mode), "wb") as stream:
            yield stream
        temporary.replace(path)
    except OSError as error:
        raise OutputError(_describe_refusal(path, error)) from error
    finally:
        if temporary is not None:
            # A file system that cannot be written cannot be tidied either.
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _describe_refusal(path: Path, error: OSError) -> str:
    """Says what prevents it: a file where a folder should be, or the system's reason."""
    blocking = next(
        (parent for parent in path.parents if parent.exists() and not parent.is_dir()), None
    )
    if blocking is not None:
        return f"cannot write {path}: {blocking} is a file; choose another folder"
    reason = error.strerror or error
    return f"cannot write {path}: {reason}; free space or choose another folder"


@contextmanager
def staged_folder(folder: Path, *, last: str, family: Iterable[Path] = ()) -> Iterator[Path]:
    """Yields a hidden folder inside `folder`; its entries move up when the block succeeds.

    An entry that is there already is replaced. The entry called `last` is moved last, so that
    where it is, the others are. Those of `family` that the block did not write are an earlier
    block's, and go. Raises OutputError when the folder or the disk refuses; then
    nothing of the block is left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as name:
            yield Path(name)
            # An earlier export's: whoever finds it must not take it for the new files'.
            (folder / last).unlink(missing_ok=True)
            for path in family:
                if not (Path(name) / path.name).exists():
                    _remove(path)
            for staged in sorted(Path(name).iterdir(), key=lambda path: path.name == last):
                _replace(staged, folder / staged.name)
    except OSError as error:
        reason = error.strerror or error
        msg = f"cannot write into {folder}: {reason}; free space or choose another folder"
        raise OutputError(msg) from error


def _replace(source: Path, target: Path) -> None:
    """Renames `source` to `target`; an old folder, which a rename cannot replace, goes first."""
    if target.is_dir():
        _remove(target)
    source.replace(target)


def _remove(path: Path) -> None:
    """Removes a file or a folder, if it is there; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` to `path` at once."""
    with replacing(path) as stream:
        stream.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path` at once, as UTF-8."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def write_json(path: Path, document: object) -> None:
    """Writes `document` to `path` at once; NaN and infinity are a defect, so they raise.

    JSON is UTF-8; of a file name that is not, each strange byte becomes a question mark.
    """
    write_bytes(path, json_bytes(document))


def json_bytes(document: object) -> bytes:
    """Returns the text that `write_json` writes."""
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    encodable = text.encode("utf-8", "replace").decode()
    return f"{escape_unfit_json(encodable)}\n".encode()
