"""`etprof doctor --target android` on a machine with nothing (issue 21.2, R330)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.targets.android.libraries import NDK_VARIABLES
from tests.unit.test_android_libraries import write_elf
from tests.world.host import etprof


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NDK_VARIABLES, "ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")


def test_every_missing_step_has_its_way_out(tmp_path: Path) -> None:
    done = etprof(tmp_path, "doctor", "--target", "android", "--json")
    assert done.exit_code == 3
    found = {each["part"]: each for each in json.loads(done.stdout)["findings"]}
    assert {part for part, each in found.items() if each["status"] == "missing"} == {
        "runner",
        "adb",
    }
    assert {part for part, each in found.items() if each["status"] == "note"} == {
        "CMake", "Ninja", "architecture, SME2, frequency, heat, charge, space, settings",
    }  # fmt: skip
    assert "ANDROID_NDK_HOME" in found["runner"]["way_out"]


def test_a_runner_and_an_ndk_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = tmp_path / "ndk/build/cmake/android.toolchain.cmake"
    toolchain.parent.mkdir(parents=True)
    toolchain.touch()
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(tmp_path / "ndk"))
    runner = write_elf(tmp_path / "runner")
    for words, status in (
        ([], "missing"),
        (["--runner", runner], "ok"),
        (["--runner", __file__], "missing"),
    ):
        done = etprof(tmp_path, "doctor", "--target", "android", "--json", *words)
        found = {each["part"]: each["status"] for each in json.loads(done.stdout)["findings"]}
        assert found["runner"] == status


def test_a_devices_flags_want_its_target(tmp_path: Path) -> None:
    done = etprof(tmp_path, "doctor", "--serial", "x")
    assert done.exit_code == 2
    assert "--target android" in done.stderr
