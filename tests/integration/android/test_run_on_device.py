"""CTest's launcher for Android presets, on the real adb and adbd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.base.process import Completed, run_command

if TYPE_CHECKING:
    from tests.android_device.device import LoopbackDevice

pytestmark = pytest.mark.android

LAUNCHER = Path(__file__).parents[3] / "toolchains" / "run-on-device.sh"
PROGRAM = """#!/bin/sh
for word in "$@"; do echo "[$word]"; done
cat "$ETPROF_PROGRAMS/toy.pte" etprof-runner
[ -d "$TMPDIR" ] && touch "$TMPDIR/seen"
echo broken >&2
exit 7
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """What the launcher looks for in a build tree."""
    build = tmp_path / "build 'x'"
    write(build / "cpp/runner/etprof-runner", "runner\n")
    write(build / "tests/cpp/runner/programs/toy.pte", "program\n")
    write(build / "tests/cpp/runner/runner_tests", PROGRAM)
    return build


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def launch(build: Path, folder: str, serial: str, *arguments: str) -> Completed:
    program = build / "tests/cpp/runner/runner_tests"
    return run_command(
        [LAUNCHER, build, folder, program, *arguments],
        timeout_s=60,
        environment={"ANDROID_SERIAL": serial},
    )


def test_tests_run_on_the_device(device: LoopbackDevice, build: Path) -> None:
    folder = f"{device.root}/tests of 'x'"
    done = launch(build, folder, device.serial, "a_case", "it's $HOME;", "")
    # THEN arguments, files and exit code are the program's
    assert done.stdout == "[a_case]\n[it's $HOME;]\n[]\nprogram\nrunner\n"
    assert (done.stderr, done.exit_code) == ("broken\n", 7)
    assert Path(folder, "tmp", "seen").exists()


def test_what_has_changed_is_copied_again(device: LoopbackDevice, build: Path) -> None:
    folder = f"{device.root}/changing"
    launch(build, folder, device.serial)
    changed = build / "cpp/runner/etprof-runner"
    write(changed, "another runner\n")
    # adb compares times in whole seconds.
    os.utime(changed, (changed.stat().st_atime, changed.stat().st_mtime + 2))
    assert launch(build, folder, device.serial).stdout == "program\nanother runner\n"


def test_without_a_device_the_way_out_is_named(device: LoopbackDevice, build: Path) -> None:
    done = launch(build, f"{device.root}/none", "absent")
    assert (done.stdout, done.exit_code) == ("", 1)
    assert done.stderr == (
        "run-on-device: no device is ready; attach one, or choose one of `adb devices` with "
        "ANDROID_SERIAL\n"
    )


def test_a_program_that_is_not_built_is_not_an_older_one(
    device: LoopbackDevice, build: Path
) -> None:
    """The one that another build tree had left on the device passed in its place."""
    folder = f"{device.root}/older"
    assert launch(build, folder, device.serial).exit_code == 7
    program = build / "tests/cpp/runner/runner_tests"
    program.unlink()
    done = launch(build, folder, device.serial)
    assert (done.stdout, done.exit_code) == ("", 1)
    assert done.stderr == f"run-on-device: there is no {program}; build it first\n"


def test_words_may_stand_before_the_program_there(
    device: LoopbackDevice, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETPROF_DEVICE_LAUNCHER", "env SEEN=yes")
    write(
        build / "tests/cpp/runner/runner_tests", '#!/bin/sh\necho "$SEEN $ETPROF_DEVICE_LAUNCHER"\n'
    )
    done = launch(build, f"{device.root}/behind", device.serial)
    assert (done.stdout, done.exit_code) == ("yes env SEEN=yes\n", 0)


def test_a_shared_cpp_library_of_the_build_goes_along(device: LoopbackDevice, build: Path) -> None:
    """No device has one: each native test failed in the linker."""
    runner_tests = build / "tests/cpp/runner/runner_tests"
    write(runner_tests, '#!/bin/sh\ncat libc++_shared.so; echo "[$LD_LIBRARY_PATH]"\n')
    folder = f"{device.root}/shared 'x'"
    inherited = launch(build, folder, device.serial).stdout
    assert folder not in inherited
    write(build / "cpp/runner/libc++_shared.so", "the library\n")
    done = launch(build, folder, device.serial)
    assert (done.stdout, done.exit_code) == (f"the library\n[{folder}]\n", 0)
