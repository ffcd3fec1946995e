"""The devices of the android lane: real adb, real adbd, real aarch64 runner through qemu."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

import etprof.targets.android.target
from etprof.base.errors import BuildError, InputFileError
from etprof.base.process import run_command
from etprof.targets.android.target import AndroidTarget
from etprof.targets.emulator.installation import locate
from etprof.targets.request import RunnerRequest
from tests.android_device.device import LoopbackDevice
from tests.android_device.network import Network, explain_absence
from tests.android_device.packages import bring_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.android_device.packages import Daemon


def _give_up(reason: str) -> NoReturn:
    """Skips; fails where ETPROF_ANDROID_REQUIRED says that nothing may be missing."""
    if os.environ.get("ETPROF_ANDROID_REQUIRED"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    """The real adbd."""
    reason = explain_absence()
    if reason is not None:
        _give_up(f"no Android device can be played: {reason}")
    try:
        return bring_daemon(tmp_path_factory.mktemp("adbd"))
    except BuildError as error:
        _give_up(f"adbd cannot be had: {error}")


@pytest.fixture(scope="session")
def network(daemon: Daemon) -> Iterator[Network]:
    """adb's server; every adb of this process talks to it."""
    network = Network()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADB_SERVER_SOCKET", network.socket)
        patch.setenv("XDG_STATE_HOME", str(network.folder / "state"))
        patch.delenv("ANDROID_SERIAL", raising=False)
        yield network
    network.close()


@pytest.fixture(scope="session")
def shared_device(
    daemon: Daemon, network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoopbackDevice]:
    """A device for all tests, so that the runner is copied to it once."""
    device = LoopbackDevice(
        network, daemon, tmp_path_factory.mktemp("phone") / "it's $(a) phone", 5555
    )
    yield device
    device.close()


@pytest.fixture
def device(shared_device: LoopbackDevice) -> LoopbackDevice:
    """The shared device with nothing set on it; files in its store stay."""
    shared_device.forget_state()
    return shared_device


@pytest.fixture
def second_device(daemon: Daemon, network: Network, tmp_path: Path) -> Iterator[LoopbackDevice]:
    """Another device beside the shared one."""
    device = LoopbackDevice(network, daemon, tmp_path / "second", 5557)
    yield device
    device.close()


@dataclass(frozen=True)
class Emulated:
    """The aarch64 runners, and what starts them on a device that is no Arm."""

    runner: Path
    trace_runner: Path
    launcher: tuple[str, ...]


BIONIC_VARIABLE = "ETPROF_BIONIC_ROOT"
"""Names a folder with Android's own system/bin/linker64 and system/lib64: the device then runs the
runners of build/android-sme2 with them, instead of the emulator's with glibc."""
BUILT = Path(__file__).parents[3] / "build"


def bionic_root() -> Path | None:
    """Returns the folder that is named; None where there is none."""
    named = os.environ.get(BIONIC_VARIABLE)
    return Path(named).resolve() if named else None


@pytest.fixture(scope="session")
def emulated() -> Emulated:
    """The emulator's runners, or those for Android, and qemu with the libraries that they need."""
    try:
        emulator = locate()
    except (BuildError, InputFileError) as error:
        _give_up(f"no aarch64 runner: {error}")
    root, runners = emulator.sysroot, (emulator.runner, emulator.trace_runner)
    if (bionic := bionic_root()) is not None:
        folder = BUILT / "android-sme2" / "cpp" / "runner"
        root, runners = bionic, (folder / "etprof-runner", folder / "etprof-runner-trace")
        if not all(runner.is_file() for runner in runners):
            pytest.fail("build the runners first: `cmake --workflow --preset android-sme2`")
    cpu = "max,sme-default-vector-length=64"
    return Emulated(*runners, (str(emulator.qemu), "-cpu", cpu, "-L", str(root)))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """toy_cnn under a name that no shell takes well."""
    folder = tmp_path_factory.mktemp("program")
    words = ("export", "toy_cnn", "--dtype", "fp32", "--outdir", str(folder))
    done = run_command([sys.executable, "-m", "etprof", *words], timeout_s=300, folder=folder)
    assert done.exit_code == 0, done.stderr
    exported = folder / "toy_cnn_xnnpack_fp32.pte"
    named = folder / "toy 'n' \"cnn\" $(touch injected) `x`;&.pte"
    shutil.copy2(exported, named)
    return named


@pytest.fixture
def target(device: LoopbackDevice, emulated: Emulated) -> AndroidTarget:
    """The shared device as a target."""
    return make_target(device, emulated)


def make_target(
    device: LoopbackDevice, emulated: Emulated, *, reconnect_s: float = 20
) -> AndroidTarget:
    """Returns a new target, as another etprof process would have it."""
    return AndroidTarget(
        device.serial,
        runner=emulated.runner,
        launcher=emulated.launcher,
        root=str(device.root),
        reconnect_s=reconnect_s,
    )


@pytest.fixture
def phone(
    device: LoopbackDevice, emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> LoopbackDevice:
    """The device as commands find it, which is no Arm: what starts its programs comes along."""
    own = functools.partial(AndroidTarget, launcher=emulated.launcher, root=str(device.root))
    monkeypatch.setattr(etprof.targets.android.target, "AndroidTarget", own)
    return device


@pytest.fixture
def request_(program: Path, tmp_path: Path) -> RunnerRequest:
    """The shortest launch of toy_cnn."""
    return RunnerRequest(
        model=program, result=tmp_path / "it's $(here)" / "result.json", iterations=2, threads=1
    )
