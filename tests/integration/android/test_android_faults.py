"""What goes wrong on and around a device: the error says so, and the next launch is unharmed."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import OutputError, TargetError
from etprof.base.interruption import interruptible
from etprof.base.process import ProgramTimeoutError
from etprof.targets.android.adb import DeviceFullError
from etprof.targets.android.target import AndroidTarget
from etprof.targets.leftovers import list_processes
from tests.android_device.device import UnauthorizedDevice
from tests.android_device.network import wait_until
from tests.integration.android.conftest import make_target
from tests.process_tree import LONGEST_END_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etprof.targets.request import RunnerRequest
    from tests.android_device.device import LoopbackDevice
    from tests.android_device.network import Network
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android


def running_on(device: LoopbackDevice) -> list[int]:
    """Processes that have the device's folder in their command line, adbd apart."""
    found = []
    # A longer pattern asks whether each file is there, and fails where a process has just ended.
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(str(device.root)) in words and b"etprof-runner" in words:
            found.append(int(folder.name))
    return found


def runs_in(device: LoopbackDevice) -> Callable[[], bool]:
    return lambda: bool(running_on(device)) and any(device.root.glob("etprof-session-*/pid"))


def members_of(group: int) -> set[int]:
    """The processes of a process group."""
    return {each.id for each in list_processes() if each.group == group}


@pytest.fixture
def endless(request_: RunnerRequest) -> RunnerRequest:
    """A launch that outlasts every test, but not a test that has failed."""
    return dataclasses.replace(request_, min_seconds=3600, timeout_s=60)


@pytest.fixture
def lonely(
    device: LoopbackDevice, target: AndroidTarget, request_: RunnerRequest
) -> Iterator[AndroidTarget]:
    """The target after one launch; everything is on the device, nothing of it runs there."""
    target.run(request_)
    request_.result.unlink()
    assert running_on(device) == []
    yield target
    wait_until(lambda: running_on(device) == [], "the runner goes on on the device")


@pytest.mark.parametrize(("name", "number"), [("SIGSEGV", 11), ("SIGKILL", 9), ("SIGABRT", 6)])
def test_a_crash_is_the_signals_name(
    target: AndroidTarget, request_: RunnerRequest, name: str, number: int
) -> None:
    crashing = dataclasses.replace(request_, launcher=("sh", "-c", f"kill -{number} $$"))
    with pytest.raises(TargetError) as caught:
        target.run(crashing)
    assert f"device {target.adb.serial}: etprof-runner was killed by {name}" in str(caught.value)
    assert not request_.result.exists()
    target.run(request_)
    assert request_.result.exists()


def test_the_real_runner_killed_on_the_device(
    device: LoopbackDevice, lonely: AndroidTarget, endless: RunnerRequest
) -> None:
    def kill() -> None:
        wait_until(runs_in(device), "the runner did not start", limit_s=30)
        (pid,) = device.root.glob("etprof-session-*/pid")
        os.kill(int(pid.read_text()), 9)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(TargetError, match="etprof-runner was killed by SIGKILL"):
        lonely.run(endless)
    killer.join()


def test_a_launch_that_hangs_is_stopped_on_the_device_too(
    device: LoopbackDevice, lonely: AndroidTarget, endless: RunnerRequest
) -> None:
    with pytest.raises(ProgramTimeoutError) as caught:
        lonely.run(dataclasses.replace(endless, timeout_s=3))
    assert str(caught.value) == (
        f"the runner did not end within 3 s on device {device.serial} and was stopped there"
    )
    assert running_on(device) == []
    assert not endless.result.exists()
    assert [p.name for p in device.root.iterdir()] == ["etprof-store"]


def unplug_while_it_runs(device: LoopbackDevice, *, away_s: float) -> threading.Thread:
    """Kills adbd once the runner runs; plugs it in again after a while."""

    def act() -> None:
        wait_until(runs_in(device), "the runner did not start", limit_s=30)
        device.unplug()
        time.sleep(away_s)
        device.plug_in()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_device_that_returns_runs_the_launch_again(
    device: LoopbackDevice, lonely: AndroidTarget, request_: RunnerRequest
) -> None:
    thread = unplug_while_it_runs(device, away_s=1.0)
    result = lonely.run(dataclasses.replace(request_, min_seconds=2))
    thread.join()
    assert lonely.reconnections == 1
    assert sum(result.latency_ns) >= 2e9
    assert lonely.describe()["reconnections"] == 1


def test_a_device_that_stays_away_is_given_up_and_serves_again_later(
    device: LoopbackDevice, emulated: Emulated, lonely: AndroidTarget, endless: RunnerRequest
) -> None:
    impatient = make_target(device, emulated, reconnect_s=2)
    impatient.describe()
    thread = unplug_while_it_runs(device, away_s=6.0)
    with pytest.raises(TargetError) as caught:
        impatient.run(endless)
    text = str(caught.value)
    assert text.startswith(f"device {device.serial} was lost: ")
    assert "did not return within 2 s; what was finished is kept" in text
    assert text.endswith("`etprof run --from-manifest RUN --resume` continues")
    assert impatient.describe()["system"] == "Android"
    assert impatient.read_state().frequency_khz == ()
    thread.join()
    impatient.run(dataclasses.replace(endless, min_seconds=None))
    assert impatient.read_state().frequency_khz != ()
    assert endless.result.exists()


