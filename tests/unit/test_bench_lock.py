"""A device has one user at a time, in this process and in all others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from etprof.bench.device_lock import FOLDER_VARIABLE, device_lock, lock_folder
from etprof.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = (
    "from etprof.bench.device_lock import device_lock\n"
    "import sys\n"
    "with device_lock('phone', lambda: None):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


class GaveUpError(Exception):
    pass


def give_up() -> None:
    raise GaveUpError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


def test_a_second_user_waits_until_the_first_is_done() -> None:
    order: list[str] = []
    asked = threading.Event()

    def second() -> None:
        with device_lock("phone", asked.set):
            order.append("second")

    with device_lock("phone", give_up):
        thread = threading.Thread(target=second)
        thread.start()
        assert asked.wait(30)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_devices_do_not_wait_for_each_other() -> None:
    with device_lock("phone", give_up), device_lock("tablet", give_up):
        pass


def test_the_lock_holds_across_processes_and_dies_with_its_holder() -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(GaveUpError), device_lock("phone", give_up):
            pass
        os.kill(holder.pid, signal.SIGKILL)
    with device_lock("phone", give_up):
        pass


def test_other_users_of_the_machine_can_use_the_folder(folder: Path) -> None:
    with device_lock("../a b", give_up):
        pass
    assert lock_folder() == folder
    assert folder.stat().st_mode & 0o7777 == 0o1777
    (file,) = folder.iterdir()
    assert file.name == "_a_b.lock"
    assert file.stat().st_mode & 0o444 == 0o444


def test_a_planted_link_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (folder / "phone.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError) as caught, device_lock("phone", give_up):
        pass
    assert str(caught.value) == (
        f"cannot lock {folder}/phone.lock: Too many levels of symbolic links; "
        "name another folder with ETPROF_LOCKS"
    )
    assert not (tmp_path / "elsewhere").exists()
