"""Which shared libraries a runner takes along to a device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.base.errors import BuildError
from etprof.targets.android.elf import AARCH64, MACHINES, read_elf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.targets.android.elf import ElfFile

CPP_LIBRARY: Final = "libc++_shared.so"
"""The C++ library of the Android NDK; no device has it."""
_NDK_LIBRARIES: Final = "toolchains/llvm/prebuilt/*/sysroot/usr/lib/aarch64-linux-android"


def find_libraries(runner: Path) -> tuple[Path, ...]:
    """Returns the libraries that `runner` needs and this machine keeps for it, all levels deep.

    Looked for beside the runner, in its own library paths and, for the C++ library, in the
    Android NDK. What is in none of them, such as libc.so, belongs to the device. Raises
    BuildError when the C++ library is needed and not found, InputFileError for a damaged file.
    """
    found: dict[str, Path] = {}
    waiting = [runner]
    while waiting:
        file = waiting.pop()
        elf = read_elf(file)
        folders = [runner.parent, *_own_folders(file, elf)]
        for name in elf.needed:
            if name in found:
                continue
            path = _find(name, folders)
            if path is not None:
                found[name] = path
                waiting.append(path)
    return tuple(found[name] for name in sorted(found))


def check_machine(runner: Path) -> None:
    """Raises BuildError when the runner is for another machine than an arm64 phone."""
    machine = read_elf(runner).machine
    if machine != AARCH64:
        name = MACHINES.get(machine, f"machine {machine}")
        msg = (
            f"{runner} is built for {name}, but Android devices run aarch64; build one with "
            f"`cmake --workflow --preset android-sme2`"
        )
        raise BuildError(msg)


def _own_folders(file: Path, elf: ElfFile) -> Iterator[Path]:
    for folder in elf.runpath:
        text = folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(file.parent))
        if text.startswith("/"):
            yield Path(text)


def _find(name: str, folders: list[Path]) -> Path | None:
    if "/" in name:
        return None
    places = [*folders, *_ndk_folders()] if name == CPP_LIBRARY else folders
    found = [folder / name for folder in places if (folder / name).is_file()]
    if found:
        return found[0]
    if name == CPP_LIBRARY:
        msg = (
            f"the runner needs {CPP_LIBRARY}, which no device has; copy it beside the runner, or "
            f"set ANDROID_NDK_HOME to the NDK the runner was built with"
        )
        raise BuildError(msg)
    return None


def _ndk_folders() -> Iterator[Path]:
    for variable in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK"):
        if root := os.environ.get(variable):
            yield from sorted(Path(root).glob(_NDK_LIBRARIES))
