"""Brings the real adbd from Debian's backports, unpacked into a folder, nothing installed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from etprof.base.errors import BuildError
from etprof.targets.emulator.apt import PackageSource, find_archive, unpack

_BACKPORTS = (
    "adbd",
    "android-libbase",
    "android-libcutils",
    "android-liblog",
    "android-libboringssl",
)
_RELEASE = ("libprotobuf32",)


@dataclass(frozen=True)
class Daemon:
    """adbd as it was unpacked."""

    root: Path

    @property
    def program(self) -> Path:
        return self.root / "usr/lib/android-sdk/platform-tools/adbd"

    @property
    def libraries(self) -> str:
        """Folders of its libraries, as LD_LIBRARY_PATH wants them."""
        android = sorted(self.root.glob("usr/lib/*/android"))
        return ":".join(str(folder) for path in android for folder in (path, path.parent))


def bring_daemon(folder: Path) -> Daemon:
    """Fetches adbd into `folder`, or takes the one that ETPROF_ADBD names.

    Raises BuildError when this machine's archive has none.
    """
    if chosen := os.environ.get("ETPROF_ADBD"):
        return Daemon(Path(chosen))
    archive = find_archive()
    if archive is None:
        msg = "this is not Debian or Ubuntu"
        raise BuildError(msg)
    suites = (
        (f"{archive.codename}-backports", _BACKPORTS),
        (archive.codename, _RELEASE),
    )
    for suite, names in suites:
        source = PackageSource(archive, suite, folder / suite)
        source.update()
        for name in names:
            unpack(source.fetch(name), folder / "root")
    return Daemon(folder / "root")
