"""The registry of targets: one row says all that differs by kind, and all others ask it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from etprof.base.errors import InputFileError, OutputError, UsageError
from etprof.base.process import Completed, run_command
from etprof.cli.config import TEMPLATES
from etprof.config import TargetConfig
from etprof.targets.emulator.installation import Emulator
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.local import LocalTarget
from etprof.targets.registry import KINDS, TARGETS, find_kind, load, make_target, proves_times
from etprof.targets.request import RunnerRequest, raw_inputs
from tests.hostile.damage import file_sizes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "etprof"

TOY = '''\
"""A target for the test."""
from etprof.targets.local import LocalTarget

class ToyTarget(LocalTarget):
    """Runs here, by another name."""
    platform = "toy"
'''
ROW = """\
TARGETS: Final = (
    TargetKind(
        name="toy",
        policy=Policy(proves_times=False),
        factory="etprof.targets.toy:ToyTarget",
        history_name="toy",
        counting_hint="use another target",
        warning="Nothing of it is real.",
    ),
"""
ASK = """
from etprof.history.ingest import identify_device
from etprof.targets.emulator.installation import Emulator
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.local import LocalTarget
from etprof.targets.registry import make_target, proves_times
print(make_target("toy", {"serial": None}, "target.kind").platform, proves_times("toy"))
print(identify_device("toy", {"machine": "x"}, None)[0])
"""


@pytest.mark.slow
def test_a_new_kind_touches_three_files(tmp_path: Path) -> None:
    """T16: a target touched 12 to 15 files."""
    package = tmp_path / "etprof"
    shutil.copytree(PACKAGE, package, symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", package / "configs", dirs_exist_ok=True)
    registry = package / "targets" / "registry.py"
    (package / "targets" / "toy.py").write_text(TOY)
    registry.write_text(registry.read_text().replace("TARGETS: Final = (\n", ROW))
    template = json.loads((package / "configs" / "templates" / "linux_template.json").read_text())
    program = tmp_path / "m.pte"
    program.write_bytes(b"program")
    template |= {"target": "toy", "model": str(program), "output_root": "out"}
    (package / "configs" / "templates" / "toy_template.json").write_text(json.dumps(template))

    def ask(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "300"}
        done = run_command([sys.executable, *words], environment=environment, folder=tmp_path)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    (tmp_path / "c.json").write_text(ask("-m", "etprof", "config", "init", "--template", "toy"))
    assert "on toy" in ask("-m", "etprof", "config", "check", "c.json")
    assert "toy" in ask("-m", "etprof", "profile", "--help")
    assert ask("-c", ASK).split() == ["toy", "False", "toy"]


def test_every_kind_has_a_class_and_a_template() -> None:
    assert set(TEMPLATES) == {kind.name for kind in TARGETS} == set(KINDS) - {"local"}
    for kind in TARGETS:
        assert callable(load(kind.factory))
        template = PACKAGE.parents[1] / "configs" / "templates" / f"{kind.name}_template.json"
        assert template.is_file()
        assert set(kind.takes) <= {*TargetConfig.model_fields, "runner", "trace_runner"}


def test_only_the_emulator_proves_no_times() -> None:
    assert [kind.name for kind in TARGETS if not proves_times(kind.name)] == ["emulator"]
    assert proves_times("of another edition")


def test_another_system_is_refused_with_the_way_out() -> None:
    here = find_kind("local")
    assert here is not None
    other = "linux" if here.name == "mac" else "mac"
    for where in ("--target", "target.kind"):
        with pytest.raises(UsageError, match=f"^{where} is .*run it there, or give 'local'$"):
            make_target(other, {}, where)


def test_a_field_without_effect_is_refused() -> None:
    """I8: what a target does not take was passed over in silence."""
    with pytest.raises(ValueError, match="serial is for android, not for local; leave it out"):
        TargetConfig(kind="local", serial="A1")


def test_an_experiment_is_launched_in_the_emulator_as_it_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-cut 19, I8: launcher and CPUs of an experiment were passed by in the emulator."""
    started: list[list[str]] = []

    def start(words: list[str | Path], **_: object) -> Completed:
        started.append([str(word) for word in words])
        return Completed(("x",), 7, "", "etprof-runner: no")

    monkeypatch.setattr("etprof.targets.runner.run_command", start)
    monkeypatch.setattr(sys, "platform", "linux")
    emulator = EmulatorTarget()
    vars(emulator)["emulator"] = Emulator(*(tmp_path / part.name for part in fields(Emulator)))
    request = RunnerRequest(
        model=tmp_path / "m.pte", result=tmp_path / "r.json", cpus=(0, 2), launcher=("nice",)
    )
    for target in (LocalTarget(trace_runner=tmp_path / "own"), emulator):
        with pytest.raises(OutputError):
            target.run(replace(request, kernel_trace=tmp_path / "k.json"))
    for words in started:
        assert words[:4] == ["taskset", "-c", "0,2", "nice"]
    here, emulated = started
    assert here[4] == str(tmp_path / "own")
    assert str(tmp_path / "trace_runner") in emulated


def test_what_numpy_saved_reaches_a_target_as_raw_values(tmp_path: Path) -> None:
    """C8: the values in the order of their indices, with type and shape for the runner to check."""
    values = np.arange(6, dtype="<f2").reshape(2, 3)
    np.save(tmp_path / "rows.npy", values)
    np.save(tmp_path / "columns.npy", np.asfortranarray(values))
    np.save(tmp_path / "scalar.npy", np.array(True))
    (tmp_path / "raw.bin").write_bytes(b"\x93NUMP")
    names = ("rows.npy", "raw.bin", "columns.npy", "scalar.npy")
    request = RunnerRequest(
        model=tmp_path / "m.pte",
        result=tmp_path / "r.json",
        inputs=tuple(tmp_path / name for name in names),
    )
    with raw_inputs(request) as given:
        assert given.shapes == ("float16:2x3", "largest", "float16:2x3", "bool:scalar")
        read = [path.read_bytes() for path in given.inputs]
        assert read == [values.tobytes(), b"\x93NUMP", values.tobytes(), b"\1"]
        assert given.inputs[1] == request.inputs[1]
    assert not given.inputs[0].exists()
    with raw_inputs(replace(request, inputs=request.inputs[1:2])) as given:
        assert given.shapes == ()
    wanted = replace(request, inputs=request.inputs[:1], shapes=("3x2",))
    with pytest.raises(InputFileError, match="has the shape 2x3, but 3x2"), raw_inputs(wanted):
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"\x93NUMPY",
        b"\x93NUMPY\1\0v\0{'descr'",
        b"\x93NUMPY\1\0\x46\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(70),
        b"\x93NUMPY\1\0\x46\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (-4,)}".ljust(70),
        b"\x93NUMPY\1\0\x46\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (9**9,".ljust(70),
        b"\x93NUMPY\1\0\x46\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': ((" .ljust(70, b"("),
    ],
)  # fmt: skip
def test_a_damaged_file_of_numpy_is_refused(tmp_path: Path, content: bytes) -> None:
    """C8: whatever stands in its header, one line names the file and the way out."""
    damaged = tmp_path / "i.npy"
    damaged.write_bytes(content)
    request = RunnerRequest(model=tmp_path / "m.pte", result=tmp_path / "r.json", inputs=(damaged,))
    with pytest.raises(InputFileError, match=r"i\.npy.*numpy\.save"), raw_inputs(request):
        pass


