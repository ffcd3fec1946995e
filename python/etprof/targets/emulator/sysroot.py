"""Finds the aarch64 C and C++ runtime libraries, or fetches them."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import BuildError
from etprof.targets.emulator.apt import PackageSource, require_archive, unpack
from etprof.targets.emulator.cache import SETUP

if TYPE_CHECKING:
    from etprof.targets.emulator.cache import Cache

PART = "sysroot"
INSTALLED = Path("/usr/aarch64-linux-gnu")
_FOLDER = Path("usr/aarch64-linux-gnu")
_PACKAGES = ("libc6-arm64-cross", "libgcc-s1-arm64-cross", "libstdc++6-arm64-cross")
_LIBRARIES = ("ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libstdc++.so.6")


def is_native() -> bool:
    """Whether this machine runs aarch64 programs by itself."""
    return platform.machine() in {"aarch64", "arm64"}


def find_sysroot(cache: Cache) -> Path | None:
    """Returns ETPROF_AARCH64_SYSROOT, the cached libraries or the installed ones.

    Raises BuildError when ETPROF_AARCH64_SYSROOT cannot be used, InputFileError when a cached
    library is damaged.
    """
    if is_native():
        return Path("/")
    if override := os.environ.get("ETPROF_AARCH64_SYSROOT"):
        return _check_override(Path(override))
    if cache.check(PART) is not None:
        return cache.folder / PART / _FOLDER
    return None if _missing_libraries(INSTALLED) else INSTALLED


def _missing_libraries(folder: Path) -> list[str]:
    return [name for name in _LIBRARIES if not (folder / "lib" / name).is_file()]


def _check_override(folder: Path) -> Path:
    if missing := _missing_libraries(folder):
        raise BuildError(
            f"ETPROF_AARCH64_SYSROOT names {folder}, which has no lib/{missing[0]}; unset it and "
            f"run `{SETUP}`, or name a folder with the aarch64 C and C++ runtime libraries"
        )
    return folder


def fetch_sysroot(cache: Cache, work: Path) -> str:
    """Brings the libraries from this machine's own release; returns their version."""
    archive = require_archive(
        "the aarch64 runtime libraries",
        "provide a folder with lib/ld-linux-aarch64.so.1, libc, libgcc_s and libstdc++, and "
        "name it with ETPROF_AARCH64_SYSROOT",
    )
    source = PackageSource(archive, archive.codename, work / f"apt-{archive.codename}")
    source.update()
    packages = [source.fetch(name) for name in _PACKAGES]
    for package in packages:
        unpack(package, work / PART)
    hashes = ", ".join(f"{package.name} SHA-256 {package.sha256}" for package in packages)
    version, description = packages[0].version, f"{archive.codename}: {hashes}"
    cache.add(PART, version=version, source=description, folder=work / PART)
    return version
