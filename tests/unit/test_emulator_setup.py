"""What a setup of the emulator brings: from which suite, in which order, and what stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etprof.base.errors import BuildError, InputFileError
from etprof.targets.emulator import build, installation, qemu, sysroot
from etprof.targets.emulator.apt import Package, PackageArchive
from etprof.targets.emulator.cache import Cache
from etprof.targets.emulator.installation import STEPS, Emulator, find_parts, locate, set_up
from tests.world.host import etprof

DEBIAN = PackageArchive("debian", "bookworm", "http://archive")


class Suites:
    """An archive whose suites have packages of qemu in some version; None: no such suite."""

    def __init__(self, versions: dict[str, dict[str, str] | None], program: str) -> None:
        self.versions = versions
        self.program = program
        self.updated: list[str] = []

    def source(self, archive: PackageArchive, suite: str, folder: Path) -> Suite:
        assert archive == DEBIAN
        assert folder.name == f"apt-{suite}"
        return Suite(self, suite)


class Suite:
    """One of them."""

    def __init__(self, suites: Suites, name: str) -> None:
        self._suites, self._name = suites, name

    def update(self) -> None:
        self._suites.updated.append(self._name)
        if self._suites.versions.get(self._name) is None:
            raise BuildError(f"{self._name}: does not answer")

    def find_version(self, name: str) -> str | None:
        return (self._suites.versions[self._name] or {}).get(name)

    def fetch(self, name: str) -> Package:
        version = self.find_version(name) or "12.2"
        return Package(name, version, f"hash of {name}", Path(f"{name}.deb"))


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Suites]:
    """Puts suites in the place of this machine's archive; packages hold `program`."""

    def make(versions: dict[str, dict[str, str] | None], program: str | None) -> Suites:
        suites = Suites(versions, program or "")

        def unpack(package: Package, folder: Path) -> None:
            assert package.name in {"qemu-user", "qemu-user-static"}
            (folder / "usr/bin").mkdir(parents=True)
            if program is not None:
                script = folder / "usr/bin/qemu-aarch64-static"
                script.write_text(f"#!/bin/sh\necho '{program}'\n")
                script.chmod(0o755)

        monkeypatch.setattr(qemu, "PackageSource", suites.source)
        monkeypatch.setattr(qemu, "require_archive", lambda *_: DEBIAN)
        monkeypatch.setattr(qemu, "unpack", unpack)
        return suites

    return make


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ETPROF_QEMU", raising=False)
    cache = Cache.find()
    cache.folder.mkdir(parents=True)
    return cache


NEW = "qemu-aarch64 version 11.1.3"


def test_qemu_is_of_the_first_suite_that_has_a_new_one(
    cache: Cache, offer: Callable[..., Suites], tmp_path: Path
) -> None:
    suites = offer(
        {"testing": {"qemu-user": "1:10.0.2+ds-1", "qemu-user-static": "1:10.1.0+ds-1"}}, NEW
    )
    assert qemu.fetch_qemu(cache, tmp_path / "work") == "1:10.1.0+ds-1"
    # The first has no such suite, and the last is not asked any more.
    assert suites.updated == ["stable-backports", "testing"]
    program = qemu.find_qemu(cache)
    assert program == cache.folder / "qemu/usr/bin/qemu-aarch64"
    assert qemu.read_version(program) == (11, 1)
    part = cache.load().parts["qemu"]
    assert part.source == "qemu-user-static of testing, SHA-256 hash of qemu-user-static"


def test_without_a_new_qemu_each_suite_is_named(
    cache: Cache, offer: Callable[..., Suites], tmp_path: Path
) -> None:
    offer({"testing": {"qemu-user": "1:9.2"}, "unstable": {}}, NEW)
    with pytest.raises(BuildError) as caught:
        qemu.fetch_qemu(cache, tmp_path / "work")
    assert str(caught.value) == (
        "no suite has qemu 10.1 or newer (stable-backports: does not answer; testing has qemu-user "
        "1:9.2; testing has qemu-user-static (none); unstable has qemu-user (none); unstable has "
        "qemu-user-static (none)); build it, and name it with ETPROF_QEMU"
    )


@pytest.mark.parametrize(
    ("program", "reported"),
    [
        (None, "qemu-user 1:11.1 has no qemu-aarch64"),
        ("qemu-aarch64 version 10.0.9", "the qemu-aarch64 of unstable does not run here"),
        ("no version", "the qemu-aarch64 of unstable does not run here"),
    ],
)
def test_a_package_that_is_of_no_use_is_not_kept(
    cache: Cache, offer: Callable[..., Suites], tmp_path: Path, program: str, reported: str
) -> None:
    offer({"unstable": {"qemu-user": "1:11.1"}}, program)
    with pytest.raises(BuildError, match=reported):
        qemu.fetch_qemu(cache, tmp_path / "work")
    assert cache.check("qemu") is None


