"""A model on a device: files go there, the runner runs there, results come back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import InputFileError, TargetError, UsageError
from etprof.etdump.reader import load_etdump
from etprof.targets.android.adb import Adb
from etprof.targets.android.target import AndroidTarget
from tests.android_device.device import adb
from tests.integration.android.conftest import make_target

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.targets.request import RunnerRequest
    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android


def test_everything_asked_for_comes_back(target: AndroidTarget, request_: RunnerRequest) -> None:
    folder = request_.result.parent
    request = dataclasses.replace(
        request_, etdump=folder / "run.etdump", outputs=folder / "out", sme="sme2", cpus=(0,)
    )
    result = target.run(request)
    assert result.cpu.architecture == "aarch64"
    assert result.cpu.has_sme2
    assert len(result.latency_ns) == 2
    assert json.loads(request.result.read_text())["schema_version"] == 1
    assert load_etdump(folder / "run.etdump").size_bytes > 1000
    assert [p.name for p in (folder / "out").iterdir()] == ["output_0.bin"]
    assert sorted(p.name for p in folder.iterdir()) == ["out", "result.json", "run.etdump"]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were copied to a device."""
    files: list[Path] = []
    push = Adb.push

    def keep(adb: Adb, local: Path, remote: str) -> None:
        files.append(local)
        push(adb, local, remote)

    monkeypatch.setattr(Adb, "push", keep)
    return files


def test_only_what_changed_is_copied(  # noqa: PLR0917 - fixtures
    device: LoopbackDevice,
    emulated: Emulated,
    target: AndroidTarget,
    request_: RunnerRequest,
    tmp_path: Path,
    copied: list[Path],
) -> None:
    target.run(request_)
    copied.clear()
    target.run(request_)
    again = make_target(device, emulated)
    again.run(request_)
    assert not copied
    changed = tmp_path / request_.model.name
    changed.write_bytes(request_.model.read_bytes() + b"\0")
    again.run(dataclasses.replace(request_, model=changed))
    assert copied == [changed]


def test_a_file_that_was_damaged_on_the_device_is_copied_again(
    device: LoopbackDevice,
    emulated: Emulated,
    target: AndroidTarget,
    request_: RunnerRequest,
    copied: list[Path],
) -> None:
    target.run(request_)
    folder = hashlib.sha256(request_.model.read_bytes()).hexdigest()[:32]
    stored = device.root / "etprof-store" / folder / request_.model.name
    stored.write_bytes(b"damaged")
    copied.clear()
    make_target(device, emulated).run(request_)
    assert copied == [request_.model]
    assert stored.read_bytes() == request_.model.read_bytes()


def test_nothing_of_a_launch_stays_on_the_device(
    device: LoopbackDevice, target: AndroidTarget, request_: RunnerRequest
) -> None:
    target.run(request_)
    assert [p.name for p in device.root.iterdir()] == ["etprof-store"]


def test_names_are_data_for_every_shell(
    device: LoopbackDevice, target: AndroidTarget, request_: RunnerRequest, tmp_path: Path
) -> None:
    assert "$(touch injected)" in request_.model.name
    assert "$(a)" in str(device.root)
    method = "$(touch injected) '; touch injected; '"
    with pytest.raises(Exception, match="touch injected"):
        target.run(dataclasses.replace(request_, method=method))
    target.run(request_)
    assert not list(device.folder.rglob("injected"))
    assert not list(tmp_path.rglob("injected"))


def test_a_result_of_an_earlier_launch_is_never_taken(
    device: LoopbackDevice, target: AndroidTarget, request_: RunnerRequest
) -> None:
    request_.result.parent.mkdir()
    request_.result.write_text("an earlier result")
    silent = dataclasses.replace(request_, launcher=("sh", "-c", "exit 0"))
    with pytest.raises(Exception, match=r"left no result\.json"):
        target.run(silent)
    assert request_.result.read_text() == "an earlier result"


