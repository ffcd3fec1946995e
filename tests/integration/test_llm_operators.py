"""Programs with ExecuTorch's operators for language models: refused in one line, or run.

The wheel's C++ libraries have no `llama::` kernels. Runners of source builds have: they are looked
for in build/, or in the folder that ETPROF_SOURCE_BUILDS names; none is made here.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import Completed, run_command
from etprof.targets.emulator.installation import locate
from etprof.targets.runner import find_host_runner
from tests.integration.test_source_build import BUILDS, emulated, find_build

PRESETS = {
    ("Linux", "x86_64"): "host-source",
    ("Linux", "aarch64"): "linux-aarch64-source-sme2",
    ("Darwin", "arm64"): "macos-sme2",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operators")
    words: list[str | Path] = [sys.executable, "-m", "tests.integration.llm_operators", folder]
    done = run_command(words, timeout_s=300)
    assert done.exit_code == 0, done.stderr
    return folder


def profile(made: Path, tmp_path: Path, *flags: str | Path) -> Completed:
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "etprof",
        "profile",
        "sdpa.pte",
        "--out",
        tmp_path / "run",
        *flags,
    ]
    return run_command(words, folder=made, timeout_s=300)


def refusal(preset: str) -> str:
    return (
        "etprof: 'forward' of sdpa.pte needs an operator that this runner lacks (Missing operator: "
        "[2] llama::sdpa_with_kv_cache.out): build the runner that has it with "
        f"`cmake --workflow --preset {preset}`, and name it with --runner\n"
    )


def test_the_wheels_runner_names_the_preset_that_runs_it(made: Path, tmp_path: Path) -> None:
    find_host_runner()
    done = profile(made, tmp_path)
    preset = PRESETS[platform.system(), platform.machine()]
    assert (done.exit_code, done.stderr) == (5, refusal(preset))


def test_the_emulators_runner_names_the_arm_preset(made: Path, tmp_path: Path) -> None:
    try:
        locate()
    except EtprofError as error:
        pytest.skip(str(error))
    done = profile(made, tmp_path, "--target", "emulator")
    assert (done.exit_code, done.stderr) == (5, refusal("linux-aarch64-source-sme2"))


def words_of_one_run(made: Path, folder: Path) -> list[str | Path]:
    inputs = [f"--input={made / name}.bin" for name in ("token", "position")]
    kept = (f"--result={folder / 'result.json'}", f"--outputs={folder / 'outputs'}")
    return [f"--model={made / 'sdpa.pte'}", *inputs, *kept, "--iterations=1", "--warmup=0"]


def assert_right(made: Path, folder: Path) -> None:
    given, expected = (
        np.frombuffer(path.read_bytes(), np.float32)
        for path in (folder / "outputs/output_0.bin", made / "expected.bin")
    )
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_the_host_runner_from_source_computes_what_pytorch_does(made: Path, tmp_path: Path) -> None:
    runner = BUILDS / "host-source/cpp/runner/etprof-runner"
    if not runner.exists():
        pytest.skip(f"no {runner}: cmake --workflow --preset host-source")
    done = run_command([runner.resolve(), *words_of_one_run(made, tmp_path)], timeout_s=120)
    assert (done.exit_code, done.stderr) == (0, "")
    assert_right(made, tmp_path)
    # AND etprof measures with it
    done = profile(made, tmp_path, "--runner", runner.resolve(), "--iterations", "20")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("mode", ["sme2", "sme1", "off"])
def test_the_arm_runner_from_source_computes_what_pytorch_does(
    mode: str, made: Path, tmp_path: Path
) -> None:
    build = find_build("sme2")
    words = words_of_one_run(made, tmp_path)
    code, _, error = emulated(build, *words, f"--sme={mode}")
    assert (code, error) == (0, "")
    assert_right(made, tmp_path)
