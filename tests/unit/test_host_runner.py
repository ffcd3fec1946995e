"""The host's runner finds ExecuTorch's libraries wherever pip put them, and describes its CPU."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from etprof.base.errors import TargetError
from etprof.base.process import Completed, run_command
from etprof.targets import local
from etprof.targets.local import LocalTarget
from etprof.targets.runner import check_completed, find_host_runner, library_environment, read_cpu


@pytest.fixture
def moved_runner(tmp_path: Path) -> Path:
    """The runner in a package folder that has no ExecuTorch beside it."""
    runner = tmp_path / "site-packages" / "etprof" / "bin" / "etprof-runner"
    runner.parent.mkdir(parents=True)
    return Path(shutil.copy(find_host_runner(), runner))


@pytest.mark.skipif(sys.platform != "linux", reason="the loader's words are of Linux")
def test_a_runner_apart_from_executorch_is_told_where_it_is(
    moved_runner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    alone = run_command([moved_runner, "--build-info"])
    assert alone.exit_code == 127
    assert "cannot open shared object file" in alone.stderr
    environment = library_environment(moved_runner)
    told = run_command([moved_runner, "--build-info"], environment=environment)
    assert told.exit_code == 0, told.stderr


def test_a_runner_beside_executorch_is_told_nothing(moved_runner: Path) -> None:
    (moved_runner.parents[2] / "executorch").mkdir()
    assert library_environment(moved_runner) == {}


def test_what_the_user_set_comes_last(moved_runner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    monkeypatch.setenv(variable, "/of/the/user")
    assert library_environment(moved_runner)[variable].endswith("lib:/of/the/user")


@pytest.mark.parametrize(
    ("features", "modes"),
    [
        ({"sme": True, "sme2": True}, ("sme2", "sme1", "off")),
        ({"sme": True, "sme2": False}, ("sme1", "off")),
        ({"dotprod": True}, ("auto",)),
    ],
)
def test_a_host_offers_the_modes_that_its_cpu_has(
    features: dict[str, bool], modes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant 63: an Arm machine with SME was asked for none of its modes."""
    said = Completed(
        ("etprof-runner",),
        0,
        json.dumps({"architecture": "aarch64", "logical_cores": 8, "features": features}),
        "",
    )
    monkeypatch.setattr(local, "ask_host_runner", lambda *_, **__: said)
    assert LocalTarget().sme_modes() == modes


MAC = "Features: hw.optional.AdvSIMD hw.optional.arm.FEAT_FP16 hw.optional.arm.FEAT_SME2"


@pytest.mark.parametrize(
    ("architecture", "lines", "model", "there"),
    [
        (
            "x86_64",
            ["model name\t: Xeon", "flags\t\t: fpu sse4_2 avx avx512_fp16"],
            "Xeon",
            {"sse4.2", "avx", "avx512fp16"},
        ),
        (
            "aarch64",
            ["Features\t: fp asimd fphp asimdhp asimddp sme smei8i32 sme2 ",
             "CPU implementer\t: 0x41", "CPU part\t: 0xd0c"],
            "implementer 0x41 part 0xd0c",
            {"asimd", "fp16", "dotprod", "sme", "sme_i8i32", "sme2"},
        ),
        ("aarch64", ["model name: Apple M4", MAC], "Apple M4", {"asimd", "fp16", "sme2"}),
        ("aarch64", [], "unknown", set()),
        ("riscv64", ["flags: avx"], "unknown", set()),
    ],
)  # fmt: skip
def test_a_cpu_is_told_by_its_systems_own_words(
    architecture: str, lines: list[str], model: str, there: set[str]
) -> None:
    """C8: features were named in C++, a table for each system."""
    said = {"architecture": architecture, "logical_cores": 8, "cpuinfo": lines}
    cpu = read_cpu(json.dumps(said))
    assert cpu.model_name == model
    assert {name for name, present in cpu.features.items() if present} == there
    assert cpu.has_sme2 == ("sme2" in there)


@pytest.mark.parametrize("cpuinfo", [None, 3, {"flags": "avx"}])
def test_a_cpu_that_nobody_describes_is_refused_in_one_line(cpuinfo: object) -> None:
    said = {"architecture": "x86_64", "logical_cores": 8, "cpuinfo": cpuinfo}
    with pytest.raises(ValueError, match=r"^features: Field required$"):
        read_cpu(json.dumps(said))


@pytest.mark.parametrize(
    "said",
    [
        "etprof-runner: /lib/libc.so.6: version `GLIBC_2.38' not found (required by etprof-runner)",
        "etprof-runner: error while loading shared libraries: libxnnpack.so: cannot open",
        'CANNOT LINK EXECUTABLE "etprof-runner": library "libc++_shared.so" not found',
    ],
)
def test_a_runner_of_another_system_is_told_with_the_way_out(said: str) -> None:
    """R336: the loader's words alone help nobody."""
    with pytest.raises(TargetError, match=r"built for another system.*LD_LIBRARY_PATH"):
        check_completed(Completed(("etprof-runner",), 127, "", said))


@pytest.mark.parametrize(
    ("command", "how", "lines"),
    [
        ("exit 1", "exit code 1", "it printed nothing"),
        ("echo 'loading the program'; exit 1", "exit code 1", "loading the program"),
        ("echo one >&2; echo two >&2; kill -9 $$", "killed by SIGKILL", "one / two"),
    ],
)
def test_a_launch_that_gives_no_reason_is_described(command: str, how: str, lines: str) -> None:
    """U3-13: a launch under load failed with "exit code 1" and not a word more."""
    completed = run_command(["sh", "-c", command])
    with pytest.raises(TargetError) as caught:
        check_completed(completed)
    message = str(caught.value)
    assert how in message
    assert lines in message
    # Of a shell, which has some MiB; the page size at least, and no more than a machine has.
    assert completed.peak_rss_bytes is not None
    assert 2**16 < completed.peak_rss_bytes < 2**30
    assert re.search(r"used up to [\d.]+ [KM]iB of memory", message)
    assert f"Repeat with: {completed.shell_text}" in message
    if sys.platform == "linux":
        assert re.search(r"[\d.]+ [KMG]iB are available on this machine now", message)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_runner_that_was_ended_from_outside_is_no_damaged_program(number: signal.Signals) -> None:
    """S3-4: who lost a measurement to another etprof was told that the program may be damaged."""
    with pytest.raises(TargetError, match=f"killed by {number.name}") as caught:
        check_completed(Completed(("etprof-runner",), -number, "", ""))
    is_own = number == signal.SIGSEGV
    assert ("the program may be damaged" in str(caught.value)) == is_own
    assert ("from this user, from root, or from the system" in str(caught.value)) != is_own
