"""adb's own words: device lists, failures, launches that leave odd reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from etprof.base.errors import BuildError, OutputError, TargetError, UsageError
from etprof.base.process import Completed, ProgramNotFoundError, ProgramTimeoutError
from etprof.targets.android import adb as adb_module
from etprof.targets.android.adb import (
    Adb,
    AttachedDevice,
    DeviceFullError,
    DeviceLostError,
    ShellResult,
    choose_device,
    connect,
    find_adb,
    last_line,
    list_devices,
    own_serial,
    parse_devices,
    reconnect,
)
from etprof.targets.android.libraries import NDK_VARIABLES
from etprof.targets.android.store import remove_files
from etprof.targets.android.target import AndroidTarget
from etprof.targets.request import RunnerRequest
from etprof.targets.state import TargetState
from tests.world.host import etprof

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
    with pytest.raises(TargetError) as caught:
        choose_device()
    assert str(caught.value) == (
        "no Android device is attached; allow USB debugging on one and plug it in, or connect to "
        "one on the network: `etprof device list --connect HOST:PORT`"
    )


def test_a_serial_that_is_not_attached_lists_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Completed(("adb",), 0, "A1\tdevice usb:1 model:P\nB2\toffline\n", "")
    monkeypatch.setattr("etprof.targets.android.adb.run_adb", lambda *_: done)
    with pytest.raises(TargetError) as caught:
        choose_device("C3")
    assert str(caught.value) == "device C3 is not attached; attached: A1 (device, P), B2 (offline)"


def test_a_file_is_no_flag_of_adbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U3-13: adb refused a program whose name begins with a dash."""
    given: list[str] = []

    def note(*words: str, **_: object) -> Completed:
        given.extend(words)
        return Completed(("adb",), 0, "", "")

    monkeypatch.setattr("etprof.targets.android.adb.run_adb", note)
    monkeypatch.chdir(tmp_path)
    Path("-m.pte").write_bytes(b"program")
    Adb("X").push(Path("-m.pte"), "/data/m")
    Adb("X").pull("/data/m", Path("-r"), size_bytes=1)
    assert given == ["-s", "X", "push", "./-m.pte", "/data/m", "-s", "X", "pull", "/data/m", "./-r"]


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


def test_without_runner_the_nearest_way_to_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NDK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    request = RunnerRequest(model=tmp_path / "m.pte", result=tmp_path / "r.json")
    with pytest.raises(BuildError) as caught:
        AndroidTarget("X").run(request)
    assert str(caught.value) == (
        "there is no runner for Android: none was named, and no NDK is known to build one; install "
        "the NDK, set ANDROID_NDK_HOME to it; `cmake --workflow --preset android-sme2` builds one; "
        "then name it with --runner, or `runner_path` in a config"
    )
    # WHEN one is built in this folder
    built = tmp_path / "build/android-sme2/cpp/runner/etprof-runner"
    built.parent.mkdir(parents=True)
    built.touch()
    with pytest.raises(BuildError) as caught:
        AndroidTarget("X").run(request)
    assert str(caught.value) == (
        "there is no runner for Android: none was named; one is built at "
        "build/android-sme2/cpp/runner/etprof-runner; name that with --runner, or `runner_path` in a "
        "config"
    )


