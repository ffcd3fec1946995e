"""The steps up to a phone that can be measured: what is looked at, and each way out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import TargetError
from etprof.base.process import ProgramNotFoundError
from etprof.targets.android import checklist
from etprof.targets.android.adb import Adb, ShellResult
from etprof.targets.android.libraries import NDK_VARIABLES
from tests.unit.test_android_libraries import android_note, write_elf

if TYPE_CHECKING:
    from etprof.targets.policy import ReadinessCheck

GOOD: dict[str, object] = {
    "manufacturer": "Maker", "model": "M1", "soc_model": None, "android_version": "16",
    "abi": "arm64-v8a", "frequency_governor": "performance", "thermal_status": "none",
    "battery": {"level_percent": 80}, "profile": "boost",
}  # fmt: skip
ROOM = ShellResult(0, "/dev/x 100 50 524288 50% /data\n", "")


@dataclass
class Phone:
    """A phone whose shell answers are known by the first word of the script."""

    told: dict[str, object] = field(default_factory=lambda: dict(GOOD))
    features: str = "Features\t: fp asimd sme2\n"
    disk: ShellResult = ROOM
    modes: tuple[str, ...] = ("off", "sme2")
    serial: str = "P1"
    asked: list[str] = field(default_factory=list)

    def shell(self, script: str, **_: object) -> ShellResult:
        self.asked.append(script)
        return self.disk if script.startswith("df ") else ShellResult(0, self.features, "")


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Phone:
    phone = Phone()
    for name in NDK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # Where no preset has built a runner.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checklist, "find_adb", lambda: "/usr/bin/adb")
    monkeypatch.setattr(checklist, "connect", lambda address: f"{address}:5555")
    monkeypatch.setattr(checklist, "choose_device", lambda serial: Adb(serial or "P1"))
    monkeypatch.setattr(checklist, "describe_device", lambda _: phone.told)
    monkeypatch.setattr(Adb, "shell", phone.shell)

    class Target:
        def __init__(self, serial: str, *, runner: Path) -> None:
            assert (serial, runner.name) == (phone.serial, "runner")

        def sme_modes(self) -> tuple[str, ...]:
            return phone.modes

    monkeypatch.setattr(checklist, "AndroidTarget", Target)
    return phone


def walked(runner: Path | None = None, address: str | None = None) -> dict[str, ReadinessCheck]:
    return {check.part: check for check in checklist.walk(None, address, runner)}


def test_a_phone_that_is_ready_has_nothing_left_to_do(phone: Phone, tmp_path: Path) -> None:
    runner = write_elf(tmp_path / "runner")
    checks = walked(runner)
    assert {part: (check.status, check.detail) for part, check in checks.items()} == {
        "runner": ("ok", f"{runner}, with 0 libraries"),
        "adb": ("ok", "/usr/bin/adb"),
        "device": ("ok", "P1 Maker M1 16"),
        "architecture": ("ok", "arm64-v8a"),
        "SME2": ("ok", "modes off, sme2"),
        "frequency": ("ok", "governor performance"),
        "heat": ("ok", "thermal status none"),
        "charge": ("ok", "80 %"),
        "space": ("ok", "512.0 MiB free in /data/local/tmp"),
        "settings": ("ok", "profile boost"),
    }
    assert [check.way_out for check in checks.values()] == [None] * len(checks)
    phone.serial = "10.0.0.7:5555"
    assert walked(runner, "10.0.0.7")["device"].detail == "10.0.0.7:5555 Maker M1 16"


@pytest.mark.parametrize(
    ("level", "status", "detail"),
    [
        ("36", "ok", "API level 36"),
        ("35", "ok", "API level 35"),
        (None, "note", "the device hides its API level"),
        ("30", "missing", "is built for Android API level 35, and the device has 30"),
    ],
)
def test_a_runner_for_a_newer_android_is_told_before_it_is_copied(
    phone: Phone, tmp_path: Path, level: str | None, status: str, detail: str
) -> None:
    phone.told["android_api_level"] = level
    runner = write_elf(tmp_path / "runner", notes=android_note(35))
    check = walked(runner)["Android"]
    assert check.status == status
    assert detail in check.detail
    assert (check.way_out is None) == (status != "missing")


@pytest.mark.parametrize(
    ("field_name", "value", "part", "status", "detail", "way_out"),
    [
        ("abi", "x86_64", "architecture", "missing", "x86_64", "arm64-v8a"),
        ("abi", None, "architecture", "note", "the device hides it", "arm64-v8a"),
        (
            "frequency_governor",
            "schedutil",
            "frequency",
            "note",
            "governor schedutil",
            "interleaves",
        ),
        ("frequency_governor", None, "frequency", "note", "governor unknown", "interleaves"),
        ("thermal_status", "light", "heat", "note", "thermal status light", "let it cool"),
        ("thermal_status", None, "heat", "note", "thermal status unknown", "let it cool"),
        ("battery", {"level_percent": 19}, "charge", "note", "19 %", "charge it first"),
        ("battery", {"level_percent": 20}, "charge", "ok", "20 %", None),
        ("battery", {}, "charge", "note", "the device hides it", None),
        ("battery", None, "charge", "note", "the device hides it", None),
        ("profile", None, "settings", "note", "profile none", "device prepare"),
    ],
)
def test_what_makes_numbers_worse_is_told_with_its_way_out(  # noqa: PLR0917 - a row's columns
    phone: Phone, field_name: str, value: object, part: str, status: str, detail: str,
    way_out: str | None,
) -> None:  # fmt: skip
    phone.told[field_name] = value
    check = walked()[part]
    assert (check.status, check.detail) == (status, detail)
    assert (check.way_out is None) == (way_out is None)
    assert (way_out or "") in (check.way_out or "")
    others = [each for each in walked().values() if each.part not in {part, "runner"}]
    assert {each.status for each in others} == {"ok"}


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        (ShellResult(0, "/dev/x 1 1 524287 1% /data\n", ""), "note", "free in /data/local/tmp"),
        (ShellResult(0, "/dev/x 1 1 9999999 1% /data\n", ""), "ok", "9.5 GiB free"),
        (ShellResult(1, "", "df: no\n"), "note", "/data/local/tmp: df: no"),
        (ShellResult(0, "", ""), "note", "/data/local/tmp: df says nothing"),
        (ShellResult(0, "a b c many e\n", ""), "note", "/data/local/tmp: df says nothing"),
        (ShellResult(0, "a b 7\n", ""), "note", "/data/local/tmp: df says nothing"),
    ],
)
def test_half_a_gigabyte_has_to_be_free(
    phone: Phone, answer: ShellResult, status: str, detail: str
) -> None:
    phone.disk = answer
    check = walked()["space"]
    assert check.status == status
    assert detail in check.detail
    assert phone.asked[-1] == "df -k /data/local/tmp | tail -n 1"


@pytest.mark.parametrize(
    ("features", "status", "way_out"),
    [("Features : sme2 x", "ok", None), ("Features : sme", "note", "ask with --runner")],
)
def test_without_a_runner_the_kernel_is_asked_for_sme2(
    phone: Phone, features: str, status: str, way_out: str | None
) -> None:
    phone.features = features
    check = walked()["SME2"]
    assert check.status == status
    assert (way_out or "") in (check.way_out or "")


def test_a_runner_says_itself_that_there_is_no_sme2(phone: Phone, tmp_path: Path) -> None:
    phone.modes = ("off",)
    check = walked(write_elf(tmp_path / "runner"))["SME2"]
    assert (check.status, check.detail) == ("note", "modes off")
    assert check.way_out
    (tmp_path / "runner").write_text("no program")
    runner = walked(tmp_path / "runner")["runner"]
    assert runner.status == "missing"
    assert "android-sme2" in (runner.way_out or "")


def test_no_step_is_asked_without_the_one_before(
    phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Adb:
        raise TargetError("device P1 is offline")

    monkeypatch.setattr(checklist, "choose_device", refuse)
    *_, device, rest = walked().values()
    assert (device.part, device.status, device.detail) == (
        "device", "missing", "device P1 is offline",
    )  # fmt: skip
    assert (rest.status, rest.detail) == ("note", "not asked: a device first")

    def absent() -> str:
        raise ProgramNotFoundError("there is no adb")

    monkeypatch.setattr(checklist, "find_adb", absent)
    *_, adb, rest = walked().values()
    assert (adb.part, adb.status, adb.way_out) == ("adb", "missing", "apt install adb")
    assert rest.detail == "not asked: adb first"


def test_an_ndk_builds_a_runner(
    phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no NDK is known" in walked()["runner"].detail
    monkeypatch.setenv(NDK_VARIABLES[-1], str(tmp_path))
    check = walked()["runner"]
    assert check.detail == f"{NDK_VARIABLES[-1]}={tmp_path} is no NDK"
    toolchain = tmp_path / "build/cmake/android.toolchain.cmake"
    toolchain.parent.mkdir(parents=True)
    toolchain.touch()
    check = walked()["runner"]
    assert (check.status, "can build one" in check.detail) == ("missing", True)
    assert "--runner" in (check.way_out or "")
