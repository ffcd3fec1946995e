"""Which device it is and what state it is in, by its own account."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from etprof.base.errors import TargetError
from etprof.base.text import clean
from etprof.targets.android.profiles import profile_in_force, read_settings
from etprof.targets.state import (
    GOVERNOR,
    STATE_FILES,
    TargetState,
    core_files,
    frequencies_khz,
    governor_of,
    is_temperature,
    state_from_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from etprof.targets.android.adb import Adb

_PROPERTIES: Final = {
    "manufacturer": "ro.product.manufacturer",
    "model": "ro.product.model",
    "soc_manufacturer": "ro.soc.manufacturer",
    "soc_model": "ro.soc.model",
    "board": "ro.board.platform",
    "hardware": "ro.hardware",
    "android_version": "ro.build.version.release",
    "android_api_level": "ro.build.version.sdk",
    "android_build": "ro.build.fingerprint",
    "abi": "ro.product.cpu.abi",
}
_FREQUENCIES: Final = {
    "max_frequency_khz": "cpuinfo_max_freq",
    "scaling_max_khz": "scaling_max_freq",
    "scaling_min_khz": "scaling_min_freq",
}
"""cpufreq's files of each core that stay the same."""
_CHARGERS: Final = {"AC": "ac", "USB": "usb", "Wireless": "wireless", "Dock": "dock"}
_THERMAL: Final = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
_SENSOR: Final = re.compile(
    r"Temperature\{mValue=(-?\d+\.?\d*), mType=(\d+), mName=([^,{}]{1,60}), mStatus=\d+\}"
)
_NO_TEMPERATURES: Final = {"6", "7", "8"}
"""Sensor types of the battery's voltage, current and charge, which are listed among them."""


def read_api_level(adb: Adb) -> int | None:
    """Returns the API level of the device's Android; None where it does not say."""
    return parse_api_level(adb.shell(f"getprop {_PROPERTIES['android_api_level']}").stdout)


def parse_api_level(answer: object) -> int | None:
    """Returns the number in what a device says of its API level; None for anything else."""
    text = answer.strip() if isinstance(answer, str) else ""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,3}", text) else None


def describe_device(adb: Adb) -> dict[str, object]:
    """Returns identity, cores, battery, heat and profile; None for what the device hides."""
    sections = _run_all(
        adb,
        {
            "properties": "\n".join(f"getprop {name}" for name in _PROPERTIES.values()),
            "kernel": "uname -r",
            "cores": "cat /sys/devices/system/cpu/possible",
            "files": _grep([*map(core_files, _FREQUENCIES.values()), core_files(GOVERNOR)]),
            "battery": "dumpsys battery",
            "thermal": "dumpsys thermalservice",
        },
    )
    files = parse_files(sections["files"])
    values = [*sections["properties"].split("\n"), *[""] * len(_PROPERTIES)]
    return {
        "serial": clean(adb.serial),
        **{key: _known(value) for key, value in zip(_PROPERTIES, values, strict=False)},
        "kernel": _known(sections["kernel"]),
        "logical_cores": _count_cores(sections["cores"]),
        **{key: list(frequencies_khz(files, name)) or None for key, name in _FREQUENCIES.items()},
        "frequency_governor": governor_of(files),
        "battery": parse_battery(sections["battery"]),
        "thermal_status": parse_thermal_status(sections["thermal"]),
        **_describe_profile(adb),
    }


def read_device_state(adb: Adb) -> TargetState:
    """Reads what may change between launches, in one go."""
    sections = _run_all(adb, {"files": _grep(STATE_FILES), "thermal": "dumpsys thermalservice"})
    return state_from_files(
        parse_files(sections["files"]),
        sensors_c=parse_sensors(sections["thermal"]),
        thermal_status=parse_thermal_status(sections["thermal"]),
    )


def _run_all(adb: Adb, scripts: Mapping[str, str]) -> dict[str, str]:
    """Runs several scripts in one connection; returns what each printed, failed or not."""
    mark = f"etprof-{secrets.token_hex(8)}"
    joined = "\n".join(
        f"( {script}\n) 2>/dev/null; echo; echo {mark}" for script in scripts.values()
    )
    outputs = adb.shell(joined).stdout.split(f"\n{mark}\n")
    texts = [output.rstrip("\n") for output in [*outputs, *[""] * len(scripts)]]
    return dict(zip(scripts, texts, strict=False))


def _grep(patterns: Iterable[str]) -> str:
    """Returns the command that prints `path:line` of all files: one process, however many."""
    return f"grep -Hsm 1 '' {' '.join(patterns)}"


def parse_files(text: str) -> dict[str, str]:
    """Reads lines of `path:first line`; anything else is left out."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {path: clean(value.strip()) for path, _, value in pairs if path.startswith("/")}


def parse_battery(text: str) -> dict[str, object] | None:
    """Reads `dumpsys battery`; temperature there is in tenths of a degree."""
    fields = dict(re.findall(r"^ {2}([A-Za-z ]{1,40}): (\S{1,40})$", text, re.MULTILINE))
    level, temperature = _number(fields.get("level")), _number(fields.get("temperature"))
    if level is None and temperature is None:
        return None
    chargers = [n for label, n in _CHARGERS.items() if fields.get(f"{label} powered") == "true"]
    return {
        "level_percent": level,
        "temperature_c": None if temperature is None else temperature / 10,
        "plugged": ",".join(chargers) or "no",
    }


def parse_thermal_status(text: str) -> str | None:
    """Reads the status line of `dumpsys thermalservice`; None before Android 10."""
    match = re.search(r"^Thermal Status: (\d)$", text, re.MULTILINE)
    return _THERMAL[int(match[1])] if match and int(match[1]) < len(_THERMAL) else None


def parse_sensors(text: str) -> dict[str, float]:
    """Reads the current temperatures in °C of `dumpsys thermalservice`, not its cached ones."""
    current = text.partition("Current temperatures from HAL:")[2].partition("Current cooling")[0]
    temperatures_c = {
        clean(name): float(value)
        for value, kind, name in _SENSOR.findall(current)
        if kind not in _NO_TEMPERATURES
    }
    return {name: value for name, value in temperatures_c.items() if is_temperature(value)}


def _known(text: str | None) -> str | None:
    """Cleans what a device says; None for nothing, which is how Android shows a missing property."""
    return clean(text.strip()) or None if text is not None else None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,9}", text) else None


def _count_cores(text: str) -> int | None:
    """Reads the kernel's list of cores, such as `0-7`."""
    match = re.fullmatch(r"0(?:-(\d{1,4}))?", text.strip())
    return int(match[1] or 0) + 1 if match else None


def _describe_profile(adb: Adb) -> dict[str, object]:
    """Returns the profile in force and the settings behind it; None when they are not shown."""
    try:
        settings = read_settings(adb)
    except TargetError:
        return {"profile": None, "settings": None}
    return {"profile": profile_in_force(settings), "settings": settings}
