"""Which device is meant, and adb's commands for it: the device's failures are told from adb's own."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.base.errors import EtprofError, OutputError, TargetError, UsageError
from etprof.base.process import ProgramNotFoundError, ProgramTimeoutError, run_command
from etprof.base.text import as_operand, clean
from etprof.targets.device_lock import MeasuredDevice
from etprof.targets.policy import RequiredPart

if TYPE_CHECKING:
    from etprof.base.process import Completed


READY: Final = "device"
COMMAND_TIMEOUT_S: Final = 60.0
_LEAST_BYTES_PER_S: Final = 500_000
"""A copy slower than this has stopped."""
_LOST = re.compile(
    r"device '[^']*' not found|device offline|no devices|connect failed|\bEOF\b|closed"
    r"|connection (reset|refused)|protocol fault|broken pipe|failed to read copy response",
    re.IGNORECASE,
)


class DeviceLostError(TargetError):
    """The device went away, or stopped answering, in the middle of a command."""


class DeviceFullError(TargetError):
    """The device has no room for a file."""


@dataclass(frozen=True)
class ShellResult:
    """A command that ended on the device."""

    exit_code: int
    """As the device's shell shows it: 128 + n for signal n."""
    stdout: str
    stderr: str

    def reason(self, otherwise: str = "no reason given") -> str:
        """The last thing that it complained of."""
        return (self.stderr.strip().splitlines() or [otherwise])[-1]


def find_adb() -> str:
    """Returns adb of the PATH, else the Android SDK's; raises ProgramNotFoundError."""
    if path := shutil.which("adb"):
        return path
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        program = Path(os.environ.get(variable, "")) / "platform-tools" / "adb"
        if variable in os.environ and os.access(program, os.X_OK):
            return str(program)
    raise ProgramNotFoundError(
        "there is no adb; install Android's platform-tools (Debian and Ubuntu: `apt install adb`) "
        "or set ANDROID_HOME"
    )


def find_parts() -> list[RequiredPart]:
    """Says whether adb is there."""
    try:
        path, problem = Path(find_adb()), None
    except ProgramNotFoundError:
        path, problem = None, "not found; needed for Android phones"
    return [RequiredPart("adb", path, problem, "apt install adb")]


def run_adb(
    *arguments: str | Path, timeout_s: float = COMMAND_TIMEOUT_S, sees_our_end: bool = False
) -> Completed:
    """Runs adb itself, for no device in particular."""
    return run_command([find_adb(), *arguments], timeout_s=timeout_s, sees_our_end=sees_our_end)


@dataclass(frozen=True)
class Adb:
    """One device."""

    serial: str

    def run(
        self,
        *arguments: str | Path,
        timeout_s: float = COMMAND_TIMEOUT_S,
        sees_our_end: bool = False,
    ) -> Completed:
        """Runs one adb command for this device, whatever its exit code."""
        arguments = ("-s", self.serial, *arguments)
        return run_adb(*arguments, timeout_s=timeout_s, sees_our_end=sees_our_end)

    def state(self) -> str:
        """Returns `device` when it is ready, else what adb says of it."""
        try:
            done = self.run("get-state", timeout_s=10)
        except ProgramTimeoutError:
            return "silent"
        return done.stdout.strip() or done.stderr.strip().removeprefix("error: ") or "unknown"

    def shell(
        self, script: str, *, timeout_s: float = COMMAND_TIMEOUT_S, sees_our_end: bool = False
    ) -> ShellResult:
        """Runs a shell script on the device and returns how it ended.

        With `sees_our_end` its standard input ends when this process or the connection does.

        adb's exit code does not tell a failed script from a failed adb, so the script's own is
        printed at its end. Raises DeviceLostError when that never came, and ProgramTimeoutError.
        """
        mark = f"etprof-{secrets.token_hex(8)}"
        command = f"( {script}\n)\nprintf '\\n%s %s\\n' {mark} $?"
        try:
            done = self.run("shell", command, timeout_s=timeout_s, sees_our_end=sees_our_end)
        except ProgramTimeoutError as error:
            msg = f"device {self.serial} did not answer within {timeout_s:g} s; is it frozen?"
            raise ProgramTimeoutError(msg) from error
        head, separator, tail = done.stdout.rpartition(f"\n{mark} ")
        code = tail.strip()
        if not separator or not code.isascii() or not code.isdecimal():
            reason = last_line(done) or "it stopped answering"
            raise DeviceLostError(f"device {self.serial} was lost: {reason}")
        return ShellResult(int(code), head, done.stderr)

    def push(self, local: Path, remote: str) -> None:
        """Copies a file to the device. Raises DeviceFullError, DeviceLostError, TargetError."""
        full = DeviceFullError(
            f"device {self.serial} has no room for {local}; free space on it "
            f"(`etprof device clean` removes etprof's files) or choose another remote folder"
        )
        failure = f"{local} could not be copied to device {self.serial}"
        self._copy(("push", as_operand(str(local)), remote), local.stat().st_size, full, failure)

    def pull(self, remote: str, local: Path, *, size_bytes: int) -> None:
        """Copies a file from the device to `local`. Raises OutputError, DeviceLostError."""
        full = OutputError(
            f"cannot write {local}: No space left on device; free space or choose another folder"
        )
        failure = f"{remote} could not be copied from device {self.serial}"
        self._copy(("pull", remote, as_operand(str(local))), size_bytes, full, failure)

    def _copy(
        self, arguments: tuple[str, ...], size_bytes: int, full: EtprofError, failure: str
    ) -> None:
        """Runs adb with `arguments`; raises `full`, DeviceLostError, or TargetError with `failure`."""
        lost = f"device {self.serial} was lost"
        try:
            done = self.run(
                *arguments, timeout_s=COMMAND_TIMEOUT_S + size_bytes / _LEAST_BYTES_PER_S
            )
        except ProgramTimeoutError as error:
            raise DeviceLostError(
                f"{lost}: it stopped answering while {arguments[1]} was copied"
            ) from error
        if done.exit_code == 0:
            return
        if "No space left" in done.stdout + done.stderr:
            raise full
        reason = last_line(done)
        if _LOST.search(reason) or self.state() != READY:
            raise DeviceLostError(f"{lost}: {reason}")
        raise TargetError(f"{failure}: {reason}")


