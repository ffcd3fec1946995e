"""The presets: what each one sets, that pairs differ in their axis alone, and what stops a build."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from etprof.backends.executorch_version import pinned_version
from etprof.base.process import run_command

ROOT = Path(__file__).parents[2]
GATES = ROOT / "cmake" / "checks" / "Gates.cmake"
CMAKE = shutil.which("cmake")
PLATFORMS = ("linux-aarch64-source", "android", "macos")
VARIANTS = ("sme2", "sme2-off", "sme2-trace", "sme2-off-trace", "sme2-bare")
SOURCE_PRESETS = [f"{platform}-{variant}" for platform in PLATFORMS for variant in VARIANTS]
SWITCHES = {
    "ETPROF_SME_DEFAULT": ("auto", "off"),
    "XNNPACK_ENABLE_ARM_SME": ("ON", "OFF"),
    "XNNPACK_ENABLE_ARM_SME2": ("ON", "OFF"),
}
PLATFORM_LINES = {
    "linux-aarch64-source": {},
    "android": {
        "ANDROID_ABI": "arm64-v8a",
        "ANDROID_PLATFORM": "android-28",
        "ANDROID_STL": "c++_static",
    },
    "macos": {"CMAKE_OSX_ARCHITECTURES": "arm64"},
}

needs_cmake = pytest.mark.skipif(CMAKE is None, reason="needs cmake")


def configure_presets() -> dict[str, dict[str, Any]]:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    return {preset["name"]: preset for preset in presets}


def variables_of(name: str) -> dict[str, str]:
    """As CMake resolves them: a preset's own come first, then its earlier parents'."""
    presets = configure_presets()
    found: dict[str, str] = dict(presets[name].get("cacheVariables", {}))
    parents = presets[name].get("inherits", [])
    for parent in [parents] if isinstance(parents, str) else parents:
        found = {**variables_of(parent), **found}
    return found


def configure(preset: str, build: Path, **environment: str) -> tuple[int, str]:
    """Exit code, and what CMake says with its line breaks taken out."""
    names = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_HOME")
    unset = dict.fromkeys(names, "")
    done = run_command(
        [str(CMAKE), "--preset", preset, "-B", build],
        folder=ROOT,
        environment={**unset, **environment},
    )
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


@needs_cmake
@pytest.mark.parametrize("preset", SOURCE_PRESETS)
def test_every_source_preset_resolves(preset: str) -> None:
    done = run_command([str(CMAKE), "--preset", preset, "-N"], folder=ROOT)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("suffix", ["", "-trace"])
def test_on_and_off_differ_in_the_sme_switches_alone(platform: str, suffix: str) -> None:
    on, off = (variables_of(f"{platform}-{axis}{suffix}") for axis in ("sme2", "sme2-off"))
    assert on.keys() == off.keys()
    different = {name: (on[name], off[name]) for name in on if on[name] != off[name]}
    assert different == SWITCHES


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_platforms_differ_in_their_own_lines_alone(platform: str, variant: str) -> None:
    linux = variables_of(f"linux-aarch64-source-{variant}")
    assert variables_of(f"{platform}-{variant}") == {**linux, **PLATFORM_LINES[platform]}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_trace_and_bare_add_what_they_say(platform: str) -> None:
    """C4: XNNPACK's log, which a trace preset had, changes the objects that are timed."""
    for side in ("sme2", "sme2-off"):
        assert variables_of(f"{platform}-{side}-trace") == {
            **variables_of(f"{platform}-{side}"),
            "ETPROF_KERNEL_TRACE": "ON",
        }
    plain = variables_of(f"{platform}-sme2")
    assert variables_of(f"{platform}-sme2-bare") == {**plain, "ETPROF_EVENT_TRACER": "OFF"}


def test_the_workflow_builds_every_source_preset() -> None:
    workflow = (ROOT / ".github" / "workflows" / "source-builds.yml").read_text()
    assert workflow.count(f"variant: [{', '.join(VARIANTS)}]") == len(PLATFORMS)
    for platform in PLATFORMS:
        assert f'"{platform}-${{{{ matrix.variant }}}}"' in workflow


