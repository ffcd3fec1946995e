"""The number formats a model can be exported in, by the names that appear in file names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from etprof.base.errors import UsageError

BLOCK_MULTIPLE = 32
"""XNNPACK takes 4-bit weights in rows and blocks of a multiple of this many elements."""


@dataclass(frozen=True)
class Quantization:
    """How weights and activations become integers."""

    method: Literal["pt2e", "torchao"]
    """`pt2e`: XNNPACK's own quantizer on the traced graph; `torchao`: linear layers only."""
    weight_bits: int
    weight_granularity: Literal["per_channel", "per_tensor", "per_block"]
    activations: Literal["static", "dynamic"]
    """Static scales come from calibration; dynamic ones from each inference's own values."""
    activation_bits: int = 8
    block_size: int | None = None


@dataclass(frozen=True)
class Precision:
    """A number format of weights and activations."""

    name: str
    float_dtype: str = "float32"
    """PyTorch's name of the type that floating-point tensors have outside quantised operators."""
    quantization: Quantization | None = None


PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("fp32"),
        Precision("fp16", float_dtype="float16"),
        Precision("int8", quantization=Quantization("pt2e", 8, "per_channel", "static")),
        Precision("int8_per_tensor", quantization=Quantization("pt2e", 8, "per_tensor", "static")),
        Precision("int8_dynamic", quantization=Quantization("pt2e", 8, "per_channel", "dynamic")),
        Precision("8da4w", quantization=Quantization("torchao", 4, "per_channel", "dynamic")),
    )
}

_BLOCK_WISE = re.compile(r"8da4w_b([1-9][0-9]{0,4})")


def parse_precision(name: str) -> Precision:
    """Returns the precision called `name`; raises UsageError when there is none.

    `8da4w_b32` and its like have 4-bit weights with one scale per block of 32.
    """
    if name in PRECISIONS:
        return PRECISIONS[name]
    match = _BLOCK_WISE.fullmatch(name)
    if match is None:
        msg = f"unknown precision {name!r}; choose one of {', '.join(PRECISIONS)}, 8da4w_b<BLOCK>"
        raise UsageError(msg)
    block_size = int(match[1])
    if block_size % BLOCK_MULTIPLE:
        msg = f"precision {name!r}: XNNPACK's blocks are multiples of {BLOCK_MULTIPLE} weights"
        raise UsageError(msg)
    quantization = Quantization("torchao", 4, "per_block", "dynamic", block_size=block_size)
    return Precision(name, quantization=quantization)
