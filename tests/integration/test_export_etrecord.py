"""The module map from a program and its ETRecord alone, as for programs of other exporters."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import etprof
from etprof.base.errors import InputFileError
from etprof.cli import main
from etprof.etrecord.program import describe_program
from etprof.export.request import ExportRequest
from tests.integration.marked_models import marked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Exports

DECODER = marked("MarkedDecoder")
CASES = [("toy_cnn", "fp32"), ("toy_cnn", "int8"), (DECODER, "fp32")]
# Of the decoder's operators outside delegates, equal ones of both layers share their handles.
ONE_LAYER = "toy_cnn"


def base_name(operator: str) -> str:
    """Returns an operator's name without namespace and overload, which the kernel's differs in."""
    return operator.removeprefix("dim_order_ops.").partition(".")[0]


def facts(report: dict[str, Any]) -> dict[str, Any]:
    """Returns what both ways can know: every delegate's nodes and every operator's place."""
    return {
        name: {
            "nodes": [
                (each["instruction"], node["kind"], node["attribution"], node["origins"][:1])
                for each in method["delegates"]
                for node in each["nodes"]
            ],
            "outside": sorted(
                (each["instruction"], base_name(each["operator"]), each["origin"]["module_path"])
                for each in method["operators"]
                if each["delegate"] is None and each["instruction"] is not None
            ),
        }
        for name, method in report["methods"].items()
    }


@pytest.mark.parametrize(("model", "precision"), CASES, ids=["toy-fp32", "toy-int8", "decoder"])
def test_it_equals_the_exports_own_report(exports: Exports, model: str, precision: str) -> None:
    files = exports.get(ExportRequest(model, precision))
    own = json.loads(files.report.read_text(encoding="utf-8"))
    found = describe_program(files.pte, files.etrecord).model_dump(mode="json")
    for name, method in facts(own).items():
        assert facts(found)[name]["nodes"] == method["nodes"]
        assert model != ONE_LAYER or facts(found)[name]["outside"] == method["outside"]
    assert found["size"] == own["size"]


def test_files_that_do_not_belong_together_are_refused(exports: Exports) -> None:
    toy = exports.get(ExportRequest("toy_cnn", "fp32"))
    decoder = exports.get(ExportRequest(DECODER, "fp32"))
    with pytest.raises(InputFileError) as caught:
        describe_program(toy.pte, decoder.etrecord)
    assert str(caught.value).startswith(
        f"{decoder.etrecord} has no method 'forward': it does not belong to {toy.pte}; "
    )


def test_a_damaged_etrecord_is_named(exports: Exports, tmp_path: Path) -> None:
    toy = exports.get(ExportRequest("toy_cnn", "fp32"))
    broken = tmp_path / "broken.etrecord"
    broken.write_bytes(toy.etrecord.read_bytes()[:1000])
    with pytest.raises(InputFileError, match=f"cannot read {broken}: "):
        describe_program(toy.pte, broken)


def test_profile_names_the_modules_of_another_exporters_program(
    exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a program with nothing of etprof's beside it, and its ETRecord
    toy = exports.get(ExportRequest("toy_cnn", "fp32"))
    program, run = tmp_path / "theirs.pte", tmp_path / "run"
    shutil.copy(toy.pte, program)
    # WHEN
    words = ["profile", str(program), "--etrecord", str(toy.etrecord)]
    words += ["--blocks", "1", "--iterations", "1", "--threads", "1"]
    assert main([*words, "--min-seconds", "0.001", "--out", str(run)]) == 0
    # THEN its operators have modules
    assert "Reading " in capsys.readouterr().err
    modules = etprof.load_run(run).rollup("module")["module"].tolist()
    assert {"stem", "depthwise", "pointwise", "pool", "head"} <= set(modules)
    # AND the report shows time per module and per source line
    report = (run / "report.md").read_text(encoding="utf-8")
    assert "## Modules" in report
    assert re.search(r"^\| stem \| 2 \|", report, re.MULTILINE)
    assert re.search(r"^\| model\.py:24 \| .*\| 2 \|", report, re.MULTILINE)


def test_profile_refuses_an_etrecord_of_another_program(
    exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy, other = (exports.get(ExportRequest(name, "fp32")) for name in ("toy_cnn", DECODER))
    run = tmp_path / "run"
    words = ["profile", str(toy.pte), "--etrecord", str(other.etrecord), "--out", str(run)]
    assert main(words) == 4
    assert "it does not belong to" in capsys.readouterr().err
    assert not run.exists()
