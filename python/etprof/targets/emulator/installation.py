"""Puts the emulator's parts together: finds them all, or brings the missing ones."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etprof.backends.executorch_version import pinned_version
from etprof.base.atomic import write_text
from etprof.base.errors import BuildError, InputFileError
from etprof.base.files import hash_file, read_bounded
from etprof.targets.emulator import build, qemu, sysroot
from etprof.targets.emulator.cache import SETUP, Cache
from etprof.targets.policy import RequiredPart

_SDK = "sdk"
_KEPT = ("executorch/lib/", "executorch/include/", "executorch/share/", "executorch/version.py")
_HASHES = "cmake/executorch-wheels.txt"
"""Beside the sources: what the index states of the pinned version's wheels; pip takes no others."""
_MOST_HASHES = 2**16
_PLATFORM = ("--platform", "manylinux_2_28_aarch64", "--python-version", "3.11")


def find_sdk(cache: Cache) -> Path | None:
    """Returns the cached SDK of the pinned version; None when another or none is there.

    Raises InputFileError when one of its libraries is damaged.
    """
    cache_part = cache.check(_SDK, suffixes=(".so",))
    if cache_part is None or cache_part.version != pinned_version():
        return None
    return cache.folder / _SDK / "executorch"


def fetch_sdk(cache: Cache, work: Path) -> str:
    """Downloads the aarch64 wheel and keeps its libraries and headers; returns its version."""
    version = pinned_version()
    downloads = work / "wheel"
    requirement = f"executorch=={version}"
    flags = ("--no-deps", "--only-binary=:all:", "--implementation", "cp", *_PLATFORM)
    lines = read_bounded(build.find_sources() / _HASHES, _MOST_HASHES).decode().splitlines()
    pinned = work / "pinned.txt"
    hashes = " ".join(line for line in lines if line.startswith("--hash="))
    write_text(pinned, f"{requirement} {hashes}\n")
    checked = ("--require-hashes", "--requirement", pinned)
    done = build.run_pip("download", *flags, *checked, "--dest", downloads)
    wheels = sorted(downloads.glob("*.whl")) if done.exit_code == 0 else []
    if not wheels:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.exit_code}"])[-1]
        msg = f"pip could not fetch the aarch64 wheel of {requirement}: {reason}; check the network"
        raise BuildError(msg)
    _extract(wheels[0], work / _SDK)
    source = f"{wheels[0].name}, SHA-256 {hash_file(wheels[0])}"
    cache.add(_SDK, version=version, source=source, folder=work / _SDK)
    return version


def _extract(wheel: Path, folder: Path) -> None:
    """Unpacks the SDK; raises BuildError for a file cut short."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith(_KEPT)]
            archive.extractall(folder, members)
    except (zipfile.BadZipFile, OSError) as error:
        msg = f"{wheel.name} cannot be unpacked: {error}; run the setup again"
        raise BuildError(msg) from error


@dataclass(frozen=True)
class Emulator:
    """Everything needed to run an Arm runner here."""

    qemu: Path
    sysroot: Path
    sdk: Path
    runner: Path
    trace_runner: Path

    def command(self, runner: Path, *, cpu: str = "max") -> list[str | Path]:
        """Returns the words in front of the runner's flags. `cpu` is qemu's -cpu value."""
        argv: list[str | Path] = [self.qemu, "-cpu", cpu]
        if not sysroot.is_native():
            argv += ["-L", self.sysroot]
        return [*argv, "-E", f"LD_LIBRARY_PATH={self.sdk / 'lib'}", runner]


@dataclass(frozen=True)
class _SetupStep:
    """How one part is found, and how it is brought."""

    name: str
    find: Callable[[Cache], Path | None]
    bring: Callable[[Cache, Path], str]
    is_current: Callable[[Cache], bool] = lambda _: True
    """Whether the installed part is up to date; used by the setup only."""


def _build_step(name: str, preset: str) -> _SetupStep:
    def bring(cache: Cache, work: Path) -> str:
        sdk = find_sdk(cache)
        if sdk is None:
            raise BuildError(f"the aarch64 SDK is not complete; run `{SETUP}` again")
        return build.build_runner(cache, work, preset=preset, sdk=sdk)

    return _SetupStep(
        name,
        lambda cache: build.find_runner(cache, preset),
        bring,
        lambda cache: build.is_current(cache, preset),
    )


STEPS = (
    _SetupStep("qemu-aarch64", qemu.find_qemu, qemu.fetch_qemu),
    _SetupStep("aarch64 runtime libraries", sysroot.find_sysroot, sysroot.fetch_sysroot),
    _SetupStep("ExecuTorch SDK for aarch64", find_sdk, fetch_sdk),
    _build_step("Arm runner", build.RUNNER_PRESET),
    _build_step("Arm runner with kernel trace", build.TRACE_PRESET),
)


def set_up(progress: Callable[[str, int, int], None]) -> list[str]:
    """Installs every missing part; returns one line about each.

    Whatever is complete stays, so a setup that was interrupted goes on where it stopped.
    """
    cache = Cache.find()
    build.check_compiler()
    lines = []
    with cache.work_folder() as work:
        for done, step in enumerate(STEPS):
            progress(step.name, done, len(STEPS))
            ready_path = _find_sound(step, cache)
            if ready_path is None:
                lines.append(f"{step.name}: {step.bring(cache, work)}")
            else:
                lines.append(f"{step.name}: already there, {ready_path}")
        progress("complete", len(STEPS), len(STEPS))
    return lines


def _find_sound(step: _SetupStep, cache: Cache) -> Path | None:
    """Finds the part; a damaged one in the cache counts as missing and is brought again."""
    try:
        path = step.find(cache)
    except InputFileError:
        return None
    return path if path and step.is_current(cache) else None


def find_parts() -> list[RequiredPart]:
    """Says of each part where it is or what is wrong with it."""
    cache = Cache.find()
    states = []
    for step in STEPS:
        try:
            path, problem = step.find(cache), None
        except (BuildError, InputFileError) as error:
            path, problem = None, str(error)
        states.append(RequiredPart(step.name, path, problem, SETUP))
    return states


def locate() -> Emulator:
    """Returns the complete emulator; raises BuildError that names the first missing part."""
    cache = Cache.find()
    paths = []
    for step in STEPS:
        path = step.find(cache)
        if path is None:
            msg = f"the emulator is not set up: {step.name} is missing or of another version; run `{SETUP}`"
            raise BuildError(msg)
        paths.append(path)
    return Emulator(*paths)