def test_the_runtime_libraries_are_of_this_machines_release(
    cache: Cache, offer: Callable[..., Suites], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    suites = offer({"bookworm": {"libc6-arm64-cross": "2.36-8"}}, NEW)
    monkeypatch.setattr(sysroot, "PackageSource", suites.source)
    monkeypatch.setattr(sysroot, "require_archive", lambda *_: DEBIAN)
    unpacked: list[str] = []

    def unpack(package: Package, folder: Path) -> None:
        unpacked.append(package.name)
        (folder / "usr/aarch64-linux-gnu/lib").mkdir(parents=True, exist_ok=True)
        (folder / "usr/aarch64-linux-gnu/lib" / package.name).write_text("library")

    monkeypatch.setattr(sysroot, "unpack", unpack)
    version = sysroot.fetch_sysroot(cache, tmp_path / "work")
    assert suites.updated == ["bookworm"]
    part = cache.load().parts[sysroot.PART]
    assert (version, part.version) == ("2.36-8", "2.36-8")
    assert part.source.startswith("bookworm: libc6-arm64-cross SHA-256 hash of libc6-arm64-cross, ")
    assert all(f"{name} SHA-256 hash of {name}" in part.source for name in unpacked)


def test_a_setup_brings_what_is_missing_damaged_or_out_of_date(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN parts of which one is there, one is missing, one damaged and one of older sources
    def damaged(_: Cache) -> Path:
        raise InputFileError("changed since it was fetched")

    brought: list[str] = []

    def part(name: str, find: Callable[[Cache], Path | None], *, current: bool = True) -> object:
        def bring(of: Cache, work: Path) -> str:
            assert of.folder == cache.folder
            assert work.is_dir()
            brought.append(name)
            return f"version of {name}"

        return replace(STEPS[0], name=name, find=find, bring=bring, is_current=lambda _: current)

    steps = (
        part("there", lambda _: Path("/there")),
        part("missing", lambda _: None),
        part("damaged", damaged),
        part("old", lambda _: Path("/old"), current=False),
    )
    monkeypatch.setattr(installation, "STEPS", steps)
    asked: list[bool] = []
    monkeypatch.setattr(build, "check_compiler", lambda: asked.append(True))
    progress: list[tuple[str, int, int]] = []
    # WHEN the emulator is set up
    lines = set_up(lambda *step: progress.append(step))
    # THEN the compiler was looked for, and all but the first are brought, in their order
    assert asked == [True]
    assert brought == ["missing", "damaged", "old"]
    assert lines == [
        "there: already there, /there", "missing: version of missing",
        "damaged: version of damaged", "old: version of old",
    ]  # fmt: skip
    assert progress == [
        ("there", 0, 4), ("missing", 1, 4), ("damaged", 2, 4), ("old", 3, 4), ("complete", 4, 4),
    ]  # fmt: skip
    # AND what is wrong with each is what its part of the status says
    assert [(p.name, p.path, p.problem) for p in find_parts()] == [
        ("there", Path("/there"), None), ("missing", None, None),
        ("damaged", None, "changed since it was fetched"), ("old", Path("/old"), None),
    ]  # fmt: skip
    monkeypatch.setattr(installation, "STEPS", steps[:2])
    with pytest.raises(BuildError, match="is not set up: missing is missing or of another version"):
        locate()
    monkeypatch.setattr(installation, "STEPS", (steps[0],) * 5)
    assert locate() == Emulator(*[Path("/there")] * 5)


def test_the_command_names_each_step_and_what_came_of_it(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def bring(of: Cache, work: Path) -> str:
        (work / "sdk").mkdir()
        (work / "sdk/library").write_bytes(bytes(2048))
        of.add("sdk", version="1", source="here", folder=work / "sdk")
        return "1"

    steps = (
        replace(STEPS[0], name="there", find=lambda _: Path("/there"), is_current=lambda _: True),
        replace(STEPS[0], name="missing", find=lambda _: None, bring=bring),
    )
    monkeypatch.setattr(installation, "STEPS", steps)
    monkeypatch.setattr(build, "check_compiler", lambda: None)
    done = etprof(tmp_path, "emulator", "setup")
    assert (done.exit_code, done.stderr) == (0, "1/2 there\n2/2 missing\n")
    assert done.stdout.splitlines() == [
        "there: already there, /there",
        "missing: 1",
        "Ready: etprof profile MODEL --target emulator",
    ]
    assert etprof(tmp_path, "emulator", "status").exit_code == 3
    assert "--remove deletes" in etprof(tmp_path, "emulator", "status", "--remove").stderr
    removed = json.loads(etprof(tmp_path, "emulator", "setup", "--remove", "--json").stdout)
    assert removed["folder"] == str(cache.folder)
    assert removed["freed_bytes"] >= 2048
    assert not cache.folder.exists()
    again = etprof(tmp_path, "emulator", "setup", "--remove")
    assert again.stdout == f"{cache.folder} is empty\n"
