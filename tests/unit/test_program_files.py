"""What stands beside a program is found; what a manifest says is not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.base.errors import InputFileError, UsageError
from etprof.run.program import describe_program


def write_program(folder: Path, **changes: object) -> Path:
    model = folder / "toy_xnnpack_fp32.pte"
    model.write_bytes(b"program")
    data = folder / f"{model.name}.data"
    data.mkdir()
    for name in ("input_0.bin", "reference_0.bin"):
        (data / name).write_bytes(b"1234")
    tensor = {"index": 0, "dtype": "float32", "shape": [1]}
    methods = {
        "forward": {
            "inputs": [{**tensor, "path": f"{data.name}/input_0.bin"}],
            "references": [{**tensor, "path": f"{data.name}/reference_0.bin"}],
        }
    }
    manifest = {"model": "toy", "backend": "xnnpack", "precision": "fp32", "methods": methods}
    (folder / f"{model.name}.json").write_text(json.dumps(manifest | changes))
    return model


def test_example_inputs_and_references_come_along(tmp_path: Path) -> None:
    program = describe_program(write_program(tmp_path))
    assert (program.name, program.label) == ("toy", "toy_xnnpack_fp32")
    assert [path.name for path in program.inputs] == ["input_0.bin"]
    assert [path.name for path in program.references] == ["reference_0.bin"]


def test_references_do_not_belong_to_other_inputs(tmp_path: Path) -> None:
    mine = tmp_path / "mine.bin"
    mine.write_bytes(b"1234")
    program = describe_program(write_program(tmp_path), inputs=(mine,))
    assert program.inputs == (mine,)
    assert program.references == ()


def test_a_program_of_another_exporter_is_taken_as_it_is(tmp_path: Path) -> None:
    model = tmp_path / "other model.pte"
    model.write_bytes(b"program")
    program = describe_program(model)
    assert (program.name, program.inputs, program.method) == ("other_model", (), "forward")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        describe_program(tmp_path / "no.pte")
    assert str(caught.value) == (
        f"{tmp_path}/no.pte does not exist; `etprof export MODEL` makes a program"
    )


def test_an_unknown_method_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        describe_program(write_program(tmp_path), method="backward")
    assert str(caught.value) == (
        "the program has no method 'backward'; it has forward; choose one with --method"
    )


def test_a_manifest_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    methods = {"forward": {"inputs": [{"index": 0, "dtype": "uint8", "path": "../../etc/passwd"}]}}
    model = write_program(tmp_path, methods=methods)
    with pytest.raises(InputFileError, match="outside its own folder; export the model again"):
        describe_program(model)


def test_a_damaged_manifest_is_named_with_the_field(tmp_path: Path) -> None:
    model = write_program(tmp_path, model=7)
    with pytest.raises(InputFileError) as caught:
        describe_program(model)
    assert str(caught.value) == (
        f"{model}.json is damaged: model: Input should be a valid string; export the model again"
    )