def last_line(done: Completed) -> str:
    """Returns the last thing that adb lines_said, without its prefixes."""
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines()]
    lines_said = [line for line in lines if line and "bytes in" not in line]
    return re.sub(r"^(adb: )?(error: )?", "", lines_said[-1]) if lines_said else ""


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
        raise TargetError(f"adb cannot list the devices: {last_line(done)}; try `adb kill-server`")
    return parse_devices(done.stdout)


def parse_devices(text: str) -> list[AttachedDevice]:
    """Reads `adb devices -l`; lines of adb's own server are left out."""
    devices = []
    for line in text.splitlines():
        match = re.match(r"(\S+)\s+(\w+(?: permissions)?)\b(.*)", line)
        if match is None or line.startswith(("*", "List of devices", "adb ")):
            continue
        model = re.search(r"\bmodel:(\S+)", match[3])
        devices.append(
            AttachedDevice(clean(match[1]), match[2], clean(model[1]) if model else None)
        )
    return devices


def connect(address: str) -> str:
    """Connects to a device on the network and returns its serial, HOST:PORT.

    adb ends with 0 even when it fails, so its words decide. Raises TargetError.
    """
    serial = address if re.search(r":\d+$", address) else f"{address}:5555"
    if serial.startswith("-"):
        raise UsageError(f"{address!r} is not HOST:PORT")
    done = run_adb("connect", serial)
    if re.search(r"^(already )?connected to", done.stdout, re.MULTILINE) is None:
        raise TargetError(
            f"cannot connect to {serial}: {last_line(done)}; is wireless debugging on, and has the "
            f"device paired with this computer (`adb pair`)?"
        )
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

    Raises UsageError when that is one of several, TargetError when there is none or it is not ready.
    """
    requested_serial = serial or os.environ.get("ANDROID_SERIAL") or None
    deadline = time.monotonic() + _WAIT_S
    while True:
        device = _pick(list_devices(), requested_serial)
        settling = device.state in {"offline", "authorizing", "connecting"}
        if not settling or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if device.state != READY:
        way_out = _WAYS_OUT.get(device.state, "see `adb devices -l`")
        raise TargetError(f"device {device.serial} is {device.state}: {way_out}")
    return Adb(device.serial)


def own_serial(adb: Adb) -> str:
    """Returns the device's own serial number, however it is attached; adb's where it has none."""
    return adb.shell("getprop ro.serialno").stdout.strip() or adb.serial


def lockable_device(adb: Adb) -> MeasuredDevice:
    """Returns what to lock while something is measured on the device, or changed."""
    return MeasuredDevice(f"android_{own_serial(adb)[:150]}", f"device {clean(adb.serial)}")


def _pick(devices: list[AttachedDevice], serial: str | None) -> AttachedDevice:
    """Returns the one device that is meant; raises TargetError without it, UsageError for several."""
    listed = ", ".join(device.text for device in devices) or "none"
    if serial is not None:
        for device in devices:
            if device.serial == serial:
                return device
        raise TargetError(f"device {serial} is not attached; attached: {listed}")
    if not devices:
        raise TargetError(
            "no Android device is attached; allow USB debugging on one and plug it in, or connect "
            "to one on the network: `etprof device list --connect HOST:PORT`"
        )
    if len(devices) > 1:
        raise UsageError(f"{len(devices)} devices are attached: {listed}; choose one with --serial")
    return devices[0]
