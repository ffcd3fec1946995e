"""Finds a qemu-aarch64 that emulates SME2, or fetches one."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import BuildError
from etprof.base.process import run_command
from etprof.targets.emulator.apt import PackageSource, require_archive, unpack
from etprof.targets.emulator.cache import SETUP

if TYPE_CHECKING:
    from etprof.targets.emulator.apt import Package, PackageArchive
    from etprof.targets.emulator.cache import Cache

PART = "qemu"
LEAST_VERSION = (10, 1)
"""First release that emulates SME2."""
_SUITES = {"debian": ("stable-backports", "testing", "unstable"), "ubuntu": ("devel",)}
_PACKAGES = ("qemu-user", "qemu-user-static")
_PROGRAM = Path("usr/bin/qemu-aarch64")


def find_qemu(cache: Cache) -> Path | None:
    """Returns ETPROF_QEMU, the cached program or an installed one that is new enough.

    Raises BuildError when ETPROF_QEMU cannot be used, InputFileError when the cached one is
    damaged.
    """
    if override := os.environ.get("ETPROF_QEMU"):
        return _check_override(Path(override))
    if cache.check(PART) is not None:
        return cache.folder / PART / _PROGRAM
    installed = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if installed and _is_new_enough(read_version(Path(installed))):
        return Path(installed)
    return None


def _check_override(program: Path) -> Path:
    if not os.access(program, os.X_OK) or program.is_dir():
        msg = f"ETPROF_QEMU names {program}, which is not a program; give the path of qemu-aarch64"
        raise BuildError(msg)
    version = read_version(program)
    if not _is_new_enough(version):
        version_text = _text(version) if version else "unknown"
        raise BuildError(
            f"{program} has version {version_text}, but SME2 is emulated from qemu {_text(LEAST_VERSION)} on; "
            f"unset ETPROF_QEMU and run `{SETUP}`, or name a newer one"
        )
    return program


def read_version(program: Path) -> tuple[int, int] | None:
    """Asks the program for its version."""
    output = run_command([program, "--version"], timeout_s=30).stdout
    match = re.search(r"version (\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def _is_new_enough(version: tuple[int, int] | None) -> bool:
    return version is not None and version >= LEAST_VERSION


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def fetch_qemu(cache: Cache, work: Path) -> str:
    """Brings qemu-aarch64 from the newest suites of this machine's archive; returns its version."""
    way_out = f"provide version {_text(LEAST_VERSION)} or newer and name it with ETPROF_QEMU"
    package, suite = _fetch_package(require_archive("qemu-aarch64", way_out), work)
    unpacked, staged = work / "qemu-unpacked", work / "qemu-kept"
    unpack(package, unpacked)
    program = next(iter(sorted(unpacked.glob("usr/bin/qemu-aarch64*"))), None)
    if program is None:
        msg = f"{package.name} {package.version} has no qemu-aarch64; name one with ETPROF_QEMU"
        raise BuildError(msg)
    (staged / _PROGRAM.parent).mkdir(parents=True)
    shutil.move(program.resolve(), staged / _PROGRAM)
    if not _is_new_enough(read_version(staged / _PROGRAM)):
        msg = f"the qemu-aarch64 of {suite} does not run here; name another with ETPROF_QEMU"
        raise BuildError(msg)
    source = f"{package.name} of {suite}, SHA-256 {package.sha256}"
    cache.add(PART, version=package.version, source=source, folder=staged)
    return package.version


def _fetch_package(archive: PackageArchive, work: Path) -> tuple[Package, str]:
    """Downloads from the first suite that has a version new enough."""
    seen = []
    for suite in _SUITES.get(archive.distribution, _SUITES["debian"]):
        source = PackageSource(archive, suite, work / f"apt-{suite}")
        try:
            source.update()
        except BuildError as error:
            seen.append(str(error))
            continue
        for name in _PACKAGES:
            version = source.find_version(name)
            if _is_new_enough(package_version(version)):
                return source.fetch(name), suite
            seen.append(f"{suite} has {name} {version or '(none)'}")
    raise BuildError(
        f"no suite has qemu {_text(LEAST_VERSION)} or newer ({'; '.join(seen)}); build it, and "
        f"name it with ETPROF_QEMU"
    )


def package_version(text: str | None) -> tuple[int, int] | None:
    """Returns upstream's version from a package's, such as (11, 1) from `1:11.1.3+ds-1`."""
    match = re.match(r"(?:\d+:)?(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None
