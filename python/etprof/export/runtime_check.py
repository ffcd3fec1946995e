"""Runs a finished program with ExecuTorch's own runtime and holds its outputs against eager's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from etprof.base.errors import ExportError
from etprof.export import host_runtime, lowering, tensors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.export.eager_model import ExportMethod

MINIMUM_SNR_DB = {
    "fp32": 80.0,
    "fp16": 40.0,
    "int8": 20.0,
    "int8_per_tensor": 20.0,
    "int8_dynamic": 20.0,
    "8da4w": 15.0,
}
"""Below this distance from the float32 model a result is called out; `8da4w_b…` as `8da4w`.

The zoo's models keep all of it. Rounding alone leaves some 40 dB to an 8-bit value and 20 dB to a
4-bit weight. The outputs for another image are 9 to 18 dB away in the zoo's MobileNets, ResNet and
ViT, so that down to 8 bits a program with wrong inputs or weights is below it.
"""

PRECISION_MARGIN_DB = 3.0
"""A program may be this much further from float32 than the eager model in the same precision."""


@dataclass(frozen=True)
class OutputCheck:
    """One output of the program against the float32 eager model's."""

    index: int
    snr_db: float | None
    """10 log10 of signal power over error power; None when there is no error at all."""
    max_abs_error: float
    top1_agreement: float | None
    """Share of rows whose largest entry is at the same place; None for a single column."""
    snr_db_converted: float | None
    """The same ratio against the converted (cast, quantised) eager model: what lowering changed."""
    snr_db_precision: float | None
    """The converted eager model's own ratio to the float32 one: what the precision costs."""

    def is_close(self, minimum_db: float) -> bool:
        """Tells whether the output is as good as its precision allows.

        A network may amplify rounding: then the eager model is no better in the same precision.
        """
        if self.snr_db is None or self.snr_db >= minimum_db:
            return True
        own = self.snr_db_precision
        return own is not None and self.snr_db >= own - PRECISION_MARGIN_DB


def minimum_snr_db(precision: str) -> float:
    """Returns the least signal-to-noise ratio expected of a precision, in dB."""
    return MINIMUM_SNR_DB[precision.partition("_b")[0]]


def check_program(
    pte: Path,
    ptd: Path | None,
    name: str,
    method: ExportMethod,
    references: Sequence[Any],
) -> tuple[list[OutputCheck], list[torch.Tensor]]:
    """Executes method `name`; returns the comparison of every output tensor, and the outputs.

    Raises ExportError when the runtime refuses the program or gives NaN or infinity.
    """
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    outputs = host_runtime.execute(pte, ptd, name, inputs)
    converted = lowering.run_eager(method)
    if len(outputs) != len(references):
        msg = f"method {name!r} gives {len(outputs)} outputs, the eager model {len(references)}"
        raise ExportError(msg)
    checks = [
        compare_output(index, output, reference, own)
        for index, (output, reference, own) in enumerate(
            zip(outputs, references, converted, strict=True)
        )
    ]
    return checks, outputs


def compare_output(
    index: int, output: torch.Tensor, reference: torch.Tensor, converted: torch.Tensor
) -> OutputCheck:
    """Compares one output; raises ExportError when it is not finite."""
    nonfinite = int((~torch.isfinite(output)).sum()) if output.is_floating_point() else 0
    if nonfinite:
        kind = tensors.dtype_name(output)
        msg = f"output {index} has {nonfinite} values that are not finite in {kind}, unlike eager; "
        raise ExportError(msg + "export in fp32, or keep the model's values within fp16's ±65504")
    expected, found = reference.double(), output.double()
    return OutputCheck(
        index=index,
        snr_db=snr_db(expected, found),
        max_abs_error=float((expected - found).abs().max()) if found.numel() else 0.0,
        top1_agreement=_top1_agreement(expected, found),
        snr_db_converted=snr_db(converted.double(), found),
        snr_db_precision=snr_db(expected, converted.double()),
    )


def snr_db(expected: torch.Tensor, found: torch.Tensor) -> float | None:
    """Returns 10 log10(Σ expected² / Σ (expected - found)²), or None when they are equal."""
    error = float((expected - found).square().sum())
    signal = float(expected.square().sum())
    if error == 0 or signal == 0:
        return None if error == 0 else float(-10 * torch.log10(torch.tensor(error)))
    return float(10 * torch.log10(torch.tensor(signal / error, dtype=torch.float64)))


def _top1_agreement(expected: torch.Tensor, found: torch.Tensor) -> float | None:
    if expected.dim() == 0 or expected.shape[-1] < 2:
        return None
    same = expected.argmax(-1) == found.argmax(-1)
    return float(same.double().mean())
