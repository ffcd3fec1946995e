"""S2, I11: nothing that etprof has started outlives it, however it ends; leftovers are ended."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from etprof.base.errors import BuildError, InputFileError
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.targets.device_lock import FOLDER_VARIABLE
from etprof.targets.emulator.installation import locate
from tests.process_tree import ProcessTree, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
FORKS = '#!/bin/sh\n"$@" &\nwait $!\n'
"""A launcher whose runner is not the process that etprof has started."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    return export_model(ExportRequest("toy_cnn", "fp32", outdir=folder)).pte


@dataclass
class Machine:
    """A folder to measure in, with locks of its own."""

    folder: Path
    program: Path
    tree: ProcessTree = field(default_factory=ProcessTree)

    def config(self, kind: str, *, seconds: float = 60) -> Path:
        """Writes a config whose launches outlast every test, but not a test that has failed."""
        experiment: dict[str, object] = {"name": "one", "threads": 1, "sme": "auto"}
        if kind == "launcher":
            forks = self.folder / "forks.sh"
            forks.write_text(FORKS)
            forks.chmod(0o755)
            experiment["launcher"] = [str(forks)]
        content = {
            "model": str(self.program),
            "output_root": str(self.folder / "run"),
            "experiments": [experiment],
            "measurement": {"blocks": 2, "min_seconds": seconds, "etdump_runs": 1},
            **({"target": {"kind": "emulator"}} if kind == "emulator" else {}),
        }
        path = self.folder / "config.json"
        path.write_text(json.dumps(content))
        return path

    def start(self, *words: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*before, sys.executable, "-m", "etprof", *map(str, words)],
            cwd=self.folder,
            encoding="utf-8",
            env={**os.environ, **self.tree.environment, FOLDER_VARIABLE: str(self.locks)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @contextmanager
    def measuring(
        self, kind: str, *, before: tuple[str, ...] = ()
    ) -> Iterator[subprocess.Popen[str]]:
        """An etprof in the middle of a launch."""
        process = self.start("run", self.config(kind), before=before)
        try:
            wait_for(self.runners, "no runner was started")
            yield process
        finally:
            process.kill()
            process.communicate()
            for left in self.tree.living():
                with suppress(ProcessLookupError):  # it may just have ended
                    os.kill(left, signal.SIGKILL)

    def runners(self) -> list[int]:
        """Processes of the runner itself, in a launch that does not end by itself.

        That is one that times; under emulation, which times nothing, any one lasts long enough.
        """
        found = self.tree.running("etprof-runner")
        words = {each: self.tree.living().get(each, "") for each in found}
        lasts = re.compile("--min-seconds=|qemu-aarch64.* --model=")
        return [each for each in found if lasts.search(words[each])]

    @property
    def locks(self) -> Path:
        return self.folder / "locks"

    def lock_is_free(self) -> bool:
        """Whether another etprof could measure now."""
        for path in self.locks.glob("*.lock"):
            with path.open("rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
        return True


@pytest.fixture
def machine(tmp_path: Path, program: Path) -> Machine:
    return Machine(tmp_path, program)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("kind", ["host", "launcher", "emulator"])
def test_nothing_outlives_etprof(machine: Machine, kind: str, number: signal.Signals) -> None:
    if kind == "emulator":
        try:
            locate()
        except (BuildError, InputFileError) as error:
            pytest.skip(f"no emulator: {error}")
    with machine.measuring(kind) as process:
        assert not machine.lock_is_free()  # what is not timed disturbs what is, too
        process.send_signal(number)
        said = process.communicate(timeout=30)[1]
        assert machine.tree.seconds_until_empty() is not None, machine.tree.living()
        # A process that ends lets go of its memory, by which the tree knows it, before its files.
        wait_for(machine.lock_is_free, "the lock is held by nobody")
    if number == signal.SIGKILL:
        return
    assert process.returncode == 128 + number
    asked = "" if number == signal.SIGINT else f" by {number.name}"
    assert said.splitlines()[-1] == f"etprof: interrupted{asked}; finished work is kept"
    assert "Traceback" not in said


def test_a_signal_that_is_ignored_stays_so(machine: Machine) -> None:
    """As under nohup, and of a background job."""
    ignoring = ("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh")
    with machine.measuring("host", before=ignoring) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        assert machine.runners()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


def test_a_leftover_of_a_crash_is_named_and_ended(machine: Machine) -> None:
    """Even when what guards the runner was killed too: the runner itself holds the lock."""
    with machine.measuring("launcher") as process:
        living = machine.tree.living()
        (guard,) = (each for each, words in living.items() if "base/guard.py" in words)
        os.kill(guard, signal.SIGKILL)
        process.kill()
        process.communicate()
        launcher, runner = sorted(machine.runners())
        assert not machine.lock_is_free()
        # WHEN another one wants to measure, and does not wait
        quick = machine.config("host", seconds=0.01)
        after = machine.start("run", quick, "--no-wait")
        said = after.communicate(timeout=60)[1]
    # THEN it says what it has ended, and measures alone
    assert after.returncode == 0, said
    (line,) = (line for line in said.splitlines() if line.startswith("Ended on this host: "))
    assert f"etprof-runner (process {runner})" in line
    assert f"(process {launcher})" in line
    assert re.search(rf"left by \S+ run \(process {process.pid} of .*\), which was killed$", line)


def test_nobody_else_is_ended(machine: Machine) -> None:
    """The file of a lock is anyone's to write: a process that does not hold the lock is safe."""
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger,
        machine.measuring("host") as process,
    ):
        (path,) = machine.locks.glob("*.lock")
        _, _, rest = path.read_text().partition("\n")
        path.write_text(f"{2**22 + 1} {stranger.pid} 1\n{rest}")
        after = machine.start("run", machine.config("host", seconds=0.01), "--no-wait")
        said = after.communicate(timeout=60)[1]
        assert after.returncode == 5, said
        assert stranger.poll() is None
        assert machine.runners()
        assert process.poll() is None
        stranger.kill()
