"""Reads a program that `torch.export.save` wrote (`.pt2`): as data, although torch's own reader may run it.

That reader unpickles what the archive says is pickled, evaluates the expressions of its shapes, loads
compiled code, and calls whatever function a node names. Here the archive's parts are read and checked
first, and torch gets what was checked, from memory.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from pydantic_core import from_json
from torch import nn
from torch.utils._pytree import tree_unflatten

from etprof.base.errors import EtprofError, ExportError, InputFileError, first_line
from etprof.base.files import read_input
from etprof.model_registry.eager_model import EagerModelBase, Inputs
from etprof.model_registry.expressions import (
    NotAnExpressionError,
    check_expression,
    find_expressions,
)

SUFFIX: Final = ".pt2"
MOST_BYTES: Final = 2**34
"""Of a saved program with its weights; twice that is in memory while it is read."""
MOST_PARTS: Final = 100_000
"""A part for each weight."""
_MODEL: Final = re.compile(r"[^/]+/models/([^/]+)\.json")
_COMPILED: Final = re.compile(r"[^/]+/data/aotinductor/")
_CONFIG: Final = re.compile(r"[^/]+/data/(weights|constants)/[^/]+_config\.json")
_OBJECT: Final = re.compile(r"[^/]+/data/constants/(custom|opaque)_obj_")
_NAMESPACES: Final = "aten|prims|quantized_decomposed|quantized|torchao|higher_order"
_TARGET: Final = re.compile(
    rf"#?torch\.ops\.({_NAMESPACES})(\.[A-Za-z_]\w*){{1,2}}"
    r"|torch\.sym_[a-z]+|torch\._sym_[a-z]+|math\.(ceil|floor|trunc)"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem)"
)
"""What a node may call: operators that ExecuTorch's exporter reads, and arithmetic of sizes."""
_NAME: Final = re.compile(r"[^'\"()\\;=#\n\r]*")
"""What torch writes into Python and runs: names of nodes, of weights, of arguments."""
_UNUSED: Final = {"expr_str", "as_string", "as_strings"}
"""Texts that are checked by themselves, or quoted before they are written into Python."""
_SYMBOL: Final = re.compile(r"\bSymbol\('([A-Za-z_]\w*)'(?:, [a-z]+=(?:True|False))*\)")
_INTEGER: Final = re.compile(r"\bInteger\((-?\d+)\)")
_CONSTRUCTOR: Final = re.compile(r"\b(?:Add|Mul)\(")
_SHOWN: Final = 80
_DAMAGED: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
)
_WAY_OUT: Final = "save it again with torch.export.save, or name the module's class"


class SavedProgram(EagerModelBase):
    """The model of a `.pt2` file, with the inputs that it was exported with."""

    def __init__(self, path: Path) -> None:
        """Keeps where it is; it is read when something of it is asked for."""
        self._path = path

    @cached_property
    def _program(self) -> torch.export.ExportedProgram:
        return load_program(self._path)

    def get_eager_model(self) -> nn.Module:
        """Returns the program as a module."""
        module = self._program.module(check_guards=False)
        # They refuse: it was traced in one mode. It is not to be set in the other, so nothing is lost.
        del module.train, module.eval
        return module

    def get_example_inputs(self) -> Inputs:
        """Returns the positional inputs; raises ExportError where the file has none."""
        return self.examples()[0]

    def get_example_kwarg_inputs(self) -> Mapping[str, Any]:
        """Returns the keyword inputs."""
        return self.examples()[1]

    def get_dynamic_shapes(self) -> Any:  # noqa: ANN401 - torch.export's own nested form
        """Returns the dimensions that may vary up to a bound; None where none does."""
        if self.get_example_kwarg_inputs():
            return None
        ranges = self._program.range_constraints
        values = {
            node.name: node.meta.get("val")
            for node in self._program.graph.find_nodes(op="placeholder")
        }
        names = self._program.graph_signature.user_inputs
        shapes = [_varying(values.get(str(name)), ranges) for name in names]
        if not any(shapes):
            return None
        structure = self._program.call_spec.in_spec
        return None if structure is None else tree_unflatten(shapes, structure)[0]

    def examples(self) -> tuple[Inputs, Mapping[str, Any]]:
        """Returns the positional and keyword inputs; raises ExportError where the file has none."""
        examples = self._program.example_inputs
        if examples is None:
            raise ExportError(
                f"{self._path} was saved without inputs; give the shape of each with --input, such as "
                "--input 1x3x224x224"
            )
        positional, by_name = examples
        return positional, by_name


