"""Puts the files of an export in place all together, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def staged_folder(folder: Path, *, last: str) -> Iterator[Path]:
    """Yields a hidden folder inside `folder`; its entries move up when the block succeeds.

    An entry that is there already is replaced. The entry called `last` is moved last, so that
    where it is, the others are. Raises OutputError when the folder or the disk refuses; then
    nothing of the block is left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as name:
            yield Path(name)
            # An earlier export's: whoever finds it must not take it for the new files'.
            (folder / last).unlink(missing_ok=True)
            for entry in sorted(Path(name).iterdir(), key=lambda path: path.name == last):
                _replace(entry, folder / entry.name)
    except OSError as error:
        reason = error.strerror or error
        msg = f"cannot write into {folder}: {reason}; free space or choose another folder"
        raise OutputError(msg) from error


def _replace(source: Path, target: Path) -> None:
    """Renames `source` to `target`; an old folder, which a rename cannot replace, goes first."""
    if target.is_dir():
        shutil.rmtree(target)
    source.replace(target)
