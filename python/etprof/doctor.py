"""Finds out what this machine can do, and how to get the rest."""

from __future__ import annotations

import importlib
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

import etprof
from etprof.base.errors import EtprofError
from etprof.base.json_input import parse_json
from etprof.base.process import run_command
from etprof.base.units import format_size
from etprof.targets.registry import find_parts
from etprof.targets.runner import ask_host_runner, read_cpu

Status = Literal["ok", "missing", "note"]
_LEAST_CMAKE = (3, 28)
_LEAST_FREE_BYTES = 2 * 2**30
_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Finding:
    """What is known of one part, and what to do when it is not there."""

    part: str
    status: Status
    detail: str
    way_out: str | None = None


def examine() -> list[Finding]:
    """Examines every part; none of them stops the others."""
    checks: tuple[Callable[[], Finding], ...] = (
        _check_python,
        _check_reader,
        _check_runner,
        _check_sme2,
        _check_executorch,
        _check_torch,
        _check_cmake,
        _check_compiler,
        _check_disk,
    )
    return [check() for check in checks] + _check_target_parts()


def _check_python() -> Finding:
    detail = f"etprof {etprof.__version__} on Python {platform.python_version()}"
    return Finding("etprof", "ok", f"{detail}, {platform.system()} {platform.machine()}")


def _check_reader() -> Finding:
    part = "ETDump reader"
    try:
        importlib.import_module("etprof.etdump.reader")
    except EtprofError as error:
        return Finding(part, "missing", str(error), "pip install .")
    return Finding(part, "ok", "native")


def _ask_runner(flag: str) -> dict[str, object]:
    """Returns the JSON that the runner prints for `flag`."""
    completed = ask_host_runner([flag], timeout_s=30)
    document = parse_json(completed.stdout)
    return document if isinstance(document, dict) else {}


def _check_runner() -> Finding:
    part = "etprof-runner"
    try:
        build = _ask_runner("--build-info")
    except (EtprofError, ValueError) as error:
        return Finding(part, "missing", str(error), "pip install .")
    built = build.get("build", build)
    detail = "built for this machine"
    if isinstance(built, dict):
        detail += f" against ExecuTorch {built.get('executorch_version', '?')}"
    return Finding(part, "ok", detail)


def _check_sme2() -> Finding:
    part = "SME2"
    try:
        has_sme2 = read_cpu(ask_host_runner(["--cpu-info"], timeout_s=30).stdout).has_sme2
    except (EtprofError, ValueError) as error:
        return Finding(part, "missing", str(error), "pip install .")
    if has_sme2:
        return Finding(part, "ok", "this CPU has it: on and off can be measured here")
    way_out = "measure on an SME2 phone or Mac; the emulator proves kernels, not times"
    return Finding(part, "note", f"not in this {platform.machine()} CPU", way_out)


def _pinned(package: str) -> str | None:
    """Returns the requirement on `package` that etprof was installed with."""
    for requirement in requires("etprof") or ():
        if re.match(rf"{package}\b", requirement):
            return requirement
    return None


def _check_package(package: str, gives: str) -> Finding:
    needed = _pinned(package) or package
    try:
        found = version(package)
    except PackageNotFoundError:
        return Finding(package, "missing", f"{gives} needs it", f"pip install '{needed}'")
    return Finding(package, "ok", f"{found} (wanted: {needed})")


def _check_executorch() -> Finding:
    return _check_package("executorch", "export")


def _check_torch() -> Finding:
    return _check_package("torch", "export")


def _check_cmake() -> Finding:
    part, way_out = "CMake", "pip install 'cmake>=3.28'"
    needed = "only to build runners from a checkout"
    program = shutil.which("cmake")
    if program is None:
        return Finding(part, "note", f"not found; needed {needed}", way_out)
    match = re.search(r"(\d+)\.(\d+)", run_command([program, "--version"], timeout_s=30).stdout)
    if match is None or (int(match[1]), int(match[2])) < _LEAST_CMAKE:
        found = match[0] if match else "unknown version"
        return Finding(part, "note", f"{found} is too old; needed {needed}", way_out)
    return Finding(part, "ok", f"{match[0]} at {program}")


def _check_compiler() -> Finding:
    part = "C++ compiler"
    for name in _COMPILERS:
        if path := shutil.which(name):
            return Finding(part, "ok", path)
    way_out = "apt install g++" if sys.platform == "linux" else "xcode-select --install"
    return Finding(part, "note", "not found; needed only to build runners from a checkout", way_out)


def _check_target_parts() -> list[Finding]:
    """Reports what targets need beside etprof; none is needed to measure on this machine."""
    return [
        Finding(part.name, "ok", str(part.path))
        if part.path
        else Finding(part.name, "note", part.problem or "not set up", part.way_out)
        for part in find_parts()
    ]


def _check_disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    detail = f"{format_size(free)} free in this folder"
    if free < _LEAST_FREE_BYTES:
        return Finding("Disk", "note", detail, "exports and runs of large models need more")
    return Finding("Disk", "ok", detail)
