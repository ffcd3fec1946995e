"""A network of its own for adb's server and the devices: adbd asks nobody for permission.

The server is reached through a socket in the file system, so nothing listens on this machine's
real network, and an adb server that the user runs is left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_START_SERVER = """
import fcntl, os, socket, struct, sys
with socket.socket() as control:  # brings the loopback interface up
    fcntl.ioctl(control, 0x8914, struct.pack("16sh22x", b"lo", 1))
os.execvp("adb", ["adb", "-L", sys.argv[1], "nodaemon", "server"])
"""
_LONGEST_START_S = 15.0


def explain_absence() -> str | None:
    """Returns why this machine cannot have such a network, or None."""
    for tool in ("adb", "unshare", "nsenter", "mount"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    tried = subprocess.run(
        [*_unshare_words(), "--mount", "true"], capture_output=True, check=False, text=True
    )
    return None if tried.returncode == 0 else f"no private network: {tried.stderr.strip()}"


def _unshare_words() -> list[str]:
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--net"]


class Network:
    """A running adb server, alone in its network."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="adb"))
        self.socket = f"localfilesystem:{self.folder / 'server'}"
        self._log = (self.folder / "server.log").open("wb")
        self._server = subprocess.Popen(
            [*_unshare_words(), sys.executable, "-c", _START_SERVER, self.socket],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(self.folder)},
        )
        wait_until((self.folder / "server").exists, "adb's server did not start")

    def enter_words(self) -> list[str]:
        """Words before a command that runs it in this network, with mounts of its own."""
        rights = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        process = str(self._server.pid)
        return ["nsenter", "--target", process, *rights, "--net", "unshare", "--mount"]

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
        self._log.close()
        shutil.rmtree(self.folder)


def wait_until(
    condition: Callable[[], bool], failure: str, *, limit_s: float = _LONGEST_START_S
) -> None:
    """Waits until the function `condition` returns true; raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(failure)
        time.sleep(0.02)
