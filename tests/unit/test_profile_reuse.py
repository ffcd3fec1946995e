"""Which earlier export `etprof profile MODEL` takes, and what it says of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import etprof
from etprof.base.errors import ExportError, UsageError
from etprof.cli import main
from etprof.export.exporter import describe_replaced, find_export
from etprof.export.request import ExportOptions, ExportRequest
from etprof.measuring.plan import refuse_other_shapes
from etprof.model_registry import registry
from etprof.run.program import Program

TOOLS = ("executorch", "torch", "torchao")
VERSIONS = {"etprof": etprof.__version__, **{tool: version(tool) for tool in TOOLS}}
MODEL = "class Net:\n    def get_eager_model(self): ...\n    def get_example_inputs(self): ...\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models of one name, and an export that only says that it would begin."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(MODEL, encoding="utf-8")

    def refuse(request: ExportRequest, _: object) -> None:
        msg = f"exporting {request.model}"
        raise ExportError(msg)

    monkeypatch.setattr("etprof.export.exporter.export_model", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def leave_export(folder: Path, **changes: Any) -> None:  # noqa: ANN401 - any JSON
    """Leaves what an export of one/net.py leaves; the program itself is none."""
    program = folder / "out_Net" / "artifacts" / "Net_xnnpack_fp16.pte"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"no program")
    manifest = {
        "model": "Net",
        "backend": "xnnpack",
        "precision": "fp16",
        "source": {
            "origin": "one/net.py",
            "sha256": registry.find_model("one/net.py:Net").hash_files(),
        },
        "versions": VERSIONS,
        "options": asdict(ExportOptions()),
    }
    text = json.dumps({**manifest, **changes})
    program.with_name(f"{program.name}.json").write_text(text, encoding="utf-8")


def test_the_program_of_another_model_of_the_same_name_is_not_taken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN another model beside it, so that both have the hash of the same files
    (folder / "one" / "other.py").write_text(MODEL, encoding="utf-8")
    leave_export(folder)
    # AND code older than the program
    os.utime(folder / "two" / "net.py", (0, 0))
    for model in ("two/net.py:Net", "one/other.py:Net"):
        assert main(["profile", model]) != 0
        assert f"exporting {model}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {}},
        *({"versions": {**VERSIONS, tool: "0.0.1"}} for tool in VERSIONS),
        {"pte": {"path": "Net_xnnpack_fp16.pte", "sha256": "0" * 64}},
    ],
)
def test_a_program_of_other_code_or_tools_is_not_taken(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    """A-D18: after an upgrade of torch `profile` measured the old program, `bench` a new one."""
    leave_export(folder, **changes)
    assert main(["profile", "one/net.py:Net"]) != 0
    assert "exporting one/net.py:Net" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ExportOptions(), "exported earlier;"),
        (ExportOptions(trace=True, graph=True, bundle=True), "exported earlier;"),
        (
            ExportOptions(channels_last=True, operators=("linear",), memory_planning="naive"),
            "exported earlier with operators, memory-planning, channels-last;",
        ),
    ],
)
def test_a_program_that_is_taken_says_how_it_was_exported(
    folder: Path, capsys: pytest.CaptureFixture[str], options: ExportOptions, told: str
) -> None:
    leave_export(folder, options=json.loads(json.dumps(asdict(options))))
    assert main(["profile", "one/net.py:Net", "--blocks", "1"]) != 0
    assert f"{told} --export exports it again" in " ".join(capsys.readouterr().err.split())


def test_a_matrix_takes_a_program_with_its_own_options_alone(folder: Path) -> None:
    """A-D18: `profile` takes what was exported with others and says so; a matrix has no word."""
    leave_export(folder, options=json.loads(json.dumps(asdict(ExportOptions(channels_last=True)))))
    request = ExportRequest("one/net.py:Net")
    assert find_export(request) is None
    assert find_export(request, any_options=True) is not None
    (folder / "net.pt").write_bytes(b"weights")
    options = ExportOptions(channels_last=True, weights=folder / "net.pt")
    assert find_export(replace(request, options=ExportOptions(channels_last=True))) is not None
    assert find_export(replace(request, options=options)) is None


def test_an_export_can_be_demanded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_export(folder)
    assert main(["profile", "one/net.py:Net", "--export"]) != 0
    assert "exporting one/net.py:Net" in capsys.readouterr().err


def test_a_folder_holds_the_programs_of_one_source(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models of one name replaced each other's programs, and were compared as one."""
    leave_export(folder)
    for model in ("two/net.py:Net", "Net.pt2"):
        (folder / "Net.pt2").write_bytes(b"")
        name = "Net_net" if model.endswith(":Net") else "Net_pt2"
        request = ExportRequest(model)
        assert str(request.files().pte) == f"out_{name}/artifacts/{name}_xnnpack_fp16.pte"
        assert main(["profile", model]) != 0
        told = f"Note: out_Net holds the programs of one/net.py:Net; {model} goes to out_{name}"
        assert told in capsys.readouterr().err.splitlines()
        # AND where its runs go
        assert ExportRequest.short_name(model) == name
    # AND the first one's own, however its file is spelled
    for model in ("one/net.py:Net", "./one/net.py:Net", str(folder / "one" / "net.py:Net")):
        assert ExportRequest(model).model_name() == "Net"
        assert not ExportRequest(model).describe_holder()


