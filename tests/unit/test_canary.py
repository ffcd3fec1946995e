"""Each check of `nox -s next` is red for what it looks for, and quiet for what etprof knows."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests import canary

KERNEL = "kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla"
LIBRARY = b"\0".join(
    (b"\x7fELF", b"Convolution (NHWC, F32)", b"native_call_add.out", KERNEL.encode(), b"")
)


def test_the_newest_version_is_the_one_in_brackets() -> None:
    answer = "WARNING: executorch\nexecutorch (1.6.0)\nAvailable versions: 1.6.0, 1.5.1\n"
    assert canary.newest_version(answer) == "1.6.0"
    with pytest.raises(SystemExit, match="names no version"):
        canary.newest_version("ERROR: No matching distribution found for executorch")


def test_the_pin_of_this_repository_is_moved() -> None:
    text = (canary.ROOT / "pyproject.toml").read_text("utf-8")
    moved = canary.moved_pin(text, "9.9.9")
    assert canary.PIN.findall(moved) == ["9.9.9"]
    assert '"torch>=2.13",' in moved
    assert len(moved.splitlines()) == len(text.splitlines())


def test_what_is_known_breaks_nothing() -> None:
    known = json.loads(canary.KNOWN.read_text("utf-8"))["kernels"]
    assert canary.check_names("label", ["Convolution (NHWC, F32)"]).breaks == ()
    assert canary.check_names("kernel", ["native_call_add.out"]).breaks == ()
    check = canary.check_microkernels(known, known)
    assert (check.breaks, check.news) == ((), ())


def test_what_has_no_place_in_a_table_is_named() -> None:
    (label,) = canary.check_names("label", ["Warp (NC, F32)"]).breaks
    assert label == "Warp (NC, F32): no known operator of XNNPACK"
    (kernel,) = canary.check_names("kernel", ["native_call_warp.out"]).breaks
    assert kernel == "native_call_warp.out: no known kernel"


def test_new_and_gone_microkernels_are_told_and_break_nothing() -> None:
    new = KERNEL.replace("f32", "f16")
    found = canary.check_microkernels([new], [KERNEL])
    assert found.breaks == ()
    assert found.news == (f"new microkernel: {new}", f"gone microkernel: {KERNEL}")


def test_a_library_without_names_is_no_success(tmp_path: Path) -> None:
    wheel = tmp_path / "executorch.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("executorch/lib/libexecutorch.so", b"stripped of all")
    checks = canary.check_library(wheel)
    assert [check.name for check in checks] == ["labels", "kernels", "microkernels"]
    assert all("none was found" in check.breaks[0] for check in checks)


def test_failed_tests_are_named_with_what_they_say() -> None:
    printed = "..F\nFAILED tests/a.py::test_b - assert 1 == 2\nERROR tests/c.py\n1 failed\n"
    assert canary.failed_tests(printed) == ("tests/a.py::test_b - assert 1 == 2", "tests/c.py")


def test_every_test_that_it_runs_exists() -> None:
    assert all((canary.ROOT / name).is_file() for names in canary.TESTS.values() for name in names)


def test_a_long_list_is_cut_and_says_so() -> None:
    lines = [*canary.Check("x", "y", tuple(map(str, range(30)))).lines()]
    assert lines[0] == "x: BREAKS in 30 (y)"
    assert lines[-1].endswith("and 10 more, in --json")


def test_the_pinned_one_is_said_in_a_line_and_what_breaks_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (pinned,) = canary.PIN.findall((canary.ROOT / "pyproject.toml").read_text("utf-8"))
    newest, asked = [pinned], []

    def answer(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, f"executorch ({newest[0]})\n", "")

    def examine(version: str, *, is_built_anew: bool, subjects: object) -> list[canary.Check]:
        asked.append((version, is_built_anew))
        return [canary.Check("labels", "1", () if version == pinned else ("Warp",))]

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(canary, "examine", examine)
    assert canary.main([]) == 0
    assert "which is the pinned one" in capsys.readouterr().out.splitlines()[0]
    newest[0] = "9.9"
    assert canary.main(["--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["newest"], document["pinned"]) == ("9.9", pinned)
    assert document["checks"][0]["breaks"] == ["Warp"]
    assert asked == [(pinned, False), ("9.9", True)]
