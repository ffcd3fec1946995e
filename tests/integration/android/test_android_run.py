"""`etprof run` on a device: whatever happens to it, finished blocks stay and --resume completes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from etprof.base.limits import USUAL_OPERATOR_LAUNCHES
from etprof.base.process import Completed, run_command
from tests.android_device.network import wait_until
from tests.integration.android.test_android_faults import running_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android

# On the device, before the runner: the fault happens while its file is there.
_FAULTS = """
[ -e {flags}/hang ] && sleep 1000
[ -e {flags}/crash ] && kill -SEGV $$
if [ -e {flags}/full ]; then
  mkdir -p {small}/out && rmdir out && ln -s {small}/out out && cat /dev/zero >{small}/fill
fi
exec "$@"
"""


@dataclass(frozen=True)
class Run:
    """A config, its run directory, and the folder whose files make faults."""

    config: Path
    folder: Path
    flags: Path

    def etprof(self, *words: str) -> Completed:
        return run_command([*self.command(*words)], timeout_s=300)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "etprof", *words]

    def finished(self) -> dict[str, int]:
        """Results of timing blocks that the journal counts as finished, and when written."""
        manifest = self.folder / "manifest.json"
        launches = json.loads(manifest.read_text())["launches"] if manifest.exists() else []
        endings = tuple(
            f"_b{launch['block']:02d}_result.json"
            for launch in launches
            if launch["purpose"] == "timing" and launch["error"] is None
        )
        results = self.folder.rglob("*_b[0-9]*_result.json")
        return {p.name: p.stat().st_mtime_ns for p in results if p.name.endswith(endings)}

    def start(self) -> subprocess.Popen[str]:
        """Starts the run and returns once its first block has finished."""
        # Background jobs of a script ignore interrupts, and what they start inherits that.
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            process = subprocess.Popen(
                self.command("run", str(self.config)), stderr=subprocess.PIPE, text=True
            )
        finally:
            signal.signal(signal.SIGINT, ours)
        wait_until(lambda: len(self.finished()) > 0, "no block finished", limit_s=60)
        return process


@pytest.fixture
def measured(
    device: LoopbackDevice, emulated: Emulated, program: Path, tmp_path: Path
) -> Iterator[Run]:
    flags = tmp_path / "flags"
    flags.mkdir()
    small = shlex.quote(str(device.small_folder))
    faults = _FAULTS.format(flags=shlex.quote(str(flags)), small=small)
    config = tmp_path / "config.json"
    run = Run(config, tmp_path / "runs of 'x'", flags)
    document = {
        "model": str(program),
        "output_root": str(run.folder),
        "target": {
            "kind": "android",
            "serial": device.serial,
            "remote_folder": str(device.root),
            "reconnect_s": 1,
        },
        "experiments": [
            {
                "name": "on",
                "sme": "sme2",
                "runs": 2,
                "warmup": 1,
                "runner_path": str(emulated.runner),
                "launcher": ["sh", "-c", faults, "sh", *emulated.launcher],
            }
        ],
        "measurement": {"blocks": 4, "min_seconds": 0.05, "etdump_runs": 2, "timeout_s": 8},
    }
    config.write_text(json.dumps(document))
    yield run
    if not device.is_attached():
        device.plug_in()


def check_complete(run: Run) -> None:
    """The run has all blocks and its operator launches, and says of itself that it is sound."""
    assert len(run.finished()) == 4
    assert len(list(run.folder.rglob("*.etdump"))) == USUAL_OPERATOR_LAUNCHES
    done = run.etprof("validate", str(run.folder))
    assert done.exit_code == 0, done.stdout + done.stderr


def test_a_run_records_the_device_and_its_state(device: LoopbackDevice, measured: Run) -> None:
    device.set_property("ro.product.model", "Phone X")
    device.set_dumpsys("thermalservice", "Thermal Status: 1")
    done = measured.etprof("run", str(measured.config))
    assert done.exit_code == 0, done.stderr
    check_complete(measured)
    manifest = json.loads((measured.folder / "manifest.json").read_text())
    assert manifest["platform"] == "android"
    assert manifest["target"]["model"] == "Phone X"
    assert manifest["target"]["profile"] is None
    for launch in manifest["launches"]:
        for state in (launch["state_before"], launch["state_after"]):
            assert state["frequency_khz"][0] == 1_800_000
            assert state["temperatures_c"] == {"cpu-0-0-usr": 41.2}
            assert state["thermal_status"] == "light"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("hang", "the runner did not end within 8 s on device 127.0.0.1:5555 and was stopped"),
        ("crash", "device 127.0.0.1:5555: etprof-runner was killed by SIGSEGV"),
        ("full", "No space left"),
        ("lost", "did not return within 1 s; what was finished is kept"),
        ("interrupted", "etprof: interrupted; finished work is kept"),
    ],
)
def test_finished_blocks_stay_and_resume_completes(
    device: LoopbackDevice, measured: Run, fault: str, message: str
) -> None:
    process = measured.start()
    if fault == "lost":
        device.unplug()
    elif fault == "interrupted":
        process.send_signal(signal.SIGINT)
    else:
        (measured.flags / fault).touch()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode not in {0, 1}
    assert message in stderr
    assert "Traceback" not in stderr
    assert running_on(device) == [] or fault == "lost"
    kept = measured.finished()
    assert 1 <= len(kept) < 4
    if fault == "lost":
        device.plug_in()
    elif fault == "full":
        device.empty_small_folder()
    (measured.flags / fault).unlink(missing_ok=True)
    resumed = measured.etprof("run", str(measured.config), "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    check_complete(measured)
    assert {name: time for name, time in measured.finished().items() if name in kept} == kept
