"""Names a device so that its runs come together, whenever and wherever they are added."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.targets.registry import find_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.run.runner_result import Cpu

_PASSING_SERIAL: Final = re.compile(r".*:\d+|emulator-\d+")
"""Serials that say how a device is connected now, not which it is."""


@dataclass(frozen=True)
class Device:
    """What the history says of a device."""

    name: str
    kind: str
    soc: str | None


def identify_device(
    platform: str, target: Mapping[str, object], cpu: Cpu | None, name: str | None = None
) -> Device:
    """Names the device of a run; `name` is what its owner calls it.

    A phone is its make, model and serial. A computer is its CPU, cores and system, which two
    computers may share: runs of unlike computers are told apart by `name` only.
    """
    found = find_kind(platform)
    kind = found.history_name if found else "local"
    if kind == "android":
        return Device(name or _phone(target), kind, _join(target, "soc_manufacturer", "soc_model"))
    if kind == "emulator":
        emulator = _join(target, "emulator", "emulated_cpu") or "emulator"
        return Device(name or emulator, kind, None)
    model = _cpu_name(cpu) if cpu else _join(target, "machine")
    cores = cpu.logical_cores if cpu else target.get("logical_cores")
    facts = (model, f"{cores} cores" if cores else None, _join(target, "system"))
    return Device(name or ", ".join(fact for fact in facts if fact) or platform, kind, model)


def _cpu_name(cpu: Cpu) -> str:
    """Names the CPU; its maker may pad the name with spaces."""
    return " ".join((cpu.model_name or cpu.architecture).split())


def _phone(target: Mapping[str, object]) -> str:
    serial = str(target.get("serial") or "")
    known = _join(target, "manufacturer", "model") or "Android device"
    return known if not serial or _PASSING_SERIAL.fullmatch(serial) else f"{known} ({serial})"


def _join(target: Mapping[str, object], *keys: str) -> str | None:
    return " ".join(str(target[key]) for key in keys if target.get(key)) or None
