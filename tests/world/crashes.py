"""Every state in which a killed process can leave a folder: one copy before each change of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHANGES = ("replace", "rename", "unlink", "mkdir", "rmdir", "fsync")
"""Functions of `os` that change what is in a folder; `os.open` does when it makes a file."""


@contextmanager
def states_before_each_change(folder: Path, copies: Path) -> Iterator[list[Path]]:
    """Yields a list that grows by a copy of `folder` before each change of the file system.

    A process that is killed leaves one of these states: all that it writes appears by a rename.
    """
    states: list[Path] = []
    copying = False

    def keep() -> None:
        nonlocal copying
        if copying or not folder.exists():
            return
        copying = True
        try:
            state = copies / f"state{len(states)}"
            shutil.copytree(folder, state)
            states.append(state)
        finally:
            copying = False

    def watched(change: Any) -> Any:  # noqa: ANN401 - any function of os
        def call(*words: Any, **more: Any) -> Any:  # noqa: ANN401
            keep()
            return change(*words, **more)

        return call

    opened = os.open

    def watched_open(path: Any, flags: int, *words: Any, **more: Any) -> int:  # noqa: ANN401
        if flags & os.O_CREAT:
            keep()
        return opened(path, flags, *words, **more)

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, watched(getattr(os, name)))
        patch.setattr(os, "open", watched_open)
        yield states
