"""The module map from a program and its ETRecord alone, as for programs of other exporters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from etprof.errors import InputFileError
from etprof.etrecord import describe_program
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
    found = json.loads(json.dumps(describe_program(files.pte, files.etrecord)))
    for name, method in facts(own).items():
        assert facts(found)[name]["nodes"] == method["nodes"]
        assert model != ONE_LAYER or facts(found)[name]["outside"] == method["outside"]
    assert found["size"] == own["size"]


def test_files_that_do_not_belong_together_are_refused(exports: Exports) -> None:
    toy = exports.get(ExportRequest("toy_cnn", "fp32"))
    decoder = exports.get(ExportRequest(DECODER, "fp32"))
    with pytest.raises(InputFileError) as caught:
        describe_program(toy.pte, decoder.etrecord)
    assert str(caught.value) == (
        f"{decoder.etrecord} has no method 'forward': it does not belong to {toy.pte}"
    )


def test_a_damaged_etrecord_is_named(exports: Exports, tmp_path: Path) -> None:
    toy = exports.get(ExportRequest("toy_cnn", "fp32"))
    broken = tmp_path / "broken.etrecord"
    broken.write_bytes(toy.etrecord.read_bytes()[:1000])
    with pytest.raises(InputFileError, match=f"cannot read {broken}: "):
        describe_program(toy.pte, broken)
