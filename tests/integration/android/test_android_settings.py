"""`etprof device` as people use it, on a device whose settings commands keep state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.cli import main
from etprof.targets.android.adb import choose_device, lockable_device
from etprof.targets.android.target import AndroidTarget
from etprof.targets.device_lock import MeasuredDevice
from tests.android_device.device import UnauthorizedDevice
from tests.device_holder import held
from tests.json_numbers import undeclared

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.android_device.device import LoopbackDevice
    from tests.android_device.network import Network

pytestmark = pytest.mark.android

ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")


@pytest.fixture
def etprof(
    device: LoopbackDevice, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `etprof device …` for the shared device; returns exit code and what it printed."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["device", *words, "--serial", device.serial])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def phone(device: LoopbackDevice) -> LoopbackDevice:
    """A phone with settings of its own; one was never set."""
    for name, value in (("low_power", "1"), ("stay_on_while_plugged_in", "0")):
        device.write(device.state / "settings" / name, value)
    for name in ANIMATIONS[:2]:
        device.write(device.state / "settings" / name, "0.5")
    return device


def settings_of(device: LoopbackDevice) -> tuple[str | None, ...]:
    names = ("low_power", "stay_on_while_plugged_in", *ANIMATIONS)
    return tuple(device.setting(name) for name in names)


BEFORE = ("1", "0", "0.5", "0.5", None)
BOOST = ("0", "15", "0", "0", "0")
APP = ("0", "1", "1", "1", "1")


@pytest.mark.parametrize(("profile", "wanted"), [("boost", BOOST), ("app", APP)])
def test_prepare_verify_restore(
    phone: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]], profile: str, wanted: object
) -> None:
    code, out, _ = etprof("prepare", "--profile", profile)
    assert code == 0
    assert out.startswith(f"Profile {profile} is in force on {phone.serial}; frequency caps and ")
    assert settings_of(phone) == wanted
    assert AndroidTarget(phone.serial).describe()["profile"] == profile
    code, out, _ = etprof("verify")
    assert code == 0
    assert f"Profile {profile} is in force on {phone.serial}" in out
    assert "power: mStayOn=true (stay awake)" in out
    assert etprof("restore")[0] == 0
    assert settings_of(phone) == BEFORE
    assert AndroidTarget(phone.serial).describe()["profile"] is None


def test_preparing_twice_keeps_the_first_settings(
    phone: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]]
) -> None:
    etprof("prepare", "--profile", "boost")
    etprof("prepare", "--profile", "app")
    assert settings_of(phone) == APP
    etprof("restore")
    assert settings_of(phone) == BEFORE
    code, _, err = etprof("restore")
    assert code == 2
    assert err == (
        f"etprof: nothing is saved for device {phone.serial}; `etprof device prepare` saves before "
        f"it changes\n"
    )


def test_verify_names_what_differs(
    phone: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]]
) -> None:
    etprof("prepare", "--profile", "boost")
    phone.write(phone.state / "settings" / "low_power", "1")
    (phone.state / "settings" / ANIMATIONS[0]).unlink()
    code, out, _ = etprof("verify")
    assert code == 5
    assert all(name in out for name in ("low_power", "window_animation_scale"))
    code, out, _ = etprof("verify", "--json")
    assert code == 5
    assert json.loads(out)["differences"] == [
        {"setting": "low_power", "wanted": "0", "found": "1"},
        {"setting": ANIMATIONS[0], "wanted": "0", "found": None},
    ]
    etprof("restore")


def test_verify_without_prepare_asks_for_the_profile(
    phone: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = etprof("verify")
    assert code == 2
    assert err == (
        f"etprof: device {phone.serial} was not prepared here; name what to verify with --profile\n"
    )
    assert etprof("verify", "--profile", "app")[0] == 5


def test_a_device_that_ignores_settings_is_said_and_can_be_restored(
    phone: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]]
) -> None:
    (phone.state / "settings_are_locked").touch()
    code, _, err = etprof("prepare", "--profile", "boost")
    assert code == 5
    assert f"device {phone.serial} did not keep profile boost: low_power is 1, not 0" in err
    (phone.state / "settings_are_locked").unlink()
    assert etprof("restore")[0] == 0
    assert settings_of(phone) == BEFORE


def test_a_saved_value_is_data_for_the_shell(
    phone: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]]
) -> None:
    hostile = "1; touch injected $(touch injected)"
    phone.write(phone.state / "settings" / "low_power", hostile)
    etprof("prepare", "--profile", "boost")
    assert etprof("restore")[0] == 0
    assert phone.setting("low_power") == hostile
    assert not list(phone.folder.rglob("injected"))


def test_describe_shows_device_and_state(
    device: LoopbackDevice,
    etprof: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    device.set_property("ro.product.model", "Phone X")
    device.set_dumpsys("battery", "Current Battery Service state:\n  level: 81\n  temperature: 290")
    code, out, _ = etprof("describe", "--full")
    assert code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in out.splitlines()]
    for fact in (
        ["model", "Phone X"], ["soc_model", ""], ["battery.level_percent", "81"],
        ["state.temperatures_c.cpu-0-0-usr", "41.2"],
    ):  # fmt: skip
        assert fact in rows
    document = json.loads(etprof("describe", "--json")[1])
    assert document["model"] == "Phone X"
    assert document["state"]["temperatures_c"] == {"cpu-0-0-usr": 41.2}
    assert undeclared("device", document) == []


def test_clean_removes_only_what_is_etprofs(
    device: LoopbackDevice, etprof: Callable[..., tuple[int, str, str]]
) -> None:
    folder = device.folder / "shared 'folder'"
    device.write(folder / "etprof-store" / "0" / "model.pte", "x" * 5000)
    device.write(folder / "notes", "of others")
    code, out, _ = etprof("clean", "--remote-folder", str(folder), "--json")
    assert code == 0
    assert json.loads(out)["freed_bytes"] >= 5000
    assert undeclared("device", json.loads(out)) == []
    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert etprof("clean", "--remote-folder", str(folder / "none"))[0] == 0


def test_list_shows_every_device_whatever_its_state(
    device: LoopbackDevice, network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = UnauthorizedDevice(network, 5563)
    try:
        assert main(["device", "list", "--json"]) == 0
        listed = {d["serial"]: d["state"] for d in json.loads(capsys.readouterr().out)["devices"]}
        assert listed == {device.serial: "device", refusing.serial: "unauthorized"}
        assert main(["device", "describe"]) == 2
        assert "choose one with --serial" in capsys.readouterr().err
    finally:
        refusing.close()


@pytest.mark.parametrize("words", [("prepare", "--profile", "boost"), ("restore",), ("clean",)])
def test_a_device_that_is_measured_on_is_not_changed(
    etprof: Callable[..., tuple[int, str, str]], phone: LoopbackDevice, words: tuple[str, ...]
) -> None:
    device = lockable_device(choose_device(phone.serial))
    assert device == MeasuredDevice("android_LOOPBACK5555", f"device {phone.serial}")
    assert AndroidTarget(phone.serial).device() == device
    with held(device):
        code, _, told = etprof(*words, "--no-wait")
        assert code == 5
        assert told.startswith(f"etprof: device {phone.serial} is in use by etprof bench (process")
        assert etprof("describe")[0] == 0
    assert settings_of(phone) == BEFORE
