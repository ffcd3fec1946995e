"""The commands of docs/android.md, in its order, on the loopback phone; none of them is left out."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.run.manifest import load_manifest
from tests.world.host import etprof

if TYPE_CHECKING:
    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android
PAGE = Path(__file__).parents[3] / "docs" / "android.md"
COMMAND = re.compile(r"`etprof ([a-z][^`]*)`")
HERE = {
    "device list", "device prepare --profile boost", "device verify", "device restore",
    "device clean", "config init --template android --model my.pte --out config.json",
    "run config.json", "run config.json --resume",
}  # fmt: skip
ELSEWHERE = {
    "doctor --target android": "test_checklist.py",
    "profile my.pte --target android --runner etprof-runner --trace-runner etprof-runner-trace": (
        "test_profile_on_device.py"
    ),
    "emulator setup": "../test_skill.py",
}
"""Commands that a test of their own runs, and where."""


def test_every_command_of_the_page_is_run_by_a_test() -> None:
    assert {*COMMAND.findall(PAGE.read_text("utf-8"))} == HERE | {*ELSEWHERE}
    for command, place in ELSEWHERE.items():
        first, *_ = shlex.split(command)
        assert f'"{first}"' in (Path(__file__).parent / place).read_text("utf-8")


def test_the_pages_commands_run_in_order(
    phone: LoopbackDevice,
    emulated: Emulated,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def do(command: str, *, exit_code: int = 0) -> str:
        done = etprof(tmp_path, *shlex.split(command))
        assert done.exit_code == exit_code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    # The page's own way to name the device once for all commands.
    monkeypatch.setenv("ANDROID_SERIAL", phone.serial)
    (tmp_path / "my.pte").write_bytes(program.read_bytes())
    assert phone.serial in do("device list")
    do("device prepare --profile boost")
    assert "is in force" in do("device verify")
    do("config init --template android --model my.pte --out config.json")
    # The template names the preset's runner: the one at hand stands in for it, in short launches.
    config = json.loads((tmp_path / "config.json").read_text())
    for experiment in config["experiments"]:
        assert experiment.pop("preset") == "android-sme2"
        experiment |= {"runner_path": str(emulated.runner), "runs": 1, "warmup": 0}
    config["target"] |= {"trace_runner": str(emulated.trace_runner)}
    config["measurement"] = {"blocks": 2, "min_seconds": 0.001, "etdump_runs": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    do("run config.json")
    do("run config.json --resume")
    manifest = load_manifest(tmp_path / "out_my/runs/android")
    assert manifest is not None
    assert {launch.error or "" for launch in manifest.launches} == {""}
    assert {launch.purpose for launch in manifest.launches} >= {"timing", "operators", "kernels"}
    do("device restore")
    do("device restore", exit_code=2)  # nothing is saved any more
    monkeypatch.setenv("ANDROID_SERIAL", "nobody:1")
    do("device verify", exit_code=5)
    monkeypatch.delenv("ANDROID_SERIAL")
    assert phone.serial in do(f"device list --connect {phone.serial}")
    do(f"device clean --serial {phone.serial}")
