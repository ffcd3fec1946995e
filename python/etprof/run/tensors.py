"""Tensors that a runner or an export wrote, raw and little-endian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.base.errors import InputFileError
from etprof.base.files import read_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etprof.run.runner_result import RunnerResult

MOST_TENSOR_BYTES: Final = 2**32
"""Of an output: 100 times the scores of a language model for a prompt of 1000 tokens."""
_WAY_OUT: Final = "run the model again"
_ELEMENTS: Final = {
    **{name: np.dtype(name) for name in ("bool", "int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
    "bfloat16": np.dtype("<u2"),
    "complex64": np.dtype(("<f4", 2)),
    "complex128": np.dtype(("<f8", 2)),
}
"""Element types that are compared, as the runner and the export name them; complex ones by parts."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it was read, or why it could not be."""

    path: str
    dtype: str
    shape: tuple[int, ...] | None
    """None is not known: it is as long as the file."""
    data: bytes = b""
    problem: str | None = None

    @property
    def columns(self) -> int:
        """Length of the last dimension."""
        return self.shape[-1] if self.shape else 1

    def values(self) -> NDArray[np.float64]:
        """Returns the elements as float64, flat; raises InputFileError naming the file.

        Returns:
            All elements in the tensor's order, shape (elements,).
        """
        if self.problem is not None:
            raise InputFileError(self.problem)
        element = _ELEMENTS[self.dtype]
        values = np.frombuffer(self.data, dtype=element.base)
        if self.dtype == "bfloat16":
            return (values.astype("<u4") << 16).view("<f4").astype(np.float64)
        return values.astype(np.float64)


def load_tensor(path: Path | str, dtype: str, shape: Sequence[int] | None) -> StoredTensor:
    """Reads a tensor's file; what is wrong with it is its problem, and raised nowhere."""
    dimensions = None if shape is None else tuple(shape)
    element = _ELEMENTS.get(dtype)
    if element is None:
        unknown = f"cannot read {path} as {dtype}, no type of numbers; {_WAY_OUT}"
        return StoredTensor(str(path), dtype, dimensions, problem=unknown)
    expected = None if dimensions is None else math.prod(dimensions) * element.itemsize
    limit_bytes = MOST_TENSOR_BYTES if expected is None else min(expected, MOST_TENSOR_BYTES)
    try:
        data = read_input(Path(path), most_bytes=limit_bytes, way_out=_WAY_OUT)
    except InputFileError as error:
        return StoredTensor(str(path), dtype, dimensions, problem=str(error))
    problem = None
    if len(data) % element.itemsize or expected not in (None, len(data)):
        problem = f"{path} has {len(data)} bytes, not those of a whole {dtype}; {_WAY_OUT}"
    return StoredTensor(str(path), dtype, dimensions, data, problem)


def load_outputs(folder: Path, result: RunnerResult | None) -> dict[int, dict[int, StoredTensor]]:
    """Reads the outputs that a launch left in `folder`: by inference, and by their number."""
    steps = {
        step: {
            output.index: load_tensor(file, output.dtype, output.shape)
            for output, file in files
            if file.is_file()
        }
        for step, files in (result.output_files(folder) if result else {}).items()
    }
    return {step: outputs for step, outputs in steps.items() if outputs}
