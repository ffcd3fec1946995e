"""Another process that has a device, as a measurement has it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.targets.device_lock import MeasuredDevice

_PROGRAM = """
import sys
from etprof.targets.device_lock import MeasuredDevice, device_lock
device = MeasuredDevice(sys.argv[1], sys.argv[2])
sys.argv = ["/usr/bin/etprof", "bench", "--store", "postgresql://me:secret@host/db"]
with device_lock(device, print):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(device: MeasuredDevice) -> Iterator[subprocess.Popen[bytes]]:
    """Keeps the device in another process, which calls itself `etprof bench`."""
    command = [sys.executable, "-c", _PROGRAM, device.key, device.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()