def test_the_presets_are_few_and_debian_12_can_read_them() -> None:
    """C5, C8: CMake 3.25 has to get as far as the line of CMakeLists.txt that names the way out."""
    text = (ROOT / "CMakePresets.json").read_text()
    assert json.loads(text)["version"] <= 6
    assert "cmakeMinimumRequired" not in text
    assert len(text.splitlines()) <= 250


def test_no_preset_sets_a_cpu_architecture_or_flags() -> None:
    everything = json.dumps(configure_presets())
    assert "march" not in everything
    assert "FLAGS" not in everything


@needs_cmake
def test_without_an_ndk_the_variable_and_the_place_are_named(tmp_path: Path) -> None:
    code, text = configure("android-sme2", tmp_path / "build")
    assert code == 1
    assert (
        "There is no Android NDK: set ANDROID_NDK to the folder of NDK r27 or newer, from "
        "https://developer.android.com/ndk/downloads." in text
    )


def make_ndk(folder: Path, revision: str) -> Path:
    (folder / "build" / "cmake").mkdir(parents=True)
    (folder / "build" / "cmake" / "android.toolchain.cmake").touch()
    (folder / "source.properties").write_text(
        f"Pkg.Desc = Android NDK\nPkg.Revision = {revision}\n"
    )
    return folder


@needs_cmake
@pytest.mark.parametrize("name", ["ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"])
def test_an_older_ndk_is_refused(tmp_path: Path, name: str) -> None:
    ndk = make_ndk(tmp_path / "ndk", "26.3.11579264")
    code, text = configure("android-sme2-off", tmp_path / "build", **{name: str(ndk)})
    assert code == 1
    assert (
        f"{ndk} is NDK 26.3.11579264, whose Clang cannot compile SME2: set ANDROID_NDK to NDK r27 "
        "or newer." in text
    )


@needs_cmake
def test_the_newest_installed_ndk_is_taken(tmp_path: Path) -> None:
    for revision in ("9.1.1", "26.1.10909125", "25.2.9519653"):
        make_ndk(tmp_path / "sdk" / "ndk" / revision, revision)
    _, text = configure("android-sme2", tmp_path / "build", ANDROID_HOME=str(tmp_path / "sdk"))
    assert "is NDK 26.1.10909125, whose Clang cannot compile SME2" in text


@needs_cmake
def test_a_folder_that_is_no_ndk_is_refused(tmp_path: Path) -> None:
    code, text = configure("android-sme2", tmp_path / "build", ANDROID_NDK=str(tmp_path))
    assert code == 1
    assert (
        f"{tmp_path} is no Android NDK: set ANDROID_NDK to the folder that has "
        "build/cmake/android.toolchain.cmake and source.properties." in text
    )


@needs_cmake
@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac is the place for them")
def test_macos_presets_are_refused_elsewhere(tmp_path: Path) -> None:
    code, text = configure("macos-sme2", tmp_path / "build")
    assert code == 1
    assert (
        "The macos-sme2 presets build ExecuTorch on a Mac only; here, use macos-arm64, "
        "linux-aarch64-source-* or android-*." in text
    )


def run_gate(folder: Path, call: str, **variables: str) -> str:
    """What a gate says, in CMake's script mode; "" when it lets the build pass."""
    script = folder / "gate.cmake"
    script.write_text(f'include("{GATES}")\n{call}\n')
    definitions = [f"-D{name}={value}" for name, value in variables.items()]
    done = run_command([str(CMAKE), *definitions, "-P", script])
    assert (done.exit_code == 0) == (done.stderr == "")
    return " ".join(done.stderr.split())


def sme(sme1: str, sme2: str, kleidiai: str = "ON") -> dict[str, str]:
    return {
        "XNNPACK_ENABLE_ARM_SME": sme1,
        "XNNPACK_ENABLE_ARM_SME2": sme2,
        "EXECUTORCH_XNNPACK_ENABLE_KLEIDI": kleidiai,
    }


@pytest.mark.slow
@needs_cmake
def test_both_sme_switches_agree(tmp_path: Path) -> None:
    for both in ("ON", "OFF"):
        assert run_gate(tmp_path, "etprof_check_sme_switches()", **sme(both, both)) == ""
    for sme1, sme2 in (("ON", "OFF"), ("OFF", "ON")):
        text = run_gate(tmp_path, "etprof_check_sme_switches()", **sme(sme1, sme2))
        assert "set both ON, or both OFF for a build without SME." in text


