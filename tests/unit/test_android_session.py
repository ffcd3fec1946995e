"""One launch on a phone, whose adb and shell are this host's: what is sent, ended, brought, left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from etprof.base.errors import BuildError, TargetError
from etprof.base.process import ProgramTimeoutError
from etprof.run.directory import list_files
from etprof.targets.android.adb import Adb
from etprof.targets.android.session import DeviceSession, RemoteFile, bring_results
from etprof.targets.android.target import AndroidTarget, translate
from etprof.targets.leftovers import mark_of
from etprof.targets.request import RunnerRequest
from tests.unit.test_android_libraries import android_note, write_elf
from tests.world.results import result_document

if sys.platform != "linux":
    pytest.skip("the phone's shell is Linux's", allow_module_level=True)

ADB = """#!/bin/sh
# adb for one device, which is this host: what is in `state` makes it fail, once.
state=$(dirname "$0")/state
[ "$1" = -s ] && shift 2
case "$1" in
devices) echo 'P1 device model:Host' ;;
get-state) echo device ;;
shell)
  if [ -e "$state/away" ] && [ "$(cat "$state/away")" = launch ] && echo "$2" | grep -q leader; then
    rm -rf "$state/away" "$state/../data/etprof/etprof-store"
    echo "error: device 'P1' not found" >&2; exit 1
  fi
  exec setsid -w sh -c "$2" ;;
push) cp "$2" "$3" ;;
pull) cp "$2" "$3"; [ ! -e "$state/changes" ] || echo >>"$3" ;;
esac
"""
RUNNER = """#!/bin/sh
# Stands before the runner: answers as it would, or ends as `state` says.
here=$(dirname "$0")
for word in "$@"; do
  case "$word" in
  --model=*) test -s "${word#--model=}" || { echo "etprof-runner: no model" >&2; exit 4; } ;;
  --result=*) cp "$here/result.json" "${word#--result=}" ;;
  esac
