"""Inputs as people write them for a model: `1x3x224x224`, `int64:1x17`, `ids=int64:1x17`, or a file."""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etprof.base.errors import InputFileError, UsageError, first_line
from etprof.base.files import hash_file, read_input
from etprof.base.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

DTYPES: Final = (
    *("float32", "float16", "bfloat16", "float64"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
_ALIASES: Final = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}
"""Other names that torch has for them."""
MOST_BYTES: Final = 2**32
"""Of one input; 1000 images of 1024x1024 in float32 have 12 GB, and no phone takes those."""
_WIDEST: Final = 8
"""Bytes of an element of the widest type."""
_MOST_DIMENSIONS: Final = 16
ANY_INTEGER: Final = 2
"""Integers are drawn below this where no table of the model says more: 0 and 1 index anything."""
_BYTE_VALUES: Final = 256
FORMS: Final = "give a shape such as 1x3x224x224 or int64:1x17, or a file that ends in .npy or .pt"
_SHAPE: Final = re.compile(
    r"(?:(?:torch\.)?(?P<dtype>[a-z]+[0-9]*)(?::(?=.)|(?=\[)))?"
    r"(?P<shape>[0-9]{1,12}(?:x[0-9]{1,12})*|\[[0-9]{0,12}(?:, ?[0-9]{1,12})*\])"
)
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<rest>.+)")
_FILES: Final = {".npy", ".pt", ".pth"}


@dataclass(frozen=True)
class InputSpec:
    """One `--input`: a tensor to draw, or a file of one or several."""

    text: str
    """What stands behind the name, if there is one."""
    name: str | None = None
    """The argument of `forward` that it is for; None: the next one."""
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    file: Path | None = None

    @property
    def is_integer(self) -> bool:
        """Whether values are drawn below a limit."""
        is_drawn = self.file is None
        return is_drawn and self.dtype != "bool" and "float" not in self.dtype

    def document(self) -> str | dict[str, str]:
        """Returns it as JSON data: a file by its content, too."""
        prefix = f"{self.name}=" if self.name else ""
        if self.file is None:
            return prefix + self.text
        return {"input": prefix + self.text, "sha256": hash_file(self.file)}

    def draw(self, limit: int) -> torch.Tensor:
        """Returns a tensor of PyTorch's random numbers: normal, or integers from 0 to below `limit`."""
        import torch

        dtype = getattr(torch, self.dtype)
        if self.dtype == "bool":
            return torch.rand(self.shape) < 0.5
        if not self.is_integer:
            return torch.randn(self.shape).to(dtype)
        return torch.randint(min(limit - 1, torch.iinfo(dtype).max) + 1, self.shape).to(dtype)


def parse_input(text: str) -> InputSpec:
    """Returns what `--input` says; raises UsageError for what is neither a shape nor a file."""
    named = _NAMED.fullmatch(text)
    name, rest = (named["name"], named["rest"]) if named else (None, text)
    if Path(rest).suffix in _FILES:
        return InputSpec(rest, name, file=Path(rest))
    match = _SHAPE.fullmatch(rest)
    if match is None:
        raise UsageError(f"--input {text!r} is not a valid input; {FORMS}")
    dtype = match["dtype"] or "float32"
    dtype = _ALIASES.get(dtype, dtype)
    if dtype not in DTYPES:
        raise UsageError(
            f"--input {text!r}: {dtype} is not a dtype; choose from {', '.join(DTYPES)}"
        )
    shape = tuple(int(size) for size in re.findall(r"[0-9]+", match["shape"]))
    if len(shape) > _MOST_DIMENSIONS or math.prod(shape) * _WIDEST > MOST_BYTES:
        raise UsageError(f"--input {text!r} is larger than an input may be; give a smaller shape")
    return InputSpec(rest, name, dtype, shape)


def describe_inputs(texts: Iterable[str]) -> list[str | dict[str, str]]:
    """Returns inputs as JSON data; raises InputFileError for a file that is not there."""
    described = []
    for text in texts:
        spec = parse_input(text)
        try:
            described.append(spec.document())
        except OSError as error:
            raise InputFileError(
                f"cannot read --input {spec.file}: {error.strerror or error}"
            ) from error
    return described


def make_inputs(
    specs: Sequence[InputSpec], limit: int
) -> tuple[tuple[Any, ...], dict[str, torch.Tensor]]:
    """Returns positional and keyword inputs; raises InputFileError for a file that is none."""
    positional: list[Any] = []
    by_name: dict[str, torch.Tensor] = {}
    for spec in specs:
        if spec.file is None:
            tensors = [spec.draw(_limit_of(spec, limit))]
        else:
            tensors, named = _read_file(spec.file)
            by_name |= named
        if spec.name is None:
            positional += tensors
        elif len(tensors) == 1:
            by_name[spec.name] = tensors[0]
        else:
            held = f"{len(tensors) or 'no'} tensors without a name"
            raise InputFileError(f"--input {spec.name}={spec.text}: the file has {held}, not one")
    return tuple(positional), by_name


def _limit_of(spec: InputSpec, limit: int) -> int:
    return _BYTE_VALUES if spec.dtype == "uint8" and limit == ANY_INTEGER else limit


def _read_file(path: Path) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the tensors of a file, in order and by name; nothing in it is run."""
    import numpy as np
    import torch

    content = read_input(path, most_bytes=MOST_BYTES, way_out="give a file that can be read")
    try:
        if path.suffix == ".npy":
            # A header may name any size: memory is taken for it before a byte is read.
            loaded: Any = torch.from_numpy(np.load(io.BytesIO(content), allow_pickle=False))
        else:
            loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    # Either reader raises whatever a damaged file leads it to.
    except Exception as error:
        raise InputFileError(f"cannot read --input {path}: {first_line(error)}") from error
    in_order = loaded if isinstance(loaded, list | tuple) else [loaded]
    by_name = {}
    if isinstance(loaded, dict):
        in_order, by_name = [], loaded
    values = [*in_order, *by_name.values()]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        raise InputFileError(
            f"--input {path} holds {_kinds(values)}; save a tensor, a tuple of them, or a dict of "
            "them by the names of forward's arguments"
        )
    return list(in_order), {str(name): value for name, value in by_name.items()}


def _kinds(values: Sequence[object]) -> str:
    names = sorted({type(value).__name__ for value in values})
    return join_names(names) or "nothing"