def test_a_full_disk_is_told_with_the_file_and_the_way_out(tmp_path: Path) -> None:
    """C8: unpacked inputs need space of their own; NumPy's own error names no file."""
    np.save(tmp_path / "i.npy", np.ones(4096))
    request = RunnerRequest(
        model=tmp_path / "m.pte", result=tmp_path / "r.json", inputs=(tmp_path / "i.npy",)
    )
    with (
        file_sizes(1024),
        pytest.raises(OutputError, match=r"cannot write .*input_0\.bin.*TMPDIR"),
        raw_inputs(request),
    ):
        pass


def test_other_values_than_numbers_are_refused(tmp_path: Path) -> None:
    request = RunnerRequest(
        model=tmp_path / "m.pte", result=tmp_path / "r.json", inputs=(tmp_path / "i.npy",)
    )
    for array in (np.ones(2, ">f4"), np.array(["a"]), np.array([None]), np.ones(1, "M8[s]")):
        np.save(tmp_path / "i.npy", array)
        with pytest.raises(InputFileError, match=r"i\.npy.*numpy\.save"), raw_inputs(request):
            pass
    np.save(tmp_path / "i.npy", np.ones(2))
    with (tmp_path / "i.npy").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(InputFileError, match="too many"), raw_inputs(request):
        pass
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(InputFileError, match="named pipe"),
        raw_inputs(replace(request, inputs=(tmp_path / "pipe",))),
    ):
        pass
