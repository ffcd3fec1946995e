"""Which part of a model gets which precision: what is written, what it covers, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import UsageError
from etprof.config import parse_config
from etprof.export.changes.scopes import check_names, find_deciding, parse_scopes
from etprof.export.request import ExportOptions, ExportRequest

if TYPE_CHECKING:
    from pathlib import Path

PATHS = ("", "encoder", "encoder.0", "encoder.0.linear", "head")


def request(precision: str, *scopes: str) -> ExportRequest:
    return ExportRequest("toy_cnn", precision, options=ExportOptions(scopes=scopes))


@pytest.mark.parametrize(
    ("pattern", "path", "operator", "is_covered"),
    [
        ("encoder", "encoder.0.linear", "linear.default", True),
        ("encoder", "encoder2", "linear.default", False),
        ("encoder.*", "encoder", "relu.default", False),
        ("*.linear", "encoder.0.linear", "linear.default", True),
        ("*", "", "add.Tensor", True),
        ("type:add", "head", "add.Tensor", True),
        ("type:add", "head", "addmm.default", False),
        ("add", "head", "add.Tensor", False),
    ],
)
def test_a_part_covers_what_it_says(
    pattern: str, path: str, operator: str, *, is_covered: bool
) -> None:
    (scope,) = parse_scopes((f"{pattern}=fp32",))
    assert scope.covers(path, operator) is is_covered


def test_of_several_the_last_decides() -> None:
    scopes = parse_scopes(("*=fp32", "encoder=int8", "type:relu=fp32"))
    found = [
        find_deciding(scopes, "encoder.0", each) for each in ("linear.default", "relu.default")
    ]
    assert [str(each) for each in found] == ["encoder=int8", "type:relu=fp32"]
    assert find_deciding(scopes[1:], "head", "linear.default") is None


@pytest.mark.parametrize(
    "text", ["", "encoder", "=fp32", "encoder=", "type:=fp32", "x" * 300 + "=fp32"]
)
def test_what_says_nothing_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"write WHICH=PRECISION, such as encoder\.\*=fp32"):
        parse_scopes((text,))


def test_more_than_anyone_writes_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 1000"):
        parse_scopes(["a=fp32"] * 1001)


def test_names_that_are_not_there_are_refused_with_close_ones() -> None:
    check_names(parse_scopes(("encoder.*=fp32", "type:linear=fp32")), PATHS, {"linear"})
    for text, told in (
        ("encodr=fp32", "did you mean 'encoder'"),
        ("zzz=fp32", "but encoder, encoder.0, encoder.0.linear"),
        ("type:linaer=fp32", "did you mean 'linear'"),
        ("type:sin=fp32", "known: conv2d, linear"),
    ):
        with pytest.raises(UsageError, match=told):
            check_names(parse_scopes((text,)), PATHS, {"linear", "conv2d"})


@pytest.mark.parametrize(
    ("precision", "scope", "told"),
    [
        ("int8", "stem=int9", "unknown precision 'int9'"),
        ("int8", "stem=fp16", "choose from fp32, int8, int8_per_tensor, int8_dynamic"),
        ("int8", "stem=8da4w", "does not mix with int8"),
        ("8da4w", "stem=8da4w_channel", "does not mix with 8da4w"),
        ("fp16", "stem=int8", r"--quantize int8 --scope '\*=fp32,stem=int8'"),
        ("fp16", "type:linear=fp32", "name those"),
    ],
)
def test_precisions_that_do_not_mix_are_refused(precision: str, scope: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        request(precision, scope).files()


def test_programs_of_other_parts_have_other_names() -> None:
    asked = (request("int8"), request("int8", "a=fp32"), request("int8", "b=fp32"))
    names = [each.files().pte.name for each in asked]
    assert len(set(names)) == 3
    assert names[0] == "toy_cnn_xnnpack_int8.pte"


def test_a_config_names_parts_of_a_model_that_is_exported_first(tmp_path: Path) -> None:
    """Of what is a program already nothing can be changed."""
    given = {"experiments": [{"name": "a"}], "model": "toy_cnn:int8", "scopes": ["stem=fp32"]}
    assert parse_config(json.dumps(given), "c.json", tmp_path).scopes == ("stem=fp32",)
    for wrong, told in (
        ({"scopes": ["stem=fp16"]}, "scopes: --scope stem=fp16: does not mix with int8"),
        ({"scopes": "stem=fp32"}, "scopes"),
        ({"scopes": [3]}, "scopes"),
        ({"model": "made.pte"}, "made.pte is a program already"),
    ):
        (tmp_path / "made.pte").touch()
        with pytest.raises(UsageError, match=told):
            parse_config(json.dumps({**given, **wrong}), "c.json", tmp_path)
