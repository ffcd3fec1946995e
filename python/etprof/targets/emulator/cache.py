"""The folder with everything that `etprof emulator setup` fetched or built, and its checksums."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from etprof.base.atomic import write_json
from etprof.base.errors import BuildError, InputFileError, OutputError
from etprof.base.files import hash_file, user_folder
from etprof.base.records import Count, Record, read_record

SETUP = "etprof emulator setup"
REBUILD = "`etprof emulator setup` brings it back"


class CachedFile(Record):
    """One file as it was when its part was complete."""

    sha256: str
    size_bytes: Count


class CachePart(Record):
    """One thing that was fetched or built: where from, and its files by path in the cache."""

    version: str
    source: str
    files: dict[str, CachedFile]


class CacheManifest(Record):
    """Everything complete in the cache; what is not in here is not there."""

    schema_version: Literal[1] = 1
    parts: dict[str, CachePart] = Field(default_factory=dict)


def cache_root() -> Path:
    """Returns ETPROF_CACHE, or etprof's folder in the user's cache (XDG_CACHE_HOME).

    Raises OutputError where this user has no place for one.
    """
    if override := os.environ.get("ETPROF_CACHE"):
        return Path(override)
    return user_folder("XDG_CACHE_HOME", ".cache")


@dataclass(frozen=True)
class Cache:
    """The emulator's part of the cache."""

    folder: Path

    @classmethod
    def find(cls) -> Cache:
        """Returns the cache of this user; it need not exist."""
        return cls(cache_root() / "emulator")

    @property
    def manifest_path(self) -> Path:
        """Where the list of complete parts is kept."""
        return self.folder / "manifest.json"

    def load(self) -> CacheManifest:
        """Reads the list of complete parts; empty before the first setup."""
        if not self.manifest_path.exists():
            return CacheManifest()
        return read_record(CacheManifest, self.manifest_path, way_out=REBUILD)

    def add(self, name: str, *, version: str, source: str, folder: Path) -> None:
        """Puts `folder` into the cache as part `name`, replacing an older one."""
        destination = self.folder / name
        with _writing(self.folder):
            shutil.rmtree(destination, ignore_errors=True)
            folder.replace(destination)
            files = {
                str(path.relative_to(self.folder)): identify(path)
                for path in sorted(destination.rglob("*"))
                if path.is_file() and not path.is_symlink()
            }
        cache_part = CachePart(version=version, source=source, files=files)
        cache_parts = {**self._known_parts(), name: cache_part}
        write_json(self.manifest_path, CacheManifest(parts=cache_parts).model_dump())

    def _known_parts(self) -> dict[str, CachePart]:
        """Returns the complete parts; none when their list is damaged, so that it is made anew."""
        try:
            return self.load().parts
        except InputFileError:
            return {}

    def check(self, name: str, *, suffixes: tuple[str, ...] = ()) -> CachePart | None:
        """Returns a part whose files are all as they were; None when it was never completed.

        With `suffixes`, only files that end so are read. Raises InputFileError for a damaged one.
        """
        cache_part = self.load().parts.get(name)
        for relative, expected in (cache_part.files if cache_part else {}).items():
            if not suffixes or relative.endswith(suffixes):
                _check_file(self.folder / relative, expected)
        return cache_part

    def remove(self) -> int:
        """Deletes everything; returns the bytes that were freed."""
        if not self.folder.exists():
            return 0
        size = sum(p.stat().st_size for p in self.folder.rglob("*") if p.is_file())
        with _writing(self.folder):
            shutil.rmtree(self.folder)
        return size

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A folder in the cache that goes away; one setup at a time may have it."""
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        with lock:
            _take(lock.fileno(), self.folder)
            with _writing(self.folder):
                folder = Path(tempfile.mkdtemp(prefix="work-", dir=self.folder))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def identify(path: Path) -> CachedFile:
    """Returns SHA-256 and size of a file."""
    digest = hash_file(path)
    return CachedFile(sha256=digest, size_bytes=path.stat().st_size)


def _check_file(path: Path, expected: CachedFile) -> None:
    if not path.is_file():
        raise InputFileError(f"{path} is missing from the cache; {REBUILD}")
    if path.stat().st_size != expected.size_bytes or identify(path) != expected:
        raise InputFileError(f"{path} is damaged (its SHA-256 is not the recorded one); {REBUILD}")


def _take(descriptor: int, folder: Path) -> None:
    """Makes this process the only one that changes the cache."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        msg = f"another `{SETUP}` is at work in {folder}; wait until it has ended"
        raise BuildError(msg) from error


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turns a refusal of the file system into one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        msg = f"cannot write to the cache {folder} ({reason}); name another with ETPROF_CACHE"
        raise OutputError(msg) from error
