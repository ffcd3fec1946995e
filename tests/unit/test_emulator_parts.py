"""Finding the emulator's parts, and the one sentence for each that cannot be used."""

from __future__ import annotations

import json
import sysconfig
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from etprof.base.errors import BuildError
from etprof.base.process import Completed
from etprof.cli import main
from etprof.tables.machine import EMULATOR_PARTS
from etprof.targets.emulator import apt, build, installation, qemu, sysroot
from etprof.targets.emulator.apt import Package, PackageArchive, PackageSource, find_archive, unpack
from etprof.targets.emulator.cache import SETUP, Cache
from etprof.targets.emulator.installation import Emulator, locate
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.request import RunnerRequest

LIBRARIES = ("ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libstdc++.so.6")


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A machine with an empty cache and nothing installed that would do."""
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ETPROF_QEMU", raising=False)
    monkeypatch.delenv("ETPROF_AARCH64_SYSROOT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sysroot, "INSTALLED", tmp_path / "nothing")
    monkeypatch.setattr(sysroot, "is_native", lambda: False)
    monkeypatch.setattr(build, "is_native", lambda: False)
    (tmp_path / "bin").mkdir()
    return Cache.find()


def make_program(path: Path, prints: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def test_a_new_enough_qemu_on_the_path_is_taken(tmp_path: Path, empty_machine: Cache) -> None:
    assert qemu.find_qemu(empty_machine) is None
    program = make_program(tmp_path / "bin" / "qemu-aarch64", "qemu-aarch64 version 10.1.0")
    assert qemu.find_qemu(empty_machine) == program


def test_a_too_old_qemu_on_the_path_is_passed_over(tmp_path: Path, empty_machine: Cache) -> None:
    make_program(tmp_path / "bin" / "qemu-aarch64", "qemu-aarch64 version 7.2.17 (Debian)")
    assert qemu.find_qemu(empty_machine) is None


def test_a_chosen_qemu_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_machine: Cache
) -> None:
    program = make_program(tmp_path / "old", "qemu-aarch64 version 7.2.17 (Debian 1:7.2+dfsg)")
    monkeypatch.setenv("ETPROF_QEMU", str(program))
    with pytest.raises(BuildError) as caught:
        qemu.find_qemu(empty_machine)
    assert str(caught.value) == (
        f"{program} has version 7.2, but SME2 is emulated from qemu 10.1 on; unset ETPROF_QEMU and run "
        f"`etprof emulator setup`, or name a newer one"
    )


def test_a_chosen_qemu_that_is_no_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_machine: Cache
) -> None:
    monkeypatch.setenv("ETPROF_QEMU", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        qemu.find_qemu(empty_machine)
    assert str(caught.value) == (
        f"ETPROF_QEMU names {tmp_path}, which is not a program; give the path of qemu-aarch64"
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1:11.1.3+ds-1~bpo13+1", (11, 1)),
        ("1:7.2+dfsg-7+deb12u18", (7, 2)),
        ("10.2.0-1ubuntu1", (10, 2)),
        ("", None),
        (None, None),
    ],
)
def test_package_versions_are_read(text: str | None, version: tuple[int, int] | None) -> None:
    assert qemu.package_version(text) == version


def test_a_sysroot_without_a_library_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_machine: Cache
) -> None:
    assert sysroot.find_sysroot(empty_machine) is None
    (tmp_path / "lib").mkdir()
    for name in LIBRARIES[:-1]:
        (tmp_path / "lib" / name).touch()
    monkeypatch.setenv("ETPROF_AARCH64_SYSROOT", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        sysroot.find_sysroot(empty_machine)
    assert str(caught.value) == (
        f"ETPROF_AARCH64_SYSROOT names {tmp_path}, which has no lib/libstdc++.so.6; unset it and "
        f"run `etprof emulator setup`, or name a folder with the aarch64 C and C++ runtime "
        f"libraries"
    )
    (tmp_path / "lib" / LIBRARIES[-1]).touch()
    assert sysroot.find_sysroot(empty_machine) == tmp_path


def test_a_wheel_cut_short_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.whl"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("executorch/lib/libexecutorch.so", b"x" * 5000)
        archive.writestr("executorch/version.py", "git_version = 'abcdef0'\n")
    # The runner says which commit its libraries were built from: the build reads it there.
    installation._extract(whole, tmp_path / "sdk")
    assert (tmp_path / "sdk/executorch/version.py").is_file()
    cut = tmp_path / "cut.whl"
    cut.write_bytes(whole.read_bytes()[:-60])
    with pytest.raises(BuildError, match=r"cut\.whl cannot be unpacked: .*; run the setup again"):
        installation._extract(cut, tmp_path / "sdk")


def test_a_missing_compiler_names_one_package(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["emulator", "setup"])
    assert code == BuildError.exit_code
    assert capsys.readouterr().err == (
        "etprof: there is no aarch64 C++ compiler; install one package, on Debian and Ubuntu with "
        "`apt install g++-aarch64-linux-gnu`, and run `etprof emulator setup` again\n"
    )


def test_another_system_is_told_what_to_provide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_machine: Cache
) -> None:
    # GIVEN a machine without apt
    assert find_archive() is None
    with pytest.raises(BuildError) as caught:
        qemu.fetch_qemu(empty_machine, tmp_path)
    assert str(caught.value) == (
        "this is not Debian or Ubuntu, so qemu-aarch64 cannot be fetched: provide version 10.1 or "
        "newer and name it with ETPROF_QEMU"
    )
    with pytest.raises(BuildError, match="name it with ETPROF_AARCH64_SYSROOT"):
        sysroot.fetch_sysroot(empty_machine, tmp_path)


def test_an_archive_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an apt that fails as the real one does when a suite is not there
    program = make_program(tmp_path / "bin" / "apt-get", "")
    program.write_text(
        "#!/bin/sh\necho 'E: The repository does not have a Release file.' >&2\nexit 100\n"
    )
    archive = PackageArchive("debian", "bookworm", "http://archive.invalid/debian/")
    source = PackageSource(archive, "nowhere", tmp_path / "apt")
    with pytest.raises(BuildError) as caught:
        source.update()
    assert str(caught.value) == (
        "http://archive.invalid/debian/ gave no signed package list of nowhere: E: The repository "
        "does not have a Release file.; check the network and the apt sources"
    )
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    entry = (tmp_path / "apt" / "sources" / "etprof.sources").read_text()
    assert "Suites: nowhere\n" in entry
    assert "Trusted" not in entry, "signatures are always checked"


def test_the_first_missing_part_is_named() -> None:
    with pytest.raises(BuildError) as caught:
        locate()
    assert str(caught.value) == (
        "the emulator is not set up: qemu-aarch64 is missing or of another version; run `etprof "
        "emulator setup`"
    )


def test_status_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulator", "status", "--json"]) == BuildError.exit_code
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert parts[0] == {"name": "qemu-aarch64", "path": None, "problem": None, "way_out": SETUP}
    assert len(parts) == 5
    assert [set(part) for part in parts] == [{c.name for c in EMULATOR_PARTS.columns}] * 5
    # People read the same rows.
    assert main(["emulator", "status"]) == BuildError.exit_code
    shown = capsys.readouterr().out
    assert all(part["name"] in shown for part in parts)


def test_the_command_line_of_an_emulated_run() -> None:
    paths = [Path("/q"), Path("/root"), Path("/sdk"), Path("/r"), Path("/t")]
    emulator = Emulator(*paths)
    words = [str(word) for word in emulator.command(emulator.runner, cpu="max,sme=off")]
    assert words == [
        *("/q", "-cpu", "max,sme=off", "-L", "/root", "-E", "LD_LIBRARY_PATH=/sdk/lib", "/r"),
    ]


def test_an_emulated_launch_is_on_the_cpu_that_was_asked_for() -> None:
    """Mutant 55: it was always the best one; each purpose has the runner that can serve it."""
    target = EmulatorTarget("max,sme=off")
    vars(target)["emulator"] = Emulator(*map(Path, ("/q", "/root", "/sdk", "/r", "/t")))
    request = RunnerRequest(model=Path("m.pte"), result=Path("r.json"))
    for trace, runner in ((None, "/r"), (Path("k.json"), "/t")):
        asked = replace(request, kernel_trace=trace)
        words = [str(word) for word in target.runner_command(target.runner_file(asked), asked)]
        assert words[words.index("-cpu") + 1] == "max,sme=off"
        assert words[-1] == runner
    assert target.sme_modes() == ("off",)


@pytest.mark.parametrize("columns", ["40", "100", "200"])
def test_a_path_is_one_piece(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: str,
) -> None:
    """Finding 14: `emulator status` folded what people copy, on narrow terminals."""
    monkeypatch.setenv("COLUMNS", columns)
    program = make_program(tmp_path / "bin" / "qemu-aarch64", "qemu-aarch64 version 10.1.0")
    assert main(["emulator", "status", "--full"]) == BuildError.exit_code
    assert str(program) in capsys.readouterr().out


def make_script(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("listed", "uri"),
    [
        ("http://a/|bookworm|main", "http://a/"),
        ("http://b/|bookworm-updates|main\nhttp://s/|bookworm|contrib\nhttp://a/|bookworm|main", "http://a/"),
        ("http://a/|bookworm", None),
        ("http://a/", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_archive_is_the_main_one_of_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, uri: str | None
) -> None:
    release = {"VERSION_CODENAME": "bookworm", "ID": "ubuntu"}
    monkeypatch.setattr(apt, "_os_release", lambda: release)
    make_script(tmp_path / "bin/apt-get", f"/bin/cat <<'END'\n{listed}\nEND")
    assert find_archive() is None, "without dpkg-deb nothing can be unpacked"
    make_script(tmp_path / "bin/dpkg-deb", "exit 1")
    archive = find_archive()
    assert (archive.uri if archive else None) == uri
    assert archive is None or (archive.distribution, archive.codename) == ("ubuntu", "bookworm")
    monkeypatch.setattr(apt, "_os_release", dict)
    assert find_archive() is None


APT_GET = """\
while [ "$1" = -o ]; do shift 2; done
case "$1 $2" in
"download good") touch good_1.0_arm64.deb ;;
"download both") touch both_1.deb both_2.deb ;;
"download none") ;;
*) touch half.deb; echo 'W: slow' >&2; echo "E: cannot find $2" >&2; echo later >&2; exit 100 ;;
esac"""
APT_CACHE = """\
while [ "$1" = -o ]; do shift 2; done
[ "$1 $2 $3" = "show --no-all-versions good" ] || exit 100
printf 'Package: good\\nXVersion: 0\\nVersion: 1.0-2\\nSHA256: abc\\n'"""


def test_a_package_is_fetched_with_its_version_and_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_script(tmp_path / "bin/apt-get", APT_GET)
    make_script(tmp_path / "bin/apt-cache", APT_CACHE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    source = PackageSource(
        PackageArchive("debian", "bookworm", "http://a/"), "bookworm", tmp_path / "apt"
    )
    assert (source.find_version("good"), source.find_version("bad")) == ("1.0-2", None)
    package = source.fetch("good")
    file = tmp_path / "apt/packages/good_1.0_arm64.deb"
    assert package == Package("good", "1.0-2", "abc", file)
    assert file.is_file()
    for name, reason in (
        ("bad", "E: cannot find bad"), ("none", "exit code 0"), ("both", "exit code 0"),
    ):  # fmt: skip
        with pytest.raises(BuildError) as caught:
            source.fetch(name)
        assert str(caught.value) == f"{name} could not be fetched from http://a/: {reason}"


def test_a_package_that_cannot_be_unpacked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_script(tmp_path / "bin/dpkg-deb", '[ "$1" = --extract ] && echo "$2" >"$3/out"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    package = Package("good", "1", "", tmp_path / "good.deb")
    unpack(package, tmp_path)
    assert (tmp_path / "out").read_text() == f"{tmp_path / 'good.deb'}\n"
    make_script(tmp_path / "bin/dpkg-deb", "echo 'not a Debian archive' >&2; exit 2")
    with pytest.raises(BuildError, match=r"^good\.deb cannot be unpacked: not a Debian archive$"):
        unpack(package, tmp_path)


@pytest.mark.parametrize(
    ("entry", "components"),
    [("debian", "Components: main\n"), ("ubuntu", "Components: main universe\n")],
)
def test_ubuntu_has_its_compilers_in_universe(tmp_path: Path, entry: str, components: str) -> None:
    PackageSource(PackageArchive(entry, "x", "http://a/"), "x", tmp_path)
    text = (tmp_path / "sources/etprof.sources").read_text()
    assert components in text
    assert text.startswith("Types: deb\nURIs: http://a/\nSuites: x\n")


@pytest.mark.parametrize(
    ("stdout", "stderr", "told"),
    [
        ("b: error: two\n", "warning\n  a.cpp:1: Error: one\n", "a.cpp:1: Error: one"),
        ("b: error: two\n", "warning\n", "b: error: two"),
        ("later\n", "first\n", "first"),
        ("", "", "exit code 3"),
    ],
)
def test_the_first_error_of_a_build_is_told(stdout: str, stderr: str, told: str) -> None:
    assert build._first_error(Completed(("cmake",), 3, stdout, stderr)) == told


@pytest.mark.parametrize(
    ("printed", "is_taken"), [("3.28.0", True), ("3.27.9", False), ("4.1.0", True), ("?", False)]
)
def test_an_old_cmake_is_replaced_by_pip_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, is_taken: bool
) -> None:
    cmake = make_program(tmp_path / "bin/cmake", f"cmake version {printed}")
    make_program(tmp_path / "bin/ninja", "1.11")
    fetched: list[tuple[object, ...]] = []

    def run_pip(*words: object) -> Completed:
        fetched.append(words)
        (tmp_path / "tools").mkdir()
        return Completed(("pip",), 0, "", "")

    monkeypatch.setattr(build, "run_pip", run_pip)
    # This Python's environment comes before PATH; the one that runs the tests may have both.
    environment = tmp_path / "environment"
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(environment))
    tools = build.find_build_tools(tmp_path)
    if is_taken:
        assert (tools.cmake, fetched) == (cmake, [])
        assert tools.environment == {"PATH": f"{environment}:{tmp_path / 'bin'}"}
        return
    assert tools.cmake == tmp_path / "tools/bin/cmake"
    assert tools.environment["PYTHONPATH"] == str(tmp_path / "tools")
    assert tools.environment["PATH"] == f"{tmp_path / 'tools/bin'}:{tmp_path / 'bin'}"
    assert fetched == [("install", "--target", tmp_path / "tools", "cmake>=3.28", "ninja")]
    # AND what is there already is not fetched again.
    assert build.find_build_tools(tmp_path) == tools
    assert len(fetched) == 1


def test_pip_that_fails_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "run_pip", lambda *_: Completed(("pip",), 1, "", ""))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "environment"))
    with pytest.raises(BuildError, match=r"install cmake 3\.28 or newer, and ninja"):
        build.find_build_tools(tmp_path)


def test_a_runner_is_configured_built_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_machine: Cache
) -> None:
    sources, asked = tmp_path / "sources", list[list[str]]()
    for name in ("CMakeLists.txt", "cpp/a.cpp", "cpp/b/c.h"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(name)

    def run_command(words: list[object], **settings: object) -> Completed:
        asked.append([str(word) for word in words])
        assert settings["folder"] == sources
        if "--build" in words:
            built = tmp_path / "build-linux/cpp/runner/etprof-runner"
            built.parent.mkdir(parents=True)
            built.write_text("the runner")
        return Completed(("cmake",), 0, "", "")

    monkeypatch.setattr(build, "find_sources", lambda: sources)
    monkeypatch.setattr(build, "run_command", run_command)
    empty_machine.folder.mkdir(parents=True)
    tools = build.BuildTools(Path("/cmake"), {"A": "b"})
    monkeypatch.setattr(build, "find_build_tools", lambda _: tools)
    told = build.build_runner(empty_machine, tmp_path, preset="linux", sdk=Path("/sdk"))
    assert told.startswith("built, preset linux, sources ")
    configure, compile_it = asked
    folder = str(tmp_path / "build-linux")
    assert configure[:7] == ["/cmake", "--preset", "linux", "-S", str(sources), "-B", folder]
    assert "-DETPROF_EXECUTORCH_SDK=/sdk" in configure
    assert compile_it == ["/cmake", "--build", folder, "--target", "etprof-runner"]
    runner = build.find_runner(empty_machine, "linux")
    assert runner is not None
    assert runner.read_text() == "the runner"
    # AND it is current until one of the sources is another.
    assert build.is_current(empty_machine, "linux")
    assert not build.is_current(empty_machine, "mac")
    (sources / "cpp/b/c.h").write_text("changed")
    assert not build.is_current(empty_machine, "linux")


@pytest.mark.parametrize("where", ["checkout", "installed"])
def test_sources_are_the_checkouts_or_those_installed(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "python/etprof"
    sources = tmp_path if where == "checkout" else package / "source"
    monkeypatch.setattr(build, "__file__", str(package / "targets/emulator/build.py"))
    with pytest.raises(BuildError, match="C\\+\\+ sources are not at"):
        build.find_sources()
    (sources / "cpp").mkdir(parents=True)
    (sources / "CMakePresets.json").write_text("{}")
    assert build.find_sources() == sources
