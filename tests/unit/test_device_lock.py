"""A device has one user at a time, in this process and in all others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import OutputError
from etprof.cli import main
from etprof.targets.device_lock import (
    FOLDER_VARIABLE,
    DeviceBusyError,
    Holder,
    MeasuredDevice,
    device_lock,
    lock_folder,
    patience,
    this_host,
)
from etprof.targets.emulator.target import EmulatorTarget
from tests.device_holder import held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.targets import Target

PHONE, TABLET = MeasuredDevice("phone", "the phone"), MeasuredDevice("tablet", "the tablet")


class GaveUpError(BaseException):
    """Passes by whatever turns unforeseen errors into exit codes."""


def give_up(*_: object) -> None:
    raise GaveUpError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


def test_a_second_user_waits_until_the_first_is_done() -> None:
    order: list[str] = []
    asked = threading.Event()

    def second() -> None:
        with device_lock(PHONE, lambda *_: asked.set()):
            order.append("second")

    with device_lock(PHONE, give_up):
        thread = threading.Thread(target=second)
        thread.start()
        assert asked.wait(30)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_devices_do_not_wait_for_each_other() -> None:
    with device_lock(PHONE, give_up), device_lock(TABLET, give_up):
        pass


def test_the_lock_holds_across_processes_and_dies_with_its_holder() -> None:
    with held(PHONE) as holder:
        with pytest.raises(GaveUpError), device_lock(PHONE, give_up):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with device_lock(PHONE, give_up):
            pass


def test_who_waits_is_told_once_for_whom() -> None:
    told: list[str] = []
    with held(PHONE) as holder:

        def say(text: str) -> None:
            told.append(text)
            # Not at once: the wait goes on after the line.
            threading.Timer(0.3, holder.kill).start()

        with device_lock(PHONE, patience(say)):
            pass
    (line,) = told
    assert re.fullmatch(
        rf"Waiting for the phone, in use by etprof bench \(process {holder.pid} of [^ )]+, "
        r"since \d{4}-\d\d-\d\d \d\d:\d\d UTC\); --no-wait fails instead",
        line,
    )


def test_who_does_not_wait_is_told_why() -> None:
    with held(PHONE) as holder:
        enter = device_lock(PHONE, patience(pytest.fail, wait=False)).__enter__
        with pytest.raises(DeviceBusyError) as caught:
            enter()
    told = str(caught.value)
    assert told.startswith(f"the phone is in use by etprof bench (process {holder.pid} of ")
    assert told.endswith(
        " UTC); two measurements would disturb each other: try again when it has ended, "
        "or leave out --no-wait"
    )


def test_threads_of_one_process_wait_in_silence() -> None:
    seen: list[Holder] = []

    def look(device: MeasuredDevice, holder: Holder) -> None:
        seen.append(holder)
        patience(pytest.fail, wait=False)(device, holder)
        raise GaveUpError

    with device_lock(PHONE, give_up), pytest.raises(GaveUpError), device_lock(PHONE, look):
        pass
    assert [holder.is_this_process for holder in seen] == [True]


def test_a_free_lock_names_nobody(folder: Path) -> None:
    with device_lock(PHONE, give_up):
        assert (folder / "phone.lock").read_text().count(f"(process {os.getpid()} of ") == 1
    assert (folder / "phone.lock").read_text() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="finds the descriptor in /proc")
def test_a_device_is_free_at_once_though_a_child_still_has_the_lock_open(folder: Path) -> None:
    """Between fork and exec a child of another thread has it, and `--no-wait` found it in use."""
    with device_lock(PHONE, give_up):
        (lock,) = folder.iterdir()
        files = [*Path("/proc/self/fd").iterdir()]
        (own,) = [int(each.name) for each in files if each.exists() and each.samefile(lock)]
        child = subprocess.Popen(["sleep", "60"], pass_fds=(own,))
    try:
        with device_lock(PHONE, give_up):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_who_cannot_sign_has_the_device_all_the_same(folder: Path) -> None:
    with held(PHONE):
        (folder / "phone.lock").write_text("")
        with pytest.raises(DeviceBusyError, match=r"^the phone is in use by another process; "):
            device_lock(PHONE, patience(pytest.fail, wait=False)).__enter__()


def test_what_a_stranger_writes_is_only_text(folder: Path) -> None:
    with held(PHONE):
        (folder / "phone.lock").write_text("1\n\033[2Jgone\nmore" + "x" * 1000)
        enter = device_lock(PHONE, patience(pytest.fail, wait=False)).__enter__
        with pytest.raises(DeviceBusyError) as caught:
            enter()
    assert "\033" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_other_users_of_the_machine_can_use_the_folder_and_sign(folder: Path) -> None:
    with device_lock(MeasuredDevice("../a b", "it"), give_up):
        pass
    assert lock_folder() == folder
    assert folder.stat().st_mode & 0o7777 == 0o1777
    (file,) = folder.iterdir()
    assert file.name == "_a_b.lock"
    assert stat.S_IMODE(file.stat().st_mode) == 0o666


@pytest.mark.parametrize("plant", ["link", "second name", "pipe"])
def test_a_planted_file_is_refused(folder: Path, tmp_path: Path, plant: str) -> None:
    folder.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    if plant == "link":
        (folder / "phone.lock").symlink_to(precious)
    elif plant == "second name":
        (folder / "phone.lock").hardlink_to(precious)
    else:
        os.mkfifo(folder / "phone.lock")
    with pytest.raises(OutputError) as caught, device_lock(PHONE, give_up):
        pass
    reason = (
        "Too many levels of symbolic links" if plant == "link" else "it is not a file of its own"
    )
    assert str(caught.value) == (
        f"cannot lock {folder}/phone.lock: {reason}; name another folder with ETPROF_LOCKS"
    )
    assert precious.read_text() == "mine"


def measuring_command(name: str, folder: Path) -> list[str]:
    """A command that would measure a program of this folder on this host."""
    program, run = folder / "m.pte", folder / "run"
    program.write_bytes(b"no program")
    if name != "run":
        return [name, str(program), "--out", str(run)]
    experiments = [{"name": "one"}]
    config = {"model": str(program), "output_root": str(run), "experiments": experiments}
    (folder / "config.json").write_text(json.dumps(config))
    return [name, str(folder / "config.json")]


@pytest.mark.parametrize("name", ["profile", "run", "calibrate"])
def test_a_command_that_does_not_wait_touches_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("another command is writing this")
    with held(this_host()):
        assert main([*measuring_command(name, tmp_path), "--no-wait"]) == 5
    assert capsys.readouterr().err.startswith("etprof: this host is in use by etprof bench (proc")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("run")] == ["run"]


@pytest.mark.parametrize("name", ["profile", "run", "calibrate"])
def test_a_command_waits_and_then_measures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(this_host()) as holder:
        told: list[str] = []

        def say(text: str) -> None:
            told.append(text)
            holder.kill()

        monkeypatch.setattr("etprof.cli.progress.say", say)
        assert main(measuring_command(name, tmp_path)) == 3 + 1
    assert [line.partition(",")[0] for line in told] == ["Waiting for this host"]
    assert "m.pte" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["profile", "run", "calibrate"])
def test_a_command_has_the_device_while_it_measures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> None:
        with device_lock(this_host(), give_up):
            pass

    monkeypatch.setattr("etprof.targets.local.LocalTarget.run", run)
    with pytest.raises(GaveUpError):
        main(measuring_command(name, tmp_path))


def test_what_is_emulated_loads_the_host_that_others_time_on() -> None:
    """A-D11: an emulated run disturbed a timed one, and `--no-wait` had no effect."""
    emulator: Target = EmulatorTarget()
    assert emulator.device() == this_host()


CHANGES = {
    "a holder that has ended": 'printf "4194305 %s 1\\nit" $GROUP >$LOCK',
    "the waiting process itself": 'printf "%s 0 1\\nit" $WAITING >$LOCK',
    "the words of another holder": 'echo "etprof run (process 4194305 of ada)" >$LOCK',
    "no words": ": >$LOCK",
    "another file": "rm $LOCK && : >$LOCK",
}
"""What another user can do to a lock that all users share, and that they have made."""


@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root can act as two users"
)
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_of_ours_is_killed_whatever_another_user_writes(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-4: a changed mark had a waiting etprof kill this user's live measurement."""
    as_other = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", "sh", "-c"]
    with tempfile.TemporaryDirectory() as folder:
        locks = Path(folder, "locks")
        locks.mkdir()
        Path(folder).chmod(0o755)
        locks.chmod(0o1777)
        lock = locks / "phone.lock"
        subprocess.run([*as_other, f": >{lock}; chmod 666 {lock}"], check=True)
        monkeypatch.setenv(FOLDER_VARIABLE, str(locks))
        with measuring(PHONE) as (holder, group):
            numbers = {"GROUP": str(group), "WAITING": str(os.getpid()), "LOCK": str(lock)}
            subprocess.run([*as_other, CHANGES[change]], check=True, env=os.environ | numbers)
            told: list[Holder] = []

            def look(_: MeasuredDevice, found: Holder) -> None:
                told.append(found)
                raise GaveUpError

            with contextlib.suppress(GaveUpError), device_lock(PHONE, look):
                pass
            assert [(found.has_been_ended, found.is_this_process) for found in told] == [
                (False, False) for _ in told
            ]
            assert bool(told) == (change != "another file")
            assert holder.poll() is None
            os.killpg(group, 0)


