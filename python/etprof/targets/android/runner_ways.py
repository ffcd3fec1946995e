"""The nearest way to a runner for Android, for whoever has named none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from etprof.targets.android.libraries import NDK_VARIABLES
from etprof.targets.runner import runner_of_preset

_PRESET: Final = "android-sme2"
BUILD: Final = f"`cmake --workflow --preset {_PRESET}` builds one"
_NAME_IT: Final = "with --runner, or `runner_path` in a config"


class RunnerWay(NamedTuple):
    """What is there, and what to do next."""

    detail: str
    way_out: str


def find_runner_way() -> RunnerWay:
    """Returns the nearest: a runner that is built in this folder, an NDK that builds one, an NDK."""
    built = runner_of_preset(_PRESET)
    if built.is_file():
        return RunnerWay(f"none was named; one is built at {built}", f"name that {_NAME_IT}")
    for name in NDK_VARIABLES:
        if folder := os.environ.get(name):
            if Path(folder, "build/cmake/android.toolchain.cmake").is_file():
                return RunnerWay(
                    f"none was named; the NDK at {folder} can build one",
                    f"{BUILD}; then name it {_NAME_IT}",
                )
            return RunnerWay(f"{name}={folder} is no NDK", "set it to the NDK's folder")
    return RunnerWay(
        "none was named, and no NDK is known to build one",
        f"install the NDK, set {NDK_VARIABLES[0]} to it; {BUILD}; then name it {_NAME_IT}",
    )
