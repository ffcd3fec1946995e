"""The number formats a model can be exported in, by the names that appear in file names."""

from __future__ import annotations

from dataclasses import dataclass

from etprof.errors import UsageError


@dataclass(frozen=True)
class Precision:
    """A number format of weights and activations."""

    name: str
    float_dtype: str = "float32"
    """PyTorch's name of the type that floating-point tensors have outside quantised operators."""


PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (Precision("fp32"), Precision("fp16", float_dtype="float16"))
}


def parse_precision(name: str) -> Precision:
    """Returns the precision called `name`; raises UsageError when there is none."""
    if name not in PRECISIONS:
        msg = f"unknown precision {name!r}; choose one of {', '.join(PRECISIONS)}"
        raise UsageError(msg)
    return PRECISIONS[name]