def test_a_third_source_of_a_name_has_a_folder_too(folder: Path) -> None:
    leave_export(folder)
    artifacts = folder / "out_Net_net" / "artifacts"
    artifacts.mkdir(parents=True)
    first = folder / "out_Net" / "artifacts" / "Net_xnnpack_fp16.pte.json"
    document = json.loads(first.read_text(encoding="utf-8"))
    document["source"] |= {"origin": "two/net.py", "asked": "two/net.py:Net"}
    document["model"] = "Net_net"
    (artifacts / "Net_net_xnnpack_fp16.pte").write_bytes(b"no program")
    (artifacts / "Net_net_xnnpack_fp16.pte.json").write_text(json.dumps(document), encoding="utf-8")
    assert ExportRequest("two/net.py:Net").model_name() == "Net_net"
    third = ExportRequest("three/net.py:Net").model_name()
    assert third.startswith("Net_")
    assert third != "Net_net"


def test_a_project_that_was_moved_keeps_its_names(folder: Path) -> None:
    """The path of the file is another; the history of the model goes on."""
    leave_export(folder)
    (folder / "one").rename(folder / "moved")
    assert ExportRequest("moved/net.py:Net").model_name() == "Net"
    # BUT NOT where the name is of a model that is no file
    manifest = folder / "out_Net" / "artifacts" / "Net_xnnpack_fp16.pte.json"
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["source"] |= {"origin": "torchvision:Net", "asked": "torchvision:Net"}
    manifest.write_text(json.dumps(document), encoding="utf-8")
    assert ExportRequest("moved/net.py:Net").model_name() == "Net_net"


def test_a_folder_that_is_named_keeps_the_files_of_both(folder: Path) -> None:
    leave_export(folder)
    request = ExportRequest("two/net.py:Net", outdir=folder / "out_Net" / "artifacts")
    assert request.files().pte.name == "Net_net_xnnpack_fp16.pte"
    assert "Net_net" in request.describe_holder()


def test_names_that_differ_in_case_are_one_on_some_file_systems(folder: Path) -> None:
    """On a Mac the programs of `NET` replaced those of `Net`: its `out_NET` is `out_Net`."""
    leave_export(folder)
    (folder / "out_NET").symlink_to(folder / "out_Net")
    request = ExportRequest("two/net.py:NET")
    assert request.model_name() == "NET_net"
    assert "out_NET holds the programs of one/net.py:Net" in request.describe_holder()
    # AND where names are told apart, each has its folder
    (folder / "out_NET").unlink()
    assert request.model_name() == "NET"


def test_programs_with_other_rewrites_do_not_replace_each_other(tmp_path: Path) -> None:
    """Two commands that findings advised wrote one file."""
    choices: list[tuple[str, ...]] = [(), ("all",), ("a",), ("b",), ("a", "b"), ("a", "c")]
    requests = [
        ExportRequest("toy_cnn", outdir=tmp_path, options=ExportOptions(rewrites=names))
        for names in choices
    ]
    names = [request.files().pte.name for request in requests]
    assert len(set(names)) == len(names)
    assert names[:3] == [f"toy_cnn_xnnpack_fp16{kind}.pte" for kind in ("", "_rewritten", "_a")]
    # AND the order in which they are named makes no other program
    swapped = ExportOptions(rewrites=("b", "a"))
    assert ExportRequest("toy_cnn", outdir=tmp_path, options=swapped).files().pte.name == names[4]


@pytest.mark.parametrize(
    ("shapes", "is_refused"),
    [
        ((("Net", "1x3x64x64"), ("Net", "1x3x224x224")), True),
        ((("Net", "1x3x64x64"), ("Net", "1x3x64x64")), False),
        ((("Net", "1x3x64x64"), ("Other", "1x3x224x224")), False),
        # Of inputs that are given, no shape is known.
        ((("Net", ""), ("Net", "1x3x224x224")), False),
        ((("Net", "1x3x64x64"), ("Net", "")), False),
    ],
)
def test_a_model_is_not_compared_with_itself_on_other_shapes(
    shapes: tuple[tuple[str, str], ...], is_refused: bool
) -> None:
    """It said "faster, 16.4x": the first program had been made again, with larger inputs."""
    programs = [
        Program(
            name=name, label=name, model=Path(f"{number}.pte"), shapes=(shape,) if shape else ()
        )
        for number, (name, shape) in enumerate(shapes)
    ]
    if is_refused:
        with pytest.raises(UsageError, match=r"inputs of 1x3x64x64 and 1\.pte with 1x3x224x224"):
            refuse_other_shapes(programs)
    else:
        refuse_other_shapes(programs)


def test_a_program_of_other_inputs_is_not_replaced_without_a_word(folder: Path) -> None:
    """Without --input, the program for larger images was gone."""
    request = ExportRequest("one/net.py:Net")
    assert describe_replaced(request) == "", "there is none"
    inputs = [{"input": "1x3x64x64"}, {"input": "int64:1x7"}]
    leave_export(folder, options={**asdict(ExportOptions()), "example_inputs": inputs})
    program = request.files().pte
    assert describe_replaced(request) == (
        f"replaced {program}, exported with --input 1x3x64x64 --input int64:1x7; "
        "`etprof export --out FILE` keeps both"
    )
    same = ExportOptions(example_inputs=("1x3x64x64", "int64:1x7"))
    assert describe_replaced(replace(request, options=same)) == ""
    assert describe_replaced(replace(request, out=folder / "other.pte")) == ""
    program.with_name(f"{program.name}.json").write_text("damaged", encoding="utf-8")
    assert describe_replaced(request) == ""


def test_the_models_own_inputs_are_named_too(folder: Path) -> None:
    leave_export(folder)
    request = ExportRequest("one/net.py:Net", options=ExportOptions(example_inputs=("1x3",)))
    assert ", exported with the model's own inputs; " in describe_replaced(request)