class Daemon:
    """Answers adb's commands in their order, the last answer for ever, and notes them."""

    def __init__(self, *answers: tuple[int, str, str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []
        self.timeouts: list[float] = []

    def __call__(self, *words: object, timeout_s: float = 60.0, **_: object) -> Completed:
        self.asked.append(tuple(map(str, words)))
        self.timeouts.append(timeout_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Completed(("adb",), *answer)


@pytest.fixture
def adb_says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Daemon]:
    def say(*answers: tuple[int, str, str]) -> Daemon:
        daemon = Daemon(*answers)
        monkeypatch.setattr(adb_module, "run_adb", daemon)
        return daemon

    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    monkeypatch.setattr("etprof.targets.android.adb.time.sleep", lambda _: None)
    return say


READY = (0, "device\n", "")
GONE = (1, "", "error: device 'X' not found\n")


@pytest.mark.parametrize(
    ("answers", "error", "text"),
    [
        # adb's words decide before its state is asked.
        ([(1, "", "adb: error: failed to copy: No space left on device")], DeviceFullError, "room"),
        ([(1, "adb: write: No space left on device", "")], DeviceFullError, "choose another"),
        ([(1, "", "error: device offline")], DeviceLostError, "device X was lost: device offline"),
        ([(1, "", "adb: error: Permission denied"), READY], TargetError, "Permission denied"),
        # A refusal that says nothing of the device, which is away all the same.
        ([(1, "", "adb: error: Permission denied"), GONE], DeviceLostError, "Permission denied"),
    ],
)
def test_why_a_copy_failed_is_told_apart(
    tmp_path: Path,
    adb_says: Callable[..., Daemon],
    answers: list[tuple[int, str, str]],
    error: type[Exception],
    text: str,
) -> None:
    """M3, tests: a device that is away was a copy that failed, and the other way round."""
    file = tmp_path / "m.pte"
    file.write_bytes(b"1" * 1_000_000)
    daemon = adb_says(*answers)
    with pytest.raises(TargetError, match=text) as caught:
        Adb("X").push(file, "/data/m.pte")
    assert type(caught.value) is error
    assert daemon.asked[0] == ("-s", "X", "push", str(file), "/data/m.pte")
    # A minute, and what a slow connection takes for a megabyte.
    assert daemon.timeouts[0] == 62.0


def test_a_full_disk_here_is_not_the_device_s(
    tmp_path: Path, adb_says: Callable[..., Daemon]
) -> None:
    adb_says((1, "", "adb: error: cannot write: No space left on device"))
    with pytest.raises(OutputError, match=r"cannot write .*r\.json: No space left"):
        Adb("X").pull("/data/r.json", tmp_path / "r.json", size_bytes=10)
    daemon = adb_says((0, "/data/r.json: 1 file pulled. 0.1 MB/s (10 bytes in 0.001s)", ""))
    Adb("X").pull("/data/r.json", tmp_path / "r.json", size_bytes=500_000)
    assert daemon.asked == [("-s", "X", "pull", "/data/r.json", str(tmp_path / "r.json"))]
    assert daemon.timeouts == [61.0]


def test_the_last_word_is_no_figure_of_the_copy() -> None:
    said = "a: 1 file pushed, 0 skipped. 9 MB/s (24 bytes in 0.000s)\n"
    assert last_line(Completed(("adb",), 1, said, "adb: error: closed\n")) == "closed"
    assert last_line(Completed(("adb",), 1, f"device offline\n{said}", "")) == "device offline"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (READY, "device"),
        ((1, "", "error: device unauthorized.\n"), "device unauthorized."),
        ((1, "", ""), "unknown"),
    ],
)
def test_the_state_of_a_device_is_adb_s_word(
    adb_says: Callable[..., Daemon], answer: tuple[int, str, str], state: str
) -> None:
    daemon = adb_says(answer)
    assert Adb("X").state() == state
    assert (daemon.asked, daemon.timeouts) == ([("-s", "X", "get-state")], [10])


def test_a_device_that_settles_is_waited_for(adb_says: Callable[..., Daemon]) -> None:
    """M3, tests: one that was offline for a moment was refused."""
    daemon = adb_says(
        (0, "X offline transport_id:1\n", ""),
        (0, "X authorizing transport_id:1\n", ""),
        (0, "X device transport_id:1\n", ""),
    )
    assert choose_device() == Adb("X")
    assert len(daemon.asked) == 3


