"""adb's own words: device lists, failures, launches that leave odd reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from etprof.base.errors import BuildError, UsageError
from etprof.base.process import Completed, ProgramNotFoundError, ProgramTimeoutError
from etprof.targets.android import adb as adb_module
from etprof.targets.android.adb import (
    Adb,
    AttachedDevice,
    choose_device,
    find_adb,
    last_line,
    parse_devices,
)
from etprof.targets.android.target import AndroidTarget
from etprof.targets.request import RunnerRequest

# As adb 29 and 34 print it, with real-world states; not made on this machine.
LISTED = """\
* daemon not running; starting now at tcp:5037
* daemon started successfully
List of devices attached
R5CT90ABCDE            device usb:1-4 product:o1sxeea model:SM_G991B device:o1s transport_id:3
192.168.1.20:5555      offline transport_id:4
0123456789ABCDEF       unauthorized usb:1-2 transport_id:1
????????????           no permissions (missing udev rules? user is in the plugdev group); see [http://developer.android.com/tools/device.html] usb:1-3 transport_id:2
adb-R5CT90-x7._adb-tls-connect._tcp device product:e model:Pixel_9 device:tokay transport_id:9

"""


def test_devices_of_every_state_are_read() -> None:
    assert parse_devices(LISTED) == [
        AttachedDevice("R5CT90ABCDE", "device", "SM_G991B"),
        AttachedDevice("192.168.1.20:5555", "offline"),
        AttachedDevice("0123456789ABCDEF", "unauthorized"),
        AttachedDevice("????????????", "no permissions"),
        AttachedDevice("adb-R5CT90-x7._adb-tls-connect._tcp", "device", "Pixel_9"),
    ]


def test_no_device_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    listed = Completed(("adb",), 0, "List of devices attached\n\n", "")
    monkeypatch.setattr("etprof.targets.android.adb.run_adb", lambda *_: listed)
    with pytest.raises(UsageError) as caught:
        choose_device()
    assert str(caught.value) == (
        "no Android device is attached; allow USB debugging on one and plug it in, or connect to "
        "one on the network: `etprof device list --connect HOST:PORT`"
    )


def test_a_serial_that_is_not_attached_lists_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Completed(("adb",), 0, "A1\tdevice usb:1 model:P\nB2\toffline\n", "")
    monkeypatch.setattr("etprof.targets.android.adb.run_adb", lambda *_: done)
    with pytest.raises(UsageError) as caught:
        choose_device("C3")
    assert str(caught.value) == "device C3 is not attached; attached: A1 (device, P), B2 (offline)"


def test_without_adb_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ANDROID_HOME", raising=False)
    monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
    with pytest.raises(ProgramNotFoundError, match="apt install adb"):
        find_adb()
    tool = tmp_path / "sdk" / "platform-tools" / "adb"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    assert find_adb() == str(tool)


@pytest.mark.parametrize(
    ("stdout", "reason"),
    [
        ("", "error: device 'X' not found"),
        ("half an answ", "it stopped"),
        ("\netprof-0 0\n", "another's mark"),
    ],
)
def test_an_answer_without_its_end_is_a_lost_device(
    monkeypatch: pytest.MonkeyPatch, stdout: str, reason: str
) -> None:
    """adb ends with 0 when adbd is killed in the middle, so only the end mark counts."""
    done = Completed(("adb",), 0, stdout, reason)
    monkeypatch.setattr(adb_module, "run_adb", lambda *_, **__: done)
    with pytest.raises(adb_module.DeviceLostError) as caught:
        Adb("X").shell("true")
    assert str(caught.value) == f"device X was lost: {reason.removeprefix('error: ')}"


def test_a_frozen_device_is_named_and_the_script_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*words: str, **_: object) -> Completed:
        raise ProgramTimeoutError(" ".join(words))

    monkeypatch.setattr(adb_module, "run_adb", hang)
    with pytest.raises(ProgramTimeoutError) as caught:
        Adb("X").shell("a long script", timeout_s=2)
    assert str(caught.value) == "device X did not answer within 2 s; is it frozen?"


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            "adb: error: failed to copy 'a' to 'b': remote secure_mkdirs failed: Permission denied",
            "failed to copy 'a' to 'b': remote secure_mkdirs failed: Permission denied",
        ),
        ("error: device offline\n", "device offline"),
        ("", ""),
    ],
)
def test_adbs_prefixes_are_left_out(stderr: str, reason: str) -> None:
    assert last_line(Completed(("adb",), 1, "", stderr)) == reason


@pytest.mark.parametrize("root", ["relative", "", "/", "/data/a:b", "/data/\nx", "/data/"])
def test_a_remote_folder_that_cannot_work_is_refused(root: str) -> None:
    with pytest.raises(UsageError) as caught:
        AndroidTarget(root=root)
    assert str(caught.value) == (f"remote folder {root!r} must be an absolute path without colon")


def test_without_runner_the_preset_is_named(tmp_path: Path) -> None:
    request = RunnerRequest(model=tmp_path / "m.pte", result=tmp_path / "r.json")
    with pytest.raises(BuildError) as caught:
        AndroidTarget("X").run(request)
    assert str(caught.value) == (
        "there is no runner for Android; build one with `cmake --workflow --preset android-sme2` "
        "and name it as `runner_path`"
    )
