"""S3-3: no HOME and no user name. What is optional for an answer does not end it."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from etprof.base.errors import OutputError
from etprof.base.files import expand_home, provide_home, user_folder
from etprof.run.load import Run
from etprof.run.peaks import Peaks
from etprof.targets.peaks import keep_peaks, with_peaks
from tests.measured_runs import MeasuredRun, write_measured


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uid without an entry in the list of users; returns the folder for temporary files."""

    def missing(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", missing)
    for name in ("HOME", "XDG_CACHE_HOME", "ETPROF_CACHE", "USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_xdg_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_folder("XDG_CACHE_HOME", ".cache") == tmp_path / ".cache" / "etprof"
    # "All paths must be absolute. If a relative path is encountered, ignore it."
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert user_folder("XDG_CACHE_HOME", ".cache") == tmp_path / ".cache" / "etprof"
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    assert user_folder("XDG_CACHE_HOME", ".cache") == Path("/there/etprof")


def test_the_list_of_users_says_where_home_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert user_folder("XDG_STATE_HOME", ".local/state") == home / ".local/state/etprof"


def test_without_home_it_is_a_folder_of_this_user_alone(nobody: Path) -> None:
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    private = nobody / f"etprof-user-{os.getuid()}"
    assert folder == private / ".cache" / "etprof"
    assert private.stat().st_mode & 0o777 == 0o700
    assert user_folder("XDG_CACHE_HOME", ".cache") == folder
    assert user_folder("XDG_STATE_HOME", ".local/state") == private / "state" / "etprof"


@pytest.mark.parametrize("how", ["link", "open to all", "file"])
def test_a_folder_that_somebody_else_may_have_made_is_not_used(nobody: Path, how: str) -> None:
    """Programs that the emulator starts are kept there."""
    private = nobody / f"etprof-user-{os.getuid()}"
    if how == "link":
        (nobody / "theirs").mkdir(mode=0o700)
        private.symlink_to(nobody / "theirs")
    elif how == "file":
        private.touch(mode=0o600)
    else:
        private.mkdir()
        private.chmod(0o777)
    with pytest.raises(OutputError, match=r"is not this user's alone; set HOME or XDG_CACHE_HOME"):
        user_folder("XDG_CACHE_HOME", ".cache")


def test_no_folder_at_all_is_said(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(nobody / "none"))
    with pytest.raises(OutputError, match="no folder for etprof's own files"):
        user_folder("XDG_CACHE_HOME", ".cache")


def test_a_run_is_shown_where_no_peaks_can_be_kept(nobody: Path) -> None:
    """`profile` ended in 70 after it had measured."""
    run = Run.load(write_measured(nobody / "run", MeasuredRun()), strict=False)
    assert run.is_timed
    assert with_peaks(run) == run
    (nobody / f"etprof-user-{os.getuid()}").chmod(0o777)
    assert with_peaks(run) == run


def test_a_path_with_a_tilde_stays_where_nobody_has_a_home(nobody: Path) -> None:
    assert nobody.is_dir()
    assert expand_home("~/a.json") == Path("~/a.json")


def test_what_is_started_has_a_home(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`device list` said that adb cannot connect to its server, which ends without HOME."""
    provide_home()
    assert os.environ["HOME"] == str(nobody / f"etprof-user-{os.getuid()}")
    monkeypatch.setenv("HOME", "/somewhere")
    provide_home()
    assert os.environ["HOME"] == "/somewhere"


def test_peaks_are_kept_by_who_has_no_home(nobody: Path) -> None:
    peaks = Peaks(device="a", measured_at="2026-11-25T00:00:00+00:00", peaks=())
    assert keep_peaks(peaks).is_relative_to(nobody / f"etprof-user-{os.getuid()}")