done
[ ! -e "$here/state/crashes" ] || kill -SEGV $$
"""


@dataclass(frozen=True)
class Phone:
    """The folder of a phone: its commands, what it keeps, and what is about to go wrong."""

    folder: Path
    target: AndroidTarget
    request: RunnerRequest

    def will(self, what: str, when: str = "") -> None:
        (self.folder / "state" / what).write_text(when)

    @property
    def root(self) -> Path:
        return Path(self.target.root)


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phone:
    folder = tmp_path / "it's $(a) phone"
    (folder / "state").mkdir(parents=True)
    for name, text in (("adb", ADB), ("runner.sh", RUNNER)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "result.json").write_text(json.dumps(result_document(1000)))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    (tmp_path / "m.pte").write_bytes(b"program")
    target = AndroidTarget(
        runner=write_elf(tmp_path / "etprof-runner"),
        launcher=(str(folder / "runner.sh"),),
        root=str(folder / "data/etprof"),
        reconnect_s=5,
    )
    result = tmp_path / "out" / "result.json"
    return Phone(folder, target, RunnerRequest(model=tmp_path / "m.pte", result=result))


def test_a_launch_leaves_its_result_here_and_nothing_there(phone: Phone) -> None:
    result = phone.target.run(phone.request)
    assert set(result.latency_ns) == {1000}
    assert [each.name for each in phone.root.iterdir()] == ["etprof-store"]


def test_a_signal_there_is_one_here(phone: Phone) -> None:
    """Mutant 60: the shell says 139, which no runner of ours ends with."""
    phone.will("crashes")
    with pytest.raises(TargetError, match="killed by SIGSEGV"):
        phone.target.run(phone.request)
    assert not phone.request.result.exists()


@pytest.mark.parametrize(("answer", "is_new_enough"), [("30", False), ("35", True), ("?", True)])
def test_a_runner_of_a_newer_android_never_gets_there(
    phone: Phone, answer: str, *, is_new_enough: bool
) -> None:
    property_reader = phone.folder / "getprop"
    property_reader.write_text(f'#!/bin/sh\n[ "$1" = ro.build.version.sdk ] && echo "{answer}"\n')
    property_reader.chmod(0o755)
    assert phone.target.runner is not None
    write_elf(phone.target.runner, notes=android_note(35))
    if is_new_enough:
        phone.target.run(phone.request)
        return
    with pytest.raises(BuildError, match="API level 35, and the device has 30"):
        phone.target.run(phone.request)
    assert not phone.root.exists()


def test_a_file_that_arrives_changed_is_refused(phone: Phone) -> None:
    """Mutant 58: what came is compared with the SHA-256 of what the device has."""
    phone.will("changes")
    with pytest.raises(TargetError, match="arrived changed"):
        phone.target.run(phone.request)
    assert not phone.request.result.exists()


def test_a_phone_that_comes_back_is_asked_again_what_it_has(phone: Phone) -> None:
    """Mutant 61: it may have lost its files while it was away."""
    phone.target.run(phone.request)
    phone.will("away", "launch")
    assert set(phone.target.run(phone.request).latency_ns) == {1000}
    assert phone.target.reconnections == 1


def test_the_result_is_brought_last() -> None:
    """Mutant 59: whoever has a result has all that its launch left."""
    request = RunnerRequest(
        model=Path("m.pte"), result=Path("r.json"), etdump=Path("e"), outputs=Path("o")
    )
    there, wanted = translate(request, {Path("m.pte"): "/data/m.pte"}, "/data/out")
    assert wanted == [
        ("run.etdump", Path("e")), ("outputs", Path("o")), ("result.json", Path("r.json")),
    ]  # fmt: skip
    assert (there.model, there.result) == (Path("/data/m.pte"), Path("/data/out/result.json"))


def test_what_a_killed_etprof_left_is_ended_and_that_of_others_stays(phone: Phone) -> None:
    """Mutant 57: its runner would disturb every time that is measured."""
    own = DeviceSession(phone.target.adb, str(phone.root))
    start = own.folder.rpartition("/")[2].partition(f"-{os.getpid()}-")[0]
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = phone.root / f"{start}-{gone.pid}-12345-abc"
    living = phone.root / f"{start}-{os.getpid()}-{mark_of(os.getpid())}-abc"
    for folder in (left, living):
        folder.mkdir(parents=True)
    # A process group whose first names the session, as the script of a launch does.
    runner = subprocess.Popen(
        ["sh", "-c", f": {left.name}; sleep 600 & wait"], start_new_session=True
    )
    (left / "leader").write_text(str(runner.pid))
    (left / "pid").write_text(str(runner.pid))
    try:
        own.remove_leftovers()
        assert not left.exists()
        assert living.exists()
        assert runner.wait(timeout=60) < 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)


def test_what_is_not_brought_whole_is_temporary(tmp_path: Path) -> None:
    """A-D24: validate and --resume knew no name that a copy has until it is whole."""
    seen: list[tuple[str, bool]] = []

    class Watched(Adb):
        def pull(self, remote: str, local: Path, *, size_bytes: int) -> None:  # noqa: ARG002
            local.write_bytes(b"x")
            there = [path for path in tmp_path.rglob("*") if path.is_file()]
            known = list_files(tmp_path)
            names = [path.relative_to(tmp_path).as_posix() for path in there]
            seen.extend((name, name in known and known[name].is_temporary) for name in names)

    sent = RemoteFile(hashlib.sha256(b"x").hexdigest(), 1)
    wanted = [("outputs", tmp_path / "on" / "m_on_t1_outputs")]
    bring_results(Watched("P1"), "/data/out", {"outputs/output_0.bin": sent}, wanted)
    wanted = [("run.etdump", tmp_path / "on" / "m_on_t1.etdump")]
    shutil.rmtree(tmp_path / "on")
    bring_results(Watched("P1"), "/data/out", {"run.etdump": sent}, wanted)
    assert [is_temporary for _, is_temporary in seen] == [True, True], seen


class LastingAdb:
    """A device on which no launch ends in time."""

    serial = "P1"

    def shell(self, *_: object, **__: object) -> None:
        raise ProgramTimeoutError("too long")


def test_what_may_still_run_is_ended_before_the_next_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(DeviceSession, "_stop", lambda _, name: ended.append(name))
    session = DeviceSession(LastingAdb(), "/data/etprof")  # type: ignore[arg-type]
    for before in (0, 1, 2):
        with pytest.raises(ProgramTimeoutError, match=r"did not end within 2 s on device P1"):
            session.launch(["true"], 2)
        assert len(ended) == before
