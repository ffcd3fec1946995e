"""Files on the device, kept by content: one that is there already is not copied again."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from etprof.base.errors import InputFileError, TargetError
from etprof.base.files import hash_file
from etprof.targets.android.adb import DeviceFullError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.targets.android.adb import Adb

_HASH_TIMEOUT_S: Final = 600.0


@dataclass
class DeviceStore:
    """The files below `root`/etprof-store of one device: <start of SHA-256>/<name>."""

    adb: Adb
    root: str
    _verified: set[str] = field(default_factory=set)
    """Remote paths whose content was checked in this session."""
    _hashes: dict[tuple[Path, int, int], str] = field(default_factory=dict)
    """SHA-256 of files here, by path, time of change and size."""

    def forget(self) -> None:
        """Trusts nothing on the device any more; call it when the device was away."""
        self._verified.clear()

    def upload(self, files: Sequence[Path]) -> dict[Path, str]:
        """Makes sure that all files are on the device, unchanged; returns where.

        Raises DeviceFullError, DeviceLostError, TargetError and, for files here, InputFileError.
        """
        hashes = {file: self._hash(file) for file in files}
        remote_paths = {
            file: f"{self.root}/etprof-store/{hashes[file][:32]}/{file.name}" for file in files
        }
        unknown = [file for file in remote_paths if remote_paths[file] not in self._verified]
        if unknown:
            remote_hashes = self._remote_hashes([remote_paths[file] for file in unknown])
            for file, remote_hash in zip(unknown, remote_hashes, strict=True):
                if remote_hash != hashes[file]:
                    self._copy(file, remote_paths[file], hashes[file])
                self._verified.add(remote_paths[file])
        return remote_paths

    def _hash(self, file: Path) -> str:
        """Returns the SHA-256 of a file here; read again only after a change."""
        try:
            state = file.stat()
            key = (file, state.st_mtime_ns, state.st_size)
            if key not in self._hashes:
                self._hashes[key] = hash_file(file)
        except OSError as error:
            raise InputFileError(f"cannot read {file}: {error.strerror}; check the path") from error
        return self._hashes[key]

    def _remote_hashes(self, paths: Sequence[str]) -> list[str]:
        """Returns the SHA-256 of each file on the device; empty where there is none."""
        script = "\n".join(
            f"sha256sum <{shlex.quote(path)} 2>/dev/null || echo -" for path in paths
        )
        done = self.adb.shell(f"{{ {script}\n}} 2>/dev/null", timeout_s=_HASH_TIMEOUT_S)
        lines = done.stdout.splitlines()
        if len(lines) != len(paths):
            msg = f"device {self.adb.serial} cannot hash files; is sha256sum missing on it?"
            raise TargetError(msg)
        return [line.split(" ")[0].strip("-") for line in lines]

    def _copy(self, file: Path, remote: str, expected: str) -> None:
        """Copies one file under a temporary name and renames it once its content is right."""
        incoming = f"{self.root}/etprof-store/incoming-{secrets.token_hex(6)}"
        done = self.adb.shell(f"mkdir -p {shlex.quote(remote.rpartition('/')[0])}")
        if done.exit_code == 0:
            quoted = shlex.quote(incoming)
            try:
                self.adb.push(file, incoming)
            except DeviceFullError:
                self.adb.shell(f"rm -f {quoted}")
                raise
            done = self.adb.shell(
                f"sha256sum <{quoted} && chmod 755 {quoted} && mv -f {quoted} {shlex.quote(remote)}",
                timeout_s=_HASH_TIMEOUT_S,
            )
            if done.exit_code == 0 and done.stdout.startswith(expected):
                return
        reason, serial = done.reason("its content arrived changed"), self.adb.serial
        if "No space left" in reason:
            raise DeviceFullError(f"device {serial} has no room for {file}; free space on it")
        raise TargetError(f"{file} could not be copied to {self.root} on device {serial}: {reason}")


def remove_files(adb: Adb, root: str) -> int:
    """Removes the store and all sessions below `root`; returns the bytes that were freed.

    Anything else there stays: the folder may be shared with others. Raises TargetError.
    """
    folder = shlex.quote(root)
    done = adb.shell(
        f"cd {folder} 2>/dev/null || exit 0\n"
        "du -sk . | cut -f 1\n"
        "rm -rf etprof-store etprof-session-* || exit 1\n"
        f"cd / && rmdir {folder} 2>/dev/null\ntrue",
        timeout_s=_HASH_TIMEOUT_S,
    )
    if done.exit_code != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TargetError(f"device {adb.serial} did not remove the files in {root}: {reason}")
    kilobytes = done.stdout.strip()
    return int(kilobytes) * 1024 if kilobytes.isdecimal() else 0