@pytest.mark.parametrize(
    ("state", "way_out", "most_questions"),
    [
        ("unauthorized", "confirm `Allow USB debugging`", 1),
        ("recovery", "start it into Android", 1),
        ("sulking", "see `adb devices -l`", 1),
        ("offline", "adb reconnect offline", 99),
    ],
)
def test_a_device_that_is_not_ready_says_what_to_do(
    adb_says: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    way_out: str,
    most_questions: int,
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("etprof.targets.android.adb.time.monotonic", lambda: next(seconds))
    daemon = adb_says((0, f"X {state}\n", ""))
    with pytest.raises(TargetError, match=f"device X is {state}: .*{way_out}"):
        choose_device()
    # It is asked again for five seconds, where waiting may help.
    assert len(daemon.asked) == (min(most_questions, 6))


def test_the_device_that_is_meant_is_chosen(
    adb_says: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    adb_says((0, "A1 device model:P\nB2 device\n", ""))
    with pytest.raises(
        UsageError, match=r"2 devices are attached: A1 \(device, P\), B2 \(device\)"
    ):
        choose_device()
    assert choose_device("B2") == Adb("B2")
    monkeypatch.setenv("ANDROID_SERIAL", "A1")
    assert choose_device() == Adb("A1")
    assert choose_device("B2") == Adb("B2")


def test_a_list_that_adb_cannot_give_is_an_error(adb_says: Callable[..., Daemon]) -> None:
    adb_says((1, "", "adb: error: cannot bind\n"))
    with pytest.raises(TargetError, match="cannot list the devices: cannot bind; try"):
        list_devices()


@pytest.mark.parametrize(
    ("address", "serial"), [("10.0.0.7", "10.0.0.7:5555"), ("10.0.0.7:41", "10.0.0.7:41")]
)
def test_a_connection_is_what_adb_says_it_is(
    adb_says: Callable[..., Daemon], address: str, serial: str
) -> None:
    """M3, tests: adb ends with 0 even when it fails."""
    for words in (f"connected to {serial}", f"already connected to {serial}"):
        daemon = adb_says((0, f"* daemon started\n{words}\n", ""))
        assert connect(address) == serial
        assert daemon.asked == [("connect", serial)]
    adb_says((0, f"failed to connect to {serial}: Connection refused\n", ""))
    with pytest.raises(TargetError, match=f"cannot connect to {serial}: failed to connect"):
        connect(address)
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        connect(f"-{address}")


def test_a_dead_connection_to_a_network_address_is_cut_first(
    adb_says: Callable[..., Daemon],
) -> None:
    daemon = adb_says((0, "", ""))
    reconnect("10.0.0.7:5555")
    reconnect("R5CT")
    assert daemon.asked == [
        ("disconnect", "10.0.0.7:5555"), ("connect", "10.0.0.7:5555"), ("reconnect", "offline"),
    ]  # fmt: skip
    assert daemon.timeouts == [10, 10, 10]


def test_a_device_s_name_is_its_own_however_it_is_attached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for said, name in (("R5CT\n", "R5CT"), ("\n", "10.0.0.7:5555")):
        answer = ShellResult(0, said, "")
        monkeypatch.setattr(Adb, "shell", lambda *_, answer=answer, **__: answer)
        assert own_serial(Adb("10.0.0.7:5555")) == name


def test_the_script_s_own_exit_code_is_the_shell_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """M3, tests: adb's exit code does not tell a failed script from a failed adb."""
    monkeypatch.setattr("etprof.targets.android.adb.secrets.token_hex", lambda _: "0")
    for code in (0, 3, 139):
        done = Completed(("adb",), 0, f"out\n\netprof-0 {code}\n", "one\nlast\n")
        monkeypatch.setattr(adb_module, "run_adb", lambda *_, done=done, **__: done)
        result = Adb("X").shell("true")
        assert result == ShellResult(code, "out\n", "one\nlast\n")
        assert result.reason() == "last"
    assert ShellResult(1, "", " ").reason("nothing") == "nothing"


@pytest.mark.parametrize(
    ("answer", "freed"),
    [
        (ShellResult(0, "24\n", ""), 24 * 1024),
        (ShellResult(0, "", ""), 0),
        (ShellResult(0, "du: no\n", ""), 0),
        (ShellResult(1, "24\n", "rm: a\nrm: b\n"), "did not remove the files in /d/e: rm: b"),
        (ShellResult(137, "", ""), "did not remove the files in /d/e: no reason given"),
    ],
)
def test_what_was_removed_from_a_device_is_told_in_bytes(
    monkeypatch: pytest.MonkeyPatch, answer: ShellResult, freed: int | str
) -> None:
    asked: list[str] = []

    def shell(_: Adb, script: str, **__: object) -> ShellResult:
        asked.append(script)
        return answer

    monkeypatch.setattr(Adb, "shell", shell)
    if isinstance(freed, int):
        assert remove_files(Adb("X"), "/d/e") == freed
    else:
        with pytest.raises(TargetError, match=f"device X {freed}"):
            remove_files(Adb("X"), "/d/e")
    assert "rm -rf etprof-store etprof-session-*" in asked[0]


def test_a_device_is_described_fact_by_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = "etprof.targets.android.identity.read_device_state"
    described = {"model": "P", "battery": {"level_percent": 80}}
    monkeypatch.setattr("etprof.targets.android.adb.choose_device", lambda _: Adb("X"))
    monkeypatch.setattr("etprof.targets.android.identity.describe_device", lambda _: described)
    monkeypatch.setattr(state, lambda _: TargetState(thermal_status="light"))
    done = etprof(tmp_path, "device", "describe")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    for row in (["model", "P"], ["battery.level_percent", "80"], ["state.thermal_status", "light"]):
        assert any(row == [cell for cell in told if cell != "│"] for told in rows), done.stdout