def test_the_runners_own_errors_name_the_file_here(
    device: LoopbackDevice, target: AndroidTarget, request_: RunnerRequest, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(b"not a program")
    with pytest.raises(InputFileError) as caught:
        target.run(dataclasses.replace(request_, model=broken))
    assert str(caught.value).startswith(f"device {device.serial}: ")
    assert str(broken) in str(caught.value)
    assert str(device.root) not in str(caught.value)
    assert not request_.result.exists()


def test_a_runner_that_is_not_there_is_said(
    device: LoopbackDevice, target: AndroidTarget, request_: RunnerRequest
) -> None:
    with pytest.raises(TargetError) as caught:
        target.run(dataclasses.replace(request_, launcher=("no-such-launcher",)))
    assert f"device {device.serial} cannot start the runner: " in str(caught.value)
    assert "android-sme2" in str(caught.value)


def test_the_log_of_the_process_is_kept_and_the_devices_log_left_alone(
    device: LoopbackDevice, emulated: Emulated, target: AndroidTarget, request_: RunnerRequest
) -> None:
    """R136: of the two tags one was asked of the log by name alone."""
    old = "01-01 00:00:00.000 1 1 I ExecuTorch: of another process\n"
    (device.state / "log").write_text(old)
    logging = (
        "now=$(date +'%m-%d %H:%M:%S.500'); "
        'for tag in XNNPACK ExecuTorch Other; do echo "$now $$ $$ I $tag: Using gemm"; done >>$DEVICE_STATE/log; '
        'exec "$@"'
    )
    launcher = ("sh", "-c", logging, "sh", *emulated.launcher)
    target.run(dataclasses.replace(request_, launcher=launcher))
    lines = request_.result.with_name("result_logcat.txt").read_text().splitlines()
    assert [line.partition(" I ")[2] for line in lines] == [
        "XNNPACK: Using gemm",
        "ExecuTorch: Using gemm",
    ]
    assert (device.state / "log").read_text().startswith(old)


def test_the_cpu_says_which_modes_it_has(target: AndroidTarget) -> None:
    assert target.sme_modes() == ("sme2", "sme1", "off")
    assert target.default_threads() == 1


def test_frequencies_and_heat_are_recorded(device: LoopbackDevice, target: AndroidTarget) -> None:
    device.set_dumpsys("thermalservice", "Thermal Status: 2")
    state = target.read_state()
    assert state.frequency_khz[0] == 1_800_000
    assert state.governor == "schedutil"
    assert state.temperatures_c == {"cpu-0-0-usr": 41.2}
    assert state.load_average is not None
    assert state.thermal_status == "moderate"


def test_a_device_says_who_it_is(device: LoopbackDevice, target: AndroidTarget) -> None:
    device.set_property("ro.product.model", "Phone \x1b[31m<b>X</b>")
    device.set_property("ro.soc.model", "SM8750")
    identity = target.describe()
    assert identity["model"] == "Phone \\x1b[31m<b>X</b>"
    assert identity["soc_model"] == "SM8750"
    assert identity["android_version"] is None
    assert identity["frequency_governor"] == "schedutil"
    assert identity["profile"] is None
    assert identity["battery"] is None
    assert isinstance(identity["kernel"], str)


def test_a_device_is_chosen_by_serial_or_because_it_is_the_only_one(
    device: LoopbackDevice, second_device: LoopbackDevice
) -> None:
    with pytest.raises(UsageError) as caught:
        _ = AndroidTarget().adb
    text = str(caught.value)
    assert text.startswith("2 devices are attached: ")
    assert f"{device.serial} (device" in text
    assert f"{second_device.serial} (device" in text
    assert text.endswith("; choose one with --serial")
    assert AndroidTarget(second_device.serial).adb.serial == second_device.serial
    adb("disconnect", second_device.serial)
    assert AndroidTarget().adb.serial == device.serial
    assert AndroidTarget(address=second_device.serial).adb.serial == second_device.serial