def start_elsewhere(device: LoopbackDevice, emulated: Emulated, endless: RunnerRequest) -> int:
    """Launches in another process; returns that process's id once the runner runs."""
    child = os.fork()
    if child == 0:
        try:
            with interruptible():
                make_target(device, emulated).run(endless)
        finally:
            os._exit(1)
    wait_until(runs_in(device), "the runner did not start", limit_s=30)
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_runner_on_the_device_ends_with_etprof(
    device: LoopbackDevice,
    emulated: Emulated,
    lonely: AndroidTarget,
    endless: RunnerRequest,
    number: signal.Signals,
) -> None:
    """S2: it ran on there for up to an hour."""
    assert lonely.adb.serial == device.serial
    child = start_elsewhere(device, emulated, endless)
    os.kill(child, number)
    os.waitpid(child, 0)
    wait_until(lambda: running_on(device) == [], "the runner goes on", limit_s=LONGEST_END_S)
    left = [path.name for path in device.root.iterdir() if path.name != "etprof-store"]
    assert len(left) == (number == signal.SIGKILL)


def test_what_a_killed_etprof_left_running_is_stopped_first(
    device: LoopbackDevice,
    emulated: Emulated,
    lonely: AndroidTarget,
    endless: RunnerRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """GIVEN an etprof that was killed, and what guards its runner on the device too."""
    assert lonely.adb.serial == device.serial
    child = start_elsewhere(device, emulated, endless)
    (leader,) = device.root.glob("etprof-session-*/leader")
    (runner,) = device.root.glob("etprof-session-*/pid")
    group, process = int(leader.read_text()), int(runner.read_text())
    for each in members_of(group) - {process}:
        os.kill(each, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert process in running_on(device)
    # WHEN the next etprof launches, THEN nothing disturbs it, and it says what it has ended.
    next_one = make_target(device, emulated)
    next_one.run(dataclasses.replace(endless, min_seconds=None))
    assert running_on(device) == []
    (said,) = caplog.messages
    assert f"(process {process} there), left by etprof (process {child}), " in said
    assert [p.name for p in device.root.iterdir()] == ["etprof-store"]


def test_a_full_device_is_said_before_anything_runs(
    device: LoopbackDevice, emulated: Emulated, request_: RunnerRequest
) -> None:
    full = AndroidTarget(
        device.serial,
        runner=emulated.runner,
        launcher=emulated.launcher,
        root=f"{device.small_folder}/etprof",
    )
    with pytest.raises(DeviceFullError) as caught:
        full.run(request_)
    assert str(caught.value).startswith(f"device {device.serial} has no room for ")
    left = full.adb.shell(f"find {shlex.quote(str(device.small_folder))} -name 'incoming-*'")
    assert left.stdout == ""


def test_a_result_that_does_not_fit_on_the_device_is_an_error(
    device: LoopbackDevice, emulated: Emulated, lonely: AndroidTarget, request_: RunnerRequest
) -> None:
    """GIVEN an output folder on a file system without room."""
    small = shlex.quote(str(device.small_folder))
    fill = f"mkdir {small}/out && rmdir out && ln -s {small}/out out && cat /dev/zero >{small}/fill"
    launcher = ("sh", "-c", f'{fill} 2>/dev/null; exec "$@"', "sh", *emulated.launcher)
    try:
        with pytest.raises(OutputError) as caught:
            lonely.run(dataclasses.replace(request_, launcher=launcher))
    finally:
        lonely.adb.shell(f"rm -rf {small}/out {small}/fill")
    assert str(caught.value).startswith(f"device {device.serial}: ")
    assert "No space left" in str(caught.value)
    assert str(request_.result) in str(caught.value)
    assert not request_.result.exists()


def test_a_result_that_arrives_changed_is_refused(
    target: AndroidTarget,
    request_: RunnerRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN an adb that adds a byte to what it brings."""
    real = str(shutil.which("adb"))
    fake = tmp_path / "bin" / "adb"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\n{shlex.quote(real)} "$@" || exit\n'
        'case $3 in pull) for local; do :; done; printf x >>"$local";; esac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(TargetError, match=r"result\.json of device .* arrived changed"):
        target.run(request_)
    assert list(request_.result.parent.iterdir()) == []


def test_an_unauthorized_device_says_what_to_tap(network: Network) -> None:
    device = UnauthorizedDevice(network, 5561)
    try:
        with pytest.raises(TargetError) as caught:
            _ = AndroidTarget(device.serial).adb
        assert str(caught.value) == (
            f"device {device.serial} is unauthorized: unlock it and confirm `Allow USB debugging` "
            f"for this computer"
        )
    finally:
        device.close()


def test_a_device_that_is_not_there_is_said(device: LoopbackDevice) -> None:
    with pytest.raises(TargetError) as caught:
        _ = AndroidTarget(address="127.0.0.1:5599").adb
    assert str(caught.value).startswith("cannot connect to 127.0.0.1:5599: ")
