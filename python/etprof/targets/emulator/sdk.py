"""Finds ExecuTorch's aarch64 SDK in the cache, or fetches it with pip."""

from __future__ import annotations

import re
import sys
import zipfile
from importlib.metadata import requires
from typing import TYPE_CHECKING

from etprof.base.errors import BuildError
from etprof.base.process import run_command
from etprof.targets.emulator.cache import identify

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.targets.emulator.cache import Cache

PART = "sdk"
_KEPT = ("executorch/lib/", "executorch/include/", "executorch/share/", "executorch/version.py")
_PLATFORM = ("--platform", "manylinux_2_28_aarch64", "--python-version", "3.11")
_TIMEOUT_S = 1800


def pinned_version() -> str:
    """Returns the ExecuTorch version that etprof is built for."""
    for requirement in requires("etprof") or ():
        if match := re.match(r"executorch\s*==\s*([\d.]+)", requirement):
            return match[1]
    msg = "etprof's metadata has no ExecuTorch version; install etprof again with `pip install .`"
    raise BuildError(msg)


def find_sdk(cache: Cache) -> Path | None:
    """Returns the cached SDK of the pinned version; None when another or none is there.

    Raises InputFileError when one of its libraries is damaged.
    """
    part = cache.check(PART, suffixes=(".so",))
    if part is None or part.version != pinned_version():
        return None
    return cache.folder / PART / "executorch"


def fetch_sdk(cache: Cache, work: Path) -> str:
    """Downloads the aarch64 wheel and keeps its libraries and headers; returns its version."""
    version = pinned_version()
    downloads = work / "wheel"
    requirement = f"executorch=={version}"
    pip = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps"]
    flags = ["--only-binary=:all:", "--implementation", "cp", *_PLATFORM]
    done = run_command([*pip, *flags, "--dest", downloads, requirement], timeout_s=_TIMEOUT_S)
    wheels = sorted(downloads.glob("*.whl")) if done.exit_code == 0 else []
    if not wheels:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.exit_code}"])[-1]
        msg = f"pip could not fetch the aarch64 wheel of {requirement}: {reason}; check the network"
        raise BuildError(msg)
    _extract(wheels[0], work / PART)
    source = f"{wheels[0].name}, SHA-256 {identify(wheels[0]).sha256}"
    cache.add(PART, version=version, source=source, folder=work / PART)
    return version


def _extract(wheel: Path, folder: Path) -> None:
    """Unpacks the SDK; raises BuildError for a file cut short."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith(_KEPT)]
            archive.extractall(folder, members)
    except (zipfile.BadZipFile, OSError) as error:
        msg = f"{wheel.name} cannot be unpacked: {error}; run the setup again"
        raise BuildError(msg) from error