def _varying(value: object, ranges: Mapping[Any, Any]) -> dict[int, Any] | None:
    """Returns the dimensions of an input that may vary, each with its bounds."""
    if not isinstance(value, torch.Tensor):
        return None
    dimensions: dict[int, Any] = {}
    for axis, size in enumerate(value.shape):
        # A size that may vary is no int but a torch.SymInt, whatever torch's annotations say.
        symbol = getattr(getattr(size, "node", None), "expr", None)
        bounds = ranges.get(symbol)
        # Without a bound no memory can be planned: the size of the example stays.
        if bounds is not None and bounds.upper.is_finite:
            least, most = int(bounds.lower), int(bounds.upper)
            dimensions[axis] = torch.export.Dim(str(symbol), min=least, max=most)
    return dimensions or None


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Returns the program of a `.pt2` file; raises InputFileError for what is not read."""
    content = read_input(path, most_bytes=MOST_BYTES, way_out=_WAY_OUT)
    try:
        checked = _checked_copy(content)
        with _tensors_alone():
            return torch.export.load(checked)
    except _RefusedError as error:
        raise _refusal(path, str(error)) from error
    except EtprofError:
        raise
    # torch's reader raises whatever a damaged file leads it to.
    except Exception as error:
        raise _refusal(path, first_line(error)) from error


class _RefusedError(Exception):
    """Why an archive is not read."""


def _refusal(path: Path, reason: str) -> InputFileError:
    return InputFileError(f"cannot read {path}: {reason}; {_WAY_OUT}")


def _checked_copy(content: bytes) -> io.BytesIO:
    """Returns an archive of the checked parts alone: two readers may differ on one archive."""
    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(copy, "w") as written:
            members = archive.infolist()
            _check_members(members)
            for member in members:
                part = archive.read(member)
                _check_part(member.filename, part)
                written.writestr(member.filename, part)
    except _DAMAGED as error:
        raise _RefusedError(str(error) or type(error).__name__) from error
    copy.seek(0)
    return copy


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    if len(names) > MOST_PARTS or len({*names}) < len(names):
        raise _RefusedError(f"it has {len(names)} parts, or two of one name")
    if sum(member.file_size for member in members) > MOST_BYTES:
        raise _RefusedError(f"its parts unpack to more than {MOST_BYTES} bytes")
    models = [name for name in names if _MODEL.fullmatch(name)]
    if len(models) != 1:
        what = "no program of torch.export" if not models else f"{len(models)} programs, not one"
        raise _RefusedError(f"it holds {what}")
    for name in names:
        if _COMPILED.match(name):
            raise _RefusedError("it holds compiled code, which would be run")
        if _OBJECT.match(name):
            raise _RefusedError(f"{name} is a pickled object, which would be run")


def _check_part(name: str, content: bytes) -> None:
    """Raises _RefusedError for a part that torch's reader would do more than read."""
    if not (_CONFIG.fullmatch(name) or _MODEL.fullmatch(name)):
        return
    try:
        document = from_json(content)
    except ValueError as error:
        raise _RefusedError(f"{name} is no JSON ({error})") from error
    for expression in find_expressions(document):
        try:
            check_expression(_as_arithmetic(expression) if isinstance(expression, str) else "")
        except NotAnExpressionError as error:
            shown = str(expression)[:_SHOWN]
            raise _RefusedError(f"the expression {shown!r} is refused ({error})") from error
    for key, text in _texts(document):
        if key == "target" and (not _TARGET.fullmatch(text) or "__" in text):
            raise _RefusedError(f"a node calls {text[:_SHOWN]!r}, no operator of an export")
        if key == "path_name" and "_obj_" in text:
            raise _RefusedError(f"{text[:_SHOWN]} is a pickled object, which would be run")
        if key not in _UNUSED and not _NAME.fullmatch(text):
            raise _RefusedError(f"{text[:_SHOWN]!r} is not a name; it would be run as Python")


def _as_arithmetic(expression: str) -> str:
    """Returns how an expression is written in an ETRecord; torch.export writes SymPy's constructors.

    >>> _as_arithmetic("Mul(Integer(2), Symbol('s0', positive=True, integer=True))")
    'Max(2, s0)'
    """
    plain = _INTEGER.sub(r"\1", _SYMBOL.sub(r"\1", expression))
    # A sum and a product run no more, and make no larger number, than a function that may stand here.
    return _CONSTRUCTOR.sub("Max(", plain)


def _texts(document: object) -> Iterator[tuple[str, str]]:
    """Yields every text with the field that it is in, and every field as a text of its own."""
    waiting = [("", document)]
    while waiting:
        key, part = waiting.pop()
        if isinstance(part, list):
            waiting += [(key, entry) for entry in part]
        elif isinstance(part, dict):
            yield from (("", str(name)) for name in part)
            waiting += [item for item in part.items() if item[0] != "metadata"]
        elif isinstance(part, str) and part[:1] in {"[", "{"} and key not in _UNUSED:
            # How inputs and outputs are nested: JSON within JSON.
            waiting.append((key, _parsed(part)))
        elif isinstance(part, str):
            yield key, part


def _parsed(text: str) -> object:
    try:
        parsed: object = from_json(text)
    except ValueError as error:
        raise _RefusedError(f"{text[:_SHOWN]!r} is no JSON") from error
    return parsed


@contextmanager
def _tensors_alone() -> Iterator[None]:
    """Makes every `torch.load` refuse what is more than tensors, although torch's reader asks for more."""
    names = ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ[names[1]] = "1"
    try:
        yield
    finally:
        del os.environ[names[1]]
        os.environ.update({name: text for name, text in before.items() if text is not None})
