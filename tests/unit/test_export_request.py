from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from etprof.base.errors import UsageError
from etprof.cli import build_parser
from etprof.export.request import (
    PRECISION_WORDS,
    PRECISIONS,
    ExportOptions,
    ExportRequest,
    parse_precision,
)
from etprof.run.program import OPTION_FLAGS


def test_files_are_named_after_model_backend_and_precision() -> None:
    files = ExportRequest("toy_cnn", precision="8da4w_b64").files()
    assert files.pte == Path("out_toy_cnn/artifacts/toy_cnn_xnnpack_8da4w_b64.pte")
    assert files.etrecord.name == "toy_cnn_xnnpack_8da4w_b64.pte.etrecord"
    assert files.manifest.name == "toy_cnn_xnnpack_8da4w_b64.pte.json"
    assert files.external_data.name == "toy_cnn_xnnpack_8da4w_b64.ptd"


def test_a_model_file_gives_its_class_name() -> None:
    files = ExportRequest("some/model.py:Mine", precision="fp32").files()
    assert files.pte == Path("out_Mine/artifacts/Mine_xnnpack_fp32.pte")


def test_every_precision_is_found_by_its_name() -> None:
    assert [parse_precision(name).name for name in PRECISIONS] == list(PRECISIONS)
    block_wise = parse_precision("8da4w_b32").quantization
    assert block_wise is not None
    assert (block_wise.block_size, block_wise.weight_granularity) == (32, "per_block")


def test_a_precision_names_the_rewrite_that_it_is_made_with() -> None:
    made_with = {name: ExportRequest("m", name).precision_rewrites() for name in PRECISIONS}
    assert {name: own for name, own in made_with.items() if own} == {
        "8da4w_channel": ("channel_weights",)
    }
    assert "8da4w_channel" in PRECISION_WORDS


REFUSED = {
    "precision": (
        ExportRequest("m", precision="fp8"),
        (
            "unknown precision 'fp8'; choose one of fp32, fp16, bf16, int8, int8_per_tensor, int8_dynamic, "
            "8da4w, 8da4w_channel, 8da4w_b<BLOCK>"
        ),
    ),
    "block-size": (
        ExportRequest("m", precision="8da4w_b33"),
        "precision '8da4w_b33': blocks are multiples of 32 weights",
    ),
    "backend": (
        ExportRequest("m", backend="vulkan"),
        "unknown backend 'vulkan'; choose one of xnnpack, portable",
    ),
    "quantised-portable": (
        ExportRequest("m", precision="int8", backend="portable"),
        "precision int8 needs backend xnnpack: portable computes in float",
    ),
    "out-and-outdir": (
        ExportRequest("m", out=Path("a.pte"), outdir=Path("b")),
        "--out names the file and --outdir its folder; give one of them",
    ),
    "out-suffix": (
        ExportRequest("m", out=Path("a.bin")),
        "--out a.bin must end in .pte",
    ),
    "memory-planning": (
        ExportRequest("m", options=ExportOptions(memory_planning="best")),
        "--memory-planning 'best' is unknown; choose from greedy, naive",
    ),
    "config-precisions": (
        ExportRequest("m", options=ExportOptions(config_precisions=("fp32", "int4"))),
        "--config-precisions 'int4' is unknown; choose from fp32, static_quant, dynamic_quant",
    ),
    "bundle-of-nhwc": (
        ExportRequest("m", options=ExportOptions(bundle=True, channels_last=True)),
        "--bundle and --channels-last: ExecuTorch's bundles hold no NHWC inputs; drop one",
    ),
    "partitioner-of-portable": (
        ExportRequest("m", backend="portable", options=ExportOptions(per_op_mode=True)),
        "--operators, --config-precisions and --per-op need backend xnnpack, not portable",
    ),
}


@pytest.mark.parametrize(("request_", "message"), REFUSED.values(), ids=REFUSED)
def test_a_request_without_sense_is_refused(request_: ExportRequest, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        request_.files()
    assert str(caught.value) == message


def test_every_option_that_makes_another_program_can_be_repeated() -> None:
    """A command that etprof prints leaves none of them out."""
    apart = {"weights", "example_inputs", "rewrites"}
    files_alone = {"bundle", "graph", "trace"}
    names = {option.name for option in fields(ExportOptions)}
    assert names == {*OPTION_FLAGS, *apart, *files_alone}
    known = build_parser("export").all_flags()
    assert set(OPTION_FLAGS.values()) <= set(known)
