"""Which devices are attached, and which one is meant."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Final

from etprof.base.errors import TargetError, UsageError
from etprof.base.text import clean
from etprof.targets.android.adb import Adb, last_line, run_adb
from etprof.targets.device_lock import MeasuredDevice

READY: Final = "device"
_WAIT_S: Final = 5.0
_WAYS_OUT: Final = {
    "unauthorized": "unlock it and confirm `Allow USB debugging` for this computer",
    "authorizing": "wait for its answer, or unlock it and confirm `Allow USB debugging`",
    "offline": "replug it, or run `adb reconnect offline`",
    "no permissions": "this user may not use its USB port: add a udev rule (Debian: the package "
    "android-sdk-platform-tools-common), then replug it",
    "recovery": "start it into Android",
    "sideload": "start it into Android",
    "bootloader": "start it into Android",
}


@dataclass(frozen=True)
class AttachedDevice:
    """One line of `adb devices -l`."""

    serial: str
    state: str
    """`device` when it is ready."""
    model: str | None = None

    @property
    def text(self) -> str:
        """Serial, state and model for people."""
        return f"{self.serial} ({', '.join(filter(None, (self.state, self.model)))})"


def list_devices() -> list[AttachedDevice]:
    """Returns all devices that adb knows, whatever their state; raises TargetError."""
    done = run_adb("devices", "-l")
    if done.exit_code != 0:
        msg = f"adb cannot list the devices: {last_line(done)}; try `adb kill-server`"
        raise TargetError(msg)
    return parse_devices(done.stdout)


def parse_devices(text: str) -> list[AttachedDevice]:
    """Reads `adb devices -l`; lines of adb's own server are left out."""
    found = []
    for line in text.splitlines():
        match = re.match(r"(\S+)\s+(\w+(?: permissions)?)\b(.*)", line)
        if match is None or line.startswith(("*", "List of devices", "adb ")):
            continue
        model = re.search(r"\bmodel:(\S+)", match[3])
        found.append(AttachedDevice(clean(match[1]), match[2], clean(model[1]) if model else None))
    return found


def connect(address: str) -> str:
    """Connects to a device on the network and returns its serial, HOST:PORT.

    adb ends with 0 even when it fails, so its words decide. Raises TargetError.
    """
    serial = address if re.search(r":\d+$", address) else f"{address}:5555"
    if serial.startswith("-"):
        msg = f"{address!r} is not HOST:PORT"
        raise UsageError(msg)
    done = run_adb("connect", serial)
    if re.search(r"^(already )?connected to", done.stdout, re.MULTILINE) is None:
        msg = (
            f"cannot connect to {serial}: {last_line(done)}; is wireless debugging on, and has the "
            f"device paired with this computer (`adb pair`)?"
        )
        raise TargetError(msg)
    return serial


def reconnect(serial: str) -> None:
    """Asks for a new connection to a device that went away; whether it comes shows later.

    adb keeps a dead connection to a network address for many seconds, unless it is told.
    """
    if ":" in serial:
        run_adb("disconnect", serial, timeout_s=10)
        run_adb("connect", serial, timeout_s=10)
    else:
        run_adb("reconnect", "offline", timeout_s=10)


def choose_device(serial: str | None = None) -> Adb:
    """Returns the device `serial`, ANDROID_SERIAL's, or the only one, ready for commands.

    Raises UsageError when that is none or several, TargetError when it is not ready.
    """
    wanted = serial or os.environ.get("ANDROID_SERIAL")
    deadline = time.monotonic() + _WAIT_S
    while True:
        chosen = _pick(list_devices(), wanted)
        settling = chosen.state in {"offline", "authorizing", "connecting"}
        if not settling or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if chosen.state != READY:
        way_out = _WAYS_OUT.get(chosen.state, "see `adb devices -l`")
        msg = f"device {chosen.serial} is {chosen.state}: {way_out}"
        raise TargetError(msg)
    return Adb(chosen.serial)


def own_serial(adb: Adb) -> str:
    """Returns the device's own serial number, however it is attached; adb's where it has none."""
    return adb.shell("getprop ro.serialno").stdout.strip() or adb.serial


def lockable_device(adb: Adb) -> MeasuredDevice:
    """Returns what to lock while something is measured on the device, or changed."""
    return MeasuredDevice(f"android_{own_serial(adb)[:150]}", f"device {clean(adb.serial)}")


def _pick(devices: list[AttachedDevice], wanted: str | None) -> AttachedDevice:
    """Returns the one device that is meant; raises UsageError."""
    listed = ", ".join(device.text for device in devices) or "none"
    if wanted is not None:
        for device in devices:
            if device.serial == wanted:
                return device
        msg = f"device {wanted} is not attached; attached: {listed}"
        raise UsageError(msg)
    if not devices:
        msg = (
            "no Android device is attached; allow USB debugging on one and plug it in, or connect "
            "to one on the network: `etprof device list --connect HOST:PORT`"
        )
        raise UsageError(msg)
    if len(devices) > 1:
        msg = f"{len(devices)} devices are attached: {listed}; choose one with --serial"
        raise UsageError(msg)
    return devices[0]
