"""`etprof doctor --target android` on a machine with nothing (issue 21.2, R330)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from etprof import doctor
from etprof.base.errors import TargetError
from etprof.base.process import Completed
from etprof.targets.android.libraries import NDK_VARIABLES
from tests.known_runs import SME2_CPU
from tests.unit.test_android_libraries import write_elf
from tests.world.host import etprof

if TYPE_CHECKING:
    from etprof.targets.policy import ReadinessCheck


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


def says(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A program that prints a text, whatever it is asked."""
    done = Completed((name,), 0, text, "")
    monkeypatch.setattr(doctor, "run_command", lambda *_, **__: done)
    monkeypatch.setattr(doctor, "ask_host_runner", lambda *_, **__: done)
    monkeypatch.setattr(shutil, "which", lambda asked: f"/bin/{asked}")


@pytest.mark.parametrize(
    ("printed", "status", "detail"),
    [
        ("cmake version 3.28.1", "ok", "3.28 at /bin/cmake"),
        ("cmake version 4.0.3", "ok", "4.0 at /bin/cmake"),
        ("cmake version 3.27.9", "note", "3.27 is too old; needed only to build runners"),
        ("cmake version 2.99", "note", "2.99 is too old"),
        ("?", "note", "unknown version is too old"),
    ],
)
def test_cmake_is_new_enough_or_told(
    monkeypatch: pytest.MonkeyPatch, printed: str, status: str, detail: str
) -> None:
    says(monkeypatch, "cmake", printed)
    check = doctor._check_cmake()
    assert check.status == status
    assert check.detail.startswith(detail)
    assert (check.way_out is None) == (status == "ok")


@pytest.mark.parametrize(("free", "status"), [(2**31, "ok"), (2**31 - 1, "note")])
def test_two_gigabytes_have_to_be_free(
    monkeypatch: pytest.MonkeyPatch, free: int, status: str
) -> None:
    usage = SimpleNamespace(total=2**40, used=2**39, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check = doctor._check_disk()
    assert (check.part, check.status) == ("Disk", status)
    assert check.detail == "2.0 GiB free in this folder"
    assert (check.way_out is None) == (status == "ok")


def test_what_runners_are_built_with_is_a_note_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for check in (doctor._check_ninja(), doctor._check_compiler(), doctor._check_cmake()):
        assert check.status == "note"
        assert check.detail.startswith("not found; needed only")
        assert check.way_out
    monkeypatch.setattr(shutil, "which", {"g++": "/g", "clang++": "/c", "ninja": "/n"}.get)
    assert (doctor._check_compiler().status, doctor._check_compiler().detail) == ("ok", "/g")
    assert (doctor._check_ninja().status, doctor._check_ninja().detail) == ("ok", "/n")


def test_a_package_is_what_etprof_was_installed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torchvision==9", "torch>=2.13,<2.14", "executorch>=9"]
    monkeypatch.setattr(doctor, "requires", lambda _: wanted)
    monkeypatch.setattr(doctor, "version", lambda name: "2.13.0" if name == "torch" else "0")
    check = doctor._check_torch()
    assert (check.status, check.detail) == ("ok", "2.13.0 (wanted: torch>=2.13,<2.14)")

    def absent(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(doctor, "version", absent)
    check = doctor._check_executorch()
    assert (check.part, check.status, check.detail, check.way_out) == (
        "executorch", "missing", "export needs it", "pip install 'executorch>=9'",
    )  # fmt: skip
    monkeypatch.setattr(doctor, "requires", lambda _: None)
    assert doctor._check_torch().way_out == "pip install 'torch'"


@pytest.mark.parametrize(
    ("printed", "detail"),
    [
        ('{"build": {"executorch_version": "1.5.1"}}', "built for this machine against ExecuTorch 1.5.1"),
        ('{"executorch_version": "1.5.2"}', "built for this machine against ExecuTorch 1.5.2"),
        ('{"build": {}}', "built for this machine against ExecuTorch ?"),
        ('{"build": 3}', "built for this machine"),
    ],
)  # fmt: skip
def test_the_runner_says_what_it_was_built_against(
    monkeypatch: pytest.MonkeyPatch, printed: str, detail: str
) -> None:
    says(monkeypatch, "etprof-runner", printed)
    check = doctor._check_runner()
    assert (check.part, check.status, check.detail) == ("etprof-runner", "ok", detail)


@pytest.mark.parametrize("of", [doctor._check_runner, doctor._check_sme2])
def test_a_runner_that_cannot_be_asked_is_missing(
    monkeypatch: pytest.MonkeyPatch, of: Callable[[], ReadinessCheck]
) -> None:
    def fail(*_: object, **__: object) -> Completed:
        raise TargetError("there is no runner")

    monkeypatch.setattr(doctor, "ask_host_runner", fail)
    check = of()
    assert (check.status, check.detail, check.way_out) == (
        "missing", "there is no runner", "pip install .",
    )  # fmt: skip
    says(monkeypatch, "etprof-runner", "no JSON")
    assert of().status == "missing"


@pytest.mark.parametrize(("sme2", "status"), [(True, "ok"), (False, "note")])
def test_a_cpu_has_sme2_or_a_way_to_measure_it(
    monkeypatch: pytest.MonkeyPatch, sme2: bool, status: str
) -> None:
    says(monkeypatch, "etprof-runner", json.dumps(SME2_CPU | {"features": {"sme2": sme2}}))
    check = doctor._check_sme2()
    assert check.status == status
    assert ("emulator" in (check.way_out or "")) is not sme2


def test_a_part_of_a_target_that_is_damaged_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        SimpleNamespace(name="QEMU", path=None, problem="is damaged", way_out="set up again"),
        SimpleNamespace(name="libc", path=None, problem=None, way_out="set up"),
        SimpleNamespace(name="Runner", path="/r", problem=None, way_out=None),
    ]
    monkeypatch.setattr(doctor, "find_parts", lambda: parts)
    checks = [(c.part, c.status, c.detail, c.way_out) for c in doctor._check_target_parts()]
    assert checks == [
        ("QEMU", "note", "is damaged", "set up again"),
        ("libc", "note", "not set up", "set up"),
        ("Runner", "ok", "/r", None),
    ]
