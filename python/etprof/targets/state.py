"""What may change between launches: frequencies, governor, temperatures, load, throttling.

The kernel shows the same files on Linux and Android, so both are read by the same list of
patterns and understood by the same function; only the way to the files differs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from etprof.base.process import ProgramNotFoundError, ProgramTimeoutError, run_command
from etprof.base.text import clean

GOVERNOR: Final = "scaling_governor"


def core_files(name: str) -> str:
    """Returns the pattern of cpufreq's file `name` of every core."""
    return f"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}"


STATE_FILES: Final = (
    core_files("scaling_cur_freq"),
    core_files(GOVERNOR),
    "/sys/class/thermal/thermal_zone[0-9]*/type",
    "/sys/class/thermal/thermal_zone[0-9]*/temp",
    "/proc/loadavg",
)
"""Patterns of the files that hold the state; any of them may be missing or unreadable."""

_CORE = re.compile(r"/cpu(\d{1,4})/cpufreq/(\w+)$")
_ZONE = re.compile(r"/thermal_zone(\d{1,4})/(type|temp)$")
_HIGHEST_CORE: Final = 1023
_HOTTEST_C: Final = 150.0


@dataclass(frozen=True, kw_only=True)
class TargetState:
    """The state of a target at one moment; what it does not show is None or empty."""

    frequency_khz: tuple[int | None, ...] = ()
    """By core; empty when no core shows one."""
    governor: str | None = None
    """Of all cores; several are joined by commas, in order of their names."""
    temperatures_c: dict[str, float] = field(default_factory=dict)
    """By name of the sensor."""
    load_average: tuple[float, float, float] | None = None
    """Over 1, 5 and 15 minutes."""
    thermal_status: str | None = None
    """How much the system throttles by its own account, such as `none` or `severe`."""


def read_local_state() -> TargetState:
    """Reads this machine's state."""
    if sys.platform == "darwin":
        return TargetState(load_average=os.getloadavg(), thermal_status=_mac_thermal_status())
    return state_from_files(read_files(STATE_FILES))


def read_files(patterns: Iterable[str]) -> dict[str, str]:
    """Returns the first line of every readable file that matches, by path."""
    lines = {}
    for pattern in patterns:
        for path in sorted(Path("/").glob(pattern.removeprefix("/"))):
            line = _read_line(path)
            if line is not None:
                lines[str(path)] = line
    return lines


def _read_line(path: Path) -> str | None:
    """Returns the first line; None for a file that cannot be read, as some sensors' cannot."""
    try:
        return clean(path.read_text(errors="replace").partition("\n")[0].strip())
    except OSError:
        return None


def state_from_files(
    files: Mapping[str, str],
    *,
    sensors_c: Mapping[str, float] | None = None,
    thermal_status: str | None = None,
) -> TargetState:
    """Understands `files`, first lines by path; `sensors_c` are temperatures from elsewhere."""
    return TargetState(
        frequency_khz=frequencies_khz(files, "scaling_cur_freq"),
        governor=governor_of(files),
        temperatures_c={**_zone_temperatures_c(files), **(sensors_c or {})},
        load_average=_load_average(files.get("/proc/loadavg", "")),
        thermal_status=thermal_status,
    )


def by_core(files: Mapping[str, str], name: str) -> tuple[str | None, ...]:
    """Returns cpufreq's file `name` of every core; empty when no core has it."""
    values = {
        int(match[1]): value
        for path, value in files.items()
        if (match := _CORE.search(path)) and match[2] == name and int(match[1]) <= _HIGHEST_CORE
    }
    return tuple(values.get(core) for core in range(max(values) + 1)) if values else ()


def governor_of(files: Mapping[str, str]) -> str | None:
    """Returns the governor of all cores; several are joined by commas."""
    return ",".join(sorted({text for text in by_core(files, GOVERNOR) if text})) or None


def frequencies_khz(files: Mapping[str, str], name: str) -> tuple[int | None, ...]:
    """Returns cpufreq's file `name` of every core as a number; None for one that is none."""
    return tuple(
        int(text) if text and re.fullmatch(r"\d{1,9}", text) else None
        for text in by_core(files, name)
    )


def is_temperature(value_c: float) -> bool:
    """Whether a sensor can mean it: one that is switched off reads 0 or absolute zero."""
    return 0 < value_c <= _HOTTEST_C


def _zone_temperatures_c(files: Mapping[str, str]) -> dict[str, float]:
    """Joins type and temp of each zone; zones of one name are told apart by their number."""
    zones: dict[str, dict[str, str]] = {}
    for path, value in files.items():
        if match := _ZONE.search(path):
            zones.setdefault(match[1], {})[match[2]] = value
    temperatures: dict[str, float] = {}
    for number, zone in sorted(zones.items(), key=lambda item: int(item[0])):
        text = zone.get("temp", "")
        if re.fullmatch(r"-?\d{1,9}", text) and is_temperature(int(text) / 1000):
            name = zone.get("type") or f"zone {number}"
            unique = f"{name} {number}" if name in temperatures else name
            temperatures[unique] = int(text) / 1000
    return temperatures


def _load_average(text: str) -> tuple[float, float, float] | None:
    """Reads /proc/loadavg, such as `0.20 0.18 0.12 1/80 11206`."""
    match = re.match(r"(\d+\.\d+) (\d+\.\d+) (\d+\.\d+)\b", text)
    return (float(match[1]), float(match[2]), float(match[3])) if match else None


def _mac_thermal_status() -> str | None:
    """Asks macOS whether it has throttled; None when it does not say."""
    try:
        output = run_command(["pmset", "-g", "therm"], timeout_s=10).stdout
    except (ProgramNotFoundError, ProgramTimeoutError):
        return None
    if limit := re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", output):
        return "none" if limit[1] == "100" else f"speed limit {limit[1]} %"
    return "none" if "No thermal warning level has been recorded" in output else None