@needs_cmake
def test_sme2_needs_kleidiai(tmp_path: Path) -> None:
    assert run_gate(tmp_path, "etprof_check_sme_switches()", **sme("OFF", "OFF", "OFF")) == ""
    assert (
        "EXECUTORCH_XNNPACK_ENABLE_KLEIDI is OFF, and the SME2 microkernels are KleidiAI's; set "
        "it ON, or use an *-sme2-off preset."
        in run_gate(tmp_path, "etprof_check_sme_switches()", **sme("ON", "ON", "OFF"))
    )


@pytest.mark.slow
@needs_cmake
@pytest.mark.parametrize(
    ("compiler", "version", "platform", "way_out"),
    [
        ("Clang", "17.0.6", {}, "use Clang 18 or newer"),
        ("Clang", "17.0.2", {"ANDROID": "TRUE"}, "use NDK r27 or newer"),
        ("AppleClang", "15.0.0", {}, "use AppleClang 16 or newer"),
        ("GNU", "11.4.0", {}, "use GNU 12 or newer"),
    ],
)
def test_compilers_without_sme2_are_refused(
    tmp_path: Path, compiler: str, version: str, platform: dict[str, str], way_out: str
) -> None:
    found = {"CMAKE_C_COMPILER_ID": compiler, "CMAKE_C_COMPILER_VERSION": version, **platform}
    call = "etprof_check_compiler()"
    assert (
        f"{compiler} {version} cannot compile XNNPACK's SME2 microkernels; {way_out}, or an "
        "*-sme2-off preset." in run_gate(tmp_path, call, **found, **sme("ON", "ON"))
    )
    # Without SME any compiler will do.
    assert run_gate(tmp_path, call, **found, **sme("OFF", "OFF")) == ""


@pytest.mark.slow
@needs_cmake
def test_cmake_and_python_read_one_pin(tmp_path: Path) -> None:
    # GIVEN the project's one line with another version in it
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [line for line in project["dependencies"] if line.startswith("executorch")]
    assert pin == f"executorch=={pinned_version()}"
    for name in ("cmake", "cpp"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "CMakeLists.txt", tmp_path)
    (tmp_path / "python" / "etprof").mkdir(parents=True)
    shutil.copy(ROOT / "python/etprof/_version.py", tmp_path / "python/etprof")
    text = (ROOT / "pyproject.toml").read_text()
    assert text.count(f'"{pin}"') == 1
    (tmp_path / "pyproject.toml").write_text(text.replace(pin, "executorch==9.8.7"))
    # WHEN configured where pip has no index
    done = run_command(
        [str(CMAKE), "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja",
         "-DETPROF_BUILD_PYTHON=OFF", f"-DPython3_EXECUTABLE={sys.executable}"],
        environment={"PIP_NO_INDEX": "1"},
    )  # fmt: skip
    # THEN CMake asks for that version too, whatever is installed
    assert done.exit_code == 1
    assert "pip could not fetch executorch==9.8.7:" in done.stderr


def test_names_that_the_page_of_builds_translates_exist() -> None:
    """R071, R090: nothing led from the names of other tools to ours."""
    page = (ROOT / "docs" / "building.md").read_text(encoding="utf-8")
    presets = set(configure_presets())
    named = [re.findall(r"`([^`]+)`", cell) for cell in translated(page, "| name elsewhere")]
    assert len(named) == 6
    assert all(each and presets.issuperset(each) for each in named)
    options = (ROOT / "cpp" / "runner" / "options.cpp").read_text(encoding="utf-8")
    flags = [re.findall(r"--[a-z-]+", cell) for cell in translated(page, "| executor_runner")]
    assert len(flags) == 11
    assert {flag for each in flags for flag in each if f'{{"{flag}", ' not in options} == set()


def translated(page: str, heading: str) -> list[str]:
    """The second cells of the table with this heading."""
    table = page[page.index(heading) :].partition("\n\n")[0]
    return [line.split("|")[2] for line in table.splitlines()[2:]]
