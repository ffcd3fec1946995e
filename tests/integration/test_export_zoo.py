"""The zoo's own code against the published architectures, and every precision of the toy."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from etprof.export.model_loading import load_methods
from etprof.export.request import PRECISIONS as KNOWN_PRECISIONS
from etprof.export.request import ExportRequest

if TYPE_CHECKING:
    from tests.integration.conftest import Exports

# Parameters as published with the checkpoints that the names are compatible with.
PARAMETERS = {
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "resnet18": 11_689_512,
    "vit_tiny": 5_717_416,
}


@cache
def network(name: str) -> nn.Module:
    return load_methods(name)["forward"].module


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_parameter_counts_are_the_published_ones(name: str, parameters: int) -> None:
    assert sum(each.numel() for each in network(name).parameters()) == parameters


def shapes_after(features: nn.Sequential, places: list[int]) -> list[list[int]]:
    """Returns [channels, height, width] after each numbered layer for a 224x224 image."""
    shapes, x = {}, torch.zeros(1, 3, 224, 224)
    with torch.no_grad():
        for index, layer in enumerate(features):
            x = layer(x)
            shapes[index] = list(x.shape[1:])
    return [shapes[place] for place in places]


def test_mobilenet_v2_has_the_shapes_of_the_papers_table_2() -> None:
    features: Any = network("mobilenet_v2").get_submodule("features")
    # Input of the following stage, read from the table's first column.
    assert shapes_after(features, [0, 1, 3, 6, 10, 13, 16, 17, 18]) == [
        [32, 112, 112],
        [16, 112, 112],
        [24, 56, 56],
        [32, 28, 28],
        [64, 14, 14],
        [96, 14, 14],
        [160, 7, 7],
        [320, 7, 7],
        [1280, 7, 7],
    ]


def test_mobilenet_v3_small_has_the_shapes_of_the_papers_table_2() -> None:
    features: Any = network("mobilenet_v3_small").get_submodule("features")
    assert shapes_after(features, [0, 1, 2, 3, 4, 6, 8, 9, 11, 12]) == [
        [16, 112, 112],
        [16, 56, 56],
        [24, 28, 28],
        [24, 28, 28],
        [40, 14, 14],
        [40, 14, 14],
        [48, 14, 14],
        [96, 7, 7],
        [96, 7, 7],
        [576, 7, 7],
    ]


# Number of entries, and some whose names give the structure away.
NAMES: dict[str, tuple[int, dict[str, list[int]]]] = {
    "mobilenet_v2": (
        314,
        {
            "features.0.0.weight": [32, 3, 3, 3],
            "features.1.conv.0.0.weight": [32, 1, 3, 3],
            "features.1.conv.1.weight": [16, 32, 1, 1],
            "features.2.conv.0.0.weight": [96, 16, 1, 1],
            "features.2.conv.1.1.running_var": [96],
            "features.17.conv.3.num_batches_tracked": [],
            "features.18.1.bias": [1280],
            "classifier.1.weight": [1000, 1280],
        },
    ),
    "mobilenet_v3_small": (
        244,
        {
            "features.0.0.weight": [16, 3, 3, 3],
            "features.1.block.0.0.weight": [16, 1, 3, 3],
            "features.1.block.1.fc1.weight": [8, 16, 1, 1],
            "features.1.block.2.0.weight": [16, 16, 1, 1],
            "features.4.block.1.0.weight": [96, 1, 5, 5],
            "features.4.block.2.fc2.bias": [96],
            "features.11.block.3.1.running_mean": [96],
            "features.12.0.weight": [576, 96, 1, 1],
            "classifier.0.weight": [1024, 576],
            "classifier.3.bias": [1000],
        },
    ),
    "resnet18": (
        122,
        {
            "conv1.weight": [64, 3, 7, 7],
            "layer1.0.bn1.weight": [64],
            "layer2.0.downsample.0.weight": [128, 64, 1, 1],
            "layer4.1.bn2.running_mean": [512],
            "fc.weight": [1000, 512],
        },
    ),
    "vit_tiny": (
        152,
        {
            "cls_token": [1, 1, 192],
            "pos_embed": [1, 197, 192],
            "patch_embed.proj.weight": [192, 3, 16, 16],
            "blocks.11.attn.qkv.bias": [576],
            "blocks.0.mlp.fc1.weight": [768, 192],
            "head.weight": [1000, 192],
        },
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_names_are_those_of_the_public_checkpoints(name: str) -> None:
    count, shapes = NAMES[name]
    state = network(name).state_dict()
    assert len(state) == count
    assert {key: list(state[key].shape) for key in shapes} == shapes


def test_the_decoders_cache_makes_decoding_equal_to_prefilling() -> None:
    # GIVEN both methods of one decoder
    methods = load_methods("decoder")
    prefill, decode = methods["prefill"].module.eval(), methods["decode"].module.eval()
    tokens = torch.randint(4096, (1, 9))
    with torch.no_grad():
        # WHEN nine tokens are read at once, or eight and then one
        at_once = prefill(tokens, torch.arange(9))
        prefill(tokens[:, :8], torch.arange(8))
        one_more = decode(tokens[:, 8:], torch.tensor([8]))
    # THEN the scores after the ninth are the same
    torch.testing.assert_close(one_more, at_once, rtol=1e-4, atol=1e-4)


PRECISIONS = [*KNOWN_PRECISIONS, "8da4w_b32"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_toy_cnn_matches_eager_in_every_precision(exports: Exports, precision: str) -> None:
    files = exports.get(ExportRequest("toy_cnn", precision))
    manifest = json.loads(files.manifest.read_text(encoding="utf-8"))
    check = manifest["methods"]["forward"]["check"]
    assert check["passed"]
    (output,) = check["outputs"]
    assert output["snr_db"] > check["minimum_snr_db"]


def types_in_delegates(exports: Exports, precision: str) -> set[str]:
    report = json.loads(
        exports.get(ExportRequest("toy_cnn", precision)).report.read_text(encoding="utf-8")
    )
    delegates = report["methods"]["forward"]["delegates"]
    return {name for each in delegates for node in each["nodes"] for name in node["types"]}


def test_each_precision_reaches_the_delegate(exports: Exports) -> None:
    # What XNNPACK will compute on, read back out of the finished programs.
    assert types_in_delegates(exports, "fp32") == {"fp32"}
    assert "fp16" in types_in_delegates(exports, "fp16")
    assert {"qint8", "qcint8"} <= types_in_delegates(exports, "int8")
    assert "qcint8" not in types_in_delegates(exports, "int8_per_tensor")
    assert {"qdint8", "qcint8"} <= types_in_delegates(exports, "int8_dynamic")
    assert {"qdint8", "qbint4"} <= types_in_delegates(exports, "8da4w")
    assert {"qdint8", "qbint4"} <= types_in_delegates(exports, "8da4w_b32")
    assert {"qdint8", "qcint4"} <= types_in_delegates(exports, "8da4w_channel")
