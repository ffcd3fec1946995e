"""Runs a finished program with ExecuTorch's own runtime and holds its outputs against eager's."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import torch

from etprof.errors import ExportError
from etprof.export import lowering, tensors, upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from etprof.export.eager_model import ExportMethod

MINIMUM_SNR_DB = {
    "fp32": 80.0,
    "fp16": 35.0,
    "int8": 15.0,
    "int8_per_tensor": 8.0,
    "int8_dynamic": 15.0,
    "8da4w": 8.0,
}
"""Below this distance from the float32 model a result is called out; `8da4w_b…` as `8da4w`."""

_MISSING_OPERATOR = re.compile(r"Missing operator: \[\d+\] (\S+)")


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


def minimum_snr_db(precision: str) -> float:
    """Returns the least signal-to-noise ratio expected of a precision, in dB."""
    return MINIMUM_SNR_DB[precision.partition("_b")[0]]


def check_program(
    pte: Path,
    ptd: Path | None,
    name: str,
    method: ExportMethod,
    references: Sequence[Any],
) -> tuple[list[OutputCheck], list[Any]]:
    """Executes method `name`; returns the comparison of every output tensor, and the outputs.

    Raises ExportError when the runtime refuses the program or gives NaN or infinity.
    """
    outputs = execute(pte, ptd, name, method)
    converted = lowering.run_eager(method)
    if len(outputs) != len(references):
        msg = f"method {name!r} gives {len(outputs)} outputs, the eager model {len(references)}"
        raise ExportError(msg)
    checks = [
        compare_output(index, output, reference, own)
        for index, (output, reference, own) in enumerate(
            zip(outputs, references, converted, strict=True)
        )
        if isinstance(output, torch.Tensor)
    ]
    return checks, outputs


def execute(pte: Path, ptd: Path | None, name: str, method: ExportMethod) -> list[Any]:
    """Returns the outputs of one execution in this process."""
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    with captured_stderr() as messages:
        try:
            module = upstream.load_for_executorch(str(pte), None if ptd is None else str(ptd))
            return list(module.run_method(name, tuple(inputs)))
        except RuntimeError as error:
            cause = _last_error(messages()) or lowering.first_line(error)
            msg = f"ExecuTorch's runtime cannot execute method {name!r}: {cause}"
            raise ExportError(msg) from error


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


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Collects what native code writes to stderr; yields a function that reads it.

    The runtime logs about CPU detection on every machine, and its reason for a refusal only here;
    partly to the process's stderr and partly through Python's.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stream:
        os.dup2(stream.fileno(), 2)
        try:
            with redirect_stderr(stream):
                yield lambda: _read(stream)
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _read(stream: IO[str]) -> str:
    stream.flush()
    size = os.fstat(stream.fileno()).st_size
    return os.pread(stream.fileno(), size, 0).decode("utf-8", "replace")


def _last_error(text: str) -> str | None:
    """Returns what the runtime names as missing, else its last line that is not about the CPU."""
    missing = sorted(set(_MISSING_OPERATOR.findall(text)))
    if missing:
        return f"it has no kernel for {', '.join(missing)}"
    lines = [line for line in text.splitlines() if line.strip() and "cpuinfo_utils" not in line]
    return lines[-1].partition("] ")[2] or lines[-1] if lines else None
