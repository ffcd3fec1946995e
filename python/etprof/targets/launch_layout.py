"""What a launch is called must not change its times: equal lengths, and a layout drawn at random.

Lengths of arguments and environment move stack and heap, and thereby operators of some hundred ns
by more than 10 % (Mytkowicz et al., "Producing wrong data without doing anything obviously wrong",
ASPLOS 2009, doi:10.1145/1508244.1508275). So all paths have one length, command line and environment
together fill whole steps (`run_command`), and each timed launch moves its heap and stack by a random
number of bytes: layout is noise between launches, which intervals count, not bias between sides.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LAYOUT_VARIABLE: Final = "ETPROF_LAYOUT"
"""Read by etprof-runner (cpp/runner/layout.h); other runners ignore it."""
FILL_VARIABLE: Final = "ETPROF_FILL"
"""Fills command line and environment up to a whole step."""
_LENGTHS: Final = (128, 256, 512, 1000)
"""Bytes of a path: the shortest that fits. ExecuTorch cuts its messages, which name paths, at 256
bytes; a Mac's longest path has 1,023 (PATH_MAX)."""
_PAGE_BYTES: Final = 4096
"""What a shift is drawn below: times repeat with the place in a page (4 KiB aliasing)."""
_ALIGNMENT_BYTES: Final = 16
"""Of malloc and of the stack on the CPUs that etprof knows."""
_SLASHES: Final = re.compile("/{3,}")
_PATH_FLAGS: Final = frozenset(
    f"--{name}"
    for name in ("model", "data", "input", "etdump", "kernel-trace", "outputs", "result")
)


@dataclass(frozen=True)
class LayoutShift:
    """By how many bytes a launch moves its heap and its stack."""

    heap_bytes: int
    stack_bytes: int

    @classmethod
    def draw(cls, chooser: random.Random) -> LayoutShift:
        """Returns a shift within a page, in steps of the alignment, from 16 bytes on."""
        steps = _PAGE_BYTES // _ALIGNMENT_BYTES
        heap, stack = (_ALIGNMENT_BYTES * chooser.randrange(1, steps) for _ in range(2))
        return cls(heap, stack)


def layout_environment(shift: LayoutShift | None) -> dict[str, str]:
    """Returns what tells the runner of its shift, in as many bytes for every shift and for none."""
    heap_bytes, stack_bytes = (shift.heap_bytes, shift.stack_bytes) if shift else (0, 0)
    return {LAYOUT_VARIABLE: f"{heap_bytes:04d},{stack_bytes:04d}"}


def level_paths(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Gives all paths among the runner's flags one length, by slashes before an absolute path.

    Args:
        argv: Flags as `runner_arguments` makes them.

    Returns:
        The flags, and by each path as it stands there the path as people know it.
    """
    levelled: list[str] = []
    plain_paths: dict[str, str] = {}
    for argument in argv:
        flag, _, path = argument.partition("=")
        if flag in _PATH_FLAGS:
            long_path = _lengthen(path)
            plain_paths[long_path] = path
            levelled.append(f"{flag}={long_path}")
        else:
            levelled.append(argument)
    return levelled, plain_paths


def _lengthen(path: str) -> str:
    """Returns the path with slashes in front, in `_LENGTHS` bytes; a longer one as it is."""
    absolute = path if path.startswith("/") else f"{Path.cwd()}/{path}"
    size_bytes = len(os.fsencode(absolute))
    # Two slashes may mean something else than one (POSIX, 3.271): three or more, or none.
    length = next((n for n in _LENGTHS if n >= size_bytes + 2), size_bytes)
    return "/" * (length - size_bytes) + absolute


def restore_paths(text: str, plain_paths: Mapping[str, str]) -> str:
    """Returns what a runner said, with the paths that people know."""
    for long_path, path in plain_paths.items():
        text = text.replace(long_path, path)
    # Of a path that was cut, or is part of another: as it would have been without.
    return _SLASHES.sub("/", text)
