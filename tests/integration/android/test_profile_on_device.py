"""`etprof profile --target android` and `etprof run` on the real adb and adbd, SME2 on and off."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.api import load_run
from etprof.cli import main
from etprof.run.manifest import load_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android
QUICK = ("--blocks", "2", "--min-seconds", "0.001", "--iterations", "1", "--warmup", "0")
EXPERIMENTS = ["android_sme2", "android_sme1", "android_off"]


def purposes(run: Path) -> set[tuple[str, str]]:
    manifest = load_manifest(run)
    assert manifest is not None
    assert [launch.error for launch in manifest.launches if launch.error] == []
    return {(launch.experiment, launch.purpose) for launch in manifest.launches}


def test_without_a_trace_runner_the_profile_ends_well(
    phone: LoopbackDevice,
    emulated: Emulated,
    program: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """T4: it ended in rc 2, after everything was measured, for a flag that nobody gave."""
    run = tmp_path / "run"
    words = ["profile", str(program), "--target", "android", "--serial", phone.serial]
    assert main([*words, "--runner", str(emulated.runner), "--out", str(run), *QUICK]) == 0
    (way,) = [line for line in capsys.readouterr().err.splitlines() if "grade A" in line]
    assert "--trace-runner" in way
    assert purposes(run) == {(e, p) for e in EXPERIMENTS for p in ("timing", "operators")}
    grades = set(load_run(run).operators()["kernel_grade"].dropna())
    assert grades == {"B"}
    assert main(["validate", str(run)]) == 0


def test_with_a_trace_runner_the_kernels_are_counted(
    phone: LoopbackDevice, emulated: Emulated, program: Path, tmp_path: Path
) -> None:
    """T4: nothing, flag or config, could name a runner that counts."""
    run, traced = tmp_path / "run", str(emulated.trace_runner)
    words = ["profile", str(program), "--target", "android", "--serial", phone.serial]
    words += ["--runner", str(emulated.runner), "--trace-runner", traced]
    assert main([*words, "--out", str(run), *QUICK]) == 0
    asked = ("timing", "operators", "kernels")
    assert purposes(run) == {(e, p) for e in EXPERIMENTS for p in asked}
    assert set(load_run(run).operators()["kernel_grade"].dropna()) == {"A"}
    assert main(["validate", str(run)]) == 0
    # AND a run of the same as a config counts likewise, and is resumed
    config = {
        "model": str(program),
        "output_root": str(tmp_path / "again"),
        "target": {"kind": "android", "serial": phone.serial, "trace_runner": traced},
        "experiments": [
            {"name": f"android_{sme}", "sme": sme, "runs": 1, "runner_path": str(emulated.runner)}
            for sme in ("sme2", "off")
        ],
        "measurement": {"blocks": 2, "min_seconds": 0.001, "etdump_runs": 1},
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    assert main(["run", str(tmp_path / "c.json")]) == 0
    assert main(["run", str(tmp_path / "c.json"), "--resume"]) == 0
    assert purposes(tmp_path / "again") == {
        (e, p) for e in ("android_sme2", "android_off") for p in asked
    }
    assert set(load_run(tmp_path / "again").operators()["kernel_grade"].dropna()) == {"A"}
    assert main(["validate", str(tmp_path / "again")]) == 0
