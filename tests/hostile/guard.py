"""Watches what a command does to the machine while a case runs: files, processes, sockets, code."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import etprof
from tests.hostile.values import CANARY

ROOT: Final = Path(__file__).parents[2]
_PROCESSES: Final = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
    "os.forkpty", "pty.spawn", "os.startfile",
}  # fmt: skip
_SOCKETS: Final = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"}
_LOADERS: Final = {
    "pickle.find_class", "ctypes.dlopen", "sqlite3.load_extension", "sqlite3.enable_load_extension",
    "urllib.Request",
}  # fmt: skip
_CHANGES: Final = {
    "os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.symlink", "os.link", "os.truncate",
    "os.chmod", "os.chown", "os.utime", "shutil.rmtree", "shutil.move",
}  # fmt: skip
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READABLE: Final = tuple(
    str(Path(path).resolve())
    for path in (
        sys.prefix, sys.base_prefix, ROOT, Path(etprof.__file__).parent, "/usr/lib", "/usr/share",
        "/etc/localtime", "/etc/mime.types", "/dev/null", "/dev/urandom", "/proc/self", "/proc/cpuinfo",
        "/proc/meminfo", "/sys/fs/cgroup",
    )
)  # fmt: skip
"""What Python and the packages read for themselves."""


class Guard:
    """Collects what a case does that it must not; processes and sockets are stopped as well."""

    def __init__(self, seeds: Path) -> None:
        self._readable = (*_READABLE, os.path.realpath(seeds))
        self.breaches: list[str] = []
        self._folder: str | None = None
        self._reads = True
        self._busy = threading.local()
        self._checks: dict[str, Callable[[str, tuple[Any, ...]], None]] = {
            "open": self._check_open,
            "compile": self._check_compile,
            "exec": self._check_exec,
            **dict.fromkeys(_CHANGES, self._check_change),
            **dict.fromkeys(_LOADERS, self._check_loader),
            **dict.fromkeys(_PROCESSES | _SOCKETS, self._stop),
        }
        sys.addaudithook(self._hook)

    def watch(self, folder: Path | None, *, reads: bool = True) -> None:
        """Starts to watch a case that may use `folder`; None ends that.

        Without `reads` it may read anywhere, as one may whose user named the files.
        """
        self._folder, self._reads = None if folder is None else os.path.realpath(folder), reads
        if folder is not None:
            self.breaches = []

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._folder is None or event not in self._checks:
            return
        if getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            self._checks[event](event, arguments)
        finally:
            self._busy.now = False

    def _is_inside(self, path: object) -> bool:
        return self._is_below(path, (str(self._folder),))

    @staticmethod
    def _is_below(path: object, folders: tuple[str, ...]) -> bool:
        if isinstance(path, int):
            return True
        text = os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]  # noqa: PTH100
        return any(text == folder or text.startswith(f"{folder}/") for folder in folders)

    def _check_open(self, _event: str, arguments: tuple[Any, ...]) -> None:
        path, _mode, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike) or self._is_inside(path):
            return
        if (flags or 0) & _WRITES and not self._is_below(path, ("/dev/null",)):
            self.breaches.append(f"opened for writing: {os.fsdecode(path)[:200]}")
        elif self._reads and not self._is_below(path, self._readable):
            self.breaches.append(f"read outside: {os.fsdecode(path)[:200]}")

    def _check_change(self, event: str, arguments: tuple[Any, ...]) -> None:
        # The second path of a link or a renaming is where it appears.
        paths = arguments[:2] if event in {"os.rename", "os.link", "shutil.move"} else arguments[:1]
        paths = arguments[1:2] if event == "os.symlink" else paths
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike) and not self._is_inside(path):
                self.breaches.append(f"{event}: {os.fsdecode(path)[:200]}")

    def _check_compile(self, _event: str, arguments: tuple[Any, ...]) -> None:
        source = arguments[0]
        text = source.decode("latin-1") if isinstance(source, bytes) else source
        if isinstance(text, str) and CANARY in text:
            self.breaches.append("compiled text of the file")

    def _check_exec(self, _event: str, arguments: tuple[Any, ...]) -> None:
        name = getattr(arguments[0], "co_filename", "<>")
        if not name.startswith("<") and self._is_inside(name):
            self.breaches.append(f"ran code of {name}")

    def _check_loader(self, event: str, arguments: tuple[Any, ...]) -> None:
        self.breaches.append(f"{event} {str(arguments)[:100]}")

    def _stop(self, event: str, arguments: tuple[Any, ...]) -> None:
        self.breaches.append(f"{event} {str(arguments)[:100]}")
        msg = f"{event} is not allowed here"
        raise PermissionError(msg)
