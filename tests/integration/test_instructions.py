"""Instructions inside the delegate, counted under emulation: the same again, and more for more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import EtprofError
from etprof.cli import run_command_line
from etprof.run.kernel_trace import InstructionCounts, read_instructions
from etprof.run.load import Run
from etprof.targets.emulator.installation import locate

if TYPE_CHECKING:
    from pathlib import Path

try:
    locate()
    pytestmark = pytest.mark.slow
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))


def count(folder: Path, name: str) -> dict[str, InstructionCounts]:
    out = folder / name
    words = ["profile", "toy_cnn", "--dtype", "fp16", "--target", "emulator", "--instructions"]
    assert run_command_line([*words, "--out", str(out), "--json"]) == 0
    return {
        each.name: read_instructions(next((out / each.name).glob("*_instructions.json")))
        for each in Run.load(out).experiments
    }


def test_instructions_repeat_to_the_instruction_and_the_gate_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = count(tmp_path, "a"), count(tmp_path, "b")
    for name, found in first.items():
        assert found.is_steady
        assert found.operators == second[name].operators
        assert found.setup == second[name].setup
        assert len(found.operators) == 7
    sme2, off = (next(f for n, f in first.items() if f.sme.in_force == m) for m in ("sme2", "off"))
    # AND the convolution on SME2 packs, and takes fewer; what has no SME kernel takes the same
    convolution, plain = sme2.operators[1], off.operators[1]
    assert "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme" in convolution.functions
    assert convolution.total < plain.total
    assert sme2.operators[2].functions == off.operators[2].functions

    for run in ("a", "b"):
        assert run_command_line(["history", "add", "--store", "h.sqlite", run]) == 0
    assert run_command_line(["validate", "a"]) == 0
    page = (tmp_path / "a" / "report.html").read_text()
    assert "Instructions inside the delegate" in page
    assert f"{convolution.total:,}" in page
    capsys.readouterr()
    words = ["history", "check", "--store", "h.sqlite", "--exact-work", "--format", "json"]
    run_command_line(words)
    entries = json.loads(capsys.readouterr().out)["entries"]
    judged = [each for each in entries if each["metric"] == "instructions"]
    assert [each["outcome"] for each in judged] == ["unchanged"] * len(judged)
    assert judged
