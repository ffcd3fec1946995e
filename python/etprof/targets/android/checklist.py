"""What a first measurement on a phone needs, step by step, each with its way out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.base.errors import BuildError, EtprofError, InputFileError
from etprof.base.process import ProgramNotFoundError
from etprof.base.units import format_size
from etprof.targets.android.adb import choose_device, connect, find_adb
from etprof.targets.android.identity import describe_device, parse_api_level
from etprof.targets.android.libraries import (
    check_api_level,
    check_machine,
    find_libraries,
    read_elf,
)
from etprof.targets.android.runner_ways import BUILD, find_runner_way
from etprof.targets.android.target import REMOTE_ROOT, AndroidTarget
from etprof.targets.policy import ReadinessCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from etprof.targets.android.adb import Adb

_LEAST_FREE_BYTES: Final = 2**29
"""A runner with its libraries, a program and the ETDumps of a run."""
_LEAST_CHARGE: Final = 20


def walk(serial: str | None, address: str | None, runner: Path | None) -> list[ReadinessCheck]:
    """Checks every step up to a phone that can be measured; a failed one does not stop the others."""
    checks = [_check_runner(runner), _check_adb()]
    if checks[-1].status != "ok":
        return [*checks, _skipped("adb first")]
    try:
        adb = choose_device(connect(address) if address else serial)
        facts = describe_device(adb)
    except EtprofError as error:
        return [*checks, ReadinessCheck("device", "missing", str(error), "`etprof docs android`, the first steps"),
                _skipped("a device first")]  # fmt: skip
    names = (facts.get(key) for key in ("manufacturer", "model", "soc_model", "android_version"))
    device_check = ReadinessCheck(
        "device", "ok", " ".join(str(name) for name in (adb.serial, *names) if name)
    )
    return [*checks, device_check, *_check_device(adb, facts, runner)]


def _skipped(first: str) -> ReadinessCheck:
    detail = f"not asked: {first}"
    return ReadinessCheck(
        "architecture, SME2, frequency, heat, charge, space, settings", "note", detail
    )


def _check_runner(runner: Path | None) -> ReadinessCheck:
    """The runner that was named; else what builds one."""
    if runner is not None:
        try:
            check_machine(runner)
            return ReadinessCheck(
                "runner", "ok", f"{runner}, with {len(find_libraries(runner))} libraries"
            )
        except EtprofError as error:
            return ReadinessCheck("runner", "missing", str(error), BUILD)
    detail, way_out = find_runner_way()
    return ReadinessCheck("runner", "missing", detail, way_out)


def _check_adb() -> ReadinessCheck:
    try:
        return ReadinessCheck("adb", "ok", find_adb())
    except ProgramNotFoundError as error:
        return ReadinessCheck("adb", "missing", str(error), "apt install adb")


def _check_device(
    adb: Adb, facts: Mapping[str, object], runner: Path | None
) -> Iterator[ReadinessCheck]:
    abi, governor, heat = (facts.get(k) for k in ("abi", "frequency_governor", "thermal_status"))
    if abi == "arm64-v8a":
        yield ReadinessCheck("architecture", "ok", str(abi))
    else:
        yield ReadinessCheck("architecture", "missing" if abi else "note", str(abi or "the device hides it"),
                    "runners are for arm64-v8a: take a phone of that")  # fmt: skip
    android_checks = [] if runner is None else list(_check_android(runner, facts))
    yield from android_checks
    if any(check.status == "missing" for check in android_checks):
        yield ReadinessCheck("SME2", "note", "not asked: a runner for this Android first")
    else:
        yield _check_sme2(adb, runner)
    steady = (
        "etprof interleaves the sides and records frequencies; an unrooted phone allows no more"
    )
    yield ReadinessCheck("frequency", "ok" if governor == "performance" else "note",
                f"governor {governor or 'unknown'}", None if governor == "performance" else steady)  # fmt: skip
    yield ReadinessCheck("heat", "ok" if heat == "none" else "note", f"thermal status {heat or 'unknown'}",
                None if heat == "none" else "let it cool; `cool_down_s` in a config waits")  # fmt: skip
    yield _check_charge(facts.get("battery"))
    yield _check_space(adb)
    profile = facts.get("profile")
    yield ReadinessCheck("settings", "ok" if profile else "note", f"profile {profile or 'none'}",
                None if profile else "`etprof device prepare --profile boost`")  # fmt: skip


def _check_android(runner: Path, facts: Mapping[str, object]) -> Iterator[ReadinessCheck]:
    """Whether the device's Android is new enough for a runner that says which it is built for."""
    device_level = parse_api_level(facts.get("android_api_level"))
    try:
        if read_elf(runner).android_api_level is None:
            return
        check_api_level(runner, device_level)
    except BuildError as error:
        yield ReadinessCheck("Android", "missing", str(error), "or take a phone with a newer one")
    except InputFileError:
        # What is wrong with the file is said of the runner.
        return
    else:
        is_known = device_level is not None
        detail = f"API level {device_level}" if is_known else "the device hides its API level"
        yield ReadinessCheck("Android", "ok" if is_known else "note", detail)


def _check_sme2(adb: Adb, runner: Path | None) -> ReadinessCheck:
    """Asks the runner; without one, reads the kernel's list of CPU features."""
    way_out = "on and off can be measured on a phone with SME2 alone; `etprof docs android`"
    if runner is None:
        features = adb.shell("grep -m 1 Features /proc/cpuinfo").stdout.split()
        if "sme2" in features:
            return ReadinessCheck("SME2", "ok", "the kernel lists it")
        return ReadinessCheck(
            "SME2", "note", "the kernel does not list it", f"ask with --runner; {way_out}"
        )
    try:
        modes = AndroidTarget(adb.serial, runner=runner).sme_modes()
    except EtprofError as error:
        return ReadinessCheck("SME2", "missing", str(error), "see the runner above")
    return ReadinessCheck("SME2", "ok" if "sme2" in modes else "note", f"modes {', '.join(modes)}",
                 None if "sme2" in modes else way_out)  # fmt: skip


def _check_charge(battery: object) -> ReadinessCheck:
    level = battery.get("level_percent") if isinstance(battery, dict) else None
    if level is None:
        return ReadinessCheck("charge", "note", "the device hides it")
    if level < _LEAST_CHARGE:
        return ReadinessCheck(
            "charge", "note", f"{level} %", "charge it first: a low battery slows the CPU"
        )
    return ReadinessCheck("charge", "ok", f"{level} %")


def _check_space(adb: Adb) -> ReadinessCheck:
    folder = str(Path(REMOTE_ROOT).parent)
    done = adb.shell(f"df -k {shlex.quote(folder)} | tail -n 1")
    columns = done.stdout.split()
    if len(columns) < 4 or not columns[3].isdecimal():
        return ReadinessCheck("space", "note", f"{folder}: {done.reason('df says nothing')}")
    free = int(columns[3]) * 1024
    enough = free >= _LEAST_FREE_BYTES
    return ReadinessCheck("space", "ok" if enough else "note", f"{format_size(free)} free in {folder}",
                 None if enough else "free some; `etprof device clean` removes etprof's files")  # fmt: skip
