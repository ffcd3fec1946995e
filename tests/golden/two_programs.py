"""Two programs of one model whose lowerings wrote its modules differently."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.unit.test_programs_in_turns import of, write_config, write_program
from tests.world.spec import Noise, Operator, RunSpec

_OPERATORS: Final = (
    ("conv", "convolution.default", "stem"), ("relu", "relu.default", "stem"),
    ("quant", "quantize_per_tensor.default", "stem"), ("linear", "linear.default", "layer1"),
    ("permute", "permute_copy.default", "layer1"), ("bmm", "bmm.default", "layer1"),
    ("softmax", "_softmax.default", "layer1"), ("mean", "mean.dim", "pool"),
    ("conv_1", "convolution.default", "last"), ("add", "add.Tensor", "last"),
    ("conv_2", "convolution.default", "last"), ("head", "linear.default", "head"), ("root", "mul.Tensor", ""),
)  # fmt: skip
_BEFORE: Final = {
    "conv": ("Conv2d", "conv relu"), "linear": ("FullyConnected", "linear"),
    "softmax": ("Softmax", "softmax"), "last": ("Conv2d", "conv_1"), "sum": ("Add2", "add"),
    "other": ("Conv2d", "conv_2"), "root": ("Multiply2", "root"),
}  # fmt: skip
_AFTER: Final = {
    "conv": ("Conv2d", "conv"), "relu": ("Clamp", "relu"), "quant": ("Convert", "quant"),
    "permute": ("StaticTranspose", "permute"), "bmm": ("BatchMatrixMultiply", "bmm"),
    "softmax": ("Softmax", "softmax"), "last": ("Conv2d", "conv_1 add"),
    "other": ("Conv2d", "conv_2"), "head": ("FullyConnected", "head"),
}  # fmt: skip
_SOFTMAX: Final = Operator("Softmax (NC, F32) #1", 15)
_MEAN: Final = Operator("native_call_mean.out", 30, 1)


def two_programs() -> RunSpec:
    """What each of them takes, by operator."""
    before = (
        Operator("Convolution (NHWC, F32) IGEMM #1", 100),
        Operator("Fully Connected (NC, F32) GEMM #1", 60), _SOFTMAX,
        Operator("Convolution (NHWC, F32) IGEMM #2", 40), Operator("Add (ND, F32) #1", 10),
        Operator("Convolution (NHWC, F32) IGEMM #3", 25), Operator("Multiply (ND, F32) #1", 8),
        _MEAN,
    )  # fmt: skip
    after = (
        Operator("Convolution (NHWC, F32) IGEMM #1", 90), Operator("Clamp (NC, F32) #1", 20),
        Operator("Convert (NC, F32, QS8) #1", 5), Operator("Transpose (ND, X32) #1", 12),
        Operator("Batch Matrix Multiply (NC, F32) GEMM #1", 30), _SOFTMAX,
        Operator("Convolution (NHWC, F32) IGEMM #2", 45),
        Operator("Convolution (NHWC, F32) IGEMM #3", 24),
        Operator("Fully Connected (NC, F32) GEMM #1", 7), _MEAN,
    )  # fmt: skip
    return of(*before, programs={"b": of(*after)}, noise=Noise(block=0.002), seed=11)


def write_two_programs(folder: Path) -> None:
    """The programs, with what their exports say, and a config that measures both."""
    paths = [write_program(folder, name, name.encode(), precision="fp32") for name in "ab"]
    for path, nodes in zip(paths, (_BEFORE, _AFTER), strict=True):
        report = _report(tuple(nodes.values()))
        path.with_name(f"{path.name}.delegation.json").write_text(json.dumps(report))
    config = write_config(folder, paths[0], split=paths[1])
    document = json.loads(config.read_text())
    config.write_text(json.dumps(document | {"output_root": "run"}))


def _report(nodes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    delegated = {name for _, names in nodes for name in names.split()}
    operators = [
        {
            "name": name, "operator": operator, "origin": {"module_path": module},
            "delegate": 0 if name in delegated else None,
            "instruction": 1 if name == "mean" else None, "is_quantization": name == "quant",
        }
        for name, operator, module in _OPERATORS
        if name in delegated or name == "mean"
    ]  # fmt: skip
    listed = [{"kind": kind, "operators": names.split()} for kind, names in nodes]
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": listed}
    method = {"operators": operators, "delegates": [delegate]}
    return {"schema_version": 1, "model": "m", "methods": {"forward": method}}
