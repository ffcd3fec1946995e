"""The source provider, on a stand-in for ExecuTorch's sources: copies, gates, what is recorded."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command
from tests.source_checkout import (
    fingerprint,
    git,
    make_checkout,
    make_origin,
    pinned_version,
    write,
)

ROOT = Path(__file__).parents[2]
CMAKE = shutil.which("cmake")
COMPILER = shutil.which("aarch64-linux-gnu-gcc")
STAND_IN_TOOLCHAIN = """
message(STATUS "NDK: ${ANDROID_ABI} ${ANDROID_PLATFORM} ${ANDROID_STL}")
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(ANDROID TRUE)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
"""

pytestmark = pytest.mark.skipif(
    not (CMAKE and COMPILER and shutil.which("ninja")),
    reason="needs cmake, ninja and g++-aarch64-linux-gnu",
)


def configure(
    preset: str, build: Path, checkout: Path | None, *settings: str, **environment: str
) -> Completed:
    named = {"ETPROF_EXECUTORCH_SOURCE": str(checkout or ""), "ETPROF_KLEIDIAI_SOURCE": ""}
    return run_command(
        [str(CMAKE), "--preset", preset, "-B", build, "-DETPROF_BUILD_TESTS=OFF", *settings],
        folder=ROOT,
        environment={"ETPROF_EXECUTORCH_SOURCE_VERSION": "", **named, **environment},
        timeout_s=120,
    )


def said(done: Completed) -> str:
    return " ".join((done.stdout + done.stderr).split())


def cache_of(build: Path) -> dict[str, str]:
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    found = (re.fullmatch(r"([\w-]+):\w+=(.*)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def says(info: str, name: str, value: str) -> bool:
    """Whether the runner will give the member that value, however the lines are broken."""
    return f'"{name}", {value}' in " ".join(info.split())


def build_info_of(build: Path) -> str:
    return (build / "cpp" / "runner" / "build_info.cpp").read_text()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # GIVEN a checkout with uncommitted changes, under a name that is not ExecuTorch's own
    checkout = make_checkout(tmp_path_factory.mktemp("sources") / "my fork")
    write(checkout / "empty.c", "int changed;\n")
    return checkout


@pytest.fixture(scope="module")
def android(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Completed]:
    """A build tree of preset android-sme2-trace, configured with a stand-in NDK."""
    ndk = tmp_path_factory.mktemp("ndk")
    write(ndk / "build/cmake/android.toolchain.cmake", STAND_IN_TOOLCHAIN)
    write(ndk / "source.properties", "Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\n")
    build = tmp_path_factory.mktemp("android") / "build"
    before = fingerprint(checkout)
    done = configure("android-sme2-trace", build, checkout, ANDROID_NDK=str(ndk))
    assert done.exit_code == 0, done.stderr
    assert fingerprint(checkout) == before
    return build, done


def test_android_presets_reach_the_ndk_and_the_cache(android: tuple[Path, Completed]) -> None:
    build, done = android
    assert "NDK: arm64-v8a android-28 c++_static" in done.stdout
    expected = {
        "ANDROID_ABI": "arm64-v8a",
        "ANDROID_PLATFORM": "android-28",
        "ANDROID_STL": "c++_static",
        "CMAKE_BUILD_TYPE": "Release",
        "ETPROF_BUILD_PYTHON": "OFF",
        "ETPROF_EXECUTORCH_PROVIDER": "source",
        "ETPROF_KERNEL_TRACE": "ON",
        "ETPROF_SME_DEFAULT": "auto",
        "ETPROF_XNNPACK_LOG": "OFF",
        "EXECUTORCH_ENABLE_EVENT_TRACER": "ON",
        "XNNPACK_ENABLE_ARM_SME": "ON",
        "XNNPACK_ENABLE_ARM_SME2": "ON",
    }
    assert {name: cache_of(build).get(name) for name in expected} == expected
    assert "-DLOG=0 -DTRACER=ON" in (build / "compile_commands.json").read_text()


def test_what_it_is_made_of_is_recorded(android: tuple[Path, Completed], checkout: Path) -> None:
    build, _ = android
    info = build_info_of(build)
    head = git(checkout, "rev-parse", "HEAD").strip()
    assert says(info, "ndk_version", '"27.2.12479018"')
    assert says(info, "executorch_version", f'"{pinned_version()}"')
    # The commit, and that there are changes on top of it
    assert f'json.field("commit", "{head}");\n    json.field("modified", true);' in info
    # What is no work tree of its own has no commit, and is not given its parent's
    assert info.count('json.field("commit", nullptr);') == 12
    assert 'json.field("commit", "0123abcd");' in info


def test_builds_write_into_their_own_copy(android: tuple[Path, Completed], checkout: Path) -> None:
    build, _ = android
    before = fingerprint(checkout)
    for _ in range(2):
        done = run_command([str(CMAKE), "--build", build, "--target", "flatccrt"], timeout_s=120)
        assert done.exit_code == 0, done.stdout
    assert "no work to do" in done.stdout
    # THEN the copy is there, of the changed file and without what no build needs
    copy = build / "executorch-source" / "executorch"
    assert (copy / "third-party/flatcc/lib/written").exists()
    assert (copy / "empty.c").read_text() == "int changed;\n"
    assert not (copy / "docs").exists()
    assert not (copy / ".git").exists()
    assert not (copy / "third-party/flatcc/lib/old.a").exists()
    # AND the checkout is as it was
    assert fingerprint(checkout) == before


def test_off_and_bare_reach_executorch(checkout: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    done = configure("linux-aarch64-source-sme2-off", build, checkout, "-DETPROF_EVENT_TRACER=OFF")
    assert done.exit_code == 0, done.stderr
    cache = cache_of(build)
    assert cache["EXECUTORCH_ENABLE_EVENT_TRACER"] == "OFF"
    commands = (build / "compile_commands.json").read_text()
    assert "-DLOG=0 -DTRACER=OFF" in commands
    assert "XNN_ENABLE_ARM_SME2=0" in commands
    assert "XNN_ENABLE_ARM_SME=0" in commands
    assert "ET_EVENT_TRACER_ENABLED" not in commands
    info = build_info_of(build)
    assert says(info, "sme_compiled_out", "true")
    assert says(info, "event_tracer", "false")
    # WHEN the checkout changes, THEN the next configuration takes the change over
    write(checkout / "empty.c", "int changed_again;\n")
    configure("linux-aarch64-source-sme2-off", build, checkout, "-DETPROF_EVENT_TRACER=OFF")
    copy = build / "executorch-source" / "executorch"
    assert (copy / "empty.c").read_text() == "int changed_again;\n"


def test_sme_that_xnnpack_drops_is_noticed(checkout: Path, tmp_path: Path) -> None:
    settings = "-DSTAND_IN_DROPS_SME=ON"
    done = configure("linux-aarch64-source-sme2", tmp_path / "build", checkout, settings)
    assert done.exit_code == 1
    assert "XNNPACK has switched XNNPACK_ENABLE_ARM_SME2 off for GNU" in said(done)
    assert "use a newer compiler for aarch64, or an *-sme2-off preset." in said(done)


def test_another_version_has_to_be_asked_for(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "older", version="1.2.3")
    build = tmp_path / "build"
    done = configure("linux-aarch64-source-sme2", build, checkout)
    assert done.exit_code == 1
    assert (
        f"{checkout} is ExecuTorch 1.2.3, and {pinned_version()} is wanted; check out "
        f"v{pinned_version()} there, or say -DETPROF_EXECUTORCH_SOURCE_VERSION=1.2.3." in said(done)
    )
    # WHEN it is asked for
    setting = "-DETPROF_EXECUTORCH_SOURCE_VERSION=1.2.3"
    assert configure("linux-aarch64-source-sme2", build, checkout, setting).exit_code == 0
    # THEN the runner will say so
    assert says(build_info_of(build), "executorch_version", '"1.2.3"')


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    done = configure("linux-aarch64-source-sme2", tmp_path / "build", tmp_path)
    assert done.exit_code == 1
    assert (
        f"{tmp_path} has no version.txt, so it is no checkout of ExecuTorch; let "
        "FETCHCONTENT_SOURCE_DIR_EXECUTORCH name one." in said(done)
    )


def test_missing_submodules_are_named(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "bare")
    shutil.rmtree(checkout / "third-party" / "json")
    (checkout / "third-party" / "json").mkdir()
    done = configure("linux-aarch64-source-sme2", tmp_path / "build", checkout)
    assert done.exit_code == 1
    assert f"{checkout}/third-party/json is empty; fetch the submodules with: git -C" in said(done)
    assert "submodule update --init backends/xnnpack/third-party/FP16" in said(done)


def test_what_language_models_alone_need_can_be_left_out(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "without")
    shutil.rmtree(checkout / "third-party" / "ao", ignore_errors=True)
    done = configure("linux-aarch64-source-sme2", tmp_path / "build", checkout)
    assert done.exit_code == 1
    assert f"{checkout}/third-party/ao is empty; fetch the submodules with: git -C" in said(done)
    assert "which alone need it, with -DETPROF_LLM_KERNELS=OFF" in said(done)
    done = configure(
        "linux-aarch64-source-sme2", tmp_path / "build", checkout, "-DETPROF_LLM_KERNELS=OFF"
    )
    assert done.exit_code == 0, done.stderr


def test_sources_are_fetched_at_the_pin(tmp_path: Path) -> None:
    # GIVEN ExecuTorch's address leads to a repository here
    origin = make_origin(tmp_path)
    redirect = {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
        "GIT_CONFIG_KEY_1": f"url.{origin.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_1": "https://github.com/pytorch/executorch.git",
    }
    # WHEN no checkout is named
    build = tmp_path / "build"
    done = configure("linux-aarch64-source-sme2", build, None, **redirect)
    # THEN the tag and its submodules are fetched, and their commits recorded
    assert done.exit_code == 0, done.stderr
    assert (build / "executorch-source/executorch/third-party/flatcc/README.md").exists()
    info = build_info_of(build)
    for folder in (origin, tmp_path / "XNNPACK", tmp_path / "part"):
        assert f'json.field("commit", "{git(folder, "rev-parse", "HEAD").strip()}");' in info
    assert "nullptr" not in info.split("symbol_check")[0].replace(
        "make_kernel_trace() != nullptr", ""
    )
