"""A system without a working folder, /dev/null or /proc: what is said, and with which exit code."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command

ROOT = Path(__file__).parents[2]
ETPROF = shlex.join([sys.executable, "-m", "etprof"])
ETDUMP = shlex.quote(str(ROOT / "tests/recordings/toy_cnn.etdump"))
in_a_namespace = pytest.mark.skipif(
    sys.platform != "linux"
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="only root can mount over /dev and /proc for one command (unshare -m)",
)


def without(folder: str, command: str, tmp_path: Path) -> Completed:
    """Runs a command where an empty folder covers `folder`."""
    (tmp_path / "empty").mkdir()
    hidden = f"mount --bind {shlex.quote(str(tmp_path / 'empty'))} {folder} && {command}"
    return run_command(["unshare", "-m", "sh", "-c", hidden], folder=tmp_path)


@pytest.mark.parametrize("command", ["doctor", "models", f"analyze {ETDUMP}", "history list"])
def test_a_working_folder_that_is_gone(command: str, tmp_path: Path) -> None:
    """S3-5: 'cannot use standard output', or PyTorch's own end of the process."""
    gone = f"mkdir gone; cd gone; rmdir ../gone; {ETPROF} {command}"
    done = run_command(["sh", "-c", gone], folder=tmp_path)
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr == (
        "etprof: the working folder cannot be used: No such file or directory; go to one that "
        "exists (cd)\n"
    )


@in_a_namespace
@pytest.mark.parametrize("command", ["models", "profile toy_cnn", "doctor"])
@pytest.mark.parametrize("output", ["", " >&-"])
def test_a_system_without_dev_null(command: str, output: str, tmp_path: Path) -> None:
    """S3-5: a traceback with exit code 1, that of a regression, where standard output is closed."""
    done = without("/dev", f"{ETPROF} {command}{output}", tmp_path)
    assert (done.exit_code, done.stdout) == (5, "")
    assert done.stderr == (
        "etprof: /dev/null cannot be used: No such file or directory; programs that this starts "
        "need it: mount /dev in this container or chroot\n"
    )


@in_a_namespace
@pytest.mark.parametrize("command", ["models", "profile toy_cnn", "doctor"])
def test_a_system_without_proc(command: str, tmp_path: Path) -> None:
    """S3-5: the runner was 'built for another system', and the model failed on its own inputs."""
    done = without("/proc", f"{ETPROF} {command}", tmp_path)
    assert (done.exit_code, done.stdout) == (5, "")
    assert done.stderr == (
        "etprof: /proc is missing, where Linux tells of the CPU and of processes: mount it in "
        "this container or chroot (mount -t proc proc /proc)\n"
    )


@in_a_namespace
@pytest.mark.parametrize("folder", ["/dev", "/proc"])
def test_files_are_read_without_either(folder: str, tmp_path: Path) -> None:
    done = without(folder, f"{ETPROF} analyze {ETDUMP}", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""


def test_a_limit_of_the_system_is_no_matter_of_standard_output(tmp_path: Path) -> None:
    """S3-5: whatever had no file name was told as a failure of standard output."""
    program = """
import errno, os
from etprof import cli
def refuse(*_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
cli.run_command_line = refuse
raise SystemExit(cli.main([]))
"""
    done = run_command([sys.executable, "-c", program], folder=tmp_path)
    assert done.exit_code == 5
    assert done.stderr == (
        "etprof: the system refused a call: Too many open files; check limits and free memory\n"
    )


LEAVES = """
import os, signal
from pathlib import Path
from etprof.base.atomic import scratch_folder
with scratch_folder("inputs") as folder:
    (folder / "input_0.bin").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    END
"""


def in_scratch(end: str, folder: Path) -> subprocess.Popen[str]:
    """A process that uses a scratch folder, and says which."""
    return subprocess.Popen(
        [sys.executable, "-c", LEAVES.replace("END", end)],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """S3-5: inputs stayed in TMPDIR for ever after SIGKILL; what others use or made stays."""
    with (
        in_scratch("os.kill(os.getpid(), signal.SIGKILL)", tmp_path) as killed,
        in_scratch("input()", tmp_path) as living,
    ):
        lost, used = (
            Path(next(iter(process.stdout or ())).strip()) for process in (killed, living)
        )
        killed.wait()
        assert lost.is_dir()
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / ".scratch").touch()
        planted = tmp_path / "etprof-inputs-planted"
        planted.symlink_to(precious)
        unmarked = tmp_path / "etprof-inputs-unmarked"
        unmarked.mkdir()
        an_hour_ago = time.time() - 3600
        for path in (lost, used, precious, unmarked):
            os.utime(path, (an_hour_ago, an_hour_ago))
        with in_scratch("pass", tmp_path) as after:
            assert after.wait() == 0
        assert not lost.exists()
        assert sorted(tmp_path.iterdir()) == sorted([used, precious, planted, unmarked])
        assert sorted(path.name for path in used.iterdir()) == [".scratch", "input_0.bin"]
        assert [path.name for path in precious.iterdir()] == [".scratch"]
        living.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_the_folder_of_another_user_stays(tmp_path: Path) -> None:
    folder = tmp_path / "etprof-inputs-theirs"
    folder.mkdir()
    (folder / ".scratch").touch()
    os.chown(folder, 4242, 4242)
    os.utime(folder, (0, 0))
    with in_scratch("pass", tmp_path) as after:
        assert after.wait() == 0
    assert folder.is_dir()