@contextlib.contextmanager
def measuring(device: MeasuredDevice) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Another process that has the device, and the process group of its command."""
    program = """
import sys
from etprof.base.process import run_command
from etprof.targets.device_lock import MeasuredDevice, device_lock
with device_lock(MeasuredDevice(sys.argv[1], ""), print):
    run_command(["sh", "-c", 'ps -o pgid= $$ >"$0"; sleep 60', sys.argv[2]], keeps_device=True)
"""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "group")
        os.mkfifo(told)
        command = [sys.executable, "-c", program, device.key, str(told)]
        with subprocess.Popen(command) as process:
            try:
                yield process, int(told.read_text())
            finally:
                process.kill()


def test_a_thread_that_has_just_got_the_lock_is_no_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`bench --no-wait` failed a run because another thread of its own had not yet signed."""
    refused: list[DeviceBusyError] = []
    real_try = vars(sys.modules[device_lock.__module__])["_try_lock"]

    def slow_try(descriptor: int, path: Path) -> bool:
        is_locked: bool = real_try(descriptor, path)
        if is_locked:
            got_it.set()
            time.sleep(0.3)
        return is_locked

    def use() -> None:
        try:
            with device_lock(PHONE, patience(print, wait=False)):
                pass
        except DeviceBusyError as error:
            refused.append(error)

    got_it = threading.Event()
    monkeypatch.setattr(f"{device_lock.__module__}._try_lock", slow_try)
    threads = [threading.Thread(target=use) for _ in range(2)]
    threads[0].start()
    assert got_it.wait(30)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert refused == []
