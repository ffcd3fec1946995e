"""Finds out what this machine can do, and how to get the rest."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from etprof._version import __version__
from etprof.backends.executorch_version import (
    find_other_version,
    has_pin,
    installed_version,
    pinned_version,
)
from etprof.base.errors import EtprofError, UsageError
from etprof.base.json_input import parse_json
from etprof.base.process import run_command
from etprof.base.units import format_size
from etprof.etdump.reader import import_native
from etprof.targets.policy import ReadinessCheck
from etprof.targets.registry import find_parts, kind_of, load
from etprof.targets.runner import (
    ask_host_runner,
    check_completed,
    find_host_runner,
    packages_beside,
    read_cpu,
)

_LEAST_CMAKE = (3, 28)
_LEAST_FREE_BYTES = 2 * 2**30
_COMPILERS = ("c++", "g++", "clang++")


def examine_target(name: str, fields: Mapping[str, object]) -> list[ReadinessCheck]:
    """Walks the checklist of a kind of target; `fields` are those of a config's `target`.

    Raises UsageError for a kind without one: `examine` says of those what there is to say.
    """
    kind = kind_of(name)
    if kind.checklist is None:
        raise UsageError(f"--target {name} has no checklist; `etprof doctor` says what is there")
    walked: list[ReadinessCheck] = load(kind.checklist)(
        **{kind.takes[key]: value for key, value in fields.items() if key in kind.takes}
    )
    return [_check_cmake(), _check_ninja(), *walked]


def examine() -> list[ReadinessCheck]:
    """Examines every part; none of them stops the others."""
    checks: tuple[Callable[[], ReadinessCheck], ...] = (
        _check_python,
        _check_reader,
        _check_runner,
        _check_sme2,
        _check_executorch,
        _check_torch,
        _check_cmake,
        _check_ninja,
        _check_compiler,
        _check_disk,
    )
    return [check() for check in checks] + _check_target_parts()


def _check_python() -> ReadinessCheck:
    detail = f"etprof {__version__} on Python {platform.python_version()}"
    return ReadinessCheck("etprof", "ok", f"{detail}, {platform.system()} {platform.machine()}")


def _check_reader() -> ReadinessCheck:
    component = "ETDump reader"
    try:
        import_native()
    except EtprofError as error:
        return ReadinessCheck(component, "missing", str(error), "pip install .")
    return ReadinessCheck(component, "ok", "native")


def _ask_runner(flag: str) -> dict[str, object]:
    """Returns the JSON that the runner prints for `flag`; raises EtprofError where it fails."""
    completed = ask_host_runner([flag], timeout_s=30)
    check_completed(completed)
    document = parse_json(completed.stdout)
    return document if isinstance(document, dict) else {}


def _check_runner() -> ReadinessCheck:
    component = "etprof-runner"
    try:
        if (installed := find_other_version(packages_beside(find_host_runner()))) is not None:
            return _needs_pinned(component, "missing", installed)
        build = _ask_runner("--build-info")
    except (EtprofError, ValueError) as error:
        return ReadinessCheck(component, "missing", str(error), "pip install .")
    built = build.get("build", build)
    detail = "built for this machine"
    if isinstance(built, dict):
        detail += f" against ExecuTorch {built.get('executorch_version', '?')}"
    return ReadinessCheck(component, "ok", detail)


def _needs_pinned(
    component: str, status: Literal["missing", "note"], installed: str
) -> ReadinessCheck:
    """Says that a part cannot be used beside another minor release of ExecuTorch."""
    detail = f"needs ExecuTorch {pinned_version()}, and {installed} is installed"
    return ReadinessCheck(component, status, detail, _install_pinned())


def _install_pinned() -> str:
    return f"pip install executorch=={pinned_version()}"


def _check_sme2() -> ReadinessCheck:
    component = "SME2"
    try:
        if (installed := find_other_version(packages_beside(find_host_runner()))) is not None:
            return _needs_pinned(component, "note", installed)
        completed = ask_host_runner(["--cpu-info"], timeout_s=30)
        check_completed(completed)
        has_sme2 = read_cpu(completed.stdout).has_sme2
    except (EtprofError, ValueError) as error:
        return ReadinessCheck(component, "missing", str(error), "pip install .")
    if has_sme2:
        return ReadinessCheck(component, "ok", "this CPU has it: on and off can be measured here")
    way_out = "measure on an SME2 phone or Mac; the emulator proves kernels, not times"
    return ReadinessCheck(component, "note", f"not in this {platform.machine()} CPU", way_out)


def _pinned(package: str) -> str | None:
    """Returns the requirement on `package` that etprof was installed with."""
    for requirement in requires("etprof") or ():
        if re.match(rf"{package}\b", requirement):
            return requirement
    return None


def _check_package(package: str, gives: str) -> ReadinessCheck:
    needed = _pinned(package) or package
    try:
        installed = version(package)
    except PackageNotFoundError:
        return ReadinessCheck(package, "missing", f"{gives} needs it", f"pip install '{needed}'")
    return ReadinessCheck(package, "ok", f"{installed} (wanted: {needed})")


def _check_executorch() -> ReadinessCheck:
    check = _check_package("executorch", "export")
    if (installed := find_other_version()) is not None:
        detail = f"exporting needs {pinned_version()}, and {installed} is installed"
        return ReadinessCheck("executorch", "missing", detail, _install_pinned())
    if check.status == "ok" and has_pin() and installed_version() != pinned_version():
        return replace(check, status="note", way_out=_install_pinned())
    return check


def _check_torch() -> ReadinessCheck:
    return _check_package("torch", "export")


def _check_cmake() -> ReadinessCheck:
    component, way_out = "CMake", "pip install 'cmake>=3.28'"
    needed = "only to build runners from a checkout"
    program = shutil.which("cmake")
    if program is None:
        return ReadinessCheck(component, "note", f"not found; needed {needed}", way_out)
    match = re.search(r"(\d+)\.(\d+)", run_command([program, "--version"], timeout_s=30).stdout)
    if match is None or (int(match[1]), int(match[2])) < _LEAST_CMAKE:
        version_text = match[0] if match else "unknown version"
        return ReadinessCheck(
            component, "note", f"{version_text} is too old; needed {needed}", way_out
        )
    return ReadinessCheck(component, "ok", f"{match[0]} at {program}")


def _check_ninja() -> ReadinessCheck:
    if path := shutil.which("ninja"):
        return ReadinessCheck("Ninja", "ok", path)
    detail = "not found; needed only to build runners from a checkout"
    return ReadinessCheck("Ninja", "note", detail, "pip install ninja")


def _check_compiler() -> ReadinessCheck:
    component = "C++ compiler"
    for name in _COMPILERS:
        if path := shutil.which(name):
            return ReadinessCheck(component, "ok", path)
    way_out = "apt install g++" if sys.platform == "linux" else "xcode-select --install"
    return ReadinessCheck(
        component, "note", "not found; needed only to build runners from a checkout", way_out
    )


def _check_target_parts() -> list[ReadinessCheck]:
    """Reports what targets need beside etprof; none is needed to measure on this machine."""
    return [
        ReadinessCheck(required.name, "ok", str(required.path))
        if required.path
        else ReadinessCheck(
            required.name, "note", required.problem or "not set up", required.way_out
        )
        for required in find_parts()
    ]


def _check_disk() -> ReadinessCheck:
    free = shutil.disk_usage(Path.cwd()).free
    detail = f"{format_size(free)} free in this folder"
    if free < _LEAST_FREE_BYTES:
        return ReadinessCheck("Disk", "note", detail, "exports and runs of large models need more")
    return ReadinessCheck("Disk", "ok", detail)
