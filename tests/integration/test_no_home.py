"""S3-3: every command answers for a uid without an entry in the list of users, and without HOME."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command
from tests.measured_runs import MeasuredRun, write_measured

pytestmark = pytest.mark.slow
UID = "12345"
NAMED = ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
IN_NAMESPACE = ("unshare", "--user", f"--map-user={UID}", f"--map-group={UID}")


def as_nobody(folder: Path, *words: object) -> Completed:
    """Runs a command as a user whom nobody knows."""
    unset = [word for name in NAMED for word in ("-u", name)]
    command = ["env", *unset, *IN_NAMESPACE, *words]
    environment = {
        "TMPDIR": str(folder / "tmp"),
        "ETPROF_LOCKS": str(folder / "locks"),
        # A server of this test's own: nobody else's is asked or ended.
        "ANDROID_ADB_SERVER_PORT": "5139",
    }
    return run_command(
        list(map(str, command)), folder=folder, environment=environment, timeout_s=500
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that this user has exported and measured."""
    folder = tmp_path_factory.mktemp("nobody")
    (folder / "tmp").mkdir()
    if shutil.which("unshare") is None or as_nobody(folder, "id", "-u").stdout.strip() != UID:
        pytest.skip("no user namespaces here (unshare --user, of util-linux)")
    write_measured(folder / "other", MeasuredRun())
    exported = etprof(folder, "export toy_cnn --dtype fp32 --outdir .")
    assert exported.exit_code == 0, exported.stderr
    measured = etprof(
        folder, "profile toy_cnn_xnnpack_fp32.pte --blocks 2 --min-seconds 0.02 --out run"
    )
    assert measured.exit_code == 0, measured.stderr
    return folder


def etprof(folder: Path, words: str) -> Completed:
    return as_nobody(folder, sys.executable, "-m", "etprof", *words.split())


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ("analyze run", 0),
        ("report run --format md,csv", 0),
        ("validate run", 0),
        ("doctor", 0),
        ("models", 0),
        ("history add run other --store h.sqlite", 0),
        ("history list --store h.sqlite", 0),
        ("config init --model toy_cnn --out c.json", 0),
        ("run c.json --dry-run", 0),
        ("completion bash", 0),
        ("export-llm missing.yaml", 2),
    ],
)
def test_every_command_answers(world: Path, words: str, exit_code: int) -> None:
    done = etprof(world, words)
    assert done.exit_code == exit_code, done.stderr
    assert not (world / "~").exists()


def test_adb_starts(world: Path) -> None:
    if shutil.which("adb") is None:
        pytest.skip("no adb here: apt-get install adb")
    try:
        done = etprof(world, "device list")
        assert done.exit_code == 0, done.stderr
    finally:
        as_nobody(world, "adb", "kill-server")


def test_what_it_left_is_its_own(world: Path) -> None:
    """No HOME, so the folder for temporary files: of this user alone."""
    assert etprof(world, "doctor").exit_code == 0
    (folder,) = (world / "tmp").glob("etprof-user-*")
    assert folder.name == f"etprof-user-{UID}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_uid == os.getuid()
