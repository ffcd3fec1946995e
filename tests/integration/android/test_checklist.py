"""`etprof doctor --target android` on a real device through adb (issue 21.2)."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from etprof.targets.android import checklist
from etprof.targets.android.target import AndroidTarget
from tests.integration.android.conftest import bionic_root
from tests.world.host import etprof

if TYPE_CHECKING:
    from pathlib import Path

    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android


def walked(folder: Path, *words: object, exit_code: int) -> dict[str, tuple[str, str]]:
    done = etprof(folder, "doctor", "--target", "android", "--json", *words)
    assert done.exit_code == exit_code, done.stderr
    found = json.loads(done.stdout)["findings"]
    for each in found:
        # What is not there has a way out; a device may hide its charge, and then there is none.
        assert each["way_out"] or each["status"] != "missing"
    return {each["part"]: (each["status"], each["detail"]) for each in found}


def test_a_phone_is_walked_to_its_end(
    device: LoopbackDevice, emulated: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.set_property("ro.product.cpu.abi", "arm64-v8a")
    device.set_dumpsys("thermalservice", "Thermal Status: 3")
    device.set_dumpsys("battery", "  level: 12\n  temperature: 250")
    loopback = functools.partial(AndroidTarget, launcher=emulated.launcher, root=str(device.root))
    monkeypatch.setattr(checklist, "AndroidTarget", loopback)
    monkeypatch.setattr(checklist, "REMOTE_ROOT", str(device.root))
    found = walked(tmp_path, "--serial", device.serial, "--runner", emulated.runner, exit_code=0)
    status = {part: each[0] for part, each in found.items() if part not in {"CMake", "Ninja"}}
    # A runner for Android says which one it needs, and this device hides its own.
    assert status.pop("Android", None) == ("note" if bionic_root() else None)
    assert status == {
        "runner": "ok", "adb": "ok", "device": "ok", "architecture": "ok", "SME2": "ok",
        "frequency": "note", "heat": "note", "charge": "note", "space": "ok", "settings": "note",
    }  # fmt: skip
    assert "sme2" in found["SME2"][1]
    assert found["heat"][1].endswith("severe")
    assert found["charge"][1] == "12 %"


def test_what_another_phone_lacks_is_named(
    device: LoopbackDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.set_property("ro.product.cpu.abi", "x86_64")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path))
    found = walked(tmp_path, "--serial", device.serial, exit_code=3)
    assert found["architecture"] == ("missing", "x86_64")
    assert found["runner"] == ("missing", f"ANDROID_NDK_HOME={tmp_path} is no NDK")
    assert found["SME2"][0] == "note"
    lost = walked(tmp_path, "--serial", "nobody:1", exit_code=3)
    assert lost["device"][0] == "missing"
    assert "architecture" not in lost
