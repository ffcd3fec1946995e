"""The ExecuTorch that etprof is built for, and the one that is installed."""

from __future__ import annotations

import functools
import re
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Final

from etprof.base.errors import BuildError

_MINOR: Final = re.compile(r"\d+\.\d+")
"""What decides: patch releases keep the libraries' functions and the passes that etprof changes."""


@functools.cache
def _find_pin() -> str | None:
    """Returns the pinned version; None without metadata, or where they name no single version."""
    try:
        requirements = requires("etprof") or ()
    except PackageNotFoundError:
        return None
    pins = (re.match(r"executorch\s*==\s*([\d.]+)", requirement) for requirement in requirements)
    return next((pin[1] for pin in pins if pin), None)


def has_pin() -> bool:
    """Whether etprof's metadata name one version of ExecuTorch; a packager's may name several."""
    return _find_pin() is not None


def pinned_version() -> str:
    """Returns the ExecuTorch version that etprof is built for; raises BuildError without metadata."""
    if (pin := _find_pin()) is None:
        msg = (
            "etprof's metadata has no ExecuTorch version; install etprof again with `pip install .`"
        )
        raise BuildError(msg)
    return pin


def installed_version(packages: Path | None = None) -> str | None:
    """Returns the version of the installed ExecuTorch, without its local part; None without one.

    Args:
        packages: A folder of packages that is looked at first: a runner loads the libraries beside
            its own package, whatever Python would import.
    """
    if packages is not None:
        for distribution in distributions(name="executorch", path=[str(packages)]):
            return distribution.version.partition("+")[0]
    try:
        return version("executorch").partition("+")[0]
    except PackageNotFoundError:
        return None


def find_other_version(packages: Path | None = None) -> str | None:
    """Returns the installed version where it is not of the minor release that etprof is built for.

    None where that cannot be said. `packages` as in `installed_version`.
    """
    pin, installed = _find_pin(), installed_version(packages)
    if pin is None or installed is None:
        return None
    of_pin, of_installed = _MINOR.match(pin), _MINOR.match(installed)
    is_same = of_pin and of_installed and of_pin[0] == of_installed[0]
    return None if is_same else installed


def require_executorch(purpose: str, packages: Path | None = None) -> None:
    """Raises BuildError, with the way out, where `purpose` needs another ExecuTorch than is installed.

    That none is installed is left to whoever imports it. `packages` as in `installed_version`.
    """
    if (installed := find_other_version(packages)) is not None:
        pin = pinned_version()
        raise BuildError(
            f"{purpose} needs ExecuTorch {pin}, and {installed} is installed: "
            f"`pip install executorch=={pin}`; runs are read with any"
        )
