"""One loopback device: adbd in the private network, with its own /sys and its own commands."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.android_device.network import wait_until

if TYPE_CHECKING:
    from tests.android_device.network import Network
    from tests.android_device.packages import Daemon

COMMANDS = Path(__file__).parent / "commands"
SMALL_FOLDER_BYTES = 1_000_000


class LoopbackDevice:
    """A device at 127.0.0.1:PORT that can be unplugged and plugged in again."""

    def __init__(self, network: Network, daemon: Daemon, folder: Path, port: int) -> None:
        self.serial = f"127.0.0.1:{port}"
        self.folder = folder
        self.root = folder / "data" / "etprof"
        self.small_folder = folder / "small"
        """A file system of SMALL_FOLDER_BYTES, seen by the device alone."""
        self.state = folder / "state"
        self._network = network
        self._daemon = daemon
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._make_folders()
        self.plug_in()

    def _make_folders(self) -> None:
        for part in ("data", "small", "state"):
            (self.folder / part).mkdir(parents=True)
        self.forget_state()
        cpu = self.folder / "sys" / "cpu"
        last = (os.cpu_count() or 1) - 1
        for name in ("possible", "present", "online"):
            self.write(cpu / name, f"0-{last}" if last else "0")
        for core in range(last + 1):
            frequencies = cpu / f"cpu{core}" / "cpufreq"
            self.write(frequencies / "scaling_cur_freq", str(1_800_000 + core))
            self.write(frequencies / "cpuinfo_max_freq", "2800000")
            self.write(frequencies / "scaling_governor", "schedutil")
        zone = self.folder / "sys" / "thermal" / "thermal_zone0"
        self.write(zone / "type", "cpu-0-0-usr")
        self.write(zone / "temp", "41200")

    def forget_state(self) -> None:
        """No settings, an empty log, and no property but the serial number."""
        shutil.rmtree(self.state)
        for part in ("settings", "properties", "dumpsys"):
            (self.state / part).mkdir(parents=True)
        (self.state / "log").touch()
        self.set_property("ro.serialno", f"LOOPBACK{self._port}")

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def set_property(self, name: str, value: str) -> None:
        self.write(self.state / "properties" / name, value)

    def set_dumpsys(self, service: str, text: str) -> None:
        self.write(self.state / "dumpsys" / service, text)

    def setting(self, name: str) -> str | None:
        path = self.state / "settings" / name
        return path.read_text().strip() if path.exists() else None

    def plug_in(self) -> None:
        """Starts adbd and waits until adb's server has the device."""
        script = f"""
mount --bind {shlex.quote(str(self.folder / "sys/cpu"))} /sys/devices/system/cpu
mount --bind {shlex.quote(str(self.folder / "sys/thermal"))} /sys/class/thermal
mount -t tmpfs -o size={SMALL_FOLDER_BYTES} small {shlex.quote(str(self.small_folder))}
exec {shlex.quote(str(self._daemon.program))}"""
        with (self.folder / "adbd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._network.enter_words(), "sh", "-ec", script],
                cwd=self.folder,
                env={
                    "PATH": f"{COMMANDS}:/usr/sbin:/usr/bin:/sbin:/bin",
                    "LD_LIBRARY_PATH": self._daemon.libraries,
                    "ADBD_PORT": str(self._port),
                    "DEVICE_STATE": str(self.state),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        log_file = self.folder / "adbd.log"
        wait_until(self._is_reachable, f"adbd did not start: see {log_file}")

    def _is_reachable(self) -> bool:
        if self.is_attached():
            return True
        adb("disconnect", self.serial)
        adb("connect", self.serial)
        return adb("-s", self.serial, "get-state").strip() == "device"

    def is_attached(self) -> bool:
        """Whether adb's server has it."""
        return "device" in adb("-s", self.serial, "get-state")

    def empty_small_folder(self) -> None:
        """Frees the small file system."""
        adb("-s", self.serial, "shell", f"rm -rf {shlex.quote(str(self.small_folder))}/*")

    def unplug(self) -> None:
        """Kills adbd without warning; what it started goes on, as an orphan."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.unplug()
        adb("disconnect", self.serial)
        shutil.rmtree(self.folder)


class UnauthorizedDevice:
    """A device that has not allowed this computer: the real adbd here never refuses."""

    def __init__(self, network: Network, port: int) -> None:
        self.serial = f"127.0.0.1:{port}"
        script = Path(__file__).parent / "refusing_daemon.py"
        self._process = subprocess.Popen(
            [*network.enter_words(), sys.executable, script, str(port)], stdin=subprocess.DEVNULL
        )
        wait_until(self._is_listed, "the refusing device did not start")

    def _is_listed(self) -> bool:
        adb("connect", self.serial)
        return f"{self.serial}\tunauthorized" in adb("devices")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        adb("disconnect", self.serial)


def adb(*words: str) -> str:
    """Runs adb; returns what it printed, whatever its exit code."""
    done = subprocess.run(["adb", *words], capture_output=True, check=False, text=True, timeout=60)
    return done.stdout
